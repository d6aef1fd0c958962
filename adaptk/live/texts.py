"""Pieces of what is shown: numbers, spans of time and names in a fixed room, and marks that need no colour."""

from __future__ import annotations

import math
import unicodedata
from typing import NamedTuple

from adaptk.live.figures import drift_mark
from adaptk.live.gains import GUESSED, Gain
from adaptk.spans import Span, Spans

MODE_STYLES = {"on": "bold green", "shadow": "bold cyan", "off": "bold yellow"}
MARK_STYLES = {"": "", "!": "yellow", "!!": "bold red"}
GRAVE, MILD = "bold red", "yellow"


class View(NamedTuple):
    """What is shown: lines that stay, lines that scroll below them, and the one of these that should be seen."""

    fixed: list[Spans]
    scrolled: list[Spans]
    focus: int | None = None


def width_of(text: str) -> int:
    """Columns of a text in a terminal: two for wide signs, none for those that join the one before."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(sign) else 1 + (unicodedata.east_asian_width(sign) in "WF") for sign in text)


def fitted(text: str, room: int, tail: int = 0) -> str:
    """``text`` in exactly ``room`` columns: filled up with blanks, or cut with an ellipsis before its last ``tail``.

    Examples
    --------
    >>> fitted("batch", 7), fitted("127.0.0.1:9475", 8), fitted("127.0.0.1:9475", 10, tail=5)
    ('batch  ', '127.0.0…', '127.…:9475')
    """
    room = max(room, 0)
    if width_of(text) > room:
        end = text[len(text) - tail :]
        end = end if width_of(end) < room - 1 else ""
        signs = list(text[: len(text) - tail] if end else text)
        while signs and width_of("".join(signs)) + width_of(end) > room - 1:
            signs.pop()
        text = "".join(signs) + "…" + end if room else ""
    return text + " " * (room - width_of(text))


def cut(line: Spans, room: int) -> Spans:
    """A line in at most ``room`` columns."""
    kept: list[Span] = []
    for span in line:
        wide = width_of(span.text)
        if wide > room:
            return (*kept, Span(fitted(span.text, room).rstrip(), span.style))
        kept.append(span)
        room -= wide
    return tuple(kept)


def amount(value: float | None) -> str:
    """A count or rate in at most five columns.

    Examples
    --------
    >>> [amount(value) for value in (0.0, 0.042, 7.25, 41.2, 950.0, 12_345.0, 2.5e6, 3e10, 1e300, None)]
    ['0', '0.04', '7.2', '41.2', '950', '12.3k', '2.5M', '30.0G', '1e300', '-']
    """
    if value is None or not math.isfinite(value):
        return "-"
    for limit, scale, sign in ((1e3, 1.0, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M"), (1e12, 1e9, "G")):
        if abs(value) < 0.9995 * limit:
            shown = value / scale
            if abs(shown) >= 99.95 or (shown == round(shown) and not sign):
                return f"{shown:.0f}{sign}"
            return f"{shown:.{1 if abs(shown) >= 0.1 else 2}f}{sign}"
    return f"{value:.0e}".replace("e+", "e")


def milliseconds(seconds: float | None) -> str:
    """A time in milliseconds, in at most six columns.

    Examples
    --------
    >>> [milliseconds(value) for value in (0.01352, 0.1352, 1.352, 250.0, None)]
    ['13.52', '135.2', '1352', '250000', '-']
    """
    if seconds is None or not math.isfinite(seconds):
        return "-"
    value = 1e3 * seconds
    return f"{value:.2f}" if value < 99.995 else f"{value:.1f}" if value < 999.95 else f"{value:.0f}"[:6]


def percent(share: float | None, signed: bool = False) -> str:
    """A share in per cent.

    Examples
    --------
    >>> percent(0.915), percent(None), [percent(share, signed=True) for share in (0.123, -0.0001, 25.0)]
    ('92 %', '-', ['+12.3 %', '+0.0 %', '+2500 %'])
    """
    if share is None or not math.isfinite(share):
        return "-"
    value = 100.0 * share
    if not signed:
        return f"{value:.0f} %"
    return f"{value:+z.1f} %" if abs(value) < 99.95 else f"{value:+.0f} %" if abs(value) < 99_999 else f"{value:+.0e} %"


def since(seconds: float) -> str:
    """A span of time in one unit.

    Examples
    --------
    >>> since(0.25), since(42.4), since(150.0), since(9_000.0), since(400_000.0)
    ('0.2 s', '42 s', '2 min', '2.5 h', '4.6 d')
    """
    if seconds < 10.0:
        return f"{seconds:.1f} s"
    if seconds < 120.0:
        return f"{seconds:.0f} s"
    if seconds < 5_400.0:
        return f"{seconds / 60.0:.0f} min"
    return f"{seconds / 3_600.0:.1f} h" if seconds < 172_800.0 else f"{seconds / 86_400.0:.1f} d"


def drifted(ratio: float | None, room: int, unit: str = " %") -> Span:
    """How far a step time is off the table's, in per cent, with its mark."""
    mark = drift_mark(ratio)
    share = percent(None if ratio is None else ratio - 1.0, signed=True).removesuffix(" %")
    return Span(f"{share + ('' if ratio is None else unit):>{room - 2}}{mark:<2}", MARK_STYLES[mark])


def gained(gain: Gain, room: int, unit: str = " %") -> Span:
    """A gain in tokens, in per cent, green or red where it is more than half a per cent and no guess."""
    share = gain.share
    style = "" if share is None or gain.guessed or abs(share) < 0.005 else "green" if share > 0.0 else "red"
    text = percent_gained(gain).removesuffix(" %") + ("" if share is None else unit)
    return Span(f"{text:>{room}}", style)


def percent_gained(gain: Gain) -> str:
    """A gain in per cent, with its mark where it is a guess.

    Examples
    --------
    >>> percent_gained(Gain(0.123)), percent_gained(Gain(0.123, guessed=True)), percent_gained(Gain(None))
    ('+12.3 %', '~+12.3 %', '-')
    """
    return (GUESSED if gain.guessed else "") + percent(gain.share, signed=True)


def model_name(name: str) -> str:
    """A model's name: of a path its last part.

    Examples
    --------
    >>> model_name("org/model-8B"), model_name("/models/org/model-8B/"), model_name("")
    ('org/model-8B', 'model-8B', '?')
    """
    return (name.rstrip("/").rsplit("/", 1)[-1] if name.startswith("/") else name) or "?"
