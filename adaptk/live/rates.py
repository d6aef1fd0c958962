"""Differences of counts: what happened over the last minute, also where an engine was started anew meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from adaptk.live.snapshot import Counts

WINDOW_S = 60.0
SPACING_S = 5.0  # between the points kept: hundreds of engines are held in memory at once


class Span(msgspec.Struct, frozen=True):
    """What was counted over so many seconds."""

    seconds: float
    counts: Counts

    def rate(self, counts: Mapping[Any, float]) -> float:
        """A field of the span's counts, summed, per second."""
        return sum(counts.values()) / self.seconds


class History:
    """The counts of one engine over the last minute."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, Counts]] = deque()  # one each SPACING_S and older than all but one WINDOW_S
        self._last: tuple[float, Counts] | None = None

    def add(self, at: float, counts: Counts) -> None:
        """Take in the counts of a page that was read at a time of a steady clock, seconds."""
        if self._last is not None:
            if at <= self._last[0]:
                return
            if _started_anew(counts, self._last[1]):
                self._points.clear()
            else:
                counts = _completed(counts, self._last[1])
        self._last = at, counts
        if not self._points or at - self._points[-1][0] >= SPACING_S:
            self._points.append(self._last)
        while len(self._points) > 1 and at - self._points[1][0] >= WINDOW_S:
            self._points.popleft()

    def recent(self) -> Span | None:
        """What happened over the last minute, or since the first page where that is less; ``None`` with one page."""
        if self._last is None or self._last[0] <= self._points[0][0]:
            return None
        began, first = self._points[0]
        return Span(self._last[0] - began, _difference(self._last[1], first))


def _fields(counts: Counts) -> dict[str, Mapping[Any, float]]:
    return msgspec.structs.asdict(counts)


def _started_anew(counts: Counts, before: Counts) -> bool:
    """Whether any counter went back, which they do in a new process only."""
    earlier = _fields(before)
    return any(
        value < earlier[field].get(key, 0.0)
        for field, values in _fields(counts).items()
        for key, value in values.items()
    )


def _completed(counts: Counts, before: Counts) -> Counts:
    """The counts with those that a page left out as they were before: back again, they would seem to have leapt."""
    earlier = _fields(before)
    return Counts(**{field: {**earlier[field], **values} for field, values in _fields(counts).items()})


def _difference(counts: Counts, before: Counts) -> Counts:
    earlier = _fields(before)
    return Counts(
        **{
            field: {key: value - earlier[field].get(key, 0.0) for key, value in values.items()}
            for field, values in _fields(counts).items()
        }
    )
