"""What a handful of timings is worth: median, spread, and an interval of the median by order statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

LEVEL = 0.95


class Summary(NamedTuple):
    """Timings of one cell, milliseconds.

    ``low_ms`` and ``high_ms`` bound the median with 95 % confidence; ``None`` where five samples or less are too
    few for it.
    """

    n: int
    median_ms: float
    p10_ms: float
    p90_ms: float
    spread_ms: float
    low_ms: float | None
    high_ms: float | None


def summary(samples: Sequence[float]) -> Summary:
    """Summary of independent timings, at least one.

    Examples
    --------
    >>> summary([3.0, 1.0, 2.0]).median_ms
    2.0
    >>> found = summary([float(i) for i in range(1, 21)])
    >>> found.low_ms, found.high_ms
    (6.0, 15.0)
    """
    ordered = sorted(samples)
    n = len(ordered)
    mean = math.fsum(ordered) / n
    spread = math.sqrt(math.fsum((each - mean) ** 2 for each in ordered) / (n - 1)) if n > 1 else 0.0
    rank = interval_rank(n)
    low, high = (None, None) if rank is None else (ordered[rank], ordered[n - 1 - rank])
    return Summary(n, _quantile(ordered, 0.5), _quantile(ordered, 0.1), _quantile(ordered, 0.9), spread, low, high)


def interval_rank(n: int, level: float = LEVEL) -> int | None:
    """Index of the order statistic that begins the median's interval; ``None`` where not even the extremes cover it.

    The interval from the ``r``-th smallest to the ``r``-th largest of ``n`` misses the median if fewer than ``r`` fall
    on one side of it: a binomial probability, whatever the distribution.
    """
    tail, missed, rank = 1, 0, None  # whole numbers, out of 2**n: nothing underflows
    for below in range(n // 2):
        missed += tail
        if 2 * missed / 2**n > 1 - level:
            break
        rank = below
        tail = tail * (n - below) // (below + 1)
    return rank


def combined(parts: Sequence[tuple[float, Summary]]) -> Summary:
    """Summary of ``sum(factor * part)``, the parts timed apart and taken as independent; factors are positive.

    Medians add up; distances from them add as standard deviations do.

    Examples
    --------
    >>> once = summary([1.0, 2.0, 3.0])
    >>> combined([(10.0, once), (1.0, once)]).median_ms
    22.0
    """
    if len(parts) == 1 and parts[0][0] == 1.0:
        return parts[0][1]
    median = math.fsum(factor * part.median_ms for factor, part in parts)

    def apart(distances: list[float | None]) -> float | None:
        known = [each for each in distances if each is not None]
        if len(known) < len(distances):
            return None
        return math.hypot(*(factor * each for (factor, _), each in zip(parts, known, strict=True)))

    p10 = apart([part.median_ms - part.p10_ms for _, part in parts]) or 0.0
    p90 = apart([part.p90_ms - part.median_ms for _, part in parts]) or 0.0
    spread = apart([part.spread_ms for _, part in parts]) or 0.0
    below = apart([None if part.low_ms is None else part.median_ms - part.low_ms for _, part in parts])
    above = apart([None if part.high_ms is None else part.high_ms - part.median_ms for _, part in parts])
    return Summary(
        n=min(part.n for _, part in parts),
        median_ms=median,
        p10_ms=max(0.0, median - p10),
        p90_ms=median + p90,
        spread_ms=spread,
        low_ms=None if below is None else max(0.0, median - below),
        high_ms=None if above is None else median + above,
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])
