"""Visits places within a budget and keeps the samples of every cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from adaptk.surface.machine import is_out_of_memory
from adaptk.surface.model import Part
from adaptk.surface.plan import Place
from adaptk.surface.samples import Summary, combined, summary
from adaptk.surface.timing import Sampler, Timer

LEAST = 3
"""Samples without which a cell is not worth a row."""
ROUNDS = 8
"""Rounds of a visit where there is time: the fewest that give an interval, and some."""

_MOST_ROUNDS = 40
_SECONDS_PER_K = 0.2  # a visit of quick cells goes on for so long
_ENOUGH, _MOST = 20, 200  # samples of a cell
_NARROW = 0.01  # interval over median: below it, a cell is settled

_Cell = list[tuple[Sampler, list[float]]]  # of one K: the parts of its step, and their times so far


class Workload(Protocol):
    """Says what a cell consists of."""

    def parts(self, place: Place, k: int) -> list[Part]:
        """Parts whose times, each as often as its factor says, make up the step."""
        ...


class Measurement:
    """Samples of cells, and the visits that take them.

    Parameters
    ----------
    workload
        What is timed.
    make_timer
        A timer for one visit.
    ks
        Drafts per request, all of them timed side by side at a place.
    left
        Seconds of the budget that are left.
    cost
        What a place costs beside the others, above 0 in any unit: the budget is shared out by it.
    """

    def __init__(
        self,
        workload: Workload,
        make_timer: Callable[[], Timer],
        ks: Sequence[int],
        left: Callable[[], float],
        cost: Callable[[Place], float],
    ) -> None:
        self._workload, self._make_timer, self._ks, self._left = workload, make_timer, tuple(ks), left
        self._cost = cost
        self._samples: dict[tuple[Place, int], list[tuple[float, list[float]]]] = {}
        self._places: list[Place] = []
        self._shortest_s: dict[Place, float] = {}
        self.out_of_memory: list[Place] = []
        self.graph_mode: str | None = None

    def run(self, places: Sequence[Place], visited: Callable[[Place], None]) -> None:
        """Visit all of ``places``, then again those whose intervals are wide, until the budget is spent.

        Only the first place is visited whatever the budget says; a later one is passed over where, by those before it,
        it would not end in time. ``visited`` is called after each visit that left a whole place behind.
        """
        self._places = list(places)
        to_come = math.fsum(map(self._cost, places))
        for place in places:
            share = self._cost(place) / to_come
            to_come -= self._cost(place)
            if not self.finished or self._in_time(place):
                self._visit(place, self._left() * share, visited)
        while loose := [place for place in self._unsettled() if self._in_time(place)]:
            for place in loose:
                if self._in_time(place):
                    self._visit(place, math.inf, visited)

    @property
    def not_reached(self) -> list[Place]:
        """Places that the run has not finished, and for which there was memory."""
        known = {*self.finished, *self.out_of_memory}
        return [place for place in self._places if place not in known]

    @property
    def finished(self) -> list[Place]:
        """Places where every K has samples enough for a row."""
        places = dict.fromkeys(place for place, _ in self._samples)
        return [place for place in places if all(self._count(place, k) >= LEAST for k in self._ks)]

    def rows(self) -> dict[tuple[Place, int], Summary]:
        """Summaries of the step's time for every K of the finished places."""
        return {(place, k): self._summary(place, k) for place in self.finished for k in self._ks}

    def _visit(self, place: Place, seconds: float, visited: Callable[[Place], None]) -> None:
        timer = self._make_timer()
        self.graph_mode = timer.graph_mode
        try:
            self._sample(place, seconds, timer)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            for k in self._ks:
                self._samples.pop((place, k), None)
            if place not in self.out_of_memory:
                self.out_of_memory.append(place)
            return
        finally:
            timer.close()
        if place in self.finished:
            visited(place)

    def _in_time(self, place: Place) -> bool:
        """Whether the shortest visit that gives rows is expected to end within the budget."""
        left = self._left()
        if not self._shortest_s or left <= 0:
            return left > 0
        cost = self._cost(place)
        like = min(self._shortest_s, key=lambda other: (other != place, abs(math.log(self._cost(other) / cost))))
        return self._shortest_s[like] * cost / self._cost(like) <= left

    def _sample(self, place: Place, seconds: float, timer: Timer) -> None:
        begun = self._left()
        must = not self.finished  # the first place is measured whatever the budget says
        samplers = self._prepared(place, timer, must)
        if samplers is None:
            return
        ready = self._left()
        rounds = self._rounds(samplers, seconds - (begun - ready), must)
        if rounds:
            self._shortest_s[place] = (begun - ready) + LEAST * (ready - self._left()) / rounds

    def _prepared(self, place: Place, timer: Timer, must: bool) -> list[_Cell] | None:
        """Each K's parts as samplers, and where their times go; ``None`` where the budget ends before."""
        cells = []
        for k in self._ks:
            if not must and self._left() <= 0:
                return None
            parts = self._workload.parts(place, k)
            kept = self._samples.setdefault((place, k), [(part.factor, []) for part in parts])
            runs = [timer.prepare(part.run) for part in parts]
            cells.append([(run, times) for run, (_, times) in zip(runs, kept, strict=True)])
        return cells

    def _rounds(self, cells: Sequence[_Cell], seconds: float, must: bool) -> int:
        """Rounds over all K, there and back again by turns, so that what drifts does not favour one; how many."""
        ready = self._left()
        for done in range(_MOST_ROUNDS):
            spent = done >= LEAST and ready - self._left() > seconds
            if spent or (done >= ROUNDS and ready - self._left() > _SECONDS_PER_K * len(self._ks)):
                return done
            for each in cells if done % 2 == 0 else reversed(cells):
                if self._left() <= 0 and not (must and done < LEAST):
                    return done
                for run, times in each:
                    times.append(run())
        return _MOST_ROUNDS

    def _count(self, place: Place, k: int) -> int:
        return min((len(times) for _, times in self._samples.get((place, k), [])), default=0)

    def _summary(self, place: Place, k: int) -> Summary:
        return combined([(factor, summary(times)) for factor, times in self._samples[place, k]])

    def _unsettled(self) -> list[Place]:
        """Places with a cell that further samples would help, the widest interval first."""
        widths: dict[Place, float] = {}
        for (place, _), found in self.rows().items():
            if place in self.out_of_memory or found.n >= _MOST:
                continue
            wide = 1.0 if found.low_ms is None or found.high_ms is None else found.high_ms - found.low_ms
            width = wide if found.low_ms is None else wide / found.median_ms
            if found.n < _ENOUGH or width > _NARROW:
                widths[place] = max(width, widths.get(place, 0.0))
        return sorted(widths, key=lambda place: -widths[place])
