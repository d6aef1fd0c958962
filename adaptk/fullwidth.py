"""Step times of arms whose drafts are all there, from a table whose drafter left some of them out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from adaptk.roofline import relative_cost

# How far apart two widths must be, in drafts per request, or as a share of the way from one arm to the next, for their
# times to say as much of the cost of a draft as what is guessed without them.
TELLING = 0.1
OUTRIGHT = 100.0  # weight of K=0, of which no draft can be missing


def full_width(
    arms: Sequence[int], ks: Sequence[int], widths: Sequence[float], times: Sequence[float], batch: float
) -> list[float]:
    """Log step time of each arm when all its drafts are verified, such that what was measured is met at its widths.

    Between two arms, log time is linear in the width, and below the first it is that one's, as it is for
    :class:`adaptk.latency.LatencyPosterior`. What the points do not tell is guessed as by :func:`at_width`.

    Parameters
    ----------
    arms
        Drafts per request, rising.
    ks, widths, times
        Drafts per request that were asked for, from 0 and rising, that were verified, from 0 and never falling, and
        milliseconds; shape ``(points,)``. A time below that of fewer drafts counts as equal to it.
    batch
        Requests.

    Returns
    -------
    list
        Log milliseconds, never falling, shape ``(arms,)``.

    Examples
    --------
    >>> low, high = full_width((0, 1), (0, 1), [0.0, 0.5], [10.0, 11.0], batch=8)
    >>> round(math.exp(low), 1), round(math.exp((low + high) / 2.0), 1)
    (10.0, 11.0)
    """
    rising = list(accumulate(times, max))
    guess = [math.log(at_width(k, widths, rising, batch)) for k in arms]
    # A line for each point, and one for each arm's guess.
    points = [i for i, k in enumerate(ks) if k >= arms[0] and widths[i] <= arms[-1]]
    place = [widths[i] for i in points]
    design = np.column_stack([np.interp(place, arms, row) for row in np.eye(len(arms))])
    weights = np.array([OUTRIGHT if ks[i] == 0 else 1.0 for i in points])
    seen = np.log([rising[i] for i in points])
    lines = np.vstack([design * weights[:, None], TELLING * np.eye(len(arms))])
    row = np.linalg.lstsq(lines, np.concatenate([seen * weights, np.multiply(TELLING, guess)]), rcond=None)[0]
    return [float(time) for time in np.maximum.accumulate(row)]


def at_width(width: float, widths: Sequence[float], times: Sequence[float], batch: float) -> float:
    """Step time at a number of drafts per request, from times at others that never fall.

    Beyond the last it goes on in a line through the upper half of the widths. Where these lie close together, as those
    of a drafter that finds next to nothing, the cost of one more draft is mostly the roofline's; it is never above the
    whole step's. Parameters as in :func:`full_width`.

    Examples
    --------
    >>> round(at_width(3.0, [0.0, 0.5, 0.9], [10.0, 11.0, 11.8], batch=8), 1)
    16.0
    """
    last, end = widths[-1], times[-1]
    if width <= last:
        return float(np.interp(width, widths, times))
    start = max(i for i, w in enumerate(widths) if w <= last / 2.0)
    reach = last - widths[start]
    guess = end * (relative_cost(batch, last + 1.0) / relative_cost(batch, last) - 1.0)
    # Weighted by their precisions, and finite where the reach is 0.
    slope = (reach * (end - times[start]) + TELLING**2 * guess) / (reach**2 + TELLING**2)
    return end + min(slope, end) * (width - last)
