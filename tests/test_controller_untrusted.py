"""A table of another engine: its shape is believed a little, and exploring is priced first."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adaptk import Controller, GoodputTable, Settings, StepRecord
from adaptk.prior import StepTimePrior
from adaptk.replay.casechecks import public_table
from adaptk.replay.measures import share
from adaptk.replay.simulator import simulate
from tests.publicengine import ARMS, PUBLIC, of_best, world
from tests.snapshots import through_json

SCHEDULE = GoodputTable.from_schedule([[1, 64, 5], [65, 512, 1]])


def untrusted(table: GoodputTable = PUBLIC, **more: Any) -> Controller:
    return Controller(table, arms=ARMS, seed=0, trusted=False, **more)


def steeper(factor: float, level: float = 1.0) -> GoodputTable:
    """The public profile as an engine would have it on which drafts cost ``factor`` and steps ``level`` times."""
    return world(1, 1, k_factor=factor, level=level).surface.to_table(ARMS, PUBLIC.acceptance)


@pytest.mark.parametrize("table", [PUBLIC, SCHEDULE], ids=["measured", "schedule"])
def test_it_starts_at_the_cheapest_arm_whatever_the_table_says(table: GoodputTable) -> None:
    """At every batch size, until the first times have come back; a trusted one starts at the table's K."""
    for batch in (1, 16, 64):
        assert untrusted(table).choose(batch) == 0
        assert Controller(table, arms=ARMS, seed=0).choose(batch) == max(k for k in ARMS if k <= table.best_k(batch))
    controller = untrusted(table)
    assert [controller.choose(16) for _ in range(50)] == [0] * 50
    assert untrusted(settings=Settings(min_k=1)).choose(16) == 1


def test_no_step_time_is_believed_before_the_first() -> None:
    """The table's are shown beside it; three steps tell the level, whatever the table's was."""
    controller = untrusted(steeper(1.0, level=20.0))
    before = controller.belief(16)
    assert [b.itl_ms for b in before] == [None] * len(ARMS)
    assert all(b.table_itl_ms for b in before)
    assert controller.corrected_table() is controller.table
    for _ in range(4):
        controller.choose(16)
        controller.observe(StepRecord(batch_size=16, elapsed_ms=7.0, k=0, drafted=[0] * 16, accepted=[0] * 16))
    assert controller.belief(16)[0].itl_ms == pytest.approx(7.0, rel=0.01)


def test_the_shape_lies_halfway_to_the_rooflines() -> None:
    """In log units, between any two arms and batch sizes."""
    told, guess = StepTimePrior(PUBLIC, ARMS), StepTimePrior(None, ARMS)
    mean = StepTimePrior(PUBLIC, ARMS, trusted=False)
    for batch in (1, 16, 200):
        both = zip(told.row(batch, None), guess.row(batch, None), strict=True)
        assert mean.row(batch, None) == pytest.approx([(a + b) / 2.0 for a, b in both])
    assert (mean.timed, mean.shaped, mean.guessed) == (False, True, True)


def test_acceptance_is_the_tables_and_less_sure() -> None:
    """Same means, wider intervals."""
    for sure, unsure in zip(Controller(PUBLIC, arms=ARMS).belief(16)[1:], untrusted().belief(16)[1:], strict=True):
        assert unsure.al == pytest.approx(sure.al)
        assert unsure.al_high - unsure.al_low > 1.5 * (sure.al_high - sure.al_low)


@pytest.mark.parametrize("batch", [2, 32])
def test_with_the_right_shape_the_best_arm_is_found_as_soon_as_without_a_table(batch: int) -> None:
    """0.985 of the best over 400 steps, though the table is of an engine 2.5 times as slow."""
    for seed in range(3):
        at = world(400, batch, seed=seed)
        bare = simulate(at, Controller(None, arms=ARMS, k_max=5, seed=seed))
        run = simulate(at, Controller(steeper(1.0, 2.5), arms=ARMS, seed=seed, trusted=False))
        assert of_best(run) > of_best(bare) - 0.003
        assert of_best(run) > 0.985


@pytest.mark.parametrize("factor", [1 / 3, 3.0])
def test_a_wrong_shape_is_left(factor: float) -> None:
    """Drafts that cost three times as much, or as little, as in the table: the best arms are played in the end."""
    for seed in range(3):
        run = simulate(
            world(1500, 16, seed=seed), Controller(steeper(factor, 0.5), arms=ARMS, seed=seed, trusted=False)
        )
        assert of_best(run, 1000) > 0.985


def test_exploring_stays_within_the_budget_from_the_first_step_on() -> None:
    controller = untrusted(steeper(1 / 3))
    simulate(world(300, 64, 0.3, k_factor=3.0), controller)
    assert controller.ledger["spent_ms"] <= 1.3 * controller.ledger["allowed_ms"]
    assert controller.counters["explored"] > 0


class TestSnapshot:
    def used(self) -> Controller:
        controller = untrusted(identity={"device": "H100"})
        simulate(world(200, 16, 0.8, level=1.3), controller)
        return controller

    def test_it_goes_on_as_it_was(self) -> None:
        """The same decisions, with the table no more believed than before; also where it is still climbing."""
        for controller in (self.used(), untrusted()):
            snapshot = through_json(controller.snapshot())
            other = Controller.restore(snapshot, PUBLIC)
            assert not other.trusted
            assert other.snapshot() == snapshot
            one, two = (simulate(world(200, 16, 0.4, seed=9), c) for c in (controller, other))
            assert one.k.tolist() == two.k.tolist()

    def test_one_that_does_not_say_is_of_a_table_that_is_believed(self) -> None:
        """As all were written before."""
        snapshot = Controller(PUBLIC, arms=ARMS).snapshot()
        assert "trusted" not in snapshot
        assert Controller.restore(snapshot, PUBLIC).trusted
        assert "trusted" not in Controller(None, k_max=5, trusted=False).snapshot()

    @pytest.mark.parametrize("wrong", [True, None, 0, "no"])
    def test_another_value_is_refused(self, wrong: Any) -> None:
        """It is ``False`` or not there."""
        with pytest.raises(ValueError, match="snapshot"):
            Controller.restore(untrusted().snapshot() | {"trusted": wrong}, PUBLIC)

    def test_as_a_prior_it_climbs_again_and_another_table_is_believed(self) -> None:
        snapshot = json.loads(json.dumps(self.used().snapshot()))
        again = Controller.restore(snapshot, PUBLIC, identity={"device": "B200"}, as_prior=True)
        assert not again.trusted
        assert again.choose(16) <= 1
        assert Controller.restore(snapshot, public_table(acceptance=[0.5]), as_prior=True).trusted


def test_prompts_and_contexts_do_no_harm() -> None:
    """A table with contexts of another engine, steps with prompt tokens."""
    rows = [
        {"batch": b, "k": k, "itl_ms": 10.0 + 0.1 * b * (k + 1) + c / 1000, "context": c}
        for b in (1, 64)
        for k in ARMS
        for c in (100, 10_000)
    ]
    controller = untrusted(GoodputTable.from_rows(rows, PUBLIC.acceptance))
    run = simulate(world(600, 16, joining=lambda step: (step % 3, 200)), controller)
    assert share(run, (0,), 300) < 0.5
