"""A reconstruction of Nightjar's planner: bins that explore or exploit, per batch size, and a price on re-enabling."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from typing import NamedTuple

from adaptk.replay.policies.base import Rival, Setup, decoding
from adaptk.replay.policies.credit import Credit, Played, batch_bin, bin_middle
from adaptk.step import StepRecord
from adaptk.table import GoodputTable

TOKENS_PER_PASS = 256  # prompt tokens that a pass of the drafter takes in the time of one


class NightjarBins(Rival):
    """ADA-BINGREEDY over K, 0 included, per batch size. *A reconstruction, not Nightjar's code.*

    Nightjar (arXiv 2512.22420) published no code. What is built on: its abstract (a bandit over K per batch size, K=0
    included, that knows what restarting speculation costs) and a recollection of its planner's name and shape (bins of
    exploring and exploiting; re-enabling costs the drafter's prefill of the gap). Moving the drafter to the CPU is left
    out. *All the rest is ours*:

    - batch sizes share a state per power-of-two bin of decoding requests;
    - its steps fall into blocks of 16, 32, 64, ... up to 4,096, a block of H steps into bins of ceil(sqrt(H)) steps;
    - a bin explores with probability H^(-1/3), holding one arm drawn evenly, else it plays the best arm of the current
      and the last block, one never tried in these first; what is older is forgotten;
    - the value of an arm is tokens per request over milliseconds, each summed over the arm's steps;
    - after steps at K=0 an arm above 0 is charged, spread over one bin, the drafter's prefill of the tokens that passed
      meanwhile (a token per request and step, at most the context): a draft pass for every 256 of them, at least one.
      What a pass costs is the difference of K=1 and K=0 in the profile taken at start.

    A step is credited to the arm whose drafts it verified (``Credit``), whatever else it carried.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.arms)
        self._rng = random.Random(setup.seed)
        self._credit = Credit(setup.arms)
        self._profile = setup.startup
        self._passes: dict[int, float] = {}
        self._planners: defaultdict[int, BinPlanner] = defaultdict(lambda: BinPlanner(setup.arms, self._rng))
        self._gap = 0  # steps at K=0 since the last draft

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """Drafts per request: the bin's arm if it explores, else the best value after the price of re-enabling."""
        requests = decoding(batch_size, decodes)
        index = batch_bin(requests)
        planner = self._planners[index]
        penalty_ms = 0.0
        if self._gap:
            passed = self._gap * requests
            if context_tokens is not None:
                passed = min(passed, context_tokens)
            penalty_ms = self._pass_ms(index) * max(1.0, passed / TOKENS_PER_PASS)
        k, self.exploring = planner.next(penalty_ms)
        self._gap = self._gap + 1 if k == 0 else 0
        return k

    def observe(self, record: StepRecord) -> None:
        """Take in a step as tokens and milliseconds of the arm it is credited to."""
        played = self._credit.read(record)
        if played is not None:
            self._planners[batch_bin(played.batch)].take(played)

    def _pass_ms(self, index: int) -> float:
        if index not in self._passes:
            self._passes[index] = pass_ms(self._profile, bin_middle(index))
        return self._passes[index]


def pass_ms(profile: GoodputTable, batch: float) -> float:
    """Milliseconds that the first draft adds to a step; 0 where the profile has no times."""
    with_one, without = profile.itl_ms(batch, 1), profile.itl_ms(batch, 0)
    return 0.0 if with_one is None or without is None else max(0.0, with_one - without)


class Sums(NamedTuple):
    """What an arm's steps came to."""

    steps: int = 0
    tokens: float = 0.0
    ms: float = 0.0


class BinPlanner:
    """The blocks and bins of one batch size, and the sums of each arm in the current and the last block."""

    FIRST_BLOCK, LONGEST_BLOCK = 16, 4096  # steps

    def __init__(self, arms: tuple[int, ...], rng: random.Random) -> None:
        self._arms = arms
        self._rng = rng
        self._block = self._block_left = self.FIRST_BLOCK
        self._bin = self._bin_left = 0
        self._explored: int | None = None  # the arm of an exploring bin
        self._current = dict.fromkeys(arms, Sums())
        self._last = dict.fromkeys(arms, Sums())

    def next(self, penalty_ms: float) -> tuple[int, bool]:
        """The arm of the next step, and whether it is played to learn."""
        if self._block_left == 0:
            self._block = self._block_left = min(2 * self._block, self.LONGEST_BLOCK)
            self._last, self._current = self._current, dict.fromkeys(self._arms, Sums())
            self._bin_left = 0
        if self._bin_left == 0:
            self._bin = self._bin_left = math.ceil(math.sqrt(self._block))
            explores = self._rng.random() < self._block ** (-1.0 / 3.0)
            self._explored = self._rng.choice(self._arms) if explores else None
        self._block_left -= 1
        self._bin_left -= 1
        if self._explored is not None:
            return self._explored, True
        values = [self._value(arm, penalty_ms if arm else 0.0) for arm in self._arms]
        best = max(values)
        return self._arms[values.index(best)], best == math.inf

    def take(self, played: Played) -> None:
        """Take a step."""
        steps, tokens, ms = self._current[played.arm]
        self._current[played.arm] = Sums(steps + 1, tokens + played.tokens / played.batch, ms + played.ms)

    def _value(self, arm: int, penalty_ms: float) -> float:
        now, then = self._current[arm], self._last[arm]
        steps = now.steps + then.steps
        if steps == 0:
            return math.inf
        return (now.tokens + then.tokens) / (now.ms + then.ms + steps * penalty_ms / self._bin)
