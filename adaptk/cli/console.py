"""What commands show: lines with styles on a terminal, and a progress bar."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from adaptk.demo.progress import Progress

if TYPE_CHECKING:
    from adaptk.textlines import Line


class Ticker:
    """A progress bar on standard error where that is a terminal; nothing elsewhere."""

    def __init__(self, what: str, total: int) -> None:
        self._progress = Progress() if sys.stderr is not None and sys.stderr.isatty() and total else None
        self._what, self._total = what, total

    def __enter__(self) -> Ticker:
        if self._progress is not None:
            self._progress.__enter__()
            self._progress.begin(self._what, self._total)
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.__exit__(None, None, None)

    def __call__(self, what: str) -> None:
        """Count one piece as finished."""
        if self._progress is not None:
            self._progress.done(what)


def accept_any_sign() -> None:
    """Let signs that standard output has not be replaced: names in a file, and paths, may hold any."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def print_lines(lines: Sequence[Line]) -> None:
    """Print lines, with styles where there is a terminal and rich; a reader that has gone away is no error."""
    if sys.stdout is None:  # closed before the start
        return
    try:
        if sys.stdout.isatty() and find_spec("rich") is not None:
            _print_styled(lines)
        else:
            print("\n".join(line.text for line in lines), flush=True)
    except BrokenPipeError:
        discard_output()


def guarded(command: Callable[[], int], fail: Callable[[str, int], int]) -> int:
    """The exit status of a command; what stops it is told by ``fail``, which is given words and a status."""
    try:
        return command()
    except ValueError as error:  # of what was asked for and of files: all say what to do
        return fail(str(error), 1)
    except OSError as error:  # of standard output: a full disk
        discard_output()
        return fail(f"what came out cannot be shown ({error})", 1)
    except KeyboardInterrupt:
        return fail("interrupted", 130)


def discard_output() -> None:
    """Let standard output go nowhere after it failed: else the flush at the exit fails too, with its own status."""
    with suppress(AttributeError, OSError, ValueError):  # none, no file behind it, or closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_styled(lines: Sequence[Line]) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    styles = {"title": "bold", "head": "underline", "own": "bold cyan", "": None}
    for line in lines:
        console.print(line.text, style=styles[line.style])
