"""What steps are held against before they are learnt from, per draft position."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from adaptk.regime import FormerRegime

LEAST_SHIFT, MOST_SHIFT = 0.2, 1.5  # log odds that the change detector looks for

Expectation: TypeAlias = tuple[float, float, float, float, float, float, float, float, float]
"""Of one draft position; a bare tuple, because it is unpacked at every position of every step.

=============  ====================================================================================================
``p``          acceptance at this batch size
``level``      acceptance where no batch size is peculiar; the same as ``p`` without an offset
``spread``     binomial variance of one draft, ``p * (1 - p)``
``thin``       variance of ``level`` over the binomial one: squared weights of the trials over their weights' square
``up``         ``log(1 - p + p * exp(shift))``: ``s`` accepted of ``n`` have the log likelihood ratio
               ``s * shift - n * up`` of odds that rose by the shift against ones that did not
``down``       the same with ``-shift``, for odds that fell
``lead``       ``level`` less what it was at the beginning of the scatter's block
``for_hit``    log likelihood ratio of an accepted draft, for ``level`` against the former regime; 0 without one
``for_miss``   the same of a rejected draft
=============  ====================================================================================================
"""


class Reference:
    """Expectations of all positions, and the shift in log odds that the change detector looks for.

    Dear to compute and much the same from one step to the next, so that they are computed every few steps.

    Parameters
    ----------
    means
        Acceptance per position at the start.
    """

    __slots__ = ("levels", "positions", "shift")

    def __init__(self, means: Sequence[float]) -> None:
        self.positions: list[Expectation] = []  # empty until the first refresh
        self.shift = MOST_SHIFT
        self.levels = list(means)  # acceptance at the beginning of the scatter's block

    def begin_block(self, alpha: Sequence[float], beta: Sequence[float]) -> None:
        """The scatter begins a block: what is learnt from here on is its lead."""
        self.levels = [a / (a + b) for a, b in zip(alpha, beta, strict=True)]

    def refresh(
        self,
        alpha: Sequence[float],
        beta: Sequence[float],
        dilution: Sequence[float],
        ratio: float,
        deviation: float,
        former: FormerRegime | None,
    ) -> list[Expectation]:
        """Compute the expectations anew.

        ``ratio`` is the odds of acceptance at this batch size over the usual ones, ``deviation`` the standard deviation
        of what one step says, log odds.
        """
        log = math.log
        shift = deviation if deviation > LEAST_SHIFT else LEAST_SHIFT
        self.shift = shift = shift if shift < MOST_SHIFT else MOST_SHIFT
        factor = math.exp(shift)
        self.positions = positions = []
        for_hit = for_miss = 0.0
        for j, (a, b, diluted, before) in enumerate(zip(alpha, beta, dilution, self.levels, strict=True)):
            trials = a + b
            p = level = a / trials
            if ratio != 1.0:
                p = level * ratio / (1.0 - level + level * ratio)
            q = 1.0 - p
            if former is not None:
                for_hit, for_miss = former.against(j, level)
            up, down = log(q + p * factor), log(q + p / factor)
            positions.append((p, level, p * q, diluted / trials, up, down, level - before, for_hit, for_miss))
        return positions

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-safe."""
        return {
            "reference": [list(position) for position in self.positions],
            "shift": self.shift,
            "block_levels": list(self.levels),
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over the state of a ``snapshot``."""
        self.positions = [(p, *rest) for p, *rest in data["reference"]]
        self.shift = data["shift"]
        self.levels = list(data["block_levels"])
