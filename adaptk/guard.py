"""What exploring may cost: a ledger in milliseconds, and patience after failed excursions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Place = tuple[int, int]

PROBE_PART = 0.7  # of the income, at most, for routine probes from K=0
PURSE_STEPS = 200  # what routine probes can save up, in steps
HOARD_STEPS = 2_000  # allowance that can be saved up, in steps
FIRST_WAIT = 3.0  # blocks before an arm is visited again after a visit that changed nothing
PATIENCE = 3.0  # factor by which that wait grows with each
LONGEST_WAIT = 81.0  # blocks
# Blocks before any arm is visited again at that place, after the first, the second, ... visit in a row that failed: in
# calm no more than 2 % of the steps.
RESTS = (3.0, 8.0)
CONTEXT_OCTAVE = 1024.0  # tokens per request that make the first octave of context


class Ledger:
    """Milliseconds that exploring may cost and has cost.

    Every observed step earns ``budget`` times its time; a visit is affordable when its price fits into what was earned
    and not spent. What it really cost is booked afterwards, so an expensive surprise is paid off before the next visit.

    References
    ----------
    Wu et al., "Conservative Bandits", ICML 2016.
    """

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self.allowed_ms = 0.0
        self.spent_ms = 0.0
        self.purse_ms = 0.0
        self._wanted_ms = 0.0

    def earn(self, elapsed_ms: float, usual_ms: float) -> None:
        """Book a step's time on the income side; what can be saved up is counted in steps of ``usual_ms``."""
        budget, wanted = self.budget, self._wanted_ms
        hoard = budget * HOARD_STEPS * usual_ms
        most = self.spent_ms + (hoard if hoard > wanted else wanted)
        allowed = self.allowed_ms + budget * elapsed_ms
        self.allowed_ms = allowed if allowed < most else most
        part = PROBE_PART * budget
        # A probe that costs more than that is saved up for, or a drafter left for its price would never be looked at.
        hoard = PURSE_STEPS * part * usual_ms
        most = hoard if hoard > wanted else wanted
        purse = self.purse_ms + part * elapsed_ms
        self.purse_ms = purse if purse < most else most

    def spend(self, extra_ms: float) -> None:
        """Book what a visited step cost beyond the arm that would have been played."""
        self.spent_ms += max(0.0, extra_ms)

    @property
    def balance_ms(self) -> float:
        """Milliseconds left."""
        return self.allowed_ms - self.spent_ms

    def affords(self, price_ms: float) -> bool:
        """Whether a visit at this price may begin; without any budget none may."""
        return self.budget > 0.0 and price_ms <= self.balance_ms

    def affords_probe(self, price_ms: float) -> bool:
        """Whether a routine probe may begin: they live on a part of the income and cannot save up much."""
        affordable = self.affords(price_ms) and price_ms <= self.purse_ms
        self._wanted_ms = 0.0 if affordable else price_ms
        return affordable

    def begin_probe(self, price_ms: float) -> None:
        """A routine probe begins."""
        self.purse_ms -= price_ms

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-safe."""
        return {name: getattr(self, name) for name in _LEDGER}

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over the state of a ``snapshot``."""
        for name in _LEDGER:
            setattr(self, name, data[name])


_LEDGER = ("allowed_ms", "spent_ms", "purse_ms", "_wanted_ms")


class Patience:
    """Waits between visits of an arm, per octave of batch size and context: longer after each that changed nothing."""

    def __init__(self) -> None:
        self._wait: dict[tuple[int, Place], float] = {}
        self._until: dict[tuple[int, Place], float] = {}
        self._failed: dict[Place, int] = {}  # visits in a row
        self._rested: dict[Place, float] = {}
        self._now = 0

    def tick(self) -> None:
        """A block has begun."""
        self._now += 1

    def allows(self, arm: int, at: Place) -> bool:
        """Whether the arm's wait is over."""
        return max(self._until.get((arm, at), 0.0), self._rested.get(at, 0.0)) <= self._now

    def failed(self, arm: int, at: Place) -> None:
        """A visit left things as they were."""
        key = (arm, at)
        wait = min(LONGEST_WAIT, self._wait.get(key, FIRST_WAIT / PATIENCE) * PATIENCE)
        self._wait[key] = wait
        self._until[key] = self._now + wait
        failed = self._failed[at] = self._failed.get(at, 0) + 1
        self._rested[at] = self._now + RESTS[min(failed, len(RESTS)) - 1]

    def succeeded(self, arm: int, at: Place) -> None:
        """A visit won."""
        self._wait.pop((arm, at), None)
        self._until.pop((arm, at), None)
        self._failed.pop(at, None)
        self._rested.pop(at, None)

    def forgive(self) -> None:
        """A change was detected: what failed before may work now."""
        for waits in (self._wait, self._until, self._failed, self._rested):
            waits.clear()

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-safe."""
        return {
            "now": self._now,
            "wait": [[arm, *at, value] for (arm, at), value in sorted(self._wait.items())],
            "until": [[arm, *at, value] for (arm, at), value in sorted(self._until.items())],
            "failed": [[*at, value] for at, value in sorted(self._failed.items())],
            "rested": [[*at, value] for at, value in sorted(self._rested.items())],
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over the state of a ``snapshot``."""
        self._now = data["now"]
        self._wait = {(arm, (batch, context)): value for arm, batch, context, value in data["wait"]}
        self._until = {(arm, (batch, context)): value for arm, batch, context, value in data["until"]}
        self._failed = {(batch, context): value for batch, context, value in data["failed"]}
        self._rested = {(batch, context): value for batch, context, value in data["rested"]}


def place(batch: int, context: float | None) -> Place:
    """Octave of a batch size, none ending at a power of two, where loads sit; and of the context per request."""
    return (3 * batch // 2).bit_length(), 0 if context is None else int(math.log2(1.0 + context / CONTEXT_OCTAVE))
