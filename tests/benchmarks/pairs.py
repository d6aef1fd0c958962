"""Two settings that took turns: the ratio of their speeds, pair by pair, with an interval; and the machine's name."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Sequence
from statistics import fmean, median, stdev
from typing import NamedTuple

COVERAGE = 0.95


class Ratio(NamedTuple):
    """Ratio of two speeds over ``pairs`` pairs.

    ``median`` with ``low`` and ``high``: order statistics, which a stall of the machine does not move. ``mean`` with
    ``mean_low`` and ``mean_high``: geometric, with a t interval over the logs.
    """

    pairs: int
    median: float
    low: float
    high: float
    mean: float
    mean_low: float
    mean_high: float

    def __str__(self) -> str:
        return (
            f"{self.median:.4f} [{self.low:.4f},{self.high:.4f}] (median, {self.pairs} pairs), "
            f"mean {self.mean:.4f} [{self.mean_low:.4f},{self.mean_high:.4f}]"
        )


def ratio(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """Speeds ``above`` over ``below``, pair by pair, each positive; 95 % intervals.

    Fewer than six pairs have no 95 % interval of the median: the whole range is given.

    Examples
    --------
    >>> print(ratio([10.0, 11.0, 9.9, 10.1, 10.2, 9.8, 10.0], [10.0] * 7))
    1.0000 [0.9800,1.1000] (median, 7 pairs), mean 1.0136 [0.9784,1.0502]
    """
    from scipy.special import stdtrit

    ratios = sorted(a / b for a, b in zip(above, below, strict=True))
    n, rank = len(ratios), 0
    while rank + 1 < n - rank - 1 and _confidence(n, rank + 1) >= COVERAGE:
        rank += 1
    logs = [math.log(value) for value in ratios]
    reach = float(stdtrit(n - 1, (1 + COVERAGE) / 2)) * stdev(logs) / math.sqrt(n) if n > 1 else math.inf
    mean = fmean(logs)
    ends = (math.exp(mean - reach), math.exp(min(mean + reach, 700.0)))
    return Ratio(n, median(ratios), ratios[rank], ratios[n - 1 - rank], math.exp(mean), *ends)


def machine() -> str:
    """What this ran on, in a line."""
    from adaptk.processor import processor_name

    load, cores = os.getloadavg()[0], os.cpu_count()
    name = f"{processor_name()}, {cores} cores, load {load:.1f} before the start"
    return f"{time.strftime('%Y-%m-%d')}, {name}, Python {platform.python_version()}"


def _confidence(n: int, rank: int) -> float:
    """Probability that the true median lies between the two of ``n`` draws that have ``rank`` others outside them."""
    return 1.0 - 2.0 * sum(math.comb(n, i) for i in range(rank + 1)) / 2.0**n
