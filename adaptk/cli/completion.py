"""``adaptk --print-completion SHELL``: a script that completes commands, options and files in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adaptk.cli import options
from adaptk.cli.console import failing, guarded, print_text

SHELLS = ("bash", "zsh", "tcsh")
_FILES = (Path, options.json_file)  # types of options that name a file


class PrintCompletion(argparse.Action):
    """Prints the script and ends."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        try:
            import shtab
        except ModuleNotFoundError:
            parser.error("shtab is not installed, which writes the script: pip install 'adaptk[tools]'")
        _complete_files(parser, shtab.FILE)
        script = shtab.complete(parser, shell=str(values))

        def give() -> int:
            print_text(script)
            return 0

        parser.exit(guarded(give, failing("--print-completion")))


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Declare the option."""
    parser.add_argument("--print-completion", action=PrintCompletion, choices=SHELLS, metavar="SHELL",
                        help=f"print a script for {', '.join(SHELLS[:-1])} or {SHELLS[-1]}")  # fmt: skip


def _complete_files(parser: argparse.ArgumentParser, files: Mapping[str, Any]) -> None:
    """Let what names a file be completed by files, in the commands too."""
    for action in parser._actions:  # argparse has no public list of them; shtab reads it too
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                _complete_files(sub, files)
        elif action.type in _FILES:
            action.complete = files  # type: ignore[attr-defined]
