"""How acceptance at one batch size differs from what all of them have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

BINS = 24  # octaves of batch size
SPREAD = 0.3  # log odds by which octaves are taken to differ, before any is known
LEAST_VARIANCE = 1e-4  # of an offset, log odds squared: no octave is ever known for good
WANDER_HERE, WANDER_AWAY = 1e-6, 2e-5  # variance that comes back per step in which the octave was played, or was not
MEMORY = 300.0  # steps: where what all have in common was learnt
SEED_STEPS = 30.0  # steps of the octave itself that what is known at the start counts as
KEEP = 1.0 - 1.0 / MEMORY
SHRINK = 1.0 - 1.0 / 4000.0  # per step in which it was played: what all have in common takes over


class BatchOffsets:
    """One small offset in log odds per octave of batch size, shrunk to 0 and learnt slowly.

    What survives to the end of a long drain, or a tenant that comes by night, need not be like the rest: what it shows
    is credited to its batch size first, and to all of them only as far as that is known already. An octave at which
    nearly all was learnt that is known has no offset to learn: the two could not be told apart.

    An offset is the state of a scalar Kalman filter whose measurement is the surprise of a step.
    """

    __slots__ = ("_here", "_last", "_now", "_offsets", "_steps", "_total", "_variances", "at", "ratio", "unknown",
                 "variance")  # fmt: skip

    def __init__(self) -> None:
        self._offsets = [0.0] * BINS
        self._variances = [SPREAD * SPREAD] * BINS
        self._last = [0] * BINS  # when each was played
        self._steps = [0.0] * BINS  # played there, fading
        self._now = 0
        self._here, self._total = 0.0, 0.0  # of them at this octave, and in all
        self.at = 0  # the octave played, and its odds ratio and variance
        self.ratio, self.variance = 1.0, SPREAD * SPREAD
        self.unknown = 0.0  # the part of the variance that counts: as much as was learnt elsewhere

    def enter(self, batch: int) -> bool:
        """A step of this batch size is to be counted; whether it is of another octave than the last."""
        at = octave(batch)
        self._now += 1
        moved = at != self.at
        if moved:
            self._leave()
            away = self._now - self._last[at]
            self.at, self.ratio, self.variance = at, math.exp(self._offsets[at]), self._doubt(at)
            self._here = self._steps[at] * KEEP**away
        self.unknown = self.variance * (self._total - self._here) / (self._total + SEED_STEPS)
        self._here = self._here * KEEP + 1.0
        self._total = self._total * KEEP + 1.0
        return moved

    def restart(self) -> None:
        """What all have in common was learnt anew, here."""
        self._steps = [0.0] * BINS
        self._total = self._here

    def learn(self, surprise: float, noise: float, information: float) -> None:
        """Credit a step's surprise, successes beyond expectation, to the octave.

        ``noise`` is the variance of the surprise from all other causes, ``information`` its derivative by the offset.
        """
        variance = self.unknown
        gain = variance * information / (noise + information * information * variance)
        self.ratio *= math.exp(max(-0.5, min(0.5, gain * surprise)) - (1.0 - SHRINK) * math.log(self.ratio))
        variance = self.variance * (1.0 - gain * information)
        self.variance = (variance if variance > LEAST_VARIANCE else LEAST_VARIANCE) + WANDER_HERE

    def look(self, batch: int | None) -> tuple[float, float]:
        """Odds ratio and variance of the log odds at a batch size; 1 and 0 where that is ``None``."""
        if batch is None:
            return 1.0, 0.0
        at = octave(batch)
        if at == self.at:
            return self.ratio, self.unknown
        here = self._steps[at] * KEEP ** (self._now - self._last[at])
        return math.exp(self._offsets[at]), self._doubt(at) * (self._total - here) / (self._total + SEED_STEPS)

    def _leave(self) -> None:
        at = self.at
        self._last[at], self._steps[at] = self._now, self._here
        self._offsets[at], self._variances[at] = math.log(self.ratio), self.variance

    def _doubt(self, at: int) -> float:
        return min(SPREAD * SPREAD, self._variances[at] + WANDER_AWAY * (self._now - self._last[at]))

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-safe."""
        return {
            "offsets": list(self._offsets),
            "variances": list(self._variances),
            "last": list(self._last),
            "steps": list(self._steps),
            "now": [self._now, self.at, self.ratio, self.variance, self.unknown, self._here, self._total],
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over the state of a ``snapshot``."""
        self._offsets, self._variances = list(data["offsets"]), list(data["variances"])
        self._last, self._steps = list(data["last"]), list(data["steps"])
        self._now, self.at, self.ratio, self.variance, self.unknown, self._here, self._total = data["now"]


def octave(batch: int) -> int:
    """Number of the octave of a batch size, from 0 for a batch of 1."""
    at = batch.bit_length() - 1
    return 0 if at < 0 else at if at < BINS else BINS - 1
