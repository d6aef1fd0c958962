"""Which rows of a table answer at a mean context, and which levels of two tables are the same."""

from __future__ import annotations

from collections.abc import Sequence
from operator import or_

from adaptk.table import GoodputTable
from adaptk.tablerows import TableRow

ALIKE = 0.1
"""Levels of two tables that are not further apart, as a share of the larger one, are taken for the same."""


def level_of(table: GoodputTable, context: float | None) -> float | None:
    """The level of context whose rows answer a question, ``None`` for the rows without one; where it lies between
    levels the nearer one."""
    levels = table.contexts
    if not levels or (context is None and any(row.context is None for row in table.rows)):
        return None
    if context is None:
        return levels[(len(levels) - 1) // 2]
    return min(levels, key=lambda level: abs(level - context))


def rows_at(table: GoodputTable, context: float | None) -> list[TableRow]:
    """The rows of the level that answers; none where ``context`` lies between two levels, as nothing was measured."""
    level = level_of(table, context)
    between = context is not None and level is not None and level != context
    inside = between and context is not None and table.contexts[0] < context < table.contexts[-1]
    return [] if inside else [row for row in table.rows if row.context == level]


def between_levels(table: GoodputTable, context: float | None) -> bool:
    """Whether a mean context lies between two levels, so that nothing was measured at it."""
    return bool(table.contexts) and context is not None and not rows_at(table, context)


def same_levels(first: Sequence[float], second: Sequence[float]) -> list[tuple[float, float]]:
    """Levels of two tables that are alike, each at most once and in order, the nearest taken first; rising.

    Examples
    --------
    >>> same_levels([83.0, 512.0, 4096.0], [80.0, 4096.0, 4300.0])
    [(83.0, 80.0), (4096.0, 4096.0)]
    """
    apart = sorted(
        (abs(one - other) / max(one, other, 1e-300), one, other)
        for one in first
        for other in second
        if abs(one - other) <= ALIKE * max(one, other)
    )
    pairs: list[tuple[float, float]] = []
    for _, one, other in apart:
        below = [mine < one and theirs < other for mine, theirs in pairs]
        above = [mine > one and theirs > other for mine, theirs in pairs]
        if all(map(or_, below, above)):  # neither is taken, and order is kept
            pairs.append((one, other))
    return sorted(pairs)
