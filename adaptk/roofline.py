"""Step times where no table has any: the shape of a roofline, to a scale that the first steps tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

SATURATION_TOKENS = 256.0  # tokens of a step at which compute takes as long as reading the weights, order of magnitude
DRAFT_SHARE = 0.04  # one draft's cost as a share of a step


def relative_cost(batch: float, k: float) -> float:
    """Step time relative to an idle-compute step of a dense model; unitless, a guess to within a factor of two."""
    return 1.0 + batch * (k + 1.0) / SATURATION_TOKENS + DRAFT_SHARE * k


def slopes_that_prefer(k_best: int, length: Mapping[int, float]) -> tuple[float, float]:
    """Range of the cost of one more draft, as a share of the step at K=0, in which ``k_best`` is the best arm.

    ``length`` holds the acceptance length per arm. It is concave in K, so the range is not empty: at its ends the
    next larger and the next smaller arm are as good.

    Examples
    --------
    >>> length = {0: 1.0, 1: 1.7, 3: 2.533}
    >>> low, high = slopes_that_prefer(1, length)
    >>> [max(length, key=lambda k: length[k] / (1 + s * k)) for s in (0.9 * low, (low + high) / 2, 1.1 * high)]
    [3, 1, 0]
    """
    best = length[k_best]
    upper = [_indifference(length[k], k, best, k_best) for k in length if k < k_best]
    lower = [_indifference(best, k_best, length[k], k) for k in length if k > k_best]
    if upper and lower:
        return max(lower), min(upper)
    if lower:
        return max(lower), 1.6 * max(lower)
    return (0.5 * min(upper), min(upper)) if upper else (0.1, 0.1)


def schedule_slope(batch: int, schedule: Sequence[Sequence[int]], length: Mapping[int, float]) -> float:
    """Cost of one more draft at ``batch`` under which every tier's K is the best there.

    Within a tier it runs, linearly in ln(batch), from the end of the range nearest to the tier before to the end
    nearest to the tier behind, so that between neighbouring arms the edge of a tier is no cliff.

    ``schedule`` holds ``[first batch, last batch, K]`` in rising order without gaps, neighbours differing in K;
    ``length`` the acceptance length of every arm, those K among them.
    """
    at = next((i for i, tier in enumerate(schedule) if batch <= tier[1]), len(schedule) - 1)
    first, last, k = schedule[at]
    low, high = slopes_that_prefer(k, length)
    low, high = low + 0.02 * (high - low), high - 0.02 * (high - low)
    middle = (low + high) / 2.0
    before = middle if at == 0 else (low if schedule[at - 1][2] > k else high)
    behind = middle if at == len(schedule) - 1 else (high if schedule[at + 1][2] < k else low)
    if last <= first:
        return (before + behind) / 2.0
    share = math.log(min(batch, last) / first) / math.log(last / first)
    return before + (behind - before) * share


def _indifference(small: float, k_small: int, large: float, k_large: int) -> float:
    """Slope at which both arms have the same goodput: small / (1 + s k_small) = large / (1 + s k_large)."""
    return (large - small) / (small * k_large - large * k_small)
