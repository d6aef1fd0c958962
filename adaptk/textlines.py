"""Lines of text of at most 80 columns, and tables of them: what commands print."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple

WIDTH = 80


class Line(NamedTuple):
    """One line and how it is shown where there are styles: ``title``, ``head``, ``own`` (a row of adaptk) or plain."""

    text: str
    style: str = ""


class Column(NamedTuple):
    """A column of a table: its heading, its width, and its cell; text in cells that are too long goes on below."""

    head: str
    width: int
    cell: Callable[[int], str]
    left: bool = False


def shortened(text: str, width: int) -> str:
    """The longest beginning of ``text`` of at most ``width`` that ends with a part of it, else with a word, else cut.

    Examples
    --------
    >>> shortened("a roofline: from datasheets; not measured", 30)
    'a roofline: from datasheets'
    """
    text = " ".join(text.split())
    if len(text) <= width:
        return text
    for ends in (r"[:;,.]? [(]|[:;,.] ", r" "):
        kept = [text[: end.start()] for end in re.finditer(ends, text) if end.start() <= width]
        if kept:
            return kept[-1]
    return text[: max(width, 0)]


def wrapped(text: str) -> list[str]:
    """``text`` in lines of at most 80 columns, names and percentages in one piece."""
    kept = text.replace(" %", "\0%").replace("% [", "%\0[")
    return [line.replace("\0", " ") for line in textwrap.wrap(kept, WIDTH, break_on_hyphens=False)]


def number(value: float | None, width: int, most: int = 1) -> str:
    """A number in at most ``width`` columns with at most ``most`` decimals; ``-`` where it is unknown.

    Examples
    --------
    >>> number(1234.56, 7), number(1234567.8, 7), number(1e12, 7), number(None, 7)
    ('1234.6', '1234568', '1.0e+12', '-')
    """
    if value is None or not math.isfinite(value):
        return "-"
    forms = [*(f"{value:z.{decimals}f}" for decimals in range(most, -1, -1)), f"{value:.1e}", f"{value:.0e}"]
    return next((form for form in forms if len(form) <= width), forms[-1])


def table(names: Sequence[str], columns: Sequence[Column], of: str = "policy") -> list[Line]:
    """Rows of ``columns`` behind a column of names, headed ``of``, that takes what room is left."""
    room = WIDTH - sum(column.width + 1 for column in columns)
    head = f"{of:<{room}}" + "".join(f" {_placed(column.head, column)}" for column in columns)
    lines = [Line(head.rstrip(), "head")]
    for i, name in enumerate(names):
        cells = [folded(name, room), *(folded(column.cell(i), column.width) for column in columns)]
        for j in range(max(map(len, cells))):
            first, *rest = (cell[j] if j < len(cell) else "" for cell in cells)
            texts = (_placed(text, column) for text, column in zip(rest, columns, strict=True))
            text = f"{first:<{room}}" + "".join(f" {text}" for text in texts)
            lines.append(Line(text.rstrip(), "own" if name == "adaptk" else ""))
    return lines


def folded(text: str, width: int) -> list[str]:
    """``text`` in pieces of at most ``width``, cut at line ends, else at blanks and hyphens; later ones indented."""
    pieces: list[str] = []
    for line in text.split("\n"):
        pieces += textwrap.wrap(line, width, initial_indent=" " if pieces else "", subsequent_indent=" ")
    return pieces or [""]


def _placed(text: str, column: Column) -> str:
    return f"{text:<{column.width}}" if column.left else f"{text:>{column.width}}"
