"""SGLang's proposed throughput-aware steps: windowed acceptance over a cost profile taken at the start."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from adaptk.cascade import cascade_counts
from adaptk.replay.policies.base import Rival, Setup, arm_at_most
from adaptk.replay.policies.manager import extended
from adaptk.step import StepRecord

WINDOW = 20  # batch means per position
INTERVAL = 5  # batches between decisions
MARGIN = 1.10  # by which another score must exceed the running one
START = 3  # steps


class SglangThroughput(Rival):
    """Windowed acceptance per position over step times profiled once; switches only for 10 % more.

    Source: SGLang pull request 28045, open, its files read.

    - ``score(S) = (1 + p_1 + ... + p_S) / cost(batch, S)``. ``p_k`` is the mean of a window of 20 batch means at
      position k, not given earlier positions, shared by all batch sizes. Positions not seen are extrapolated
      geometrically with the ratio ``(p_last / p_first) ** (1 / (n - 1))``.
    - ``cost`` is the median step time of a profile at the start, at 128 tokens of context, read at the next profiled
      batch at or above, and never updated.
    - Every 5 batches, once all positions in play have full windows, the best score for the batch about to run is taken
      if it exceeds 1.10 times the running one. There is one S for all batch sizes. A step down empties the windows
      above, after which the extrapolation may lead straight back up.

    Ours, where the source is silent: S starts at the largest arm up to 3, or the smallest above 0; above the profile's
    rows the last is held; candidates are the arms; with one position seen its rate is the ratio, which is at most 1. A
    step down to 0 keeps the window of position 1, since K=0 would otherwise never be left; what is seen there never
    changes, and only another batch size leads back. Batch means scheduled requests. Late drafts of positions above S
    are not counted: an engine that drafts and verifies within a step has none.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.arms)
        self._profile = setup.startup
        self._windows: list[deque[float]] = [deque(maxlen=WINDOW) for _ in range(setup.k_max)]
        self.steps = arm_at_most(setup.arms, START) or setup.arms[min(1, len(setup.arms) - 1)]
        self._batches = 0
        self._costs: dict[int, list[float]] = {}  # ms per arm, by batch

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """The running steps, reconsidered every 5 batches."""
        if self._batches > 0 and self._batches % INTERVAL == 0 and self._ready():
            self._decide(batch_size)
        self._batches += 1
        return self.steps

    def observe(self, record: StepRecord) -> None:
        """Append one batch mean to the window of every position in play that had drafts."""
        succeeded, _, present = cascade_counts(record.drafted, record.accepted, len(self._windows))
        for window, accepted, drafted in zip(self._windows[: self.steps], succeeded, present, strict=False):
            if drafted > 0:
                window.append(accepted / drafted)

    def rates(self) -> list[float]:
        """Unconditional acceptance per position, shape ``(k_max,)``: seen, then extrapolated."""
        seen = [sum(window) / len(window) for window in self._windows if window]
        return extended(seen, len(self._windows))

    def _ready(self) -> bool:
        return all(len(window) == WINDOW for window in self._windows[: self.steps])

    def _decide(self, batch: int) -> None:
        sums = [1.0]
        for rate in self.rates():
            sums.append(sums[-1] + rate)
        scores = [sums[k] / cost for k, cost in zip(self.arms, self._cost(batch), strict=True)]
        best = max(range(len(scores)), key=scores.__getitem__)
        if scores[best] <= MARGIN * scores[self.arms.index(self.steps)]:
            return
        for window in self._windows[max(1, self.arms[best]) : self.steps]:
            window.clear()
        self.steps = self.arms[best]

    def _cost(self, batch: int) -> list[float]:
        """Milliseconds per arm."""
        costs = self._costs.get(batch)
        if costs is None:
            rows = self._profile.batches
            row = rows[min(bisect_left(rows, batch), len(rows) - 1)]
            costs = self._costs[batch] = self._profile.itl_grid([row], self.arms)[0].tolist()
        return costs
