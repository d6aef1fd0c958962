"""Steps whose sampling waited for a grammar: a class of their own, told from the others by an offset in time."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from adaptk.prefill import LEAST_REST

MEMORY = 100.0  # steps over which the share of the other class is taken
FIRST = 5  # steps of the other class whose median is the first guess of the offset
LEAST_WEIGHT = 0.05  # of one pair of neighbouring steps
ALIKE_WEIGHT = 0.02  # of a step of the other class held against what is believed
CLIP = 0.1  # of a step's time that one comparison may differ from the offset by, at least: stalls are no waits


class Waits:
    """Milliseconds by which steps that waited for a grammar differ from those that did not.

    The host's extra work is no arm's cost. But where every step waits, a filter would leave nothing to learn from. So
    the arms' times are those of one class, ``home``, and steps of the other class count as if they had been of it: less
    the offset, which neighbouring steps of either class teach, and what is believed of the arm. What a step takes on
    the whole is the arm's own time and ``extra_ms``, the offset times the other class's share of late; plans and
    beliefs are made of that.

    Parameters
    ----------
    home
        Whether steps of the class that arms' times are of waited; a table is of steps that did not. ``None``: as the
        first step, so that with one class alone there is no offset, whichever it is.
    """

    def __init__(self, home: bool | None = None) -> None:
        self.home = home
        self.share = 0.0  # of the other class
        self._steps = 0.0
        self._offset = 0.0  # of the other class
        self._pairs = 0.0  # of neighbouring steps that taught it
        self._first: list[float] = []
        self._last: tuple[bool, int, int, int, float] | None = None

    @property
    def known(self) -> bool:
        """Whether the offset was seen."""
        return self._pairs > 0.0

    @property
    def extra_ms(self) -> float:
        """What the other class adds to the mean step, milliseconds; negative where it is the quicker one."""
        return self.share * self._offset

    def see(self, waited: bool, elapsed_ms: float) -> float:
        """Count a step in; its time as one of the first class, milliseconds, as far as the offset is known."""
        if self.home is None:
            self.home = waited
        other = waited is not self.home
        if self._steps < MEMORY:
            self._steps += 1.0
        self.share += (other - self.share) / self._steps
        return self.own_ms(waited, elapsed_ms)

    def own_ms(self, waited: bool, elapsed_ms: float) -> float:
        """A step's time without the offset, milliseconds; a step is never thought shorter than a tenth of itself."""
        return elapsed_ms if waited is self.home else max(elapsed_ms - self._offset, LEAST_REST * elapsed_ms)

    def learn(
        self, waited: bool, arm: int, decodes: int, prefill_tokens: int, elapsed_ms: float, believed_ms: float | None
    ) -> bool:
        """Learn from a step that is one arm's; whether its time without the offset can be used.

        ``believed_ms`` is what a step of the first class is believed to take, ``None`` where that was never seen.
        """
        last, self._last = self._last, (waited, arm, decodes, prefill_tokens, elapsed_ms)
        other = waited is not self.home
        if last is not None and last[0] is not waited and last[1] == arm and last[3] == prefill_tokens:
            if abs(last[2] - decodes) <= 0.1 * decodes:
                difference = elapsed_ms - last[4]
                self._pair(difference if other else -difference, elapsed_ms)
        elif other and believed_ms is not None and last is not None and last[1] == arm:
            self._alone(elapsed_ms - believed_ms, elapsed_ms)
        return self.known or not other

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-safe."""
        return {
            "home": -1 if self.home is None else int(self.home),
            "share": self.share,
            "steps": self._steps,
            "offset": self._offset,
            "pairs": self._pairs,
            "first": list(self._first),
            "last": None if self._last is None else [int(self._last[0]), *self._last[1:]],
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over the state of a ``snapshot``."""
        self.home = None if data["home"] < 0 else bool(data["home"])
        self.share, self._steps = data["share"], data["steps"]
        self._offset, self._pairs, self._first = data["offset"], data["pairs"], list(data["first"])
        last = data["last"]
        self._last = None if last is None else (bool(last[0]), *last[1:])

    def _pair(self, difference: float, elapsed_ms: float) -> None:
        """Two neighbouring steps that differ in nothing but the class."""
        self._pairs += 1.0
        self._move(difference, elapsed_ms, max(1.0 / self._pairs, LEAST_WEIGHT))

    def _alone(self, difference: float, elapsed_ms: float) -> None:
        """A step of the other class among its like: first several of them, then each one a little."""
        if self.known:
            self._move(difference, elapsed_ms, ALIKE_WEIGHT)
            return
        self._first.append(difference)
        if len(self._first) == FIRST:
            self._offset, self._pairs = median(self._first), 1.0
            self._first.clear()

    def _move(self, difference: float, elapsed_ms: float, weight: float) -> None:
        most = max(abs(self._offset), CLIP * elapsed_ms)
        beyond = difference - self._offset
        self._offset += weight * min(max(beyond, -most), most)
