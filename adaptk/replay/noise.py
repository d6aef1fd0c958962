"""What disturbs step times: jitter, stalls, compilation, drift. Drawn per step, alike for all policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Noise(NamedTuple):
    """Multiplicative noise of step times.

    Parameters
    ----------
    sigma
        Standard deviation of log step time.
    correlation
        Of log step times of neighbouring steps (AR(1)), 0 to below 1.
    stalls, stall_factor
        Share of the steps that stall, and how many times longer they take (0.3 to 1.7 times that, uniformly).
    stall_steps
        Mean length of a stall in steps (geometric); ``stalls`` stays the share of steps.
    """

    sigma: float = 0.03
    correlation: float = 0.0
    stalls: float = 0.0
    stall_factor: float = 4.0
    stall_steps: float = 1.0

    def factors(self, steps: int, rng: np.random.Generator) -> Array:
        """One factor per step, shape ``(steps,)``.

        Raises
        ------
        ValueError
            If a field is out of range.
        """
        most = self.stall_steps / (1.0 + self.stall_steps) if self.stall_steps > 1.0 else 1.0
        if not 0.0 <= self.stalls <= most:
            raise ValueError(f"stalls is {self.stalls}: give a share from 0 to {most:.3g}, runs need gaps between them")
        if not 0.0 <= self.correlation < 1.0 or self.sigma < 0.0:
            raise ValueError(
                f"correlation is {self.correlation}, sigma {self.sigma}: give 0 to below 1, and at least 0"
            )
        white = rng.standard_normal(steps)
        stalled = rng.random(steps + 1)
        sizes = rng.uniform(0.3, 1.7, steps)
        if self.correlation:
            white[1:] *= np.sqrt(1.0 - self.correlation**2)
            for i in range(1, len(white)):
                white[i] += self.correlation * white[i - 1]
        factors = np.exp(self.sigma * white)
        if self.stalls:
            hit = _runs(stalled, self.stalls, self.stall_steps)
            factors[hit] *= np.maximum(1.0, 1.0 + (self.stall_factor - 1.0) * sizes[hit])
        return np.asarray(factors)


class Compilation(NamedTuple):
    """The first ``steps`` steps of every new pair of K and padded size take ``ms`` longer."""

    ms: float = 0.0
    steps: int = 0


class Drift(NamedTuple):
    """How the engine changes: from ``steps`` (rising) on, times are ``level``-fold and drafts cost ``k_factor``-fold.

    Linear between the given steps where ``linear``, else in jumps; held before the first and after the last.
    """

    steps: Sequence[int] = (0,)
    level: Sequence[float] = (1.0,)
    k_factor: Sequence[float] = (1.0,)
    linear: bool = False

    def curves(self, steps: int) -> tuple[Array, Array]:
        """Level and factor of drafts per step, each of shape ``(steps,)``.

        Raises
        ------
        ValueError
            If the fields differ in length, ``steps`` does not rise or a factor is not positive.
        """
        if not len(self.steps) == len(self.level) == len(self.k_factor) > 0 or np.any(np.diff(self.steps) <= 0):
            raise ValueError(f"steps is {self.steps!r}: give rising steps, with a level and a k_factor for each")
        if min(*self.level, *self.k_factor) <= 0.0:
            raise ValueError(f"level is {self.level!r}, k_factor {self.k_factor!r}: give factors above 0")
        at = np.arange(steps)
        if self.linear:
            return np.interp(at, self.steps, self.level), np.interp(at, self.steps, self.k_factor)
        index = np.clip(np.searchsorted(self.steps, at, side="right") - 1, 0, None)
        return np.asarray(self.level, float)[index], np.asarray(self.k_factor, float)[index]


def _runs(uniform: Array, share: float, length: float) -> NDArray[np.bool_]:
    """Steps that lie in a run; runs begin and end so that ``share`` of the steps do, mean length ``length``."""
    if length <= 1.0:
        return np.asarray(uniform[1:] < share)
    leave = 1.0 / length
    enter = leave * share / (1.0 - share)
    hit = np.empty(len(uniform) - 1, dtype=bool)
    inside = bool(uniform[0] < share)
    for i, u in enumerate(uniform[1:].tolist()):
        inside = u >= leave if inside else u < enter
        hit[i] = inside
    return hit
