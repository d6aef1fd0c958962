"""What exploring may cost: a ledger in milliseconds, and patience after failed excursions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

PROBE_PART = 0.7  # of the income, at most, for routine probes from K=0
PURSE_STEPS = 200  # what routine probes can save up, in steps
HOARD_STEPS = 2_000  # allowance that can be saved up, in steps
FIRST_WAIT = 3.0  # blocks before an arm is visited again after a visit that changed nothing
PATIENCE = 3.0  # factor by which that wait grows with each
REST = 2.0  # blocks before any arm is visited at that batch size again
LONGEST_WAIT = 81.0  # blocks
_ANY = -1


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

    def earn(self, elapsed_ms: float, usual_ms: float) -> None:
        """Book a step's time on the income side; what can be saved up is counted in steps of ``usual_ms``."""
        self.allowed_ms += self.budget * elapsed_ms
        most = self.spent_ms + self.budget * HOARD_STEPS * usual_ms
        if self.allowed_ms > most:
            self.allowed_ms = most
        part = PROBE_PART * self.budget
        self.purse_ms = min(self.purse_ms + part * elapsed_ms, PURSE_STEPS * part * usual_ms)

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
        return self.affords(price_ms) and price_ms <= self.purse_ms

    def begin_probe(self, price_ms: float) -> None:
        """A routine probe begins."""
        self.purse_ms -= price_ms

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-safe."""
        return {"allowed_ms": self.allowed_ms, "spent_ms": self.spent_ms, "purse_ms": self.purse_ms}

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over the state of a ``snapshot``."""
        self.allowed_ms, self.spent_ms, self.purse_ms = data["allowed_ms"], data["spent_ms"], data["purse_ms"]


class Patience:
    """Waits between visits of an arm, per octave of batch size: longer after each that changed nothing."""

    def __init__(self) -> None:
        self._wait: dict[tuple[int, int], float] = {}
        self._until: dict[tuple[int, int], float] = {}
        self._now = 0

    def tick(self) -> None:
        """A block has begun."""
        self._now += 1

    def allows(self, arm: int, batch: int) -> bool:
        """Whether the arm's wait is over."""
        at = octave(batch)
        return max(self._until.get((arm, at), 0.0), self._until.get((_ANY, at), 0.0)) <= self._now

    def failed(self, arm: int, batch: int) -> None:
        """A visit left things as they were."""
        key = (arm, octave(batch))
        wait = min(LONGEST_WAIT, self._wait.get(key, FIRST_WAIT / PATIENCE) * PATIENCE)
        self._wait[key] = wait
        self._until[key] = self._now + wait
        self._until[_ANY, key[1]] = self._now + REST

    def succeeded(self, arm: int, batch: int) -> None:
        """A visit won."""
        self._wait.pop((arm, octave(batch)), None)
        self._until.pop((arm, octave(batch)), None)

    def forgive(self) -> None:
        """A change was detected: what failed before may work now."""
        self._wait.clear()
        self._until.clear()

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-safe."""
        return {
            "now": self._now,
            "wait": [[*key, value] for key, value in sorted(self._wait.items())],
            "until": [[*key, value] for key, value in sorted(self._until.items())],
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over the state of a ``snapshot``."""
        self._now = data["now"]
        self._wait = {(arm, at): wait for arm, at, wait in data["wait"]}
        self._until = {(arm, at): until for arm, at, until in data["until"]}


def octave(batch: int) -> int:
    """Index of the power of two at or below a batch size."""
    return int(math.log2(max(batch, 1)))
