"""The replay's result as lines of text of at most 80 columns."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple

from adaptk.replay.aggregate import Overall, Summary, Worst
from adaptk.replay.intervals import Interval

WIDTH = 80
LEGEND = (
    "oracle: goodput over that of the clairvoyant oracle, geometric mean of the seeds with its 90 % interval; table: "
    "the same over the static table (or the largest K where there is none). The rest are medians: sw/1k, changes of K "
    "per 1,000 steps; expl ms, lost while exploring"
)


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


def scenario_lines(name: str, about: str, parts: Sequence[Summary], checked: bool) -> list[Line]:
    """The table of one scenario; without ``checked`` nothing is said of passes."""
    columns = [
        Column("oracle [90 %]", 19, lambda i: interval(parts[i].oracle)),
        Column("table", 5, lambda i: ratio(parts[i].table.value)),
        Column("tok/s", 7, lambda i: number(parts[i].tokens_per_s, 7)),
        Column("sw/1k", 6, lambda i: number(parts[i].switches_per_1000, 6)),
        Column("expl ms", 7, lambda i: number(parts[i].explore_ms, 7)),
    ]
    if any(part.latency_ms is not None for part in parts):
        columns.append(Column("ms/tok", 6, lambda i: number(parts[i].latency_ms, 6)))
    if checked:
        columns.append(Column("passed", 6, lambda i: passes(parts[i].passed, parts[i].seeds)))
    title = [Line(text, "title") for text in wrapped(f"{name}: {about}")]
    return [*title, *_table([part.policy for part in parts], columns)]


def overall_lines(parts: Sequence[Overall], scenarios: int) -> list[Line]:
    """The tables over all scenarios: means, then the worst scenario of each policy."""
    means = [
        Column("oracle [90 %]", 19, lambda i: interval(parts[i].oracle)),
        Column("table [90 %]", 19, lambda i: interval(parts[i].table)),
        Column("in", 5, lambda i: str(parts[i].scenarios)),
        Column("passed", 9, lambda i: passes(parts[i].passed if parts[i].judged else None, parts[i].judged)),
    ]
    worst = [
        Column("lowest oracle ratio", 27, lambda i: _worst(parts[i].worst_by_oracle), left=True),
        Column("lowest table ratio", 27, lambda i: _worst(parts[i].worst_by_table), left=True),
    ]
    names = [part.policy for part in parts]
    about = f"All {scenarios} scenarios: geometric means; intervals over seeds, for these scenarios"
    lines = [Line(text, "title") for text in wrapped(about)]
    return [*lines, *_table(names, means), Line(""), Line("Worst scenario of each policy", "title"),
            *_table(names, worst)]  # fmt: skip


def legend(waits: bool, checked: bool) -> list[Line]:
    """What the columns mean; with ``waits`` those of request logs too, with ``checked`` those of scenarios."""
    text = LEGEND + ("; ms/tok, time since arrival per token of the answer." if waits else ".")
    if checked:
        text += " passed: seeds in which every check of the scenario holds."
    return [Line(line) for line in wrapped(text)]


def listing(entries: Sequence[tuple[str, str]]) -> list[str]:
    """Names with what is said about them, the latter indented to one place; long names stand on their own line."""
    indent = min(max((len(name) for name, _ in entries), default=0), 24) + 2
    lines = []
    for given, about in entries:
        name = " ".join(given.split())
        first, *rest = textwrap.wrap(about, WIDTH - indent) or [""]
        if len(name) > indent - 2:
            lines += [*textwrap.wrap(name, WIDTH), f"{'':<{indent}}{first}"]
        else:
            lines.append(f"{name:<{indent}}{first}".rstrip())
        lines += [f"{'':<{indent}}{text}" for text in rest]
    return lines


def wrapped(text: str) -> list[str]:
    """``text`` in lines of at most 80 columns."""
    return textwrap.wrap(text, WIDTH)


def interval(value: Interval) -> str:
    """A ratio with its interval in at most 19 columns; the ratio alone where there is no interval.

    Examples
    --------
    >>> interval(Interval(0.98765, 0.9812, 0.9953))
    '0.988 [0.981,0.995]'
    """
    if math.isnan(value.low):
        return ratio(value.value)
    return f"{ratio(value.value)} [{ratio(value.low)},{ratio(value.high)}]"


def ratio(value: float) -> str:
    """A ratio in 5 columns; ``-`` where it is unknown."""
    return number(value, 5, most=3)


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


def passes(passed: int | None, of: int) -> str:
    """``passed/of``, or ``-`` where nothing was judged."""
    return "-" if passed is None else f"{passed}/{of}"


def _worst(worst: Worst) -> str:
    return f"{interval(worst.ratio)}\n{worst.scenario}" if worst.scenario else "-"


def _table(names: Sequence[str], columns: Sequence[Column]) -> list[Line]:
    """Rows of ``columns`` behind a column of names that takes what room is left."""
    room = WIDTH - sum(column.width + 1 for column in columns)
    head = f"{'policy':<{room}}" + "".join(f" {_placed(column.head, column)}" for column in columns)
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
