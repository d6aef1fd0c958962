"""What the choice of K at a group may still cost, given what its arms are known to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from adaptk.profile.est_values import GroupEstimate

LengthRatio = Callable[[int, int], tuple[float, float]]

SETTLED_LOSS = 0.001  # share of goodput below which a choice of K is not in doubt
_IN_CONTENTION = 0.05  # of the largest expected loss that an arm's own must reach


class Doubt(NamedTuple):
    """How sure the choice at a group is.

    Parameters
    ----------
    best
        The K of the highest goodput as now measured.
    loss
        Expected share of goodput lost by choosing it, summed over the arms that might be better (an upper bound).
    avoidable
        What of ``loss`` further timing could remove: the rest is the error of acceptance.
    contenders
        ``best`` and the K that might be better, rising.
    """

    best: int
    loss: float
    avoidable: float
    contenders: tuple[int, ...]


def doubt(group: GroupEstimate, length_ratio: LengthRatio, arms: Sequence[int]) -> Doubt | None:
    """Judge the choice among ``arms``; ``None`` with fewer than two of them measured.

    ``length_ratio(k, other)`` gives the log of ``k``'s acceptance length over ``other``'s, and its standard error.
    Where acceptance of a position was never counted (an infinite error), its assumed value is taken as it is.
    """
    known = [k for k in arms if k in group.cells]
    if len(known) < 2:
        return None
    pivot = max(known, key=lambda k: (group.cells[k].visits, -k))
    goodputs = {k: length_ratio(k, pivot)[0] - group.log_ratio(k, pivot)[0] for k in known}
    best = max(known, key=lambda k: (goodputs[k], -k))
    losses: dict[int, float] = {}
    avoidable = 0.0
    for k in known:
        if k == best:
            continue
        lengths, length_error = length_ratio(best, k)
        times, time_error = group.log_ratio(best, k)
        length_error = length_error if math.isfinite(length_error) else 0.0
        ahead = max(lengths - times, 0.0)
        losses[k] = expected_loss(ahead, math.hypot(length_error, time_error))
        avoidable += losses[k] - expected_loss(ahead, length_error)
    least = _IN_CONTENTION * max(losses.values())
    contenders = tuple(sorted({best, *(k for k, loss in losses.items() if loss >= least)}))
    return Doubt(best, sum(losses.values()), avoidable, contenders)


def expected_loss(ahead: float, error: float) -> float:
    """Mean of ``max(0, -x)`` for a normal ``x`` of mean ``ahead`` and standard deviation ``error``.

    Capped at 1: of a goodput no more can be lost.

    Examples
    --------
    >>> round(expected_loss(0.0, 0.01), 5), round(expected_loss(0.03, 0.01), 7), expected_loss(0.1, 0.0)
    (0.00399, 3.8e-06, 0.0)
    """
    if error == 0.0:
        return max(-ahead, 0.0)
    if math.isinf(error):
        return 1.0
    z = ahead / error
    density = math.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)
    return min(error * max(density - z * math.erfc(z / math.sqrt(2.0)) / 2.0, 0.0), 1.0)
