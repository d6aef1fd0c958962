"""What options of the commands may hold, read and checked."""

from __future__ import annotations

import argparse
import math
import textwrap
from collections.abc import Callable
from pathlib import Path

from adaptk.textlines import WIDTH

STDOUT = "-"  # of --json without a file


def count(text: str) -> int:
    """A whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number of at least 1")
    return value


def counts(text: str) -> tuple[int, ...]:
    """Whole numbers of at least 1 with commas between them, rising."""
    return tuple(sorted({count(part) for part in text.split(",")}))


def arms(text: str) -> tuple[int, ...]:
    """Numbers of drafts with commas between them, rising."""
    try:
        ks = {int(k) for k in text.split(",")}
    except ValueError:
        ks = {-1}
    if min(ks) < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: give whole numbers with commas, none below 0, as 0,1,3,7")
    return tuple(sorted(ks))


def acceptance(text: str) -> tuple[float, ...]:
    """Conditional acceptance per position with commas between them."""
    try:
        shares = tuple(float(share) for share in text.split(","))
    except ValueError:
        shares = ()
    if not shares or not all(0.0 <= share <= 1.0 for share in shares):
        raise argparse.ArgumentTypeError(f"{text!r}: give shares from 0 to 1 with commas, as 0.8,0.7,0.6")
    return shares


def number(holds: Callable[[float], bool], what: str) -> Callable[[str], float]:
    """An option's type: a number for which ``holds``; the refusal says to give ``what``."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan  # nothing holds for it
        if not holds(value):
            raise argparse.ArgumentTypeError(f"{text!r}: give {what}")
        return value

    return read


def add_example(parser: argparse.ArgumentParser, text: str) -> None:
    """Show ``text`` at the end of the help as it stands; lines that begin with two blanks can be pasted."""
    parser.epilog, parser.formatter_class = text, argparse.RawDescriptionHelpFormatter
    if parser.description is not None:  # that formatter would leave it in one line too
        parser.description = textwrap.fill(parser.description, WIDTH)


def add_json(parser: argparse.ArgumentParser, what: str, file: bool = False) -> None:
    """Declare ``--json``: ``what`` as one document on standard output, in place of the text.

    With ``file`` it may name a file, and the text is shown. ``arguments.json`` is ``None``, :data:`STDOUT` or a path.
    """
    if not file:
        parser.add_argument("--json", action="store_const", const=STDOUT, help=f"print {what} as JSON, nothing else")
        return
    said = f"print {what} as JSON, nothing else; or write it to FILE.json, beside the text"
    parser.add_argument("--json", type=json_file, nargs="?", const=STDOUT, metavar="FILE.json", help=said)


def json_file(text: str) -> Path | str:
    """The file of ``--json FILE``; by its ending, so that what follows a bare ``--json`` is not taken for a file."""
    if text == STDOUT:
        return STDOUT
    if not text.endswith(".json"):
        raise argparse.ArgumentTypeError(f"{text!r}: give a file that ends in .json, or write --json last")
    return Path(text)
