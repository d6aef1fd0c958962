"""Draws of how far drafts get, from the counts behind acceptance and supply."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from adaptk.supply import Supply

Array = npt.NDArray[np.float64]

PROBIT = 0.3927  # pi / 8
MOST_VARIANCE = 4.0  # of log odds; beyond it the logistic of a normal is no Beta any more


def beta_draws(
    alpha: Sequence[float],
    beta: Sequence[float],
    dilution: Sequence[float],
    supply: Supply,
    excess: float,
    ratio: float,
    doubt: float,
    n: int,
    rng: np.random.Generator,
) -> Array:
    """Draws of the probability that a draft comes and is accepted, shape ``(n, positions)``.

    Parameters
    ----------
    dilution
        Trials counted per independent trial that they are worth, by position.
    excess
        Variance, log odds, of what all positions have in common; less what the counts leave unknown of it, it is added.
    ratio, doubt
        Odds ratio of the batch size and the variance of its log.
    """
    a, b = np.array(alpha) / dilution, np.array(beta) / dilution
    passed = rng.beta(a, b, size=(n, len(a)))
    common = max(0.0, excess - 1.0 / float(np.sum(a * b / (a + b)))) + doubt
    if common > 0.0 or ratio != 1.0:
        odds = passed / np.maximum(1.0 - passed, 1e-12)
        odds *= ratio * np.exp(math.sqrt(common) * rng.standard_normal((n, 1)))
        passed = odds / (1.0 + odds)
    if not supply.complete:
        passed *= rng.beta(supply.alpha, supply.beta, size=(n, len(a)))
    return np.asarray(passed)


def normal_odds(
    alpha: Sequence[float],
    beta: Sequence[float],
    dilution: Sequence[float],
    supply: Supply,
    ratio: float,
    doubt: float,
) -> tuple[list[float], list[float]]:
    """Means and standard deviations of normal log odds that a draft comes and is accepted, by position.

    Their logistic has the means of ``beta_draws`` to within 0.02, for ``mean / sqrt(1 + pi / 8 * variance)`` is about
    the log odds of the mean of the logistic of a normal (MacKay 1992), and about their variances.
    """
    supplied = None if supply.complete else supply.means()
    centres, spreads = [], []
    for j, (a, b, diluted) in enumerate(zip(alpha, beta, dilution, strict=True)):
        variance = _of_log_gamma(diluted / a) + _of_log_gamma(diluted / b) + doubt
        odds = a * ratio / b
        if supplied is not None:
            p, there = odds / (1.0 + odds), supplied[j]
            both = p * there
            # Variances of logarithms add up.
            of_logarithm = (1.0 - p) ** 2 * variance + (1.0 - there) / (supply.alpha[j] + 0.5)
            variance, odds = of_logarithm / (1.0 - both) ** 2, both / (1.0 - both)
        centres.append(math.log(odds) * math.sqrt(1.0 + PROBIT * variance))
        spreads.append(math.sqrt(variance))
    return centres, spreads


def _of_log_gamma(scale: float) -> float:
    """Variance of the logarithm of a gamma variable of shape ``1 / scale``: trigamma by its series, up to a limit."""
    variance = scale * (1.0 + scale * (0.5 + scale / 6.0))
    return variance if variance < MOST_VARIANCE else MOST_VARIANCE
