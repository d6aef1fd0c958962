"""The arguments of ``vllm serve``, read by vLLM's own parser."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

# Options that load a drafter, of any version.
_OF_DRAFTERS = ("speculative_config", "spec_method", "spec_model", "spec_tokens")
# Where the parser of vllm serve is, newest first.
_PARSERS = (
    "vllm.entrypoints.common.cli_args",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.openai.cli_args",
)


class ArgumentsError(ValueError):
    """vLLM refuses an argument; the message is its own."""


def engine_args(arguments: Sequence[str], drafter: bool = True) -> Any:
    """vLLM's ``EngineArgs`` of a command line for ``vllm serve``; what concerns its front end alone is let pass.

    Raises
    ------
    ArgumentsError
        If vLLM does not know an argument, or there is no model.
    """
    given = _config_apart(arguments)
    parser = _parser()
    parsed = parser.parse_args(given)
    model = getattr(parsed, "model_tag", None)
    if model is not None:
        parsed.model = model
    elif not any(part.partition("=")[0] in ("--model", "--config") for part in given):
        raise ArgumentsError("no model is named: give what vllm serve would be given, the model first")
    if not drafter:
        for name in _OF_DRAFTERS:
            if hasattr(parsed, name):
                setattr(parsed, name, None)
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs.from_cli_args(parsed)


def _config_apart(arguments: Sequence[str]) -> list[str]:
    """``--config=FILE`` as two parts: vLLM's parser does not see it otherwise."""
    given: list[str] = []
    for part in arguments:
        given += part.split("=", 1) if part.startswith("--config=") else [part]
    return given


def _parser() -> argparse.ArgumentParser:
    from importlib import import_module

    for name in _PARSERS:
        try:
            module = import_module(name)
        except ModuleNotFoundError:
            continue
        parser: argparse.ArgumentParser = module.make_arg_parser(_class()())
        return parser
    raise ArgumentsError("this vLLM keeps the parser of vllm serve in a place that adaptk does not know: use another")


def _class() -> type[argparse.ArgumentParser]:
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    class Parser(FlexibleArgumentParser):
        """Raises where the original prints its usage, of hundreds of lines, and exits."""

        def error(self, message: str) -> NoReturn:
            raise ArgumentsError(message)

    return Parser
