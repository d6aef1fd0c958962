"""What is special at one place: padding and cliffs, which no smooth correction of the table can hold."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

CELL = 0.05  # prior standard deviation of one cell's offset, log units
CELLS = 29  # ranges of padded tokens, two per octave: up to 16,384 tokens
NEVER = -(10**9)
_KEPT = 4096


def cell(tokens: int) -> int:
    """Index of the range of tokens that a step falls into: it ends at a power of two or at three quarters of one.

    Captured graphs and tiles end at such numbers, so that a cliff between two ranges stays one.

    Examples
    --------
    >>> [cell(n) for n in (1, 2, 3, 4, 6, 7, 8, 256, 257)]
    [0, 2, 3, 4, 5, 6, 6, 16, 17]
    """
    octave = (tokens - 1).bit_length()
    index = 2 * octave - (4 * tokens <= 3 << octave and octave > 1)
    return index if index < CELLS else CELLS - 1


class Cells:
    """Independent Gaussian offsets of log step time, one per arm and range of tokens in a step.

    ``edges`` are the sizes that steps are padded to, where they are known; up to the largest they bound the ranges.

    Held beside the smooth state and updated with it as if the two were independent: what both explain together is
    shared out by their variances.
    """

    def __init__(self, arms: Sequence[int], return_steps: float, edges: Sequence[int] = ()) -> None:
        self._arms = tuple(arms)
        self._return_steps = return_steps
        self._edges = tuple(edges)
        self._index: dict[tuple[int, float], int] = {}
        cells = len(self._edges) + CELLS
        self.mean = [[0.0] * cells for _ in arms]
        self._variance = [[CELL**2] * cells for _ in arms]
        self.seen = [[NEVER] * cells for _ in arms]  # clock of the last booking
        self.now = 0  # steps

    def at(self, arm: int, batch: float) -> int:
        """The arm's cell at a batch size."""
        index = self._index.get((arm, batch))
        if index is None:
            if len(self._index) >= _KEPT:
                self._index.clear()
            tokens = max(1, math.ceil(batch * (self._arms[arm] + 1) - 1e-6))
            index = bisect_left(self._edges, tokens)
            if index == len(self._edges):
                index += cell(tokens)
            self._index[arm, batch] = index
        return index

    def variance(self, arm: int, at: int) -> float:
        """Variance of an offset: after a booking it returns to the prior's."""
        variance = self._variance[arm][at]
        if variance >= CELL**2:
            return variance
        return CELL**2 + (variance - CELL**2) * math.exp((self.seen[arm][at] - self.now) / self._return_steps)

    def widen(self, arm: int, at: int, variance: float) -> None:
        """This place has changed, or was never what its neighbours are."""
        self._variance[arm][at] = self.variance(arm, at) + variance
        self.seen[arm][at] = self.now

    def book(self, arm: int, at: int, share: float, shift: float, narrowing: float) -> None:
        """Move an offset that enters an observation with ``share`` by ``shift`` per unit of its part in the gain."""
        variance = self.variance(arm, at)
        gain = variance * share
        self.mean[arm][at] += gain * shift
        self._variance[arm][at] = max(1e-6, variance - gain * gain * narrowing)
        self.seen[arm][at] = self.now

    def forget(self) -> None:
        """Go back to the prior."""
        for arm in range(len(self._arms)):
            self.mean[arm] = [0.0] * len(self.mean[arm])
            self._variance[arm] = [CELL**2] * len(self.mean[arm])
            self.seen[arm] = [NEVER] * len(self.mean[arm])

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-safe."""
        return {
            "mean": [list(row) for row in self.mean],
            "variance": [list(row) for row in self._variance],
            "seen": [list(row) for row in self.seen],
            "now": self.now,
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over the state of a ``snapshot``."""
        self.mean = [list(row) for row in data["mean"]]
        self._variance = [list(row) for row in data["variance"]]
        self.seen = [list(row) for row in data["seen"]]
        self.now = data["now"]
