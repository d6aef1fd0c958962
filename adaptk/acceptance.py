"""What the drafter returns and how much of it the target accepts, per draft position."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from adaptk.cascade import cascade_counts
from adaptk.drift import Cusum
from adaptk.supply import Stops, Supply
from adaptk.table import DEFAULT_ACCEPTANCE

Array = npt.NDArray[np.float64]

# Pseudo-trials behind a table's acceptance: enough to start on, gone after one step of a large batch.
SEED_WEIGHT = 16.0
UNKNOWN_WEIGHT = 4.0
MEMORY_TRIALS = 3000.0
MEMORY_STEPS = 300.0
KEEP = 1.0 - 1.0 / MEMORY_STEPS
BLIND_STEPS = 40.0  # memory while nothing at all is drafted: K=0 must widen what it cannot see
FLOOR_TRIALS = 8.0
MOST_RECENT = 128  # steps whose counts are kept for a restart
RESTART_WEIGHT = 3.0  # pseudo-trials of what is guessed after an alarm
MOVED, MOVED_TRIALS = 0.1, 40.0  # log odds


class AcceptancePosterior:
    """Beta posteriors of the conditional acceptance probability per draft position, discounted.

    Next to them stands the *supply*: the probability that the drafter returns a draft at a position at all, which
    n-gram and suffix drafters often do not. Both enter the acceptance length of an arm,
    ``AL(K) = 1 + sum_{j<=K} prod_{i<=j} supply_i * acceptance_i``.

    Evidence fades by steps and by trials. A position that is not drafted keeps its mean relative to the observed ones:
    they move together in log odds. An alarm of the change detector restarts from what was counted since its side of the
    detector left zero. Not modelled: lasting differences between requests and between batch sizes.

    Parameters
    ----------
    k_max
        Draft positions that exist, ``>= 0``.
    prior
        Conditional acceptance per position, each in [0, 1]; the last value is held for further positions. ``None``:
        unknown.
    """

    def __init__(self, k_max: int, prior: Sequence[float] | None = None) -> None:
        self.k_max = k_max
        seed, weight = (prior, SEED_WEIGHT) if prior else ([DEFAULT_ACCEPTANCE], UNKNOWN_WEIGHT)
        means = [min(0.99, max(0.01, seed[min(j, len(seed) - 1)])) for j in range(k_max)]
        self.alpha = [m * weight for m in means]
        self.beta = [(1.0 - m) * weight for m in means]
        self.supply = Supply(k_max)
        self.stops = Stops()
        self.alarms = 0
        self._cusum = Cusum()
        self._overdispersion = 1.0
        self._recent: deque[tuple[list[int], list[int]]] = deque(maxlen=MOST_RECENT)
        self._anchor = [_logit(m) for m in means]
        self._drafted = [False] * k_max
        self._absorbed = 0

    def observe(
        self,
        drafted: Sequence[int],
        accepted: Sequence[int],
        asked: int,
        decodes: int,
        emitted: Sequence[int] | None = None,
    ) -> bool:
        """Learn from one step; whether a change was detected.

        ``asked`` is the number of drafts that the previous decision asked for, ``decodes`` the requests that could have
        had them.
        """
        if asked <= 0:
            self._fade_blind()
            return False
        succeeded, failed, present = cascade_counts(drafted, accepted, self.k_max)
        self.supply.observe(present, min(asked, self.k_max), decodes)
        if not present or present[0] == 0:
            return False
        if emitted is not None:
            self.stops.observe(drafted, accepted, emitted, sum(succeeded), present[0])
        changed = self._absorb(succeeded, failed)
        if changed:
            self._restart()
        return changed

    def lengths(self, arms: Sequence[int]) -> list[float]:
        """Expected acceptance length per arm, tokens per request and step, at the posterior means."""
        chain, total, cumulative = 1.0, 1.0, [1.0]
        go_on = 1.0 - self.stops.hazard
        for mean in self.means():
            chain *= mean * go_on
            total += chain
            cumulative.append(total)
        return [cumulative[k] for k in arms]

    def widths(self, arms: Sequence[int]) -> list[float]:
        """Expected drafts per request that each arm really gets verified, shape ``(arms,)``."""
        return _widths(self.supply.means(), arms)

    def long_run(self, arms: Sequence[int]) -> tuple[list[float], list[float]]:
        """Acceptance per position, shape ``(k_max,)``, and ``widths``, with the drafter's supply of the long run."""
        steady = self.supply.steady
        return self._accepted(steady), _widths(steady, arms)

    def draws(self, arms: Sequence[int], n: int, rng: np.random.Generator) -> Array:
        """``n`` joint draws of the acceptance length, shape ``(n, arms)``; the arms share the draws of their prefix."""
        k = self.k_max
        if k == 0:
            return np.ones((n, len(arms)))
        supply = self.supply
        if supply.complete:
            passed = rng.beta(self.alpha, self.beta, size=(n, k))
        else:
            draws = rng.beta(self.alpha + supply.alpha, self.beta + supply.beta, size=(n, 2 * k))
            passed = draws[:, :k] * draws[:, k:]
        lengths = np.ones((n, k + 1))
        np.multiply(passed, 1.0 - self.stops.hazard, out=lengths[:, 1:])
        np.cumprod(lengths, axis=1, out=lengths)
        np.cumsum(lengths, axis=1, out=lengths)
        return lengths[:, arms]

    def means(self) -> list[float]:
        """Conditional acceptance per position, supply included, shape ``(k_max,)``."""
        return self._accepted(self.supply.means())

    @property
    def drafted_share(self) -> float:
        """Share of decoding requests for which the drafter returns anything, 1 where nothing can be drafted."""
        return self.supply.means()[0] if self.k_max else 1.0

    @property
    def accepted_share(self) -> float:
        """Mean acceptance of the first draft, 1 where nothing can be drafted."""
        return self.alpha[0] / (self.alpha[0] + self.beta[0]) if self.k_max else 1.0

    def settle(self) -> None:
        """Let what was not drafted since the last call fade and move along with what was, in log odds."""
        moves, weight = 0.0, 0.0
        keep = KEEP**self._absorbed
        self._absorbed = 0
        for j in range(self.k_max):
            if self._drafted[j]:
                trials = self.alpha[j] + self.beta[j]
                moves += trials * (_logit(self.alpha[j] / trials) - self._anchor[j])
                weight += trials
        shift = moves / weight if weight else 0.0
        for j in range(self.k_max):
            if not self._drafted[j]:
                self._move(j, shift, keep)
            self._anchor[j] = _logit(self.alpha[j] / (self.alpha[j] + self.beta[j]))
            self._drafted[j] = False

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-safe."""
        return {
            "alpha": list(self.alpha),
            "beta": list(self.beta),
            "supply": self.supply.snapshot(),
            "stops": self.stops.snapshot(),
            "alarms": self.alarms,
            "cusum": self._cusum.snapshot(),
            "overdispersion": self._overdispersion,
            "recent": [[list(s), list(f)] for s, f in self._recent],
            "anchor": list(self._anchor),
            "drafted": list(self._drafted),
            "absorbed": self._absorbed,
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over the state of a ``snapshot`` of a posterior with the same ``k_max``."""
        self.alpha, self.beta = list(data["alpha"]), list(data["beta"])
        self.supply.load(data["supply"])
        self.stops.load(data["stops"])
        self.alarms = data["alarms"]
        self._cusum.load(data["cusum"])
        self._overdispersion = data["overdispersion"]
        self._recent.clear()
        self._recent.extend((list(s), list(f)) for s, f in data["recent"])
        self._anchor, self._drafted = list(data["anchor"]), list(data["drafted"])
        self._absorbed = data["absorbed"]

    def _accepted(self, supply: Sequence[float]) -> list[float]:
        return [a / (a + b) * supplied for a, b, supplied in zip(self.alpha, self.beta, supply, strict=True)]

    def _absorb(self, succeeded: list[int], failed: list[int]) -> bool:
        """Count a step in, and feed the change detector with its surprise, predictive uncertainty included."""
        alpha, beta, drafted = self.alpha, self.beta, self._drafted
        surprise, variance = 0.0, 0.0
        self._recent.append((succeeded, failed))
        self._absorbed += 1
        for j, s in enumerate(succeeded):
            f = failed[j]
            n = s + f
            if n == 0:
                break  # no request got further; what lies behind fades when the posterior settles
            trials = alpha[j] + beta[j]
            p = alpha[j] / trials
            surprise += s - n * p
            variance += n * p * (1.0 - p) * (1.0 + n / (trials + 1.0))
            fade = 1.0
            if trials > FLOOR_TRIALS:
                fade = KEEP if trials < MEMORY_TRIALS else KEEP * MEMORY_TRIALS / trials
            alpha[j] = alpha[j] * fade + s
            beta[j] = beta[j] * fade + f
            drafted[j] = True
        spread = self._overdispersion
        squared = surprise * surprise / (variance if variance > 0.01 else 0.01)
        z = math.sqrt(squared / spread)
        # Requests differ lastingly, so steps scatter more than independent trials would.
        usual = squared if squared < 9.0 * spread else 9.0 * spread
        spread += (usual - spread) / 200.0
        self._overdispersion = spread if spread > 1.0 else 1.0
        return self._cusum.update(z if surprise > 0.0 else -z) != 0

    def _restart(self) -> None:
        """Start again from what was counted since the suspicion arose; few-counted positions follow the others."""
        self.alarms += 1
        since = list(self._recent)[-self._cusum.run :]
        self._recent.clear()
        shifts, information = 0.0, 0.0
        for j in range(self.k_max):
            s, f = sum(step[0][j] for step in since), sum(step[1][j] for step in since)
            if s + f >= 3.0:
                p = (s + 0.5) / (s + f + 1.0)
                known = (s + f) * p * (1.0 - p)
                shifts += known * max(-6.0, min(6.0, _logit(p) - self._anchor[j]))
                information += known
            mean = _expit(self._anchor[j] + (shifts / information if information else 0.0))
            self.alpha[j] = s + RESTART_WEIGHT * mean
            self.beta[j] = f + RESTART_WEIGHT * (1.0 - mean)
            self._limit(j)
            self._anchor[j] = _logit(self.alpha[j] / (self.alpha[j] + self.beta[j]))
            self._drafted[j] = False

    def _limit(self, j: int) -> None:
        total = self.alpha[j] + self.beta[j]
        if total > MEMORY_TRIALS:
            self._scale(j, MEMORY_TRIALS / total)

    def _fade_blind(self) -> None:
        for j in range(self.k_max):
            if self.alpha[j] + self.beta[j] > FLOOR_TRIALS:
                self._scale(j, 1.0 - 1.0 / BLIND_STEPS)
        self.supply.fade()

    def _scale(self, j: int, factor: float) -> None:
        self.alpha[j] = max(self.alpha[j] * factor, 1e-3)
        self.beta[j] = max(self.beta[j] * factor, 1e-3)

    def _move(self, j: int, shift: float, keep: float) -> None:
        trials = self.alpha[j] + self.beta[j]
        mean = self.alpha[j] / trials
        trials = max(trials * keep, min(trials, FLOOR_TRIALS))
        if shift:
            mean = _expit(_logit(mean) + shift)
            if abs(shift) > MOVED:
                trials = min(trials, MOVED_TRIALS)  # what was counted before the others moved says less about now
        self.alpha[j], self.beta[j] = max(mean * trials, 1e-3), max((1.0 - mean) * trials, 1e-3)


def _widths(supply: Sequence[float], arms: Sequence[int]) -> list[float]:
    chain, total, cumulative = 1.0, 0.0, [0.0]
    for probability in supply:
        chain *= probability
        total += chain
        cumulative.append(total)
    return [cumulative[k] for k in arms]


def _logit(p: float) -> float:
    p = min(0.9995, max(0.0005, p))
    return math.log(p / (1.0 - p))


def _expit(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))
