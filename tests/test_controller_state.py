"""Every attribute of a controller and its parts is in the snapshot, or is what the constructor makes of the arguments.

Said of all that can be reached from a controller, so that it holds of what will be added, too.
"""

from __future__ import annotations

import numpy as np
import pytest

from adaptk import Controller, Decision, GoodputTable, Settings, StepRecord
from adaptk.replay.casechecks import drafter
from adaptk.replay.noise import Drift, Noise
from adaptk.replay.policies.base import Policy
from adaptk.replay.scenarios import script
from adaptk.replay.simulator import Engine, World, simulate
from adaptk.replay.surface import CostSurface
from tests.containers import plain_state
from tests.publicengine import PUBLIC, world
from tests.restless import Restless
from tests.snapshots import through_json

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SCHEDULE = GoodputTable.from_schedule([[1, 64, 3], [65, 512, 0]])
ROWS = [{"batch": b, "k": k, "itl_ms": 10.0 + 0.1 * b + 1.2 * k} for b in (1, 4, 64) for k in (0, 1, 3, 7)]
CHEAP = GoodputTable.from_rows(ROWS, acceptance=[0.95])

# What only saves work, or is read in the very call that writes it.
PASSING = (
    *("StepTimePrior._rows", "Cells._index", "LatencyPosterior._views", "LatencyPosterior._places"),
    *("LatencyPosterior._rows", "LatencyPosterior._scratch", "Cusum.run", "Planner._refused"),
    "Controller._busy",
    *("Controller.unlearnt", "AcceptancePosterior.counted"),  # told to who counts along, and never looked at
)
ARGUMENTS = ("Controller.table", "Controller.settings", "StepTimePrior.table")
# What the constructor makes of the arguments and nothing changes: all else must be seen to change in the worlds below.
LASTING = {
    *("Controller.arms", "Controller.identity", "Controller.trusted", "Controller._index"),
    *("Planner.acceptance", "Planner.latency", "Planner.arms", "Planner._permitted", "Planner._max_log_itl"),
    *("LatencyPosterior.arms", "LatencyPosterior._drifting", "Ledger.budget", "AcceptancePosterior.k_max"),
    *("StepTimePrior.arms", "StepTimePrior.capture_sizes", "StepTimePrior.timed", "StepTimePrior.has_contexts"),
    *("StepTimePrior.guessed", "StepTimePrior.shaped", "StepTimePrior._short", "StepTimePrior._edges"),
    *("Planner.covered", "Planner._prepared"),
    *("Cells._arms", "Cells._edges", "Cells._return_steps"),
    *("Cusum.clip", "Cusum.slack", "Cusum.threshold"),
}


def attribute(key: str) -> str:
    """``Class.attribute`` of a key of ``plain_state``."""
    return key.split()[-1].partition("[")[0]


class Restored:
    """Drives a controller; now and then another one is restored and compared.

    That is at every 29th choice, every 37th answer, and the answers that end a visit or bring a change.
    """

    def __init__(self, controller: Controller) -> None:
        self.controller, self.arms = controller, controller.arms
        self.fresh = plain_state(controller, (*PASSING, *ARGUMENTS))
        self.changed: set[str] = set()
        self._chosen = self._answered = 0

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        k = self.controller.choose(batch_size, context_tokens, decodes)
        self._chosen += 1
        if self._chosen % 29 == 0:
            self.compare()
        return k

    def observe(self, record: StepRecord) -> Decision | None:
        decision = self.controller.observe(record)
        self._answered += 1
        controller = self.controller
        if self._answered % 37 == 0 or controller._judge or controller._planner._changed:
            self.compare()
        return decision

    def compare(self) -> None:
        snapshot = through_json(self.controller.snapshot())
        other = Controller.restore(snapshot, self.controller.table, self.controller.settings)
        here, there = (plain_state(one, (*PASSING, *ARGUMENTS)) for one in (self.controller, other))
        assert {key for key in here.keys() | there.keys() if here.get(key, ...) != there.get(key, ...)} == set()
        keys = here.keys() | self.fresh.keys()
        self.changed |= {attribute(key) for key in keys if here.get(key, ...) != self.fresh.get(key, ...)}


def restless(table: GoodputTable | None) -> set[str]:
    """Batch, context, acceptance, speed and prompts change all the time; in the middle the weights are replaced."""
    controller = Controller(table, k_max=5, seed=0, settings=Settings(budget=0.1), capture_sizes=SIZES)
    watched = Restored(controller)
    engine = Restless(watched, waits=True)
    engine.run(700)
    controller.note_weights_changed()
    engine.run(300)
    return watched.changed


def played(at: World, table: GoodputTable | None) -> set[str]:
    watched: Policy = Restored(Controller(table, k_max=5, seed=0))
    simulate(at, watched)
    assert isinstance(watched, Restored)
    return watched.changed


def worlds() -> list[tuple[World, GoodputTable | None]]:
    """What a restless load alone does not bring about."""
    half = drafter([0.8], [0.8], supply=np.array([[0.9] + [0.5] * 6, [0.0] * 7]))
    some = script(300, 16, others=lambda step: step % 9, other_kind=1)
    short = script(300, 4, output=3.0)
    surface = CostSurface.from_table(CHEAP, 64, 5)
    return [
        (world(600, 64, noise=Noise(stalls=0.3, stall_factor=2.5)), PUBLIC),
        (world(600, 64, noise=Noise(stalls=0.8, stall_factor=3.0)), PUBLIC),
        (world(600, 8, drafter([0.8], [0.0]), kind=lambda step: step // 200 % 2, engine=Engine(delay=2)), PUBLIC),
        (
            world(600, lambda step: 256 if step // 40 % 2 else 8, 0.7, drift=Drift((0, 300), (1.0, 1.6), (1.0, 2.0))),
            PUBLIC,
        ),
        (World(surface, half, some, 300), CHEAP),
        (World(surface, drafter([0.95]), short, 300), CHEAP),
        (world(300, 16, joining=lambda step: (1, 100 + step % 400)), None),
    ]


@pytest.fixture(scope="module")
def changed() -> set[str]:
    """Attributes seen to change; on the way every restored controller was compared with its own."""
    by_load = [restless(table) for table in (PUBLIC, SCHEDULE, None)]
    return set().union(*by_load, *(played(*each) for each in worlds()))


def test_a_restored_controller_has_all_attributes_of_the_one_that_it_was_taken_of(changed: set[str]) -> None:
    """In ten worlds; and each attribute that is not lasting was seen to be another one than at the start."""
    everything = {attribute(key) for key in Restored(Controller(PUBLIC, seed=0)).fresh}
    assert everything - changed == LASTING
    assert changed >= {"FormerRegime.alpha", "FormerRegime.odds", "Samples.values"}


def test_an_attribute_that_a_snapshot_lacks_is_found() -> None:
    """The test's own instrument: a list deep inside, and a part that is no longer the controller's own."""
    controller = Controller(PUBLIC, seed=0)
    watched = Restored(controller)
    simulate(world(50, 16), watched)
    controller._acceptance.supply.kept = [1.0]  # type: ignore[attr-defined]
    with pytest.raises(AssertionError, match=r"Supply\.kept"):
        watched.compare()
    del controller._acceptance.supply.kept  # type: ignore[attr-defined]
    watched.compare()
    controller._latency.contamination._windows += 0.5  # type: ignore[assignment]
    watched.compare()  # what is in the snapshot may change
    controller._planner.latency = type(controller._latency)(controller._latency.prior)
    with pytest.raises(AssertionError, match=r"Planner\.latency"):
        watched.compare()
