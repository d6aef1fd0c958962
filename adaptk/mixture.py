"""Two explanations of one observation, booked as one Gaussian."""

from __future__ import annotations

import math


def mixture(
    deviation: float, variance: float, share: float, excess: float, excess_variance: float
) -> tuple[float, float]:
    """What to book of an observation that with probability ``share`` is ``excess`` too high.

    Parameters
    ----------
    deviation, variance
        Observed less expected, and the variance of that as long as nothing is in excess (of the state and the noise).
    share
        Probability of the excess before the observation, in (0, 1).
    excess, excess_variance
        Mean and variance of the excess.

    Returns
    -------
    tuple[float, float]
        Shift of the mean and narrowing of the variance per unit of the gain, for the same first two moments as those
        of the mixture. The narrowing is negative where the two explanations are far apart.

    References
    ----------
    West and Harrison, "Bayesian Forecasting and Dynamic Models", 1997, chapter 12.
    """
    slowed = variance + excess_variance
    rest = deviation - excess
    # Densities of the two explanations, without the constant that they share.
    for_sound = (1.0 - share) * math.exp(-0.5 * deviation * deviation / variance) / math.sqrt(variance)
    for_slowed = share * math.exp(-0.5 * rest * rest / slowed) / math.sqrt(slowed)
    weight = for_slowed / (for_sound + for_slowed) if for_sound + for_slowed > 0.0 else 0.5
    shifts = deviation / variance, rest / slowed
    shift = (1.0 - weight) * shifts[0] + weight * shifts[1]
    between_them = weight * (1.0 - weight) * (shifts[0] - shifts[1]) ** 2
    return shift, (1.0 - weight) / variance + weight / slowed - between_them
