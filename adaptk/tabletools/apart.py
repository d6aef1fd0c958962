"""Arms that a table cannot tell apart: their difference is within what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from adaptk.table import GoodputTable
from adaptk.tablerows import TableRow

_Z95 = 1.96  # half a 95 % interval of a normal, in standard deviations


class Tie(msgspec.Struct, frozen=True, kw_only=True):
    """Two arms that the table cannot tell apart at a batch size: the best and another one.

    ``lead`` is how much the best one is ahead, as a share, and ``within`` the half width of that figure's 95 %
    interval, of the step times and, where trials were counted, of the acceptance.
    """

    batch: int
    k: int
    other: int
    lead: float
    within: float


class Judged(NamedTuple):
    """What came of all pairs of the best arm of a batch size and another: those not told apart, how many were judged
    at all, and how many there are."""

    ties: tuple[Tie, ...]
    judged: int
    pairs: int


def interval(row: TableRow) -> tuple[float, float] | None:
    """The 95 % interval of a row's time where it has one that can be divided by."""
    if row.low_ms is None or row.high_ms is None or row.low_ms <= 0.0:
        return None
    return row.low_ms, row.high_ms


def judged(
    table: GoodputTable,
    goodput: Sequence[Sequence[float]],
    batches: Sequence[int],
    rows: Mapping[tuple[int, int], TableRow],
) -> Judged:
    """Arms that cannot be told from the best one; ``goodput`` of shape ``(len(batches), len(table.ks))``.

    Only arms whose rows have intervals are judged: without one nothing is known of the difference.
    """
    ties, count = [], 0
    for batch, line in zip(batches, goodput, strict=True):
        best = max(range(len(line)), key=line.__getitem__)
        for j, k in enumerate(table.ks):
            halves = [_half_width(rows.get((batch, each))) for each in (table.ks[best], k)]
            if j == best or halves[0] is None or halves[1] is None:
                continue
            count += 1
            within = math.hypot(halves[0], halves[1], _Z95 * _length_doubt(table, table.ks[best], k))
            lead = math.log(line[best] / line[j])
            if lead <= within:
                tie = Tie(batch=batch, k=table.ks[best], other=k, lead=math.expm1(lead), within=math.expm1(within))
                ties.append(tie)
    return Judged(tuple(ties), count, len(batches) * (len(table.ks) - 1))


def _half_width(row: TableRow | None) -> float | None:
    """Half of the interval of a row's time, as a logarithm."""
    ends = None if row is None else interval(row)
    return None if ends is None else math.log(ends[1] / ends[0]) / 2.0


def _length_doubt(table: GoodputTable, one: int, other: int) -> float:
    """Standard deviation of log(AL(one) / AL(other)) by the trials counted (delta method); 0 where none were."""
    counts, shares = table.acceptance_counts, table.acceptance
    if counts is None or shares is None:
        return 0.0
    variance = 0.0
    for i, (share, (_, tried)) in enumerate(zip(shares, counts, strict=False)):
        slope = _log_slope(table, one, i, share) - _log_slope(table, other, i, share)
        variance += slope**2 * max(share * (1.0 - share), 0.25 / (tried + 1)) / (tried + 1)
    return math.sqrt(variance)


def _log_slope(table: GoodputTable, k: int, position: int, share: float) -> float:
    """By how much log AL(k) rises with the acceptance of a position (from 0), which stands ``share``."""
    if position >= k or share <= 0.0:
        return 0.0
    lengths = [table.acceptance_length(j) for j in range(position, k + 1)]
    reached = sum(after - before for before, after in pairwise(lengths))
    return reached / share / lengths[-1]
