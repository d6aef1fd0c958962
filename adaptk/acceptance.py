"""What the drafter returns and how much of it the target accepts, per draft position."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import accumulate, islice
from operator import mul
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from adaptk.cascade import cascade_counts
from adaptk.cold import Warmth
from adaptk.drift import Cusum
from adaptk.lengthdraws import beta_draws, normal_odds
from adaptk.logodds import expit, logit
from adaptk.offsets import BatchOffsets
from adaptk.reference import Reference
from adaptk.regime import FormerRegime
from adaptk.scatter import Scatter
from adaptk.supply import Stops, Supply, given_before
from adaptk.tabledrafts import DEFAULT_ACCEPTANCE

Array = npt.NDArray[np.float64]

# Pseudo-trials behind a table's acceptance: enough to start on, gone after one step of a large batch.
SEED_WEIGHT = 16.0
UNKNOWN_WEIGHT = 4.0  # the same where there is no table
MEMORY_TRIALS = 3000.0  # at a position, at most: in large batches they fade by trials, not by steps
BLIND_STEPS = 40.0  # memory while nothing at all is drafted: K=0 must widen what it cannot see
LEAST_COUNT = 1e-3  # of accepted or rejected trials at a position
FLOOR_TRIALS = 12.0  # fading alone leaves so many: a belief is never wider than its first guess by much
MOST_RECENT = 128  # steps whose counts are kept for a restart
RESTART_WEIGHT = 3.0  # pseudo-trials of what is guessed after an alarm
MOVED, MOVED_TRIALS = 0.1, 40.0  # log odds of a joint move from which undrafted positions keep at most so many trials
REFRESH = 2  # steps between looks at what steps are held against
APART = 1.0  # log odds of the first draft between beliefs that no step can speak for both of
EXPLAINED = 4  # steps that a former belief must explain before it is taken up again
ESTABLISHED = 60  # steps after which a belief is worth remembering when it is left
RELOADED_TRIALS = 6.0  # that the counts of former weights are worth under new ones
POSITION_DRAWS = 1_000


class PositionBelief(NamedTuple):
    """Conditional acceptance of one draft position that the drafter fills; the interval holds 90 %."""

    mean: float
    low: float
    high: float


class AcceptancePosterior:
    """Beta posteriors of the conditional acceptance probability per draft position, discounted.

    Next to them stands the *supply*: the probability that the drafter returns a draft at a position at all, which
    n-gram and suffix drafters often do not. Both enter the acceptance length of an arm,
    ``AL(K) = 1 + sum_{j<=K} prod_{i<=j} supply_i * acceptance_i``.

    Evidence fades by steps and by trials. A position that is not drafted keeps its mean relative to the observed ones:
    they move together in log odds. An alarm of the change detector restarts from what was counted since its side of the
    detector left zero; the belief that was left is kept, and taken up again once it predicts better than the new one.
    Just after a spell at K=0 the drafter may be cold: what it then does badly counts little.

    Parameters
    ----------
    k_max
        Draft positions that exist, ``>= 0``.
    prior
        Conditional acceptance per position, each in [0, 1], a missing draft counting as not accepted; the last value
        is held for further positions. ``None``: unknown.
    supply
        Share of steps in which the drafter returned a draft at the position, of those that asked for so many, never
        rising, the last value held. ``None``: all of them.
    trusted
        Whether the prior is of this engine; another one's is as good as a guess.
    """

    def __init__(
        self,
        k_max: int,
        prior: Sequence[float] | None = None,
        supply: Sequence[float] | None = None,
        *,
        trusted: bool = True,
    ) -> None:
        self.k_max = k_max
        weight = SEED_WEIGHT if prior and trusted else UNKNOWN_WEIGHT
        means = _of_drafts(prior, supply, k_max)
        self.alpha = [m * weight for m in means]
        self.beta = [(1.0 - m) * weight for m in means]
        self.supply = Supply(k_max, supply)
        self.stops = Stops()
        self.alarms = 0
        self.offsets = BatchOffsets()
        self._dilution = [1.0] * k_max  # squared weights of the trials over their weights, summed up
        self._cusum = Cusum()
        self._scatter = Scatter()
        self._former: FormerRegime | None = None
        self._reference = Reference(means)
        self._age = 0  # steps since the last restart
        self._recent: deque[tuple[Sequence[float], Sequence[float]]] = deque(maxlen=MOST_RECENT)
        self._anchor = [logit(m) for m in means]
        self._drafted = [False] * k_max
        self._absorbed = 0
        self._information = 0.25  # of a step, about
        self._warmth = Warmth()
        # Accepted and rejected by position in the last step that had been asked for drafts; a new pair each time.
        self.counted: tuple[list[int], list[int]] | None = None

    def observe(
        self,
        drafted: Sequence[int],
        accepted: Sequence[int],
        asked: int,
        decodes: int,
        emitted: Sequence[int] | None = None,
        batch: int | None = None,
    ) -> bool:
        """Learn from one step; whether a change was detected.

        ``asked`` is the number of drafts that the previous decision asked for, ``decodes`` the requests that could have
        had them, ``batch`` the batch size that the step's acceptance may be peculiar to.
        """
        if asked <= 0:
            self._fade_blind(decodes)
            return False
        succeeded, failed, present = cascade_counts(drafted, accepted, self.k_max)
        self.counted = succeeded, failed
        self.supply.observe(present, asked if asked < self.k_max else self.k_max, decodes)
        if not present or present[0] == 0:
            return False
        if emitted is not None:
            self.stops.observe(accepted, emitted, sum(succeeded))
        if self._warmth.draft():
            self._cusum.reset()  # what it had added up was of another time
            self._recent.clear()
        return self._absorb(succeeded, failed, batch)

    def lengths(self, arms: Sequence[int], batch: int | None = None) -> list[float]:
        """Expected acceptance length per arm, tokens per request and step, of a drafter that is warm."""
        return self._lengths(arms, 1.0, batch)

    def lengths_now(self, arms: Sequence[int], batch: int | None = None) -> list[float]:
        """The same for the next few steps: less where a drafter was left alone that is known to suffer from it."""
        return self._lengths(arms, self._warmth.factor, batch)

    def _lengths(self, arms: Sequence[int], factor: float, batch: int | None) -> list[float]:
        chain, total, cumulative = 1.0, 1.0, [1.0]
        go_on = (1.0 - self.stops.hazard) * factor
        ratio, _ = self.offsets.look(batch)
        for mean in self._accepted(self.supply.means(), ratio):
            chain *= mean * go_on
            total += chain
            cumulative.append(total)
        return [cumulative[k] for k in arms]

    def widths(self, arms: Sequence[int]) -> list[float]:
        """Expected drafts per request that each arm really gets verified, shape ``(arms,)``."""
        return _widths(self.supply.means(), arms)

    def long_run(self, arms: Sequence[int]) -> tuple[list[float], list[float], list[float] | None]:
        """What a table holds: acceptance per position, shape ``(k_max,)``, ``widths`` and supply, of the long run.

        The supply is the share of steps with a draft at each position, of those that asked for it; ``None`` where no
        draft was ever missing.
        """
        steady = self.supply.steady
        supply = None if min(steady, default=1.0) == 1.0 else list(accumulate(steady, mul))
        return self._accepted(steady), _widths(steady, arms), supply

    def draws(
        self,
        arms: Sequence[int],
        n: int,
        rng: np.random.Generator,
        batch: int | None = None,
        visit: bool = False,
    ) -> Array:
        """``n`` joint draws of the acceptance length, shape ``(n, arms)``; the arms share the draws of their prefix.

        With ``visit`` they are of the next few steps, which may find the drafter cold, without the lasting differences
        between requests that no visit could settle, and in place of Betas normal log odds of the same means and about
        the same variances are drawn, at a third of the price.
        """
        k = self.k_max
        if k == 0:
            return np.ones((n, len(arms)))
        ratio, doubt = self.offsets.look(batch)
        step = self._scatter.step
        dilution = [d * step for d in self._dilution]
        go_on = self.stops.goes_on(n, rng)
        lengths = np.empty((n, k + 1))
        lengths[:, 0] = 1.0
        if visit:
            centres, spreads = normal_odds(self.alpha, self.beta, dilution, self.supply, ratio, doubt)
            rejected = rng.standard_normal((n, k))  # odds against acceptance
            rejected *= spreads
            rejected -= centres
            np.exp(rejected, out=rejected)
            rejected += 1.0
            np.divide(go_on * self._warmth.factor, rejected, out=lengths[:, 1:])
        else:
            passed = beta_draws(
                self.alpha, self.beta, dilution, self.supply, self._scatter.excess, ratio, doubt, n, rng
            )
            np.multiply(passed, go_on, out=lengths[:, 1:])
        np.multiply.accumulate(lengths, axis=1, out=lengths)
        np.add.accumulate(lengths, axis=1, out=lengths)
        return lengths.take(arms, axis=1)

    def means(self) -> list[float]:
        """Conditional acceptance per position, supply included, shape ``(k_max,)``."""
        return self._accepted(self.supply.means())

    def positions(self) -> list[PositionBelief]:
        """Conditional acceptance of each draft position, those that the drafter left empty not counted."""
        if self.k_max == 0:
            return []
        dilution = [d * self._scatter.step for d in self._dilution]
        full, rng = Supply(self.k_max), np.random.default_rng(0)
        draws = beta_draws(self.alpha, self.beta, dilution, full, self._scatter.excess, 1.0, 0.0, POSITION_DRAWS, rng)
        low, high = np.quantile(draws, (0.05, 0.95), axis=0).tolist()
        means = [a / (a + b) for a, b in zip(self.alpha, self.beta, strict=True)]
        return [PositionBelief(*values) for values in zip(means, low, high, strict=True)]

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
        if not self._absorbed:
            return
        moves, weight = 0.0, 0.0
        alpha, beta, anchor, drafted = self.alpha, self.beta, self._anchor, self._drafted
        keep = self._scatter.keep**self._absorbed
        self._absorbed = 0
        for j in range(self.k_max):
            if drafted[j]:
                # What never happens fades without end, and a Beta without one of its sides cannot be drawn from.
                alpha[j], beta[j] = max(alpha[j], LEAST_COUNT), max(beta[j], LEAST_COUNT)
                trials = alpha[j] + beta[j]
                now = logit(alpha[j] / trials)
                moves += trials * (now - anchor[j])
                weight += trials
                anchor[j] = now
        shift = moves / weight if weight else 0.0
        for j in range(self.k_max):
            if drafted[j]:
                drafted[j] = False
            else:
                self._move(j, shift, keep)
                anchor[j] = logit(alpha[j] / (alpha[j] + beta[j]))

    def note_weights_changed(self) -> None:
        """The target's or the drafter's weights were replaced: what was counted remains as a guess."""
        for j in range(self.k_max):
            trials = self.alpha[j] + self.beta[j]
            if trials > RELOADED_TRIALS:
                self._scale(j, RELOADED_TRIALS / trials)
        self._begin_anew()
        self._former = None

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-safe."""
        return {
            "alpha": list(self.alpha),
            "beta": list(self.beta),
            "dilution": list(self._dilution),
            "offsets": self.offsets.snapshot(),
            "supply": self.supply.snapshot(),
            "stops": self.stops.snapshot(),
            "alarms": self.alarms,
            "cusum": self._cusum.snapshot(),
            "scatter": self._scatter.snapshot(),
            "former": [] if self._former is None else self._former.snapshot(),
            "recent": [[list(s), list(f)] for s, f in self._recent],
            "anchor": list(self._anchor),
            "drafted": list(self._drafted),
            "counts": [self._age, self._absorbed],
            "warmth": self._warmth.snapshot(),
            **self._reference.snapshot(),
            "information": self._information,
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over the state of a ``snapshot`` of a posterior with the same ``k_max``."""
        self.alpha, self.beta, self._dilution = list(data["alpha"]), list(data["beta"]), list(data["dilution"])
        self.offsets.load(data["offsets"])
        self.supply.load(data["supply"])
        self.stops.load(data["stops"])
        self.alarms = data["alarms"]
        self._cusum.load(data["cusum"])
        self._scatter.load(data["scatter"])
        self._former = FormerRegime.restored(data["former"]) if data["former"] else None
        self._recent.clear()
        self._recent.extend((list(s), list(f)) for s, f in data["recent"])
        self._anchor, self._drafted = list(data["anchor"]), list(data["drafted"])
        self._age, self._absorbed = data["counts"]
        self._warmth.load(data["warmth"])
        self._reference.load(data)
        self._information = data["information"]

    def _accepted(self, supply: Sequence[float], ratio: float = 1.0) -> list[float]:
        return [
            a * ratio / (a * ratio + b) * supplied for a, b, supplied in zip(self.alpha, self.beta, supply, strict=True)
        ]

    def _absorb(self, succeeded: list[int], failed: list[int], batch: int | None) -> bool:
        """Count a step in, and feed the change detectors with what it says before it is learnt from."""
        alpha, beta, dilution, drafted = self.alpha, self.beta, self._dilution, self._drafted
        scatter, offsets, reference, unknown, moved = self._scatter, self.offsets, self._reference, 0.0, False
        if batch is not None:
            moved = offsets.enter(batch)
            unknown = offsets.unknown
        positions = reference.positions
        if moved or not positions or self._age % REFRESH == 0 or self._age < 2 * REFRESH:
            if scatter.begins:
                reference.begin_block(alpha, beta)
            ratio, deviation = offsets.ratio if batch is not None else 1.0, math.sqrt(scatter.usual / self._information)
            positions = reference.refresh(alpha, beta, dilution, ratio, deviation, self._former)
        believed = 1.0
        if self._warmth.left:
            believed = self._warmth.believed(succeeded, failed, positions, scatter.step)
        shared = offsets.ratio == 1.0 or batch is None
        if shared:
            self._recent.append((succeeded, failed))
        else:  # what would have been seen at a batch size without an offset
            ours_s, ours_f = [0.0] * self.k_max, [0.0] * self.k_max
            self._recent.append((ours_s, ours_f))
        self._absorbed += 1
        self._age += 1
        usual_keep, shift = scatter.keep, reference.shift
        surprise = variance = information = rise = fall = gain = learnt = 0.0
        s: float  # a count here, a weighted one further down
        for j, (p, level, spread, thin, up, down, lead, for_hit, for_miss) in enumerate(positions):
            s = succeeded[j]
            n = s + failed[j]
            if n == 0:
                break  # no request got further; what lies behind fades when the posterior settles
            binomial, doubt = n * spread, 1.0 + n * thin
            beyond = s - n * p
            surprise += beyond
            information += binomial
            variance += binomial * doubt
            learnt += n * lead
            here, weight = doubt, 1.0
            if unknown:
                here += binomial * unknown
                weight = doubt / here
            rise += (s * shift - n * up) / here
            fall -= (s * shift + n * down) / here
            if not shared:
                s = n * level + beyond
                s = 0.0 if s < 0.0 else n if s > n else s
                ours_s[j], ours_f[j] = s, n - s
            gain += s * for_hit + (n - s) * for_miss
            a, b = alpha[j], beta[j]
            trials = a + b
            if believed < 1.0:
                s = n * a / trials * (1.0 - believed) + s * believed
            fade = 1.0
            if trials > FLOOR_TRIALS:
                fade = usual_keep if trials < MEMORY_TRIALS else usual_keep * MEMORY_TRIALS / trials
            seen, kept = n * weight, trials * fade
            alpha[j] = a * fade + s * weight
            beta[j] = b * fade + (n - s) * weight
            dilution[j] = (dilution[j] * kept * fade + seen * weight) / (kept + seen)
            drafted[j] = True
        self._information += (information - self._information) * 0.02
        if believed == 1.0:
            variance = variance if variance > 0.01 else 0.01
            scatter.add(surprise, variance + information * information * unknown, information, learnt)
            if unknown:
                offsets.learn(surprise, variance * scatter.step, information)
        usual = scatter.usual
        return self._changed(gain * believed / usual, rise / usual, fall * believed / usual)

    def _changed(self, gain: float, rise: float, fall: float) -> bool:
        """Whether the former regime came back or a change was detected, which is then acted upon.

        ``gain`` is the log likelihood ratio of a step for the present belief against the former one, ``rise`` and
        ``fall`` those of a change of acceptance against none.
        """
        former = self._former
        if (
            former is not None
            and former.returned(gain)
            and former.explains(islice(reversed(self._recent), EXPLAINED), self._scatter.usual)
        ):
            self._return(former)
            return True
        change = self._cusum.weigh(rise, fall)
        if change < 0:
            self._warmth.proved_bad()
        if change:
            self._restart()
        return change != 0

    def _restart(self) -> None:
        """Start again from what was counted since the suspicion arose; few-counted positions follow the others."""
        self.alarms += 1
        if self._age >= ESTABLISHED or self._former is None:
            self._former = FormerRegime.left(self.alpha, self.beta, self._dilution)
        since = list(self._recent)[-self._cusum.run :]
        shifts, information = 0.0, 0.0
        for j in range(self.k_max):
            s, f = sum(step[0][j] for step in since), sum(step[1][j] for step in since)
            if s + f >= 3.0:
                p = (s + 0.5) / (s + f + 1.0)
                known = (s + f) * p * (1.0 - p)
                shifts += known * max(-6.0, min(6.0, logit(p) - self._anchor[j]))
                information += known
            mean = expit(self._anchor[j] + (shifts / information if information else 0.0))
            self.alpha[j] = s + RESTART_WEIGHT * mean
            self.beta[j] = f + RESTART_WEIGHT * (1.0 - mean)
            self._dilution[j] = 1.0
            self._limit(j)
        self.offsets.restart()
        self._begin_anew()

    def _return(self, former: FormerRegime) -> None:
        """Take up the former belief; the present one becomes the former."""
        left = FormerRegime.before(self.alpha, self.beta, self._dilution, list(self._recent)[-EXPLAINED:])
        if abs(left.log_odds - former.log_odds) < APART:  # the steps between two that are much alike belong to both
            left = FormerRegime.left(self.alpha, self.beta, self._dilution)
        self.alpha, self.beta, self._dilution = list(former.alpha), list(former.beta), list(former.dilution)
        self._former = left
        self._begin_anew()

    def _begin_anew(self) -> None:
        """What was counted so far is history to the change detector."""
        self._anchor = [logit(a / (a + b)) for a, b in zip(self.alpha, self.beta, strict=True)]
        self._drafted = [False] * self.k_max
        self._recent.clear()
        self._cusum.reset()
        self._scatter.drop()
        self._age = 0

    def _limit(self, j: int) -> None:
        total = self.alpha[j] + self.beta[j]
        if total > MEMORY_TRIALS:
            self._scale(j, MEMORY_TRIALS / total)

    def _fade_blind(self, decodes: int) -> None:
        self._warmth.rest()
        for j in range(self.k_max):
            if self.alpha[j] + self.beta[j] > FLOOR_TRIALS:
                self._scale(j, 1.0 - 1.0 / BLIND_STEPS)
        self.supply.fade(decodes)
        self.stops.fade()

    def _scale(self, j: int, factor: float) -> None:
        self.alpha[j] = max(self.alpha[j] * factor, LEAST_COUNT)
        self.beta[j] = max(self.beta[j] * factor, LEAST_COUNT)

    def _move(self, j: int, shift: float, keep: float) -> None:
        trials = self.alpha[j] + self.beta[j]
        mean = self.alpha[j] / trials
        left = max(trials * keep, min(trials, FLOOR_TRIALS))
        if shift:
            mean = expit(logit(mean) + shift)
            if abs(shift) > MOVED:
                left = min(left, MOVED_TRIALS)  # what was counted before the others moved says less about now
        self.alpha[j], self.beta[j] = max(mean * left, LEAST_COUNT), max((1.0 - mean) * left, LEAST_COUNT)


def _of_drafts(prior: Sequence[float] | None, supply: Sequence[float] | None, k_max: int) -> list[float]:
    """First guess of the acceptance of drafts that are there, bounded away from 0 and 1, shape ``(k_max,)``."""
    seed, given = prior or [DEFAULT_ACCEPTANCE], given_before(supply if prior else None, k_max)
    means = [DEFAULT_ACCEPTANCE if p == 0.0 else seed[min(j, len(seed) - 1)] / p for j, p in enumerate(given)]
    return [min(0.99, max(0.01, mean)) for mean in means]


def _widths(supply: Sequence[float], arms: Sequence[int]) -> list[float]:
    chain, total, cumulative = 1.0, 0.0, [0.0]
    for probability in supply:
        chain *= probability
        total += chain
        cumulative.append(total)
    return [cumulative[k] for k in arms]
