"""P5: bandits without a model, one per batch bin: reward in, arm out, nothing known beforehand.

Three rules share a frame that is ours: power-of-two bins of decoding requests (1, 2, 3-4, 5-8, ...), the arms of the
set-up, no table. A step is credited to the arm whose drafts it verified (``Credit``). Steps that mix two K or carry
prompt tokens are taken as they come, as noise: a reward per step cannot be taken apart. An arm without a reward scores
infinity; of equal scores the smallest arm wins.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence

from adaptk.replay.policies.base import Rival, Setup, decoding
from adaptk.replay.policies.credit import Credit, batch_bin
from adaptk.replay.policies.windows import MedianWindow, SumWindow
from adaptk.step import StepRecord

WINDOW = 300  # steps of a bin, over all its arms


def best(scores: Sequence[float]) -> int:
    """Index of the largest score, of equals the first.

    Examples
    --------
    >>> best([1.0, 3.0, 3.0])
    1
    """
    return scores.index(max(scores))


class EpsilonMedian(Rival):
    """P5a: epsilon-greedy on the median reward in a window.

    Source: the multi-armed bandit of SGLang pull request 18284 ("TLT", arXiv 2511.16665), closed unmerged. Constants as
    there: epsilon 0.1, a window of 300. The reward is goodput with the acceptance length replaced by its median over
    the arm's last 300 steps at any batch size: that median x decoding requests / step time. An arm whose rewards have
    all left the bin's window has expired and is tried again.
    """

    EPSILON = 0.1

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.arms)
        self._rng = random.Random(setup.seed)
        self._credit = Credit(setup.arms)
        self._lengths = {arm: MedianWindow((arm,), WINDOW) for arm in setup.arms}
        self._bins: defaultdict[int, MedianWindow] = defaultdict(lambda: MedianWindow(setup.arms, WINDOW))

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """Drafts per request: any arm with probability epsilon, else the best median."""
        if self._rng.random() < self.EPSILON:
            self.exploring = True
            return self._rng.choice(self.arms)
        medians = self._bins[batch_bin(decoding(batch_size, decodes))].medians()
        arm = best(medians)
        self.exploring = medians[arm] == math.inf
        return self.arms[arm]

    def observe(self, record: StepRecord) -> None:
        """Take in a step as a reward of the arm it is credited to."""
        played = self._credit.read(record)
        if played is None:
            return
        lengths = self._lengths[played.arm]
        lengths.add(played.arm, played.length)
        reward = lengths.medians()[0] * played.batch / played.ms
        self._bins[batch_bin(played.batch)].add(played.arm, reward)


class EpsilonMean(Rival):
    """P5b: epsilon-greedy on the running mean of raw speed, forgotten whole after a lasting drop.

    Source: ``--spec-autotune`` of ik_llama.cpp (pull request 1595), there for a single stream. Constants as there:
    epsilon 0.15; reward = tokens per millisecond of the step; all arms of the bin are reset after 30 steps in a row
    below 0.7 x an average (rate 0.05) of the speed, then no drop is counted for 50 steps. The average runs on through
    drops and resets, so only a fall below about a third can last 30 steps beneath it.
    """

    EPSILON = 0.15

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.arms)
        self._rng = random.Random(setup.seed)
        self._credit = Credit(setup.arms)
        self._bins: defaultdict[int, RunningMeans] = defaultdict(lambda: RunningMeans(setup.arms))

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """Drafts per request: any arm with probability epsilon, else the best mean."""
        if self._rng.random() < self.EPSILON:
            self.exploring = True
            return self._rng.choice(self.arms)
        means = self._bins[batch_bin(decoding(batch_size, decodes))].means
        arm = best(means)
        self.exploring = means[arm] == math.inf
        return self.arms[arm]

    def observe(self, record: StepRecord) -> None:
        """Take in a step as a reward of the arm it is credited to."""
        played = self._credit.read(record)
        if played is not None:
            self._bins[batch_bin(played.batch)].add(played.arm, played.tokens / played.ms)


class RunningMeans:
    """Mean reward per arm since the last reset (infinity: none), shape ``(arms,)``, and the watch that resets it."""

    RATE = 0.05  # of the average reward
    LOW = 0.7  # of that average: a drop
    PATIENCE = 30  # dropped steps in a row until all is forgotten
    COOLDOWN = 50  # steps after it in which no drop is counted

    def __init__(self, arms: tuple[int, ...]) -> None:
        self._index = {arm: i for i, arm in enumerate(arms)}
        self._average: float | None = None
        self._dropped = self._cooldown = 0
        self._forget()

    def add(self, arm: int, reward: float) -> None:
        """Take a reward."""
        i = self._index[arm]
        self._counts[i] += 1
        self.means[i] = reward if self._counts[i] == 1 else self.means[i] + (reward - self.means[i]) / self._counts[i]
        average = reward if self._average is None else self._average
        self._average = average + self.RATE * (reward - average)
        if self._cooldown:
            self._cooldown -= 1
            return
        self._dropped = self._dropped + 1 if reward < self.LOW * average else 0
        if self._dropped == self.PATIENCE:
            self._dropped, self._cooldown = 0, self.COOLDOWN
            self._forget()

    def _forget(self) -> None:
        self.means = [math.inf] * len(self._index)
        self._counts = [0] * len(self._index)


class WindowUcb(Rival):
    """P5c: sliding-window upper confidence bound on raw speed.

    Source: Garivier and Moulines, arXiv 0805.3415, with the constants of UCB1: mean + sqrt(2 ln(min(t, W)) / n), where
    n counts the arm's rewards among the bin's last W = 300. The reward is tokens per millisecond of the step, scaled to
    [0, 1] by the largest in the window, without which the bonus means nothing.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.arms)
        self._credit = Credit(setup.arms)
        self._bins: defaultdict[int, SumWindow] = defaultdict(lambda: SumWindow(setup.arms, WINDOW))

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """Drafts per request: the largest bound."""
        window = self._bins[batch_bin(decoding(batch_size, decodes))]
        if len(window) == 0:
            self.exploring = True
            return self.arms[0]
        spread, scale = 2.0 * math.log(len(window)), window.largest or 1.0
        means = [total / n / scale if n else math.inf for total, n in zip(window.sums, window.counts, strict=True)]
        bounds = [mean + math.sqrt(spread / n) if n else mean for mean, n in zip(means, window.counts, strict=True)]
        arm = best(bounds)
        self.exploring = means[arm] == math.inf or arm != best(means)
        return self.arms[arm]

    def observe(self, record: StepRecord) -> None:
        """Take in a step as a reward of the arm it is credited to."""
        played = self._credit.read(record)
        if played is not None:
            self._bins[batch_bin(played.batch)].add(played.arm, played.tokens / played.ms)
