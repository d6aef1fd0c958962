"""The ranges of a schedule, and fewer of them where a table's gain from telling two apart is small."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from adaptk.schedule import merge_runs
from adaptk.table import GoodputTable
from adaptk.tablerows import TableError, number
from adaptk.tabletools.survey import Floats, goodputs

Triples = list[list[int]]


class SmallTier(msgspec.Struct, frozen=True, kw_only=True):
    """A tier whose K gains little over that of a neighbour: ``gain`` is the most it gains, as a share."""

    first: int
    last: int
    k: int
    neighbour_k: int
    gain: float


def tiers(
    table: GoodputTable,
    max_batch: int = 512,
    context: float | None = None,
    arms: Iterable[int] | None = None,
    min_gain: float = 0.0,
) -> Triples:
    """The table's schedule with every tier merged into a neighbour that is everywhere in it less than ``min_gain``
    worse than the best K.

    Parameters
    ----------
    table, max_batch, context, arms
        As for :meth:`GoodputTable.to_schedule`.
    min_gain
        Share of goodput, 0 to 1; with 0 nothing is merged. The smallest gain goes first. However many tiers are
        merged, no batch size loses so much against its best K.

    Raises
    ------
    TableError
        If an argument is out of range, or ``min_gain`` is above 0 and the table has no step times.

    Examples
    --------
    >>> rows = [{"batch": b, "k": k, "itl_ms": 5.0 + 0.01 * b * (k + 1)} for b in (1, 64, 512) for k in (0, 1, 3)]
    >>> table = GoodputTable.from_rows(rows, acceptance=[0.7, 0.6, 0.5])
    >>> tiers(table), tiers(table, min_gain=0.3)
    ([[1, 147, 3], [148, 512, 1]], [[1, 512, 3]])
    """
    number("min_gain", min_gain, 0.0, 1.0)
    choice = None if arms is None else tuple(arms)
    triples = table.to_schedule(max_batch, context, choice)
    if min_gain == 0.0:
        return triples
    if not table.has_times:
        raise TableError("the table has a schedule and no step times: what a tier gains is unknown, leave min_gain out")
    losses = _losses(table, triples, context, choice)
    while len(triples) > 1:
        offers = [(_loss(losses, triple, k), i, k) for i, triple in enumerate(triples) for k in _beside(triples, i)]
        loss, i, k = min(offers)
        if loss >= min_gain:
            break
        triples[i][2] = k
        triples = _merged(triples)
    return triples


def small_tiers(
    table: GoodputTable, triples: Triples, least: float, context: float | None = None, arms: Iterable[int] | None = None
) -> list[SmallTier]:
    """Tiers whose K is nowhere more than ``least`` better than a neighbour's; none for a table without times."""
    if not table.has_times:
        return []
    losses = _losses(table, triples, context, None if arms is None else tuple(arms))
    found = []
    for i, triple in enumerate(triples):
        gains = [(_loss(losses, triple, k), k) for k in _beside(triples, i)]
        if gains and min(gains)[0] < least:
            gain, k = min(gains)
            found.append(SmallTier(first=triple[0], last=triple[1], k=triple[2], neighbour_k=k, gain=gain))
    return found


def _losses(
    table: GoodputTable, triples: Triples, context: float | None, arms: Sequence[int] | None
) -> dict[int, Floats]:
    """For each K of the schedule, how much better the best arm is at batch 1, 2, ..., as a share."""
    batches = list(range(1, triples[-1][1] + 1))
    choice = table.ks if arms is None else sorted({*arms})
    best = goodputs(table, batches, choice, context).max(axis=1)
    ks = sorted({k for _, _, k in triples})
    each = goodputs(table, batches, ks, context)
    return {k: best / each[:, j] - 1.0 for j, k in enumerate(ks)}


def _loss(losses: dict[int, Floats], triple: Sequence[int], k: int) -> float:
    return float(np.max(losses[k][triple[0] - 1 : triple[1]]))


def _beside(triples: Triples, i: int) -> list[int]:
    return [triples[j][2] for j in (i - 1, i + 1) if 0 <= j < len(triples)]


def _merged(triples: Triples) -> Triples:
    ks = [k for first, last, k in triples for _ in range(last - first + 1)]
    assert all(after[0] == before[1] + 1 for before, after in pairwise(triples))
    return merge_runs(ks)
