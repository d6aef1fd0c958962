"""P8: exponentially weighted averages of each depth's cost and each position's acceptance, the best ratio played."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from adaptk.cascade import cascade_counts
from adaptk.replay.policies.base import Rival, Setup, decoding
from adaptk.replay.policies.credit import Credit, Played, batch_bin, bin_middle
from adaptk.step import StepRecord
from adaptk.tabledrafts import DEFAULT_ACCEPTANCE


class DepthEwma(Rival):
    """The rule of Ollama's MLX runner (``x/mlxrunner/speculate_depth.go``), written for one stream, here for batches.

    A depth is a number of drafts. Of the source:

    - *Cost* of a depth: milliseconds of a round, average of rate 0.3, each innovation at most 25 % of the estimate,
      taken only from a round whose depth equals the last one's; linear between depths with a cost, flat beyond them.
    - *Acceptance* of a position given the one before: average of rate 0.1, trusted once reached 10 times; a position
      not trusted inherits the deepest trusted rate, 1 without any. The frontier is the deepest trusted position.
    - *Depth*: largest (expected tokens) / cost from 0 to one beyond the frontier, each of which is first dwelt at for
      its first cost, the shallowest first; 0 until two depths have a cost.
    - *Probe*: one round one deeper every 4 rounds; the interval doubles to at most 512 while the selection stays, and
      is 4 again when it changes. A round alone gives acceptance and no cost.

    What batches and arms make of it, chosen so as not to weaken it:

    - ``form`` "raw": one state for all batches. "bucketed": one per power-of-two bin of decoding requests. "seeded":
      that, with costs and acceptance of the seed table (the profile taken at start, where it has none) at the middle of
      the bin, all trusted.
    - Depths are the arms; one deeper is the next arm, and the frontier reaches as far as the largest arm whose
      positions are all trusted.
    - Acceptance of a step is pooled over its requests and averaged as one observation; the first ten observations of a
      position make a plain mean, so that the first does not count for more than the rest.
    - A step drafts for one choice and verifies for the one before: its time is a cost where both are the same depth.
    - Rounds of the source hold no prompt tokens: steps that do give no cost, unless more than 16 in a row did.
    - 32 rounds at a depth without one timed step that verifies for it end the dwelling, until there is such a step.
    """

    def __init__(self, setup: Setup, form: Literal["raw", "bucketed", "seeded"] = "bucketed") -> None:
        super().__init__(setup.arms)
        self._setup = setup
        self._form = form
        self._credit = Credit(setup.arms)
        self._buckets: dict[int, Depths] = {}

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """Drafts per request: a depth still to be dwelt at, a probe, or the selection of the batch's bucket."""
        depths = self._bucket(decoding(batch_size, decodes))
        k = depths.next()
        self.exploring = depths.learning
        return k

    def observe(self, record: StepRecord) -> None:
        """Take in a step's acceptance and, where it is one depth's, its time."""
        played = self._credit.read(record)
        if not record.drafted or record.decodes == 0:
            return
        depths = self._bucket(decoding(record.batch_size, record.decodes))
        depths.accept(record)
        if played is not None:
            depths.time(played, mixed=record.prefill_tokens > 0)

    def _bucket(self, batch: int) -> Depths:
        index = -1 if self._form == "raw" else batch_bin(batch)
        if index not in self._buckets:
            depths = self._buckets[index] = Depths(self.arms)
            if self._form == "seeded":
                depths.seed(*seeds(self._setup, bin_middle(index)))
        return self._buckets[index]


def seeds(setup: Setup, batch: float) -> tuple[list[float | None], list[float]]:
    """Milliseconds per arm at a batch size, shape ``(arms,)``, and acceptance per position, shape ``(k_max,)``."""
    costs = [setup.timed.itl_ms(batch, arm) for arm in setup.arms]
    known = None if setup.table is None else setup.table.acceptance
    rates = known or setup.startup.acceptance or (DEFAULT_ACCEPTANCE,)
    return costs, [rates[min(i, len(rates) - 1)] for i in range(setup.k_max)]


def interpolated(known: Sequence[tuple[int, float]], k: int) -> float:
    """Cost of a depth: linear between those known, flat beyond.

    Examples
    --------
    >>> known = [(0, 8.0), (3, 11.0)]
    >>> interpolated(known, 1), interpolated(known, 7)
    (9.0, 11.0)
    """
    for (low, cost), (high, next_cost) in pairwise(known):
        if low <= k < high:
            return cost + (next_cost - cost) * (k - low) / (high - low)
    return known[0][1] if k < known[0][0] else known[-1][1]


