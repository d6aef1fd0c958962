"""Lines made of pieces with styles of their own, for what one style a line cannot show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Span(NamedTuple):
    """A piece of a line, and its style in the words of rich; empty: none."""

    text: str
    style: str = ""


Spans = tuple[Span, ...]


def plain(line: Iterable[Span]) -> str:
    """The line without styles.

    Examples
    --------
    >>> plain([Span("K=3", "bold"), Span(" is best  ")])
    'K=3 is best'
    """
    return "".join(span.text for span in line).rstrip()
