"""Two tables side by side: what was measured, each cell, the acceptance, and the K that they choose."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from adaptk.schedule import merge_runs
from adaptk.table import GoodputTable
from adaptk.tablekey import differences
from adaptk.tablerows import MAX_BATCH, TableRow
from adaptk.tabletools.levels import same_levels
from adaptk.tabletools.survey import goodputs

_Z95 = 1.96
_LARGEST = 8192  # batch sizes that decisions are compared at, at most


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """A cell that both have: step times, the second over the first, and whether each lies outside the other's 95 %.

    ``context`` is the first table's. ``apart`` is ``None`` where one of the two has no interval.
    """

    batch: int
    k: int
    context: float | None
    first_ms: float
    second_ms: float
    ratio: float
    apart: bool | None


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """Acceptance at a draft position (from 1); ``apart`` by the trials of both, ``None`` where these are unknown."""

    position: int
    first: float | None
    second: float | None
    apart: bool | None


class Levels(msgspec.Struct, frozen=True, kw_only=True):
    """Levels of context, a little apart, that are taken for the same."""

    first: float
    second: float


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Batch sizes at which the best K differs, and what the other table's K costs there by each table's own figures.

    ``context`` is the first table's, and the second is asked at its own level where that is taken for the same.
    ``cost_by_first`` is what the second's K loses if the first table is right, as a share of goodput, the mean over
    the batch sizes; ``cost_by_second`` the reverse. ``None`` for a table without times.
    """

    context: float | None
    first_batch: int
    last_batch: int
    first_k: int
    second_k: int
    cost_by_first: float | None
    cost_by_second: float | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All differences; ``same_decisions`` if both choose the same K at every batch size up to ``max_batch``."""

    key: list[str]
    levels: list[Levels]
    ratios: list[Ratio]
    interpolated: bool
    only_first: int
    only_second: int
    acceptance: list[Share]
    choices: list[Choice]
    max_batch: int
    same_decisions: bool


def compare(
    first: GoodputTable, second: GoodputTable, context: float | None = None, max_batch: int | None = None
) -> Comparison:
    """What differs between two tables.

    Parameters
    ----------
    first, second
        The tables.
    context
        Mean context at which decisions are compared; ``None``: at the levels that both have, else without one. Levels
        within 10 % of each other count as the same.
    max_batch
        Largest batch size that decisions are compared at; ``None``: the largest of either, at least 512.

    Raises
    ------
    TableError
        If an argument is out of range.

    Examples
    --------
    >>> rows = [{"batch": 8, "k": k, "itl_ms": 5.0 + k} for k in (0, 3)]
    >>> one, other = (GoodputTable.from_rows(rows, [share]) for share in (0.8, 0.2))
    >>> [(choice.first_batch, choice.first_k, choice.second_k) for choice in compare(one, other).choices]
    [(1, 3, 0)]
    """
    last = _last(first, second) if max_batch is None else max_batch
    pairs = same_levels(first.contexts, second.contexts)
    as_first: dict[float | None, float] = {other: one for one, other in pairs}
    mine = {(row.batch, row.k, row.context): row for row in first.rows}
    theirs = {(row.batch, row.k, as_first.get(row.context, row.context)): row for row in second.rows}
    common = mine.keys() & theirs.keys()
    ratios = [_ratio(mine[cell], theirs[cell]) for cell in common] or _interpolated(first, second)
    asked: Sequence[tuple[float | None, float | None]] = [(context, context)]
    if context is None:
        asked = pairs or [(None, None)]
    choices = [choice for both in asked for choice in _choices(first, second, both, last)]
    return Comparison(
        key=differences(first.key, second.key),
        levels=[Levels(first=one, second=other) for one, other in pairs if one != other],
        ratios=sorted(ratios, key=lambda each: (-abs(math.log(each.ratio)), each.context or 0.0, each.batch, each.k)),
        interpolated=bool(ratios) and not common,
        only_first=len(mine.keys() - theirs.keys()),
        only_second=len(theirs.keys() - mine.keys()),
        acceptance=_acceptance(first, second),
        choices=choices,
        max_batch=last,
        same_decisions=not choices,
    )


def _last(first: GoodputTable, second: GoodputTable) -> int:
    ends = [512, *first.batches[-1:], *second.batches[-1:]]
    ends += [triple[0] for table in (first, second) for triple in (table.schedule or ())[-1:]]
    return min(max(ends), _LARGEST, MAX_BATCH)


def _ratio(mine: TableRow, theirs: TableRow) -> Ratio:
    apart = None
    if None not in (mine.low_ms, mine.high_ms, theirs.low_ms, theirs.high_ms):
        apart = not _holds(mine, theirs.itl_ms) and not _holds(theirs, mine.itl_ms)
    return Ratio(
        batch=mine.batch,
        k=mine.k,
        context=mine.context,
        first_ms=mine.itl_ms,
        second_ms=theirs.itl_ms,
        ratio=theirs.itl_ms / mine.itl_ms,
        apart=apart,
    )


def _interpolated(first: GoodputTable, second: GoodputTable) -> list[Ratio]:
    """The first table's cells beside what the second answers there."""
    if not second.has_times:
        return []
    return [_ratio(row, _answer(second, row)) for row in first.rows]


