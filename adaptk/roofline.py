"""Step times where no table has any: the shape of a roofline, to a scale that the first steps tell."""

from __future__ import annotations

from collections.abc import Sequence

from adaptk.table import DEFAULT_ACCEPTANCE

SATURATION_TOKENS = 256.0  # tokens of a step at which compute takes as long as reading the weights, order of magnitude
DRAFT_SHARE = 0.04  # one draft's cost as a share of a step


def relative_cost(batch: int, k: float) -> float:
    """Step time relative to an idle-compute step of a dense model; unitless, a guess to within a factor of two."""
    return 1.0 + batch * (k + 1.0) / SATURATION_TOKENS + DRAFT_SHARE * k


def slope_that_prefers(k_best: int, arms: Sequence[int]) -> float:
    """Cost of one more draft, as a share of the step at K=0, that makes ``k_best`` the best of ``arms``.

    The acceptance length under the acceptance assumed for unknown drafters is concave in K, so such a slope exists: it
    lies between what would make the next smaller and the next larger arm as good. The middle of the two is taken.

    Examples
    --------
    >>> s = slope_that_prefers(1, (0, 1, 3))
    >>> length = {0: 1.0, 1: 1.7, 3: 2.533}
    >>> max(length, key=lambda k: length[k] / (1 + s * k))
    1
    """
    length = {k: sum(DEFAULT_ACCEPTANCE**j for j in range(k + 1)) for k in arms}
    best = length[k_best]
    upper = [_indifference(length[k], k, best, k_best) for k in arms if k < k_best]
    lower = [_indifference(best, k_best, length[k], k) for k in arms if k > k_best]
    if upper and lower:
        return (min(upper) + max(lower)) / 2.0
    if lower:
        return 1.25 * max(lower)
    return 0.7 * min(upper) if upper else 0.1


def _indifference(small: float, k_small: int, large: float, k_large: int) -> float:
    """Slope at which both arms have the same goodput: small / (1 + s k_small) = large / (1 + s k_large)."""
    return (large - small) / (small * k_large - large * k_small)
