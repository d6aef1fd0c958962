"""Steps that the machine and not the arm made slow: host jitter, a compiler's run, another process's turn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]
_Mask = NDArray[np.bool_]

BEYOND = 4.5  # standard deviations of the ordinary scatter beyond which a step is no ordinary one
CLOSEST = 0.02  # of the step's time; what differs by less is never a stall
_FEW = 10  # steps below which a scatter or a bin of widths says nothing
_MOST_BINS = 6


def ordinary(ms: _Floats, widths: _Floats, arms: _Ints, visits: _Ints) -> _Mask:
    """Which steps are no stalls, shape ``(steps,)``.

    A step is held against the steps of its arm with like width, so that a drafter which returns drafts only now and
    then does not look like a stalling machine, and against its visit's level, so that drift does not. Scatter is read
    off the lower side, where there are no stalls; the upper quartile counts into the limit, so that a second mode of
    more than a quarter of the steps is never taken for stalls.

    Parameters
    ----------
    ms
        Step times of one group, milliseconds, positive and finite, shape ``(steps,)``.
    widths, arms, visits
        Drafts verified per request, and numbers of the arm and of the visit, each of shape ``(steps,)``.
    """
    residual = np.log(ms)
    for arm in np.unique(arms):
        mine = np.flatnonzero(arms == arm)
        bins = _bins(widths[mine])
        for number in np.unique(bins):
            alike = mine[bins == number]
            residual[alike] -= np.median(residual[alike])
    for visit in np.unique(visits):
        residual[visits == visit] -= np.median(residual[visits == visit])
    keep: _Mask = np.ones(len(ms), dtype=bool)
    common = _lower_scatter(residual)
    for arm in np.unique(arms):
        mine = arms == arm
        values = residual[mine]
        scatter = _lower_scatter(values) if len(values) >= _FEW else common
        keep[mine] = values <= np.quantile(values, 0.75) + max(BEYOND * scatter, CLOSEST)
    return keep


def _bins(widths: _Floats) -> _Ints:
    """Bins of like width: none at all apart from some, few values each for itself, many in quantiles."""
    values, inverse, sizes = np.unique(widths, return_inverse=True, return_counts=True)
    if len(values) <= _MOST_BINS and sizes.min() >= _FEW // 2:
        return inverse.astype(np.int64)
    bins = np.zeros(len(widths), dtype=np.int64)
    some = widths > 0
    number = min(_MOST_BINS, int(some.sum()) // _FEW)
    if number >= 1 and (~some).sum() >= _FEW // 2:
        bins[some] = 1
    if number >= 2:
        edges = np.unique(np.quantile(widths[some], np.arange(1, number) / number))
        bins[some] = 1 + np.searchsorted(edges, widths[some], side="right")
    return bins


def _lower_scatter(residual: _Floats) -> float:
    """Standard deviation of a normal with the lower half's scatter about the median."""
    below = np.median(residual) - residual
    below = below[below >= 0]
    return 1.4826 * float(np.median(below)) if len(below) else 0.0
