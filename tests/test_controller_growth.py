"""Nothing in a controller grows with the steps it has seen."""

from __future__ import annotations

import pytest

from adaptk import Controller, GoodputTable
from tests.containers import HighWater, container_sizes
from tests.publicengine import PUBLIC
from tests.restless import Restless

SCHEDULE = GoodputTable.from_schedule([[1, 32, 3], [33, 128, 1], [129, 512, 0]])
SLACK = 60  # entries: a batch size may come about for the first time, with all its arms


@pytest.mark.parametrize("table", [PUBLIC, SCHEDULE, None], ids=["times", "schedule", "no table"])
def test_no_container_grows_with_the_steps(table: GoodputTable | None) -> None:
    """15,000 restless steps: none is larger at any time in the last third than it ever was before.

    What kept one entry per block of 32 steps would be larger by 150. Caches may grow up to their limit; that they are
    emptied then is seen by the test of memory, which meets 10,000 batch sizes.
    """
    engine = Restless(Controller(table, k_max=5, seed=0))
    before, after = HighWater(), HighWater()
    for part, hundreds in ((before, 100), (after, 50)):
        for _ in range(hundreds):
            engine.run(100)
            part.look(engine.controller)
    counters = engine.controller.counters
    assert min(counters["switches"], counters["explored"], counters["acceptance_alarms"] + counters["time_alarms"]) > 2
    assert after.grown(before, SLACK) == {}


def test_decisions_that_are_never_answered_are_forgotten() -> None:
    """A scheduler whose results never come back: at most 64 decisions are kept."""
    controller = Controller(PUBLIC, seed=0)
    sizes = []
    for step in range(2000):
        controller.choose(1 + step % 50)
        if step >= 100 and step % 100 == 0:
            sizes.append(container_sizes(controller)["Controller._open"])
    assert set(sizes) == {64}


def test_a_container_that_grows_is_found() -> None:
    """The test's own instrument: a list of one entry per block, deep inside, is named."""
    engine = Restless(Controller(PUBLIC, seed=0))
    first, second = HighWater(), HighWater()
    kept = engine.controller._acceptance.supply.kept = []  # type: ignore[attr-defined]
    for half in (first, second):
        for _ in range(100):
            engine.run(10)
            kept.append(engine.step)
            half.look(engine.controller)
    assert "Supply.kept" in second.grown(first, SLACK)
