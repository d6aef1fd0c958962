"""What keeps an accepted draft from being worth a token: the drafter that returns none, and the end of an output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

STEPS = 40.0  # memory
TRIALS = 200.0  # at a position, at most
STEP_TRIALS = 16.0  # of one step, at most: what a drafter finds goes up and down with the text of all requests together
SEED_STEPS, STEADY_STEPS = 20, 400  # memory of the slow mean
BLIND_STEPS = 40.0  # memory while nothing is asked for
SEED_TRIALS = 8.0  # drafts that are taken as delivered before the first step
FLOOR_TRIALS = 4.0  # below which nothing fades while nothing is asked for
TABLE_TRIALS = 16.0  # that a table's supply is worth: as one step
LEAST = 0.02  # parameter of a Beta, at least; a position at which no draft was ever missing has it
STOP_STEPS = 200.0  # memory of where outputs end
UNSTOPPED = 50.0  # tokens without a stop that are taken as seen before the first
SELDOM = 0.01  # stops per token below which it is of no account how surely they are known

Array = npt.NDArray[np.float64]


def given_before(shares: Sequence[float] | None, k_max: int) -> list[float]:
    """Probability of a draft at each position, given the one before it, shape ``(k_max,)``.

    ``shares`` are those of all steps that asked for so many, as in a table, never rising; the last one goes on.
    ``None``: there always is one. Behind a position that never has a draft nothing is known, and 1 is taken.

    Examples
    --------
    >>> given_before([0.5, 0.4], 3)
    [0.5, 0.8, 1.0]
    """
    if shares is None:
        return [1.0] * k_max
    held = [1.0] + [shares[min(j, len(shares) - 1)] for j in range(k_max)]
    return [after / before if before > 0.0 else 1.0 for before, after in pairwise(held)]


class Supply:
    """Beta posteriors of the probability that the drafter returns a draft at a position, given the ones before it.

    EAGLE-like drafters always do; n-gram and suffix drafters often do not.

    Parameters
    ----------
    k_max
        Draft positions that exist.
    shares
        A table's supply, the first guess: share of steps with a draft at each position. ``None``: all of them.
    """

    def __init__(self, k_max: int, shares: Sequence[float] | None = None) -> None:
        given = given_before(shares, k_max)
        self.alpha = [SEED_TRIALS if p == 1.0 else max(LEAST, p * TABLE_TRIALS) for p in given]
        self.beta = [LEAST if p == 1.0 else max(LEAST, (1.0 - p) * TABLE_TRIALS) for p in given]
        self.steady = given  # a slow mean, for what is written down
        self._seen = [SEED_STEPS] * k_max
        self._decodes = 0  # requests in the last step
        self._flawless = min(given, default=1.0) == 1.0  # no position was ever short of a draft

    def observe(self, present: Sequence[int], asked: int, decodes: int) -> None:
        """Count a step: ``decodes`` requests were asked for ``asked`` drafts, ``present`` came, by position."""
        joined, self._decodes = decodes - self._decodes, decodes
        if asked > 0 and 0 < joined < decodes:
            # Those that have just joined may have had no chance to be drafted for: that says nothing of the drafter.
            decodes -= max(0, min(joined, decodes - present[0]))
        if self._flawless and (asked == 0 or present[asked - 1] >= decodes):
            return  # the usual drafter; what follows would change nothing
        keep = 1.0 - 1.0 / STEPS
        reach = decodes
        for j in range(asked):
            here = present[j] if present[j] < reach else reach
            if reach == 0:
                break
            if here == reach and self.beta[j] <= LEAST and self.steady[j] == 1.0:
                continue  # a drafter that always delivers
            self._flawless = False
            share = here / reach
            trials = reach if reach < STEP_TRIALS else STEP_TRIALS
            fade = min(keep, TRIALS / (self.alpha[j] + self.beta[j] + trials))
            self.alpha[j] = max(LEAST, self.alpha[j] * fade + trials * share)
            self.beta[j] = max(LEAST, self.beta[j] * fade + trials * (1.0 - share))
            self._seen[j] += self._seen[j] < STEADY_STEPS
            self.steady[j] += (share - self.steady[j]) / self._seen[j]
            reach = here

    def fade(self, decodes: int) -> None:
        """Widen by one step in which nothing was asked for ``decodes`` requests."""
        self._decodes = decodes
        for j, (a, b) in enumerate(zip(self.alpha, self.beta, strict=True)):
            if a + b > FLOOR_TRIALS:
                self.alpha[j] = a * (1.0 - 1.0 / BLIND_STEPS)
                self.beta[j] = b * (1.0 - 1.0 / BLIND_STEPS)

    def means(self) -> list[float]:
        """Expected probability per position, shape ``(k_max,)``; 1 where no draft was ever missing."""
        if self._flawless:
            return [1.0] * len(self.beta)
        return [1.0 if b <= LEAST else a / (a + b) for a, b in zip(self.alpha, self.beta, strict=True)]

    @property
    def complete(self) -> bool:
        """Whether no draft that was asked for was ever missing."""
        return self._flawless or max(self.beta, default=0.0) <= LEAST

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-safe."""
        return {
            "alpha": list(self.alpha),
            "beta": list(self.beta),
            "steady": list(self.steady),
            "seen": list(self._seen),
            "decodes": self._decodes,
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over the state of a ``snapshot``."""
        self.alpha, self.beta = list(data["alpha"]), list(data["beta"])
        self.steady, self._seen = list(data["steady"]), list(data["seen"])
        self._decodes = data["decodes"]
        self._flawless = all(b <= LEAST and s == 1.0 for b, s in zip(self.beta, self.steady, strict=True))


class Stops:
    """Probability that an output ends at a token, so that drafts accepted behind it are worth nothing."""

    def __init__(self) -> None:
        self._stops, self._tokens = 0.0, UNSTOPPED

    def observe(self, accepted: Sequence[int], emitted: Sequence[int], in_all: int) -> None:
        """Count, of the tokens before the last of a burst, those that ended an output.

        ``in_all`` drafts were accepted.
        """
        stops, tokens = 0, in_all
        if in_all + len(accepted) != sum(emitted):  # else each request gave its accepted drafts and one token more
            lost = [a - e for a, e in zip(accepted, emitted, strict=True) if e <= a]
            stops = len(lost) - emitted.count(0)  # one that gave nothing did not end here
            tokens -= sum(lost)
        keep = 1.0 - 1.0 / STOP_STEPS
        self._stops = self._stops * keep + stops
        self._tokens = self._tokens * keep + tokens + UNSTOPPED / STOP_STEPS

    def fade(self) -> None:
        """Widen by one step in which nothing was asked for: it remains what is likely, but is less and less sure."""
        if self._tokens > FLOOR_TRIALS:
            self._stops *= 1.0 - 1.0 / BLIND_STEPS
            self._tokens *= 1.0 - 1.0 / BLIND_STEPS

    @property
    def hazard(self) -> float:
        """The probability, per token."""
        return self._stops / self._tokens

    def goes_on(self, n: int, rng: np.random.Generator) -> Array | float:
        """Draws of the probability that an output goes on, shape ``(n, 1)``; its mean where hardly any ever stopped."""
        hazard = self.hazard
        if hazard < SELDOM:
            return 1.0 - hazard
        return rng.beta(max(LEAST, self._tokens - self._stops), max(LEAST, self._stops), size=(n, 1))

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-safe."""
        return {"stops": self._stops, "tokens": self._tokens}

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over the state of a ``snapshot``."""
        self._stops, self._tokens = data["stops"], data["tokens"]
