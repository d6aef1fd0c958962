"""Which rows of a table answer at a mean context."""

from __future__ import annotations

from adaptk.table import GoodputTable
from adaptk.tablerows import TableRow


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
