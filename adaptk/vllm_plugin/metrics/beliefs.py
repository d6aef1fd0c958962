"""What a controller believes at the batch sizes that were served, made ready for a page on a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from adaptk.acceptance import PositionBelief
from adaptk.belief import ArmBelief
from adaptk.mirror import Mirror
from adaptk.peek import Peek
from adaptk.vllm_plugin.metrics.reference import POLICIES, Reference, Timed
from adaptk.vllm_plugin.metrics.sums import CONTEXT, DECODES, MS, REQUESTS, STEPS, TIMED, TOKENS, Cells, Place

# A pause between two pieces of work: an engine's thread that waits for the interpreter gets it, and not this one again.
GIVE_WAY_S = 1e-4
# What the steps before the last look weigh in the mean batch size and context of a bin.
_FADE = 0.5


class Spot(NamedTuple):
    """A batch size and a mean context, tokens per request, ``None`` where unknown."""

    batch: int
    context: float | None


class Bin(NamedTuple):
    """Where a bin was asked about, what is believed there by K, and what the table would play."""

    spot: Spot
    beliefs: dict[int, ArmBelief]
    table_k: int | None


_NOTHING = Bin(Spot(1, None), {}, None)


class Beliefs:
    """Follows one engine's sums; asked by one thread at a time, none of them the engine's.

    Attributes
    ----------
    bins
        By bit length of the batch size.
    positions
        Acceptance by draft position.
    mirror
        ``None`` where the controller's beliefs cannot be had.
    reference
        What policies would have emitted, up to the last look.
    """

    def __init__(self) -> None:
        self.bins: dict[int, Bin] = {}
        self.positions: list[PositionBelief] = []
        self.mirror: Mirror | None = None
        self.taken_s = 0.0  # when what is believed was copied, unix time
        self.reference = Reference(POLICIES)
        self._peek: Peek | None = None
        self._seen: dict[Place, list[float]] = {}
        self._weights: dict[int, list[float]] = {}  # of each bin, like a cell

    def look(self, peek: Peek | None, cells: Cells) -> None:
        """Take in what a controller believes now, and what has been added up since the last time."""
        news = list(self._news(cells))
        for at, more in news:
            before = self._weights.get(at[0], [0.0] * len(more))
            self._weights[at[0]] = [old + new for old, new in zip(before, more, strict=True)]
        if peek is None:
            self.mirror, self.bins = None, {}
        else:
            self._believe(peek)
        self._count(news)
        for bits in {at[0] for at, _ in news}:
            self._weights[bits] = [_FADE * value for value in self._weights[bits]]

    def _news(self, cells: Cells) -> Iterator[tuple[Place, list[float]]]:
        for at, now in cells.items():
            before = self._seen.get(at)
            if now != before:  # of a step that was being added then, a part may be new
                self._seen[at] = now
                yield at, now if before is None else [new - old for new, old in zip(now, before, strict=True)]

    def _believe(self, peek: Peek) -> None:
        mirror = self.mirror
        if mirror is None or mirror.source is not peek.source:
            mirror = self.mirror = Mirror(peek)
            self._peek = None
        mirror.look(peek)
        same, self._peek, self.taken_s = peek is self._peek, peek, peek.taken_s
        if not same:
            self.positions = mirror.positions()
        for bits, weights in self._weights.items():
            spot = _spot(weights)
            known = self.bins.get(bits)
            if bits == 0 or (same and known is not None and known.spot == spot):
                continue
            by_k = {belief.k: belief for belief in mirror.belief(spot.batch, spot.context)}
            table_k = None if mirror.table is None else mirror.table.best_k(spot.batch, spot.context, mirror.arms)
            self.bins[bits] = Bin(spot, by_k, table_k)
            time.sleep(GIVE_WAY_S)

    def _count(self, news: list[tuple[Place, list[float]]]) -> None:
        for at, more in news:
            timed = Timed(more[TIMED], more[MS], more[TOKENS])
            if at[0] == 0:
                self.reference.take_over(timed.tokens)
            elif timed.tokens > 0:
                known = self.bins.get(at[0], _NOTHING)
                self.reference.count(at, timed, known.beliefs, known.table_k)

    def policies(self) -> list[str]:
        """Those whose reference means something: a table's where there is one, K=0 where that is an arm."""
        mirror = self.mirror
        if mirror is None:
            return []
        lacking = {"k0"} if 0 not in mirror.arms else set()
        if mirror.table is None:
            lacking.add("table")
        return [policy for policy in POLICIES if policy not in lacking]


def _spot(weights: list[float]) -> Spot:
    batch = max(1, round(weights[DECODES] / weights[STEPS]))
    return Spot(batch, weights[CONTEXT] / weights[REQUESTS] if weights[REQUESTS] else None)
