"""A restored controller goes on as if it had never stopped."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptk import Controller, Decision, Settings, StepRecord
from adaptk.replay.casechecks import drafter
from adaptk.replay.noise import Drift
from adaptk.replay.simulator import simulate
from tests.publicengine import PUBLIC, world
from tests.snapshots import through_json, used_snapshot
from tests.test_controller_properties import Script, Step, controllers, sound_record, steps


@pytest.fixture
def used() -> dict[str, Any]:
    return used_snapshot()


class Tape:
    """Plays a list of steps to a controller, odd records and lost ones included."""

    def __init__(self, controller: Controller, waiting: list[StepRecord], previous: int) -> None:
        self.controller, self.waiting, self.previous = controller, waiting, previous

    def play(self, sequence: list[Step]) -> Iterator[tuple[int, list[Decision | None]]]:
        """What was chosen and which decisions came back."""
        for step in sequence:
            answered: list[Decision | None] = []
            k = self.controller.choose(step.batch, step.context, step.decodes)
            if step.batch > 0:
                self.waiting.append(sound_record(k, self.previous, int(min(step.batch, 10**9)), step.elapsed))
                self.previous = k
            if step.lost and self.waiting:
                self.waiting.pop(0)
            while len(self.waiting) > step.delay:
                answered.append(self.controller.observe(self.waiting.pop(0)))
            answered += [self.controller.observe(record) for record in step.odd]
            yield k, answered


@given(controllers, st.lists(steps, max_size=25), st.lists(steps, max_size=25), st.booleans())
@settings(max_examples=60)
def test_whatever_it_has_seen_a_restored_controller_goes_on_alike(
    controller: Controller, before: list[Step], after: list[Step], new_weights: bool
) -> None:
    """Any records, any step: through JSON, the same decisions, beliefs and snapshot, to the last bit."""
    tape = Tape(controller, [], 0)
    list(tape.play(before))
    if new_weights:
        controller.note_weights_changed()
    snapshot = controller.snapshot()
    restored = Controller.restore(through_json(snapshot), controller.table)
    assert restored.snapshot() == snapshot == controller.snapshot()
    twin = Tape(restored, list(tape.waiting), tape.previous)
    assert list(tape.play(after)) == list(twin.play(after))
    for batch in (1, 40, 700):
        assert controller.belief(batch) == restored.belief(batch)
    assert controller.snapshot() == restored.snapshot()


def test_it_goes_on_alike_after_alarms_of_both_kinds() -> None:
    """Snapshots on the first steps behind each alarm, with decisions open."""
    script = Script(Controller(PUBLIC, seed=1), delay=2, seed=0)
    slows = Drift((0, 350), (1.0, 1.8), (1.0, 1.0))
    turns = drafter([0.85], [0.3])
    simulate(world(500, 16, turns, kind=lambda step: step // 150 % 2, drift=slows), script.controller)
    assert script.controller.counters["acceptance_alarms"] > 0
    assert script.controller.counters["time_alarms"] > 0
    for _ in range(3):
        script.run(1)
        twin = script.copy(Controller.restore(through_json(script.controller.snapshot()), PUBLIC))
        assert script.copy(copy.deepcopy(script.controller)).run(60) == twin.run(60)


def test_a_climb_goes_on_where_it_was() -> None:
    """Without a table, at each step of the climb: the price of the next arm is still to be seen, or was just paid."""
    script = Script(Controller(None, k_max=5, settings=Settings(budget=0.05), seed=3), delay=1, seed=4)
    climbing = set()
    for _ in range(40):
        climbing.add(script.controller._planner.climbing)
        restored = Controller.restore(through_json(script.controller.snapshot()), None)
        assert restored._planner.climbing == script.controller._planner.climbing
        assert script.copy(restored).run(80) == script.copy(copy.deepcopy(script.controller)).run(80)
        script.run(10)
    assert climbing == {True, False}


def test_the_snapshot_is_a_copy() -> None:
    """What the controller does later does not reach into a snapshot, nor into one that it was restored from."""
    controller = Controller(PUBLIC, settings=Settings(budget=0.2), seed=0)
    simulate(world(100, 16, 0.6), controller)
    snapshot = controller.snapshot()
    restored, text = Controller.restore(snapshot, PUBLIC), json.dumps(snapshot)
    for each in (controller, restored):
        simulate(world(100, 40, 0.2), each)
    assert json.dumps(snapshot) == text


def test_a_restored_controller_obeys_the_settings_that_it_is_given_now(used: dict[str, Any]) -> None:
    """From the first step on: no plan of the old limits is played out."""
    slow = Controller.restore(used, PUBLIC, Settings(min_k=5))
    assert {slow.choose(16) for _ in range(40)} == {5}
    quick = Controller.restore(used, PUBLIC, Settings(max_itl_ms=9.2))
    assert {quick.choose(16) for _ in range(40)} == {0}
    assert Controller.restore(used, PUBLIC).settings == Settings(budget=0.1)
    with pytest.raises(ValueError, match="min_k is 6"):
        Controller.restore(used, PUBLIC, Settings(min_k=6))


def test_other_limits_break_off_a_visit() -> None:
    """Restored in the middle of a visit, without a budget: no step of it is played on, and none ends it later."""
    controller = Controller(PUBLIC, settings=Settings(budget=0.3), seed=2)
    script = Script(controller, delay=2, seed=1)
    while controller._planner._visit_left < 2:
        script.run(1)
    restored = Controller.restore(through_json(controller.snapshot()), PUBLIC, Settings(budget=0.0))
    assert not restored._planner.visit_scheduled
    assert restored._visit_end == -1
    before = restored.counters["explored"]
    script.copy(restored).run(100)
    assert restored.counters["explored"] == before


def test_after_a_restart_of_the_engine_answers_belong_to_their_own_steps(used: dict[str, Any]) -> None:
    """The steps in flight are lost: the next answer is the next choice's, and undrafted steps are nobody's fault."""
    told, untold = Controller.restore(used, PUBLIC), Controller.restore(used, PUBLIC)
    told.note_engine_restarted()
    shares, answers = [told._acceptance.drafted_share], []
    for controller in (told, untold):
        k = controller.choose(16)
        first = StepRecord(batch_size=16, elapsed_ms=9.0, k=k, drafted=[0] * 16, accepted=[0] * 16)
        answers.append(controller.observe(first))
        shares.append(controller._acceptance.drafted_share)
    assert [decision and decision.seq for decision in answers] == [used["_seq"], used["_seq"] - 1]
    assert told.snapshot()["open"] == []
    assert shares[1] == pytest.approx(shares[0], abs=1e-3)
    assert shares[2] < shares[0] - 0.1
