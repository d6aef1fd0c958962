"""What is believed of step times before the first step: the table, or a roofline where there are no times."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

from adaptk.acceptance import AcceptancePosterior
from adaptk.fullwidth import full_width
from adaptk.quoted import shown
from adaptk.roofline import relative_cost, schedule_slope
from adaptk.step import LARGEST_COUNT
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
    trusted
        Whether the table is of this engine. Another one's gives a shape, which counts as much as the roofline's: the
        mean of both is believed, widely.
    """

    def __init__(
        self,
        table: GoodputTable | None,
        arms: Sequence[int],
        capture_sizes: Sequence[int] = (),
        trusted: bool = True,
    ) -> None:
        self.table = table
        self.arms = tuple(arms)
        self.capture_sizes = _sizes(capture_sizes)
        has_times = table is not None and table.has_times
        self.guessed = table is None or not trusted  # nothing was measured here: the table, if any, is a shape
        self.timed = has_times and trusted  # the table's times are this engine's
        self.shaped = has_times and not trusted  # ... or of another one
        stairs = table is not None and has_times and table.meta.get("staircase", False)
        self._edges = table.batches if table is not None and stairs else ()
        self._rows: dict[tuple[int, int], list[float]] = {}
        self.has_contexts = has_times and table is not None and any(r.context is not None for r in table.rows)
        supply = None if table is None else table.supply
        self._short = supply is not None and supply[-1] < 1.0  # its rows hold fewer drafts than were asked for

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
        """Whether the table has times for this arm, with as many drafts."""
        if not self.timed or self.table is None or not self.table.knows(k):
            return False
        return not self._short or k <= self.table.width(self.table.ks[-1])

    def stair(self, batch: int) -> int:
        """Index of the table's step at this batch size; 0 where the table is no staircase."""
        return bisect_left(self._edges, batch)

    def _compute(self, batch: int, context: float | None) -> list[float]:
        if self.guessed:
            roofline = [math.log(relative_cost(self._padded(batch, k), k)) for k in self.arms]
            if self.table is None:
                return roofline
            return [(a + b) / 2.0 for a, b in zip(roofline, self._of_table(batch, context), strict=True)]
        return self._of_table(batch, context)

    def _of_table(self, batch: int, context: float | None) -> list[float]:
        assert self.table is not None
        if self._short:
            return self._all_drafted(batch, context)
        if self.table.has_times:
            times = [self.table.itl_ms(self._padded(batch, k), k, context) for k in self.arms]
            return [math.log(t) for t in times if t is not None]
        base, slope = math.log(relative_cost(batch, 0)), self._slope(batch)
        return [base + math.log1p(slope * k) for k in self.arms]

    def _all_drafted(self, batch: int, context: float | None) -> list[float]:
        """Rows of a table hold the drafts that its drafter returned, the arms here all that are asked for."""
        assert self.table is not None
        ks = sorted({0, *(self.table.ks if self.table.has_times else self.arms)})
        widths = [self.table.width(k) for k in ks]
        slope = 0.0 if self.table.has_times else self._slope(batch)
        times = []
        for k, width in zip(ks, widths, strict=True):
            time = self.table.itl_ms(self._padded(batch, width), k, context)
            times.append(relative_cost(batch, 0) * (1.0 + slope * k) if time is None else time)
        return full_width(self.arms, ks, widths, times, batch)

    def _slope(self, batch: int) -> float:
        """Cost of one more draft that is asked for, under which the schedule is right."""
        assert self.table is not None
        # The acceptance that decisions start from: with any other the best arm would not be the schedule's.
        lengths = AcceptancePosterior(self.arms[-1], self.table.acceptance, self.table.supply).lengths(self.arms)
        return schedule_slope(batch, self._schedule(), dict(zip(self.arms, lengths, strict=True)))

    def _padded(self, batch: int, width: float) -> float:
        """Batch size that a step really computes."""
        tokens = batch * (width + 1)
        at = bisect_left(self.capture_sizes, tokens)
        if self._edges or at == len(self.capture_sizes):
            return batch
        return self.capture_sizes[at] / (width + 1)

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


def _sizes(capture_sizes: Sequence[int]) -> tuple[int, ...]:
    """Rising, each once."""
    try:
        sizes = set(capture_sizes)
        if all(type(size) is int and 1 <= size <= LARGEST_COUNT for size in sizes):
            return tuple(sorted(sizes))
    except TypeError:  # no list, or not of numbers
        pass
    raise ValueError(f"capture_sizes are {shown(capture_sizes)}: give numbers of tokens, from 1 to 10**12")
