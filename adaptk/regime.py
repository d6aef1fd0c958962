"""The acceptance before the last change, kept for its return and for changes that were none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from adaptk.logodds import LEAST

DOUBT = 2.0  # log odds in favour of a change that was just detected
SURE = 6.0  # log odds that the evidence against the former regime is counted up to
RETURNED = -1.0  # log odds below which the former regime is back
KEPT_TRIALS = 300.0  # at a position: what comes back is seldom quite what it was
SURPRISING = 2.5  # standard deviations
NEAR = 0.4  # log odds by which a regime that comes back may differ from what it was, standard deviation


class FormerRegime:
    """What was believed before the last change, held against what is believed now.

    An alarm is sometimes false, and changes are often undone: a tenant leaves, a kind of prompt comes back. Both show
    in steps that the former belief predicts better than the present one. ``odds`` is the log of how much better the
    present one does, step by step before it learns from it, up to ``SURE``.
    """

    __slots__ = ("_failures", "_successes", "alpha", "beta", "dilution", "odds")

    def __init__(
        self, alpha: Sequence[float], beta: Sequence[float], dilution: Sequence[float], odds: float = DOUBT
    ) -> None:
        self.alpha, self.beta, self.dilution = list(alpha), list(beta), list(dilution)
        self.odds = odds
        means = [min(1.0 - LEAST, max(LEAST, a / (a + b))) for a, b in zip(alpha, beta, strict=True)]
        self._successes = [math.log(p) for p in means]
        self._failures = [math.log(1.0 - p) for p in means]

    @property
    def log_odds(self) -> float:
        """Of the first draft's acceptance."""
        return self._successes[0] - self._failures[0]

    def against(self, j: int, mean: float) -> tuple[float, float]:
        """What an accepted and what a rejected draft at position ``j`` say for ``mean`` against the former belief."""
        mean = 1.0 - LEAST if mean > 1.0 - LEAST else LEAST if mean < LEAST else mean
        return math.log(mean) - self._successes[j], math.log(1.0 - mean) - self._failures[j]

    def returned(self, gain: float) -> bool:
        """Count what a step says for the present belief; whether the former one has come back."""
        odds = self.odds + gain
        self.odds = odds if odds < SURE else SURE
        return odds < RETURNED

    def explains(self, steps: Iterable[tuple[Sequence[float], Sequence[float]]], scatter: float) -> bool:
        """Whether what was accepted and rejected by position is no great surprise under the former belief.

        It may predict better than the present one and be wrong all the same. Chance and ``NEAR`` are forgiven.
        """
        surprise = variance = information = 0.0
        for succeeded, failed in steps:
            for s, f, a, b in zip(succeeded, failed, self.alpha, self.beta, strict=True):
                n, trials = s + f, a + b
                surprise += s - n * a / trials
                binomial = n * a * b / (trials * trials)
                information += binomial
                variance += binomial * (1.0 + n / trials)
        return surprise * surprise <= SURPRISING**2 * (scatter * variance + (NEAR * information) ** 2)

    def snapshot(self) -> list[Any]:
        """Plain data, JSON-safe."""
        return [list(self.alpha), list(self.beta), list(self.dilution), self.odds]

    @classmethod
    def left(cls, alpha: Sequence[float], beta: Sequence[float], dilution: Sequence[float]) -> FormerRegime:
        """The regime that a change has just ended, with no more than ``KEPT_TRIALS`` trials at any position."""
        keep = [min(1.0, KEPT_TRIALS / (a + b)) for a, b in zip(alpha, beta, strict=True)]
        return cls(
            [a * k for a, k in zip(alpha, keep, strict=True)],
            [b * k for b, k in zip(beta, keep, strict=True)],
            dilution,
        )

    @classmethod
    def before(
        cls,
        alpha: Sequence[float],
        beta: Sequence[float],
        dilution: Sequence[float],
        steps: Iterable[tuple[Sequence[float], Sequence[float]]],
    ) -> FormerRegime:
        """What was believed before the last ``steps``: they spoke for another belief and would spoil this one."""
        alpha, beta = list(alpha), list(beta)
        for s, f in steps:
            for j in range(len(alpha)):
                n = s[j] + f[j]
                if n and alpha[j] + beta[j] - n > 3.0:
                    alpha[j] = max(1e-3, alpha[j] - s[j])
                    beta[j] = max(1e-3, beta[j] - f[j])
        return cls.left(alpha, beta, dilution)

    @classmethod
    def restored(cls, data: Sequence[Any]) -> FormerRegime:
        """The regime of a ``snapshot``."""
        return cls(*data)
