"""Visits, the budget, and what is kept when something breaks off."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from adaptk.surface.measure import LEAST, Measurement
from adaptk.surface.model import Part
from adaptk.surface.plan import Place
from adaptk.surface.timing import WallTimer
from tests.surface.small import Clock

pytest.importorskip("torch")


class Load:
    """Cells that take ``cost_ms`` on a clock that does nothing else; calls are kept."""

    def __init__(self, clock: Clock, cost_ms: Callable[[Place, int], float]) -> None:
        self.clock, self.cost_ms, self.calls = clock, cost_ms, list[tuple[Place, int]]()

    def parts(self, place: Place, k: int) -> list[Part]:
        def run() -> None:
            self.calls.append((place, k))
            self.clock.wait(self.cost_ms(place, k))

        return [Part(1.0, run)]


def measurement(
    load: Load, ks: list[int], budget_s: float, cost: Callable[[Place], float] = lambda place: 1.0
) -> Measurement:
    return Measurement(load, lambda: WallTimer(load.clock), ks, lambda: budget_s - load.clock(), cost)


def nothing(_: Place) -> None:
    """Nobody watches."""


def test_all_k_of_a_place_are_sampled_side_by_side() -> None:
    """There and back again, so that a machine which grows slower does not favour the K that comes first."""
    clock = Clock()
    load = Load(clock, lambda place, k: 1.0 + 0.001 * len(load.calls))
    measured = measurement(load, [0, 1, 3], 0.5)
    measured.run([Place(1, 8)], nothing)
    assert [k for _, k in load.calls[3:9]] == [0, 1, 3, 3, 1, 0]
    times = [found.median_ms for found in measured.rows().values()]
    assert max(times) - min(times) < 0.01


def test_settled_cells_are_left_alone() -> None:
    """A steady machine is measured in a moment, whatever the budget."""
    clock = Clock()
    load = Load(clock, lambda place, k: 2.0)
    measured = measurement(load, [0, 1], 1e9)
    measured.run([Place(1, 8), Place(2, 8)], nothing)
    assert clock() < 5.0
    assert all(found.n >= 20 and found.median_ms == pytest.approx(2.0) for found in measured.rows().values())


def test_what_scatters_is_visited_again() -> None:
    """Until the budget, or 200 samples; the steady place takes none of it."""
    clock, rng = Clock(), Random(0)
    load = Load(clock, lambda place, k: 50.0 if place.batch == 1 else 50.0 + 40.0 * rng.random())
    measured = measurement(load, [0], 1e9)
    measured.run([Place(1, 8), Place(2, 8)], nothing)
    rows = measured.rows()
    assert 20 <= rows[Place(1, 8), 0].n <= 60
    assert 200 <= rows[Place(2, 8), 0].n <= 260


def test_the_budget_ends_the_run_with_whole_places() -> None:
    """Every place that is kept has every K; the time is overrun by less than what is in work."""
    clock = Clock()
    load = Load(clock, lambda place, k: 1000.0 * place.batch)
    seen: list[Place] = []
    measured = measurement(load, [0, 1], 60.0, cost=lambda place: place.batch)
    measured.run([Place(1, 8), Place(16, 8), Place(4, 8)], seen.append)
    assert clock() <= 60.0 + 4.0
    assert {place for place, _ in measured.rows()} == set(seen) == {Place(1, 8), Place(4, 8)}
    assert all((place, k) in measured.rows() for place in seen for k in (0, 1))


def test_what_would_not_end_in_time_is_not_begun() -> None:
    """By the time of those before it: the dear place is passed over and named, the cheap one behind it is measured."""
    clock = Clock()
    load = Load(clock, lambda place, k: 1000.0 * place.batch)
    measured = measurement(load, [0, 1], 60.0, cost=lambda place: place.batch)
    measured.run([Place(1, 8), Place(16, 8), Place(2, 8)], nothing)
    assert clock() <= 60.0 + 2.0
    assert {place for place, _ in load.calls} == {Place(1, 8), Place(2, 8)}
    assert measured.finished == [Place(1, 8), Place(2, 8)]
    assert measured.not_reached == [Place(16, 8)]


def test_what_took_longer_than_expected_is_named_too() -> None:
    """A place that the budget cuts off has no rows, and is not passed over in silence."""
    clock = Clock()
    load = Load(clock, lambda place, k: 1000.0 if place.batch == 1 else 20_000.0)
    measured = measurement(load, [0, 1], 60.0)
    measured.run([Place(1, 8), Place(2, 8)], nothing)
    assert load.calls[-1][0] == Place(2, 8)
    assert measured.not_reached == [Place(2, 8)]
    assert {place for place, _ in measured.rows()} == {Place(1, 8)}


def test_a_second_visit_ends_in_time() -> None:
    """Rather than being begun for the last seconds."""
    clock, rng = Clock(), Random(0)
    load = Load(clock, lambda place, k: 1000.0 + 900.0 * rng.random())
    measured = measurement(load, [0], 31.0)
    measured.run([Place(1, 8), Place(2, 8)], nothing)
    assert clock() <= 31.0 + 1.9
    assert measured.not_reached == []


def test_time_is_shared_out_by_cost() -> None:
    """Cheap places leave the dear one the time that it needs for as many samples as they get."""
    clock = Clock()
    load = Load(clock, lambda place, k: 100.0 * place.batch)
    measured = measurement(load, [0], 40.0, cost=lambda place: place.batch)
    measured.run([Place(1, 8), Place(30, 8), Place(4, 8)], nothing)
    counts = {place.batch: found.n for (place, _), found in measured.rows().items()}
    assert set(counts) == {1, 30, 4}
    assert counts[30] >= LEAST


def test_the_first_place_is_measured_whatever_the_budget() -> None:
    """A table of one place says more than none."""
    clock = Clock()
    measured = measurement(Load(clock, lambda place, k: 9000.0), [0, 3], 1e-3)
    measured.run([Place(1, 8), Place(2, 8)], nothing)
    assert {place for place, _ in measured.rows()} == {Place(1, 8)}
    assert {found.n for found in measured.rows().values()} == {LEAST}


def test_what_does_not_fit_is_named_and_the_rest_goes_on() -> None:
    """An allocation that fails takes its place out, and nothing else; another fault is not hidden."""

    def cost(place: Place, k: int) -> float:
        if place.batch == 2 and k == 3:
            raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 1 bytes")
        return 1.0

    measured = measurement(Load(Clock(), cost), [0, 3], 100.0)
    measured.run([Place(2, 8), Place(1, 8)], nothing)
    assert measured.out_of_memory == [Place(2, 8)]
    assert {place for place, _ in measured.rows()} == {Place(1, 8)}

    def broken(place: Place, k: int) -> float:
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        measurement(Load(Clock(), broken), [0], 100.0).run([Place(1, 8)], nothing)


def test_an_interrupt_leaves_whole_places() -> None:
    """What was finished stays; the place in work is kept only if it has enough of every K."""
    clock = Clock()

    def cost(place: Place, k: int) -> float:
        if place.batch == 2 and len(load.calls) > 35:
            raise KeyboardInterrupt
        return 300.0

    load = Load(clock, cost)
    measured = measurement(load, [0, 1, 3], 1e9)
    with pytest.raises(KeyboardInterrupt):
        measured.run([Place(1, 8), Place(2, 8), Place(4, 8)], nothing)
    assert all(found.n >= LEAST for found in measured.rows().values())
    assert len(measured.rows()) % 3 == 0
    assert measured.finished == [Place(1, 8)]
    assert measured.not_reached == [Place(2, 8), Place(4, 8)]
