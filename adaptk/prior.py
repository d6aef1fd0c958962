"""What is believed of step times before the first step: the table, or a roofline where there are no times."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

from adaptk.acceptance import AcceptancePosterior
from adaptk.roofline import relative_cost, schedule_slope
from adaptk.table import GoodputTable

_KEPT_ROWS = 4096


class StepTimePrior:
    """Log step time per batch size and arm.

    Parameters
    ----------
    table
        Seed table, or ``None``.
    arms
        Arms in rising order.
    capture_sizes
        Tokens that steps are padded to, where that is known. A table that is no staircase is read at the padded
        size.
    """

    def __init__(self, table: GoodputTable | None, arms: Sequence[int], capture_sizes: Sequence[int] = ()) -> None:
        self.table = table
        self.arms = tuple(arms)
        self.capture_sizes = tuple(sorted(set(capture_sizes)))
        if any(type(size) is not int or size < 1 for size in self.capture_sizes):
            raise ValueError(f"capture_sizes are {list(capture_sizes)!r}: give numbers of tokens, at least 1")
        self.timed = table is not None and table.has_times
        stairs = table is not None and table.has_times and table.meta.get("staircase", False)
        self._edges = table.batches if table is not None and stairs else ()
        self._rows: dict[tuple[int, int], list[float]] = {}
        self.has_contexts = self.timed and table is not None and any(r.context is not None for r in table.rows)

    def row(self, batch: int, context: float | None) -> list[float]:
        """Log milliseconds per arm, shape ``(arms,)``; to an unknown constant where ``timed`` is false."""
        bucket = -1
        if self.has_contexts and context is not None:
            bucket = round(8.0 * math.log1p(context))  # steps of 12 %: the table is queried once for each
        key = (batch, bucket)
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= _KEPT_ROWS:
                self._rows.clear()
            row = self._rows[key] = self._compute(batch, None if bucket < 0 else math.expm1(bucket / 8.0))
        return row

    def known(self, k: int) -> bool:
        """Whether the table has times for this arm."""
        return self.timed and self.table is not None and self.table.knows(k)

    def stair(self, batch: int) -> int:
        """Index of the table's step at this batch size; 0 where the table is no staircase."""
        return bisect_left(self._edges, batch)

    def _compute(self, batch: int, context: float | None) -> list[float]:
        if self.timed:
            assert self.table is not None
            times = [self.table.itl_ms(self._padded(batch, k), k, context) for k in self.arms]
            return [math.log(t) for t in times if t is not None]
        if self.table is None:
            return [math.log(relative_cost(self._padded(batch, k), k)) for k in self.arms]
        # The acceptance that decisions start from: with any other the best arm would not be the schedule's.
        lengths = AcceptancePosterior(self.arms[-1], self.table.acceptance).lengths(self.arms)
        slope = schedule_slope(batch, self._schedule(), dict(zip(self.arms, lengths, strict=True)))
        base = math.log(relative_cost(batch, 0))
        return [base + math.log1p(slope * k) for k in self.arms]

    def _padded(self, batch: int, k: int) -> float:
        """Batch size that a step really computes."""
        tokens = batch * (k + 1)
        at = bisect_left(self.capture_sizes, tokens)
        if self._edges or at == len(self.capture_sizes):
            return batch
        return self.capture_sizes[at] / (k + 1)

    def _schedule(self) -> list[tuple[int, int, int]]:
        """The table's schedule with every K moved to the nearest arm, and neighbours of one K put together."""
        assert self.table is not None
        assert self.table.schedule is not None
        first, tiers = 1, list[tuple[int, int, int]]()
        tail = sorted(self.table.schedule)
        for i, (_, last, k) in enumerate(tail):
            end = tail[i + 1][0] - 1 if i + 1 < len(tail) else last
            arm = self.arms[self._nearest(k)]
            if tiers and tiers[-1][2] == arm:
                first = tiers.pop()[0]
            tiers.append((first, end, arm))
            first = end + 1
        return tiers

    def _nearest(self, k: int) -> int:
        return min(range(len(self.arms)), key=lambda i: (abs(self.arms[i] - k), self.arms[i]))
