"""The replay's result as lines of text of at most 80 columns."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from adaptk.replay.intervals import Interval
from adaptk.replay.views import glossary
from adaptk.replay.views.aggregate import Overall, Summary, Worst
from adaptk.textlines import WIDTH, Column, Line, folded, number, shortened, table, wrapped

MOST_INDENT = 24  # of what is said about a name


def scenario_lines(about: Sequence[str], parts: Sequence[Summary], said: str = "") -> list[Line]:
    """The table of one scenario below what it is about, a line or more for each, and above what is ``said`` of it.

    A column stands only where there is something to fill it with.
    """
    columns = [
        Column("oracle [90 %]", 19, lambda i: interval(parts[i].oracle)),
        Column("table", 5, lambda i: ratio(parts[i].table.value)),
        Column("tok/s", 7, lambda i: number(parts[i].tokens_per_s, 7)),
        Column("sw/1k", 6, lambda i: number(parts[i].switches_per_1000, 6)),
        Column("<K=0", 6, lambda i: share(parts[i].below_k0)),
    ]
    if any(part.latency_ms is not None for part in parts):
        columns.append(Column("ms/tok", 6, lambda i: number(parts[i].latency_ms, 6)))
    if any(part.passed is not None for part in parts):
        columns.append(Column("passed", 6, lambda i: passes(parts[i].passed, parts[i].seeds)))
    first, *rest = about
    title = [Line(text, "title") for text in wrapped(first)] + [Line(text) for more in rest for text in wrapped(more)]
    return [*title, *table([part.policy for part in parts], columns), *(Line(text, "own") for text in wrapped(said))]


def overall_lines(parts: Sequence[Overall], scenarios: int, closely: Collection[str]) -> list[Line]:
    """The tables over all scenarios: means, then the worst scenario of the policies to be looked at ``closely``."""
    means = [
        Column("oracle [90 %]", 19, lambda i: interval(parts[i].oracle)),
        Column("table [90 %]", 19, lambda i: interval(parts[i].table)),
        Column("in", 5, lambda i: str(parts[i].scenarios)),
        Column("passed", 9, lambda i: passes(parts[i].passed if parts[i].judged else None, parts[i].judged)),
    ]
    few = [part for part in parts if part.policy in closely]
    worst = [
        Column("lowest oracle ratio", 27, lambda i: _worst(few[i].worst_by_oracle), left=True),
        Column("lowest table ratio", 27, lambda i: _worst(few[i].worst_by_table), left=True),
    ]
    about = f"All {scenarios} scenarios: geometric means; intervals over seeds, for these scenarios"
    lines = [Line(text, "title") for text in wrapped(about)]
    lines += table([part.policy for part in parts], means)
    if few:
        names = [part.policy for part in few]
        lines += [Line(""), Line("Worst scenario", "title"), *table(names, worst)]
    return lines


def legend(waits: bool, checked: bool) -> list[Line]:
    """What the columns mean; with ``waits`` those of request logs too, with ``checked`` those of scenarios."""
    return [Line(line) for line in wrapped(glossary.legend(waits, checked))]


def listing(entries: Sequence[tuple[str, str]]) -> list[str]:
    """A line for each name with what is said about it; the latter begins at one place except behind long names."""
    indent = max((len(name) for name, _ in entries if len(name) <= MOST_INDENT), default=0)
    lines = []
    for given, about in entries:
        name = folded(" ".join(given.split()), WIDTH)[0]
        lines.append(f"{name:<{indent}}  {shortened(about, WIDTH - 2 - max(indent, len(name)))}".rstrip())
    return lines


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


def share(value: float) -> str:
    """A share in percent in at most 6 columns; ``-`` where it is unknown.

    Examples
    --------
    >>> share(0.00123), share(1.0), share(math.nan)
    ('0.1 %', '100 %', '-')
    """
    return "-" if math.isnan(value) else f"{number(100.0 * value, 4)} %"


def ratio(value: float) -> str:
    """A ratio in 5 columns; ``-`` where it is unknown."""
    return number(value, 5, most=3)


def passes(passed: int | None, of: int) -> str:
    """``passed/of``, or ``-`` where nothing was judged."""
    return "-" if passed is None else f"{passed}/{of}"


def _worst(worst: Worst) -> str:
    return f"{interval(worst.ratio)}\n{worst.scenario}" if worst.scenario else "-"
