"""What commands show: lines with styles on a terminal, documents, errors, and a progress bar."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from adaptk.outputs import write_whole
from adaptk.progress import Progress
from adaptk.quoted import visible
from adaptk.spans import Span, Spans, plain

if TYPE_CHECKING:
    from pathlib import Path

    from adaptk.textlines import Line

_STYLES = {"title": "bold", "head": "underline", "own": "bold cyan", "": ""}


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
    print_spans([(Span(line.text, _STYLES[line.style]),) for line in lines])


def print_spans(lines: Sequence[Spans]) -> None:
    """Print lines whose pieces have styles of their own, as :func:`print_lines` does."""
    if sys.stdout is None or not sys.stdout.isatty() or find_spec("rich") is None:
        print_text("\n".join(map(plain, lines)))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, markup=False, soft_wrap=True)
    try:
        for line in lines:
            console.print(Text.assemble(*((visible(span.text), span.style) for span in line)))
    except BrokenPipeError:
        discard_output()


def print_text(text: str) -> None:
    """Print text, less what would steer a terminal, as names in a file may.

    A reader that has gone away, and an output closed from the start, are no errors.
    """
    if sys.stdout is None:
        return
    try:
        print(visible(text), flush=True)
    except BrokenPipeError:
        discard_output()


def print_json(document: Any) -> None:
    """Print a document of structs, lists and plain values."""
    print_text(formatted(document))


def print_encoded(text: str) -> None:
    """Print JSON that is text already."""
    print_text(_escaped(text).rstrip())


def write_json(path: Path, document: Any) -> None:
    """Write the same document to a file, whole.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    write_whole(path, formatted(document).encode() + b"\n")


def formatted(document: Any) -> str:
    """A document as JSON, indented; signs that cannot be seen are escaped, so that a terminal may show it."""
    import msgspec

    return _escaped(msgspec.json.format(msgspec.json.encode(document), indent=1).decode())


def _escaped(text: str) -> str:
    """JSON of the same meaning; outside strings only ends of lines and tabs cannot be seen."""
    if visible(text) == text:
        return text
    return "".join(sign if sign.isprintable() or sign in "\n\t" else json.dumps(sign)[1:-1] for sign in text)


def tell(text: str) -> None:
    """Print a line on standard error, if anybody may read it there."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(visible(text), file=sys.stderr, flush=True)


class Fail(Protocol):
    """Tells an error and hands the exit status through."""

    def __call__(self, message: str, status: int = 1) -> int:
        """Print it on standard error."""
        ...


def failing(command: str) -> Fail:
    """What tells the errors of ``adaptk COMMAND``."""

    def fail(message: str, status: int = 1) -> int:
        tell(f"adaptk {command}: {message}")
        return status

    return fail


def guarded(command: Callable[[], int], fail: Callable[[str, int], int], status: int = 1) -> int:
    """The exit status of a command; what stops it is told by ``fail``, which is given words and ``status``."""
    try:
        return command()
    except ValueError as error:  # of what was asked for and of files: all say what to do
        return fail(str(error), status)
    except BrokenPipeError:  # whoever read it has gone away, and wants no more
        discard_output()
        return 0
    except OSError as error:  # of standard output: a full disk
        discard_output()
        return fail(f"what came out cannot be shown ({error})", status)
    except KeyboardInterrupt:
        return fail("interrupted", 130)


def discard_output() -> None:
    """Let standard output go nowhere after it failed: else the flush at the exit fails too, with its own status."""
    with suppress(AttributeError, OSError, ValueError):  # none, no file behind it, or closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