class Depths:
    """Costs, acceptance and selection of one bucket.

    ``costs`` holds milliseconds per arm, ``lengths`` expected tokens per request and step, both of shape ``(arms,)``;
    ``rates`` conditional acceptance and ``reached`` how often a position was, both of shape ``(k_max,)``; ``frontier``
    is the index of the largest arm whose positions are all trusted.
    """

    COST_RATE, CLAMP = 0.3, 0.25
    RATE, TRUST = 0.1, 10
    PROBE, RAREST = 4, 512  # rounds between probes
    DWELL, MIXED = 32, 16  # rounds

    def __init__(self, arms: tuple[int, ...]) -> None:
        k_max = arms[-1]
        self._arms = arms
        self._index = {arm: i for i, arm in enumerate(arms)}
        self.costs: list[float | None] = [None] * len(arms)
        self.rates = [1.0] * k_max
        self.reached = [0] * k_max
        self._averaged = [0] * k_max  # observations in the rate
        self.lengths: list[float] = []
        self.frontier = 0
        self._dwelt = [0] * len(arms)
        self._mixed = 0
        self._selected = 0
        self._interval, self._rounds = self.PROBE, 0
        self.learning = False  # whether the depth last given is dwelt at, or a probe
        self._estimate()

    def seed(self, costs: list[float | None], rates: list[float]) -> None:
        """Take over estimates, to be trusted at once."""
        self.costs, self.rates = costs, rates
        self.reached = [self.TRUST] * len(rates)
        self._averaged = [self.TRUST] * len(rates)
        self._estimate()

    def next(self) -> int:
        """The depth of the next round."""
        within = min(self.frontier + 2, len(self._arms))  # arms that may be selected
        self.learning = True
        unknown = None in self.costs[:within]
        if unknown:
            for i in range(within):
                if self.costs[i] is None and self._dwelt[i] < self.DWELL:
                    self._dwelt[i] += 1
                    return self._arms[i]
        best = self._best(self._filled() if unknown else self.costs, within)
        if best != self._selected:
            self._selected, self._interval, self._rounds = best, self.PROBE, 0
        self._rounds += 1
        if self._rounds >= self._interval and best + 1 < len(self._arms):
            self._rounds, self._interval = 0, min(2 * self._interval, self.RAREST)
            return self._arms[best + 1]
        self.learning = False
        return self._arms[best]

    def accept(self, record: StepRecord) -> None:
        """Take the acceptance of a step's drafts, position by position as far as they were reached."""
        rates, averaged = self.rates, self._averaged
        succeeded, failed, _ = cascade_counts(record.drafted, record.accepted, len(rates))
        for i, yes in enumerate(succeeded):
            seen = yes + failed[i]
            if seen == 0:
                break
            self.reached[i] += seen
            averaged[i] += 1
            share = self.RATE if averaged[i] >= self.TRUST else 1.0 / averaged[i]
            rates[i] += share * (yes / seen - rates[i])
        self._estimate()

    def time(self, played: Played, mixed: bool) -> None:
        """Take the time of a step as a cost, where it is one."""
        self._mixed = self._mixed + 1 if mixed else 0
        i = self._index[played.arm]
        cost = self.costs[i]
        self._dwelt[i] = 0
        if not played.clean or 0 < self._mixed <= self.MIXED:
            return
        if cost is None:
            self.costs[i] = played.ms
        else:
            limit = self.CLAMP * cost
            self.costs[i] = cost + self.COST_RATE * min(limit, max(-limit, played.ms - cost))

    def _best(self, costs: Sequence[float | None], within: int) -> int:
        """Index of the best ratio of the first ``within`` arms; 0 without costs."""
        ratios = [length / cost for length, cost in zip(self.lengths[:within], costs, strict=False) if cost]
        return ratios.index(max(ratios)) if ratios else 0

    def _filled(self) -> list[float]:
        """Milliseconds per arm, those without a cost from the others; empty until two have one."""
        known = [(arm, cost) for arm, cost in zip(self._arms, self.costs, strict=True) if cost is not None]
        return [interpolated(known, arm) for arm in self._arms] if len(known) > 1 else []

    def _estimate(self) -> None:
        """Bring the expected tokens per arm, and the frontier's arm, up to the rates."""
        lengths, length, survival, rate, trusted = [1.0], 1.0, 1.0, 1.0, 0
        for own, reached in zip(self.rates, self.reached, strict=True):
            if reached >= self.TRUST:  # no position is reached more often than the one before it
                rate = own
                trusted += 1
            survival *= rate
            length += survival
            lengths.append(length)
        self.lengths = [lengths[arm] for arm in self._arms]
        while self.frontier + 1 < len(self._arms) and self._arms[self.frontier + 1] <= trusted:
            self.frontier += 1
