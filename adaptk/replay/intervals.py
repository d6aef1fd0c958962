"""Bootstrap intervals: of a ratio over paired seeds, and of a ratio of sums over dependent steps.

Both are percentile intervals whose tails are widened for small samples ("expanded percentile": t in place of normal
quantiles, n - 1 in place of n). Plain percentile and BCa intervals over 10 seeds cover 84 % where 90 % are asked for;
these cover 88 to 90 % (83 to 88 % at 5 seeds), for normal and for skewed ratios.

References
----------
Hesterberg, "What Teachers Should Know About the Bootstrap", 2015, section 5.3 (tails). Politis and White, "Automatic
Block-Length Selection for the Dependent Bootstrap", 2004, with the correction of Patton et al., 2009 (blocks).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

Array = NDArray[np.float64]

LEVEL = 0.9
DRAWS = 2000
_NORMAL = NormalDist()
_AT_ONCE = 2**20  # numbers gathered at a time: bounds the memory


class Interval(NamedTuple):
    """A point estimate and the ends of its interval; both NaN where the data say nothing of the spread."""

    value: float
    low: float
    high: float


def bootstrap_ratio(ratios: ArrayLike, level: float = LEVEL, draws: int = DRAWS, seed: int = 0) -> Interval:
    """Geometric mean of one ratio per seed, with an interval over seeds.

    Parameters
    ----------
    ratios
        One policy's figure over another's on the same seed, shape ``(seeds,)``, each positive. One seed gives its ratio
        and an interval of NaN; equal ratios give an interval of no width.
    level
        Coverage asked for, inside (0, 1).
    draws, seed
        Of the bootstrap.

    Raises
    ------
    ValueError
        If there is no ratio, one is NaN, infinite or not positive, or an argument is out of range.

    Examples
    --------
    >>> mean, low, high = bootstrap_ratio([1.02, 1.05, 0.99, 1.04, 1.03])
    >>> round(mean, 4), 1.0 < low < mean < high < 1.05
    (1.0258, True)
    """
    values = _finite("ratios", ratios)
    for i in np.flatnonzero(values <= 0.0)[:1]:
        raise ValueError(f"ratios[{i}] is {values[i]}: a geometric mean needs positive ones; report it by itself")
    _check(level, draws)
    logs = np.log(values)
    point = math.exp(float(logs.mean()))
    n = len(logs)
    if np.all(logs == logs[0]):
        point = float(values[0])
        return Interval(point, point, point) if n > 1 else Interval(point, math.nan, math.nan)
    rng = np.random.default_rng(seed)
    means = np.concatenate([logs[rng.integers(n, size=(k, n))].mean(axis=1) for k in _batches(draws, n)])
    low, high = np.exp(np.quantile(means, _tails(level, n))).tolist()
    return Interval(point, low, high)


def bootstrap_ratio_of_sums(
    numerator: ArrayLike,
    denominator: ArrayLike,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
    shortest: int = 1,
) -> Interval:
    """``sum(numerator) / sum(denominator)`` over dependent steps, with an interval by circular block bootstrap.

    Blocks are as long as :func:`block_length` says of ``numerator - ratio * denominator``, the series whose sum moves
    the ratio, and at least ``shortest``.

    Parameters
    ----------
    numerator, denominator
        Tokens and milliseconds per step in order of time, say; shape ``(steps,)``; single steps may be 0 or negative.
    level, draws, seed
        As in :func:`bootstrap_ratio`.
    shortest
        Steps that are known to belong together, but never more than a third of all.

    Returns
    -------
    Interval
        In the numerator's unit per denominator's. Its ends are NaN for one step, and where a resampled denominator is
        not positive, so that the ratio has no spread to speak of; ends equal the value where all steps are alike.

    Raises
    ------
    ValueError
        If the shapes differ, there is no step, a number is not finite, ``sum(denominator)`` is not positive, or an
        argument is out of range.

    Examples
    --------
    >>> bootstrap_ratio_of_sums([2, 2, 2, 2], [10, 10, 10, 10])
    Interval(value=0.2, low=0.2, high=0.2)
    """
    top, bottom = _finite("numerator", numerator), _finite("denominator", denominator)
    if len(top) != len(bottom):
        raise ValueError(f"numerator has {len(top)} steps, denominator {len(bottom)}: give both for each step")
    if bottom.sum() <= 0.0:
        raise ValueError(f"denominator sums to {bottom.sum()}: a ratio needs a positive sum")
    _check(level, draws)
    value = float(top.sum() / bottom.sum())
    length = block_length(top - value * bottom, shortest)
    sums = resampled_sums(np.column_stack([top, bottom]), length, draws, seed)
    return Interval(value, *spread(sums[:, 0], sums[:, 1], len(top) / length, level))


def spread(tops: Array, bottoms: Array, blocks: float, level: float = LEVEL) -> tuple[float, float]:
    """Ends of the interval of resampled ratios ``tops / bottoms``, each of shape ``(draws,)``, from so many blocks.

    NaN, NaN for fewer than two blocks or where a bottom is not positive.
    """
    if blocks < 2 or not np.all(bottoms > 0.0):
        return math.nan, math.nan
    low, high = np.quantile(tops / bottoms, _tails(level, blocks)).tolist()
    return low, high


def resampled_sums(columns: Array, length: int, draws: int = DRAWS, seed: int = 0) -> Array:
    """Column sums of ``draws`` resampled series, shape ``(draws, columns)``.

    Each series is made of blocks of ``length`` steps of ``columns``, shape ``(steps, columns)``, which start anywhere
    and run on from the last step to the first; as many as cover the steps, their sums scaled to the number of steps.
    """
    steps = len(columns)
    ends = np.cumsum(np.vstack([np.zeros((1, columns.shape[1])), columns, columns[: length - 1]]), axis=0)
    blocks = ends[length:] - ends[:-length]  # (steps, columns): the sum of the block that starts at each step
    number = -(-steps // length)
    rng = np.random.default_rng(seed)
    per_draw = number * columns.shape[1]
    sums = [blocks[rng.integers(steps, size=(k, number))].sum(axis=1) for k in _batches(draws, per_draw)]
    return np.asarray(np.concatenate(sums) * (steps / (number * length)))


def block_length(series: Array, shortest: int = 1) -> int:
    """Steps per block of a circular block bootstrap of the mean of ``series``, shape ``(steps,)``.

    The rule of Politis and White: autocorrelations count up to the last one that stands out of the noise, and the
    length balances bias against variance. It is at least ``shortest``, and at most a third of the steps and three times
    their square root, whichever is less.

    Examples
    --------
    >>> noise = np.random.default_rng(0).standard_normal(2000)
    >>> block_length(noise), block_length(np.convolve(noise, np.ones(20)))
    (1, 61)
    """
    n = len(series)
    longest = max(1, min(n // 3, math.ceil(3.0 * math.sqrt(n))))
    best = _balanced_length(series - series.mean(), float(np.mean(series * series)))
    return min(max(math.ceil(best), 1, shortest), longest)


def _balanced_length(centred: Array, size: float) -> float:
    """Politis and White's length; 0 where steps are alike but for rounding at mean square ``size``."""
    n = len(centred)
    calm = max(5, math.ceil(math.sqrt(math.log10(n))))  # lags in a row within the noise that end the correlation
    lags = min(n - 1, math.ceil(math.sqrt(n)) + calm)
    covariance = np.array([centred[: n - lag] @ centred[lag:] for lag in range(lags + 1)]) / n
    if covariance[0] <= 1e-24 * size:
        return 0.0
    noise = 2.0 * math.sqrt(math.log10(n) / n) * covariance[0]
    loud = [0, *(lag for lag in range(1, lags + 1) if abs(covariance[lag]) >= noise)]
    reach = next(lag for lag, following in zip(loud, [*loud[1:], math.inf], strict=True) if following - lag > calm)
    window = min(2 * max(reach, 1), lags)
    within = np.arange(1, window + 1)
    weighted = np.minimum(1.0, 2.0 * (1.0 - within / window)) * covariance[1 : window + 1]
    level = float(covariance[0] + 2.0 * weighted.sum())  # the spectrum at 0, by a flat-top window
    slope = 2.0 * float(within @ weighted)
    return float(1.5 * n * (slope / level) ** 2) ** (1.0 / 3.0) if level > 0.0 else 0.0


def _tails(level: float, n: float) -> tuple[float, float]:
    """Shares of the resampled values that lie below the interval's ends for ``n`` independent observations."""
    t = float(stdtrit(n - 1.0, (1.0 + level) / 2.0))  # Student's quantile
    share = _NORMAL.cdf(-math.sqrt(n / (n - 1.0)) * t)
    return share, 1.0 - share


def _batches(draws: int, size: int) -> Iterator[int]:
    """How many draws of ``size`` numbers to make at a time."""
    step = max(1, _AT_ONCE // size)
    return (min(step, draws - start) for start in range(0, draws, step))


def _finite(name: str, values: ArrayLike) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) == 0:
        raise ValueError(f"{name} has shape {array.shape}: give one number each, at least one")
    for i in np.flatnonzero(~np.isfinite(array))[:1]:
        raise ValueError(f"{name}[{i}] is {array[i]}: give finite numbers; leave out what is unknown and count it")
    return array


def _check(level: float, draws: int) -> None:
    if not 0.0 < level < 1.0:
        raise ValueError(f"level is {level}: give a coverage inside (0, 1), as 0.9")
    if draws < 100:
        raise ValueError(f"draws is {draws}: give at least 100")