def _answer(table: GoodputTable, row: TableRow) -> TableRow:
    itl_ms = table.itl_ms(row.batch, row.k, row.context)
    return msgspec.structs.replace(row, itl_ms=itl_ms, low_ms=None, high_ms=None)


def _holds(row: TableRow, itl_ms: float) -> bool:
    return row.low_ms is not None and row.high_ms is not None and row.low_ms <= itl_ms <= row.high_ms


def _acceptance(first: GoodputTable, second: GoodputTable) -> list[Share]:
    """Positions at which the two differ."""
    mine, theirs = first.acceptance or (), second.acceptance or ()
    shares = []
    for i in range(max(len(mine), len(theirs))):
        one, other = (values[i] if i < len(values) else None for values in (mine, theirs))
        if one != other:
            shares.append(Share(position=i + 1, first=one, second=other, apart=_unlike(first, second, i)))
    return shares


def _unlike(first: GoodputTable, second: GoodputTable, position: int) -> bool | None:
    """Whether two shares differ by more than their trials explain (a normal test at 5 %)."""
    counts = [table.acceptance_counts or () for table in (first, second)]
    if any(position >= len(each) or each[position][1] == 0 for each in counts):
        return None
    pairs = [each[position] for each in counts]
    total = sum(accepted for accepted, _ in pairs) / sum(tried for _, tried in pairs)
    error = math.sqrt(total * (1.0 - total) * sum(1.0 / tried for _, tried in pairs))
    return abs(pairs[0][0] / pairs[0][1] - pairs[1][0] / pairs[1][1]) > _Z95 * error


def _choices(
    first: GoodputTable, second: GoodputTable, contexts: tuple[float | None, float | None], last: int
) -> list[Choice]:
    mine, theirs = (_dense(table, last, at) for table, at in zip((first, second), contexts, strict=True))
    pairs = [(k, other) for k, other in zip(mine, theirs, strict=True)]
    names = sorted({*pairs})
    found = []
    for start, end, i in merge_runs([names.index(pair) for pair in pairs]):
        k, other = names[i]
        if k != other:
            batches = range(start, end + 1)
            found.append(
                Choice(
                    context=contexts[0],
                    first_batch=start,
                    last_batch=end,
                    first_k=k,
                    second_k=other,
                    cost_by_first=_cost(first, batches, k, other, contexts[0]),
                    cost_by_second=_cost(second, batches, other, k, contexts[1]),
                )
            )
    return found


def _dense(table: GoodputTable, last: int, context: float | None) -> list[int]:
    return [k for start, end, k in table.to_schedule(last, context) for _ in range(start, end + 1)]


def _cost(table: GoodputTable, batches: Sequence[int], best: int, other: int, context: float | None) -> float | None:
    if not table.has_times:
        return None
    goodput = goodputs(table, batches, (best, other), context)
    return float(np.mean(1.0 - goodput[:, 1] / goodput[:, 0]))
