"""A drafter that was left alone for a while: what it then does badly need not last."""

from __future__ import annotations

import math
from collections.abc import Sequence

from adaptk.reference import Expectation

COLD_AFTER = 8  # steps at K=0 after which a drafter may have lost touch with the target
COLD_STEPS = 40  # drafted steps until its bad results count in full
CHANCE = 1.5  # standard deviations below expectation up to which results are taken as they are
FRESH_STEPS = 8  # drafted steps after a spell at K=0 that show how cold the drafter gets
FRESH_WEIGHT, FRESH_KEEP = 20.0, 0.9  # drafts taken as accepted as expected before the first; memory, spells
FRESH_DOUBT = 400.0  # expected acceptances after which it is half known how cold the drafter gets
COLDER = 6  # power of the usual factor below which results are worse than cold


class Warmth:
    """How much to believe of a drafter just after a spell at K=0.

    A drafter that reads the target's hidden states or keeps a cache of its own is poor for some dozen steps after it
    was left alone. ``factor`` is what acceptance usually comes down to in the first of them. Results that are worse
    than chance explains count little at first and in full after ``COLD_STEPS`` drafted steps, or as soon as they are
    far worse than this drafter has been after other spells: then it is bad, not cold. Good results always count.
    """

    __slots__ = ("_expected", "_fresh_expected", "_fresh_hits", "_hits", "_variance", "blind", "left")

    def __init__(self) -> None:
        self.blind = 0  # steps at K=0 in a row
        self.left = 0  # drafted steps left in which bad results count little
        # Since the spell: accepted, expected to be accepted, variance of that.
        self._hits = self._expected = self._variance = 0.0
        self._fresh_hits = self._fresh_expected = 0.0  # in the first steps after all spells, fading

    def rest(self) -> None:
        """Nothing was drafted for this step."""
        self.blind += 1

    def draft(self) -> bool:
        """Something was drafted for this step; whether that ends a spell at K=0."""
        rested = self.blind >= COLD_AFTER
        if rested:
            self.left = COLD_STEPS
            self._hits = self._expected = self._variance = 0.0
            self._fresh_hits *= FRESH_KEEP
            self._fresh_expected *= FRESH_KEEP
        self.blind = 0
        return rested

    @property
    def factor(self) -> float:
        """Factor of acceptance in the next few steps, if drafts are made: 1 unless the drafter is or gets cold."""
        if self.blind < COLD_AFTER and self.left <= COLD_STEPS - FRESH_STEPS:
            return 1.0
        return min(1.0, (self._fresh_hits + FRESH_WEIGHT) / (self._fresh_expected + FRESH_WEIGHT))

    def believed(
        self, succeeded: Sequence[int], failed: Sequence[int], positions: Sequence[Expectation], scatter: float
    ) -> float:
        """Weight of a step's results while ``left`` is above 0, in [0, 1].

        ``positions`` is what is expected of each, ``scatter`` the variance over the binomial one.
        """
        hits = expected = variance = 0.0
        for s, f, (p, _, spread, thin, *_) in zip(succeeded, failed, positions, strict=True):
            n = s + f
            if n == 0:
                break
            hits += s
            expected += n * p
            variance += n * spread * (1.0 + n * thin)
        factor, known = self.factor, self._fresh_expected / (self._fresh_expected + FRESH_DOUBT)
        if self.left > COLD_STEPS - FRESH_STEPS:
            self._fresh_hits += hits
            self._fresh_expected += expected
        self.left -= 1
        self._hits += hits
        self._expected += expected
        self._variance += variance
        chance = CHANCE * math.sqrt(scatter * self._variance)
        if self._hits > self._expected - chance:
            return 1.0
        believed = (1.0 - self.left / COLD_STEPS) ** 2
        worse = self._hits < factor**COLDER * self._expected - chance
        return known if worse and known > believed else believed

    def proved_bad(self) -> None:
        """The acceptance fell for good: what was taken for cold was not."""
        self._fresh_hits = self._fresh_expected = 0.0

    def snapshot(self) -> list[float]:
        """Plain data, JSON-safe."""
        return [getattr(self, name) for name in self.__slots__]

    def load(self, data: Sequence[float]) -> None:
        """Take over the state of a ``snapshot``."""
        for name, value in zip(self.__slots__, data, strict=True):
            setattr(self, name, value)
        self.blind, self.left = int(self.blind), int(self.left)
