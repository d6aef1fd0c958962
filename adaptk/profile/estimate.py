"""Inter-token latency of cells from the steps of a session, with intervals that hold its drift."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from adaptk.profile.est_acceptance import AcceptanceCounts
from adaptk.profile.est_fit import ArmFit, GroupFit, fit_group
from adaptk.profile.est_values import Block, CellEstimate, Group, GroupEstimate

__all__ = [
    "AcceptanceCounts",
    "Block",
    "CellEstimate",
    "Group",
    "GroupEstimate",
    "cells",
    "conclude",
    "estimate",
    "rows",
]

_ABOUT, _ABOUT_TOKENS = 0.1, 16.0  # of a level, and tokens, that its cells may be off
FEWEST_VISITS = 3  # below which nothing is said of an interval
_LENT = 1.0  # degrees of freedom that the other groups' drift counts as, at most
_UNLIKE = 3.0  # times the others' variance, beyond which a cell drifts in a way of its own and borrows nothing
_EXPECTED = 2.0  # degrees of freedom that the scatter between a visit's blocks counts as, when arms are compared

_ALONE = 6.0  # by which the variance of a single visit's comparison is raised


def estimate(blocks: Iterable[Block], widths: Mapping[int, float] | None = None) -> dict[Group, GroupEstimate]:
    """Estimate every group that has blocks.

    Steps of one visit share the machine's state, so a cell's interval rests on the differences between its visits (a
    t interval) and holds what drift those visits saw: they should lie spread over the session, whose mean is what is
    estimated. Drift slower than the session is in no interval. How much a machine drifts is to a small part also read
    off the other groups. Two arms of a group are compared within each visit.

    Parameters
    ----------
    blocks
        What was measured, in any order.
    widths
        Mean drafts verified per request in the long run, per K asked for; for K that it lacks, the mean of the cell.

    Raises
    ------
    ValueError
        If a block's times and widths differ in number.

    Examples
    --------
    >>> cells_of = [(visit, k) for visit in range(4) for k in (0, 1)]
    >>> blocks = [Block(8, k, 256, 256, v, 9.0 * v, (10.0 + k + 0.1 * v,) * 4, (k,) * 4) for v, k in cells_of]
    >>> group = estimate(blocks)[Group(8, 256)]
    >>> cell = group.cells[1]
    >>> round(cell.itl_ms, 2), round(cell.low_ms, 2), round(cell.high_ms, 2), cell.visits
    (11.15, 10.95, 11.36, 4)
    """
    by_group: dict[Group, list[Block]] = defaultdict(list)
    for block in blocks:
        by_group[block.group].append(block)
    fits = [fit_group(group, mine, widths or {}) for group, mine in by_group.items()]
    return conclude(fit for fit in fits if fit is not None)


def conclude(fits: Iterable[GroupFit]) -> dict[Group, GroupEstimate]:
    """Estimates from each group's own fit: :func:`estimate` for who keeps the fits."""
    known = list(fits)
    drifts = [_drift(fit) for fit in known]
    results: dict[Group, GroupEstimate] = {}
    for i, fit in enumerate(known):
        others = sorted(variance for j, (variance, freedom) in enumerate(drifts) if j != i and freedom)
        # The lower median: one group that drifts in a way of its own is not lent to all.
        lent = (others[(len(others) - 1) // 2], _LENT) if others else (0.0, 0.0)
        results[fit.group] = _group(fit, lent)
    return results


def cells(estimates: Mapping[Group, GroupEstimate]) -> list[CellEstimate]:
    """The cells of all groups, sorted by context, batch and K."""
    found = [cell for group in estimates.values() for cell in group.cells.values()]
    return sorted(found, key=lambda c: (-1.0 if c.context is None else c.context, c.batch, c.k))


def rows(estimates: Iterable[CellEstimate]) -> list[dict[str, Any]]:
    """Rows for ``GoodputTable.from_rows``.

    ``context`` is the level where the caches held about as much, so that tables of one plan have the same levels; else
    the mean, in whole tokens, of what they held in all its cells, so that these stay one level.
    """
    found = list(estimates)
    held: dict[float | None, list[float]] = defaultdict(list)
    for cell in found:
        if cell.mean_context is not None:
            held[cell.context].append(cell.mean_context)
    means = {level: float(np.mean(seen)) for level, seen in held.items()}
    levels = {level: float(round(mean)) for level, mean in means.items() if not _about(level, mean)}
    if len(set(levels.values())) < len(levels):  # two levels would become one
        levels = {}
    return [_row(cell, levels.get(cell.context, cell.context)) for cell in found]


def _about(level: float | None, mean: float) -> bool:
    return level is not None and abs(mean - level) <= max(_ABOUT * level, _ABOUT_TOKENS)


def _row(cell: CellEstimate, context: float | None) -> dict[str, Any]:
    names = ("batch", "k", "itl_ms", "n", "spread_ms", "p10_ms", "p90_ms", "low_ms", "high_ms")
    return {name: getattr(cell, name) for name in names} | {"context": context}


def _drift(fit: GroupFit) -> tuple[float, int]:
    """Variance of the log between visits, and its degrees of freedom: all arms of a visit see the same drift."""
    found = [_between_visits(arm) for arm in fit.arms.values()]
    weight = sum(freedom for _, freedom in found)
    if weight == 0:
        return 0.0, 0
    return sum(variance * freedom for variance, freedom in found) / weight, max(freedom for _, freedom in found)


def _between_visits(arm: ArmFit) -> tuple[float, int]:
    logs = [visit.log_ms for visit in arm.visits.values()]
    return (float(np.var(logs, ddof=1)), len(logs) - 1) if len(logs) > 1 else (0.0, 0)


def _group(fit: GroupFit, lent: tuple[float, float]) -> GroupEstimate:
    arms = {k: arm for k, arm in sorted(fit.arms.items()) if arm.visits}
    errors = {k: _error(arm, lent) for k, arm in arms.items()}
    return GroupEstimate(
        group=fit.group,
        cells={k: _cell(fit.group, k, arm, *errors[k]) for k, arm in arms.items()},
        width_ms=fit.width_ms,
        log_ratios={
            (k, other): _log_ratio(fit, k, other, math.hypot(errors[k][0], errors[other][0]))
            for k, other in combinations(arms, 2)
        },
    )


def _error(arm: ArmFit, lent: tuple[float, float]) -> tuple[float, float]:
    """Relative standard error of an arm's time and its degrees of freedom; infinite where nothing tells."""
    own, freedom = _between_visits(arm)
    others, more = lent
    if freedom > 0 and own > _UNLIKE * others:
        more = 0.0
    if freedom + more == 0:
        return math.inf, 0.0
    variance = (own * freedom + others * more) / (freedom + more)
    return math.hypot(math.sqrt(variance / len(arm.visits)), arm.shift_error), freedom + more


def _cell(group: Group, k: int, arm: ArmFit, error: float, freedom: float) -> CellEstimate:
    from scipy.special import stdtrit

    visits, (spread, p10, p90) = arm.visits.values(), arm.scatter_ms
    itl_ms = float(np.mean([math.exp(visit.log_ms) for visit in visits]))
    known = len(visits) >= FEWEST_VISITS
    reach = math.exp(min(float(stdtrit(freedom, 0.975)) * error, 10.0)) if known else 1.0
    return CellEstimate(
        batch=group.batch,
        k=k,
        context=group.context,
        itl_ms=itl_ms,
        low_ms=itl_ms / reach if known else None,
        high_ms=itl_ms * reach if known else None,
        n=sum(visit.steps for visit in visits),
        blocks=sum(len(visit.blocks) for visit in visits),
        visits=len(visits),
        spread_ms=spread,
        p10_ms=p10,
        p90_ms=p90,
        stalled=arm.stalled,
        mean_context=arm.mean_context,
    )


def _log_ratio(fit: GroupFit, k: int, other: int, unpaired: float) -> tuple[float, float]:
    """Mean difference of two arms' logs over the visits that played both, and its standard error.

    The scatter between blocks of a visit stands in while there are few visits. Without a common visit the arms' own
    means are compared, with the drift between them in the error.
    """
    mine, theirs = fit.arms[k], fit.arms[other]
    common = sorted(mine.visits.keys() & theirs.visits.keys())
    shift = mine.shift_error - theirs.shift_error
    if not common:
        means = [float(np.mean([visit.log_ms for visit in arm.visits.values()])) for arm in (mine, theirs)]
        return means[0] - means[1], unpaired
    gaps = np.array([mine.visits[v].log_ms - theirs.visits[v].log_ms for v in common])
    counts = [1.0 / len(mine.visits[v].blocks) + 1.0 / len(theirs.visits[v].blocks) for v in common]
    expected = fit.block_variance * float(np.mean(counts))
    seen = float(np.sum((gaps - gaps.mean()) ** 2))
    freedom = len(common) - 1 + _EXPECTED
    # The standard deviation of a t distribution, not its scale: few visits must not look like certainty.
    spread = freedom / (freedom - 2.0) if freedom > 2.0 else _ALONE
    variance = spread * (seen + _EXPECTED * expected) / freedom
    return float(gaps.mean()), math.hypot(math.sqrt(variance / len(common)), shift)
