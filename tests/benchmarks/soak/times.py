"""Step times of turns on two servers, and their ratio: turn by turn, and over all turns together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tests.benchmarks.pairs import Ratio, ratio

ALLOWED = 1.02
TURNS = 6  # fewer have no 95 % interval
_DRAWS = 2000


class Turns(NamedTuple):
    """Step times in milliseconds of turns that stood side by side, an array for each turn."""

    ours: Sequence[np.ndarray]
    theirs: Sequence[np.ndarray]

    def by_turn(self, percent: float) -> Ratio:
        """Ratio of a percentile, turn by turn."""
        return ratio(*([float(np.percentile(ms, percent)) for ms in side] for side in self))

    def together(self, percent: float) -> tuple[float, float, float]:
        """Ratio of a percentile of all steps, and a 95 % interval by drawing turns anew in their pairs."""
        rng = np.random.default_rng(0)
        n = len(self.ours)
        drawn = [self._over(rng.integers(0, n, n), percent) for _ in range(_DRAWS)]
        low, high = np.percentile(drawn, [2.5, 97.5])
        return self._over(np.arange(n), percent), float(low), float(high)

    def _over(self, turns: np.ndarray, percent: float) -> float:
        ours, theirs = (np.percentile(np.concatenate([side[i] for i in turns]), percent) for side in self)
        return float(ours / theirs)


def report(name: str, turns: Turns) -> list[str]:
    """Lines with the ratios of the middle and of the slowest hundredth of the steps."""
    said = []
    for percent in (50, 99):
        found, (all_, low, high) = turns.by_turn(percent), turns.together(percent)
        said.append(
            f"step time p{percent}, {name} over plain: {found.median:.3f} [{found.low:.3f},{found.high:.3f}] "
            f"(median of {found.pairs} turns); all steps together {all_:.3f} [{low:.3f},{high:.3f}]"
        )
    return said


def allowed(turns: Turns) -> bool:
    """Whether the interval of the slowest hundredth does not lie above what is allowed; too few turns have none."""
    return len(turns.ours) < TURNS or turns.by_turn(99).low <= ALLOWED
