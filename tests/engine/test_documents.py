"""What the pages show of vLLM is read by vLLM itself: command lines of its server, and Python around its engine."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adaptk.cli.main import parser
from adaptk.vllm_plugin import adaptive
from adaptk.vllm_plugin.serveargs import engine_args
from tests.docs.documents import Block, Command, all_commands, blocks
from tests.docs.test_python import NEED_VLLM
from tests.engine.conftest import Lines
from tests.engine.driver import build_config, build_scheduler

PASSING_ON = ("profile", "doctor")


def lines_for_vllm() -> list[Command]:
    """``vllm serve`` lines, and what commands of adaptk's pass on to it."""
    passing = [command for command in all_commands("adaptk") if command.words[1] in PASSING_ON]
    return [*all_commands("vllm"), *passing]


@pytest.mark.parametrize("command", lines_for_vllm(), ids=str)
def test_vllms_own_parser_takes_it(command: Command, model: Path) -> None:
    """With speculation, and with a mode of adaptk's where it says so in vLLM's arguments."""
    words = list(command.words[2:])
    if command.words[0] == "adaptk":
        arguments, words = parser().parse_known_args(list(command.words[1:]))
        if not words:  # from traces, or resumed: no engine of its own
            assert command.words[1] == "doctor" or arguments.resume or arguments.from_traces
            return
    assert words[0] == "MODEL"
    read = engine_args([str(model), *words[1:]])
    assert read.speculative_config["num_speculative_tokens"] == 7
    if any("adaptk" in word for word in words):
        assert read.additional_config["adaptk"]


class Recorded:
    """Stands for ``vllm.LLM``: checks the arguments as it would, and starts nothing."""

    def __init__(self, model: str, **arguments: Any) -> None:
        from vllm.engine.arg_utils import EngineArgs

        self.config = EngineArgs(model=model, **arguments).create_engine_config()

    def generate(self, prompts: list[str]) -> list[Any]:
        return [SimpleNamespace(outputs=[SimpleNamespace(text="")]) for _ in prompts]


def with_vllm() -> list[Block]:
    """Python that is about vLLM."""
    return [block for block in blocks("python") if any(name in block.text for name in NEED_VLLM)]


@pytest.mark.parametrize("block", with_vllm(), ids=str)
def test_python_around_vllm(block: Block, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs where it says: with a model's folder, or beside a scheduler that adaptk steers."""
    import vllm

    monkeypatch.setattr(vllm, "LLM", Recorded)
    scheduler = build_scheduler(adaptive(_scheduler_class()), build_config(model))
    names: dict[str, Any] = {"MODEL": str(model), "scheduler": scheduler}
    exec(compile(block.text, str(block), "exec"), names)
    if "llm" in names:
        assert names["llm"].config.speculative_config.num_speculative_tokens == 7
        assert names["llm"].config.additional_config["adaptk"]["mode"] == "on"
    assert "vllm" in sys.modules


def test_the_line_to_look_for_is_the_one_that_is_logged(
    model: Path, log: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apart from numbers the README shows what an active adaptk says first."""
    monkeypatch.setenv("ADAPTK", "shadow")
    build_scheduler(adaptive(_scheduler_class()), build_config(model, schedule=[[1, 16, 7]]))
    (said,) = log.having("model runner")
    (shown,) = [block.text for block in blocks("text") if "model runner" in block.text]
    assert _without_numbers(shown) == _without_numbers(
        said.removeprefix("INFO ").replace(", seeded by the configured schedule", "")
    )


def _without_numbers(line: str) -> str:
    """A line of the log without lists, numbers and what stands in brackets."""
    return " ".join(re.sub(r"\[\[.*?\]\]|\([^)]*\)|\d[\d.]*\d?", "", " ".join(line.split())).split())


def _scheduler_class() -> Any:
    from vllm.v1.core.sched.scheduler import Scheduler

    return Scheduler
