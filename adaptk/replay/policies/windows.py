"""The last few rewards of several arms in one window, kept so that medians and means need no second pass."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque


class MedianWindow:
    """The last ``size`` rewards over all arms together, and the median of each arm's share of them.

    An arm whose rewards have all left the window has expired and is as one never tried.

    Examples
    --------
    >>> window = MedianWindow((0, 3), size=3)
    >>> for reward in (5.0, 1.0, 2.0):
    ...     window.add(0, reward)
    >>> window.medians()
    [2.0, inf]
    >>> window.add(3, 7.0)  # the 5.0 leaves
    >>> window.medians()
    [1.5, 7.0]
    """

    def __init__(self, arms: tuple[int, ...], size: int) -> None:
        self._index = {arm: i for i, arm in enumerate(arms)}
        self._size = size
        self._order: deque[tuple[list[float], float]] = deque()
        self._sorted: list[list[float]] = [[] for _ in arms]

    def add(self, arm: int, reward: float) -> None:
        """Take the newest reward; the oldest leaves a full window."""
        mine = self._sorted[self._index[arm]]
        insort(mine, reward)
        self._order.append((mine, reward))
        if len(self._order) > self._size:
            values, old = self._order.popleft()
            del values[bisect_left(values, old)]

    def medians(self) -> list[float]:
        """Median reward per arm, infinity where there is none, shape ``(arms,)``."""
        return [_median(values) for values in self._sorted]


class SumWindow:
    """The last ``size`` rewards over all arms together: number and sum per arm, and the largest of all.

    Examples
    --------
    >>> window = SumWindow((0, 3), size=2)
    >>> for arm, reward in ((0, 8.0), (3, 1.0), (3, 2.0)):
    ...     window.add(arm, reward)
    >>> window.counts, window.sums, window.largest
    ([0, 2], [0.0, 3.0], 2.0)
    """

    def __init__(self, arms: tuple[int, ...], size: int) -> None:
        self._index = {arm: i for i, arm in enumerate(arms)}
        self._size = size
        self._order: deque[tuple[int, float]] = deque()
        self._sorted: list[float] = []
        self.counts = [0] * len(arms)
        self.sums = [0.0] * len(arms)

    def __len__(self) -> int:
        return len(self._order)

    @property
    def largest(self) -> float:
        """The largest reward in the window, which must not be empty."""
        return self._sorted[-1]

    def add(self, arm: int, reward: float) -> None:
        """Take the newest reward; the oldest leaves a full window."""
        i = self._index[arm]
        self._order.append((i, reward))
        insort(self._sorted, reward)
        self.counts[i] += 1
        self.sums[i] += reward
        if len(self._order) > self._size:
            j, old = self._order.popleft()
            del self._sorted[bisect_left(self._sorted, old)]
            self.counts[j] -= 1
            self.sums[j] = self.sums[j] - old if self.counts[j] else 0.0  # what rounding left goes with the last one


def _median(values: list[float]) -> float:
    """Median of sorted values; infinity without any."""
    half, odd = divmod(len(values), 2)
    if not values:
        return math.inf
    return values[half] if odd else 0.5 * (values[half - 1] + values[half])
