"""P7: BanditSpec (arXiv 2505.15141) in the form of the paper and as its code was released.

One state for all batch sizes, as neither has a batch axis. A step is credited to the arm whose drafts it verified
(``Credit``); steps that mix two K or carry prompt tokens are taken as they come. The released code starts anew with
every call of ``generate``; an engine that serves is one endless call, so nothing is ever reset here.
"""

from __future__ import annotations

import math

from adaptk.replay.policies.base import Rival, Setup
from adaptk.replay.policies.credit import Credit
from adaptk.step import StepRecord


class _MeanRewards(Rival):
    """Mean reward and number of rewards per arm, shape ``(arms,)``."""

    def __init__(self, arms: tuple[int, ...]) -> None:
        super().__init__(arms)
        self._credit = Credit(arms)
        self._index = {arm: i for i, arm in enumerate(arms)}
        self._counts = [0] * len(arms)
        self._means = [0.0] * len(arms)
        self._pulls = 0

    def _take(self, arm: int, reward: float) -> None:
        i = self._index[arm]
        self._pulls += 1
        self._counts[i] += 1
        self._means[i] += (reward - self._means[i]) / self._counts[i]


class BanditSpecPaper(_MeanRewards):
    """UCBSpec: mean normalised speed + sqrt(6 ln t / (2 n)), n the arm's own rewards, t those of all arms.

    The constants 6 and 2 are recalled, not read. Speed is tokens per decoding request and millisecond (the paper
    serves one sequence), normalised by the largest so far. Arms are those of the set-up, each tried once first.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.arms)
        self._largest = 0.0

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """Drafts per request: an arm never tried, else the largest bound."""
        if 0 in self._counts:
            self.exploring = True
            return self.arms[self._counts.index(0)]
        spread, scale = 3.0 * math.log(self._pulls), self._largest or 1.0
        bounds = [mean / scale + math.sqrt(spread / n) for mean, n in zip(self._means, self._counts, strict=True)]
        arm = bounds.index(max(bounds))
        self.exploring = arm != self._means.index(max(self._means))
        return self.arms[arm]

    def observe(self, record: StepRecord) -> None:
        """Take in a step as a reward of the arm it is credited to."""
        played = self._credit.read(record)
        if played is not None:
            reward = played.tokens / played.batch / played.ms
            self._largest = max(self._largest, reward)
            self._take(played.arm, reward)


class BanditSpecReleased(_MeanRewards):
    """As released: 7 rewards in turn, then mean speed + sqrt(6 ln t / t), t the rewards of all arms: greedy.

    The bonus divides by the pulls of all arms and not of each, so that it is the same for all and decides nothing.
    Arms are those of the set-up among K = 1..4 (all above 0 where there is none of those, K=0 where there is nothing
    else); reward is the batch's tokens per second of the step; an arm without a reward counts as 0. The warm-up counts
    rewards, so that late ones make it a few steps longer.
    """

    WARM_UP = 7  # rewards
    MOST = 4  # drafts

    def __init__(self, setup: Setup) -> None:
        drafting = tuple(k for k in setup.arms if k > 0)
        super().__init__(tuple(k for k in drafting if k <= self.MOST) or drafting or setup.arms)
        self._chosen = 0

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """Drafts per request: the next in turn, after the warm-up the best."""
        self.exploring = self._pulls < self.WARM_UP
        if self.exploring:
            self._chosen += 1
            return self.arms[(self._chosen - 1) % len(self.arms)]
        bonus = math.sqrt(6.0 * math.log(self._pulls) / self._pulls)
        scores = [mean + bonus for mean in self._means]
        return self.arms[scores.index(max(scores))]

    def observe(self, record: StepRecord) -> None:
        """Take in a step as a reward of the arm it is credited to."""
        played = self._credit.read(record)
        if played is not None:
            self._take(played.arm, 1000.0 * played.tokens / played.ms)
