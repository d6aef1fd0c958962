"""The contract of the controller, one rule a test."""

from __future__ import annotations

import inspect
import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from adaptk import ArmBelief, Controller, Decision, GoodputTable, Reason, Settings, StepRecord
from adaptk.planner import BLOCK, VISIT
from adaptk.replay.measures import share
from adaptk.replay.simulator import simulate
from tests.publicengine import ARMS, PUBLIC, decided, world

TIERS = [[1, 64, 3], [65, 128, 1], [129, 512, 0]]
SCHEDULE = GoodputTable.from_schedule(TIERS)


def step(k: int = 3, drafted: int = 3, batch: int = 8, elapsed_ms: float | None = 9.0, **fields: Any) -> StepRecord:
    """A finished step in which each request had ``drafted`` drafts and all but one were accepted."""
    accepted = [max(0, drafted - 1)] * batch
    fields = {"drafted": [drafted] * batch, "accepted": accepted, **fields}
    return StepRecord(batch_size=batch, elapsed_ms=elapsed_ms, k=k, **fields)


def test_the_public_signatures_are_those_of_the_contract() -> None:
    """Names and order of arguments, on which outside checks rely."""
    assert list(inspect.signature(Controller).parameters) == [
        *("table", "arms", "settings", "seed", "k_max", "capture_sizes", "identity", "trusted")
    ]
    assert list(inspect.signature(Controller.choose).parameters) == ["self", "batch_size", "context_tokens", "decodes"]
    assert list(inspect.signature(Controller.restore).parameters)[:2] == ["snapshot", "table"]
    names = "k al al_low al_high itl_ms itl_low itl_high goodput p_best table_itl_ms drift"
    assert ArmBelief.__struct_fields__ == tuple(names.split())


def test_capture_sizes_are_sorted_once_and_outlive_a_restart() -> None:
    """Cells and plans depend on them, so a snapshot without them would be another controller's."""
    controller = Controller(PUBLIC, capture_sizes=[16, 4, 16, 8])
    assert controller.capture_sizes == (4, 8, 16)
    assert Controller.restore(json.loads(json.dumps(controller.snapshot())), PUBLIC).capture_sizes == (4, 8, 16)
    with pytest.raises(ValueError, match="capture_sizes are"):
        Controller(PUBLIC, capture_sizes=[0, 8])


def test_the_nth_observation_gets_the_nth_decision() -> None:
    """In the order of async scheduling: S0 S1 U0 S2 U1 U2."""
    controller = Controller(PUBLIC, seed=0)
    seen = []
    for action in "SSUSUU":
        if action == "S":
            controller.choose(8)
        else:
            decision = controller.observe(step())
            assert isinstance(decision, Decision)
            seen.append(decision.seq)
    assert seen == [0, 1, 2]


def test_an_observation_without_a_decision_gets_none() -> None:
    """More observations than choices: nothing to return, and nothing is upset."""
    controller = Controller(PUBLIC, seed=0)
    controller.choose(8)
    assert [controller.observe(step()) is None for _ in range(3)] == [False, True, True]


def test_a_decision_says_what_was_chosen_and_from_what() -> None:
    """``k`` and ``arms`` of the decision are what choose returned and the controller's arms; ``seq`` counts from 0."""
    controller = Controller(PUBLIC, seed=0)
    for seq in range(5):
        k = controller.choose(8)
        decision = controller.observe(step(k=k))
        assert decision is not None
        assert (decision.seq, decision.k, decision.arms) == (seq, k, controller.arms)


def test_an_empty_step_is_no_decision() -> None:
    """``choose(0)`` gives 0, draws nothing and changes nothing; a record without requests belongs to no decision."""
    controller = Controller(PUBLIC, seed=0)
    simulate(world(40, 8), controller)
    before = controller.snapshot()
    assert controller.choose(0, 0) == 0
    assert controller.observe(step(batch=0)) is None
    assert controller.snapshot() == before


def test_a_negative_batch_is_refused_with_its_value() -> None:
    """And the refusal changes nothing."""
    controller = Controller(PUBLIC, seed=0)
    before = controller.snapshot()
    with pytest.raises(ValueError, match=r"batch_size is -3"):
        controller.choose(-3)
    assert controller.snapshot() == before


@pytest.mark.parametrize("decodes", [0, -2, 9, None, np.int64(8)])
def test_a_hint_that_cannot_be_true_is_the_batch_size(decodes: int | None) -> None:
    """``decodes`` of 0, below 0 or above the batch counts as unknown."""
    controller = Controller(PUBLIC, seed=0)
    controller.choose(8, None, decodes)
    assert controller._load.batch == 8


def test_decisions_look_at_the_decoding_requests() -> None:
    """256 scheduled requests of which 2 decode are decided as 2; tables are keyed by those that decode."""
    assert Controller(PUBLIC, seed=0).choose(256, None, 2) == Controller(PUBLIC, seed=0).choose(2) > 0
    assert Controller(PUBLIC, seed=0).choose(256) == 0


def test_drafts_of_this_step_are_booked_to_the_decision_before() -> None:
    """The time of a step that verifies 3 and drafts 1 is no arm's."""
    beliefs = []
    for elapsed in (9.0, 90.0):
        controller = Controller(PUBLIC, seed=0)
        for _ in range(30):
            controller.observe(step(k=3))
        controller.observe(step(k=1, elapsed_ms=elapsed))
        beliefs.append([b.itl_ms for b in controller.belief(8)])
    assert beliefs[0] == beliefs[1]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 0.0, -1.0])
def test_an_impossible_time_counts_as_none_and_is_counted(bad: float) -> None:
    """Acceptance is learnt as from a step without time; so for the worker's time, for which the other stands in."""
    refused, unknown = Controller(PUBLIC, seed=0), Controller(PUBLIC, seed=0)
    for controller, elapsed in ((refused, bad), (unknown, None)):
        for _ in range(12):
            controller.choose(8)
            controller.observe(step(elapsed_ms=elapsed))
    assert refused.belief(8) == unknown.belief(8)
    assert refused.belief(8) != Controller(PUBLIC, seed=0).belief(8)
    assert (refused.counters["times_refused"], unknown.counters["times_refused"]) == (12, 0)
    beside, plain = Controller(PUBLIC, seed=0), Controller(PUBLIC, seed=0)
    beside.observe(step(device_ms=bad))
    plain.observe(step())
    assert beside.belief(8) == plain.belief(8)
    assert beside.counters["times_refused"] == 1


def test_the_workers_own_time_is_preferred() -> None:
    """``device_ms`` decides what is believed; ``elapsed_ms`` beside it does not."""
    by_device, by_clock, both = (Controller(PUBLIC, seed=0) for _ in range(3))
    for _ in range(30):
        by_device.observe(step(elapsed_ms=None, device_ms=20.0))
        by_clock.observe(step(elapsed_ms=10.0))
        both.observe(step(elapsed_ms=10.0, device_ms=20.0))
    assert both.belief(8) == by_device.belief(8) != by_clock.belief(8)


def test_a_drafter_that_drafts_the_previous_decision_is_told_by_draft_k() -> None:
    """With ``draft_k`` equal to what was asked for, a step at which K changes is one arm's after all."""
    fresh, mixed, told = (Controller(PUBLIC, seed=0) for _ in range(3))
    for k in (3, 1) * 15:
        asked = 4 - k  # what the step before was scheduled with
        mixed.observe(step(k=k, drafted=asked, elapsed_ms=5.0))
        told.observe(step(k=k, drafted=asked, draft_k=asked, elapsed_ms=5.0))
    times = [controller._latency.log_times(8, [0.0, 1.0, 3.0, 5.0], None)[2] for controller in (fresh, mixed, told)]
    assert times[0] == times[1]
    assert math.exp(times[2]) == pytest.approx(5.0, rel=0.1)


def test_explicit_arms_and_seed_beat_the_settings() -> None:
    """And the settings hold where nothing is given."""
    settings = Settings(arms=(0, 1), seed=7)
    assert Controller(PUBLIC, arms=(3, 0), settings=settings).arms == (0, 3)
    assert Controller(PUBLIC, settings=settings).arms == (0, 1)
    random = [Controller(PUBLIC, settings=settings, seed=seed).snapshot()["random"] for seed in (None, 7, 8)]
    assert random[0] == random[1] != random[2]


def test_seed_zero_beats_the_settings() -> None:
    """0 is a seed, not the absence of one."""
    given = Controller(PUBLIC, settings=Settings(seed=7), seed=0).snapshot()["random"]
    assert given == Controller(PUBLIC).snapshot()["random"]


@pytest.mark.parametrize(
    ("k_max", "arms"),
    [(0, (0,)), (1, (0, 1)), (2, (0, 1, 2)), (5, (0, 1, 3, 5)), (7, (0, 1, 3, 7)), (9, (0, 1, 3, 7, 9))],
)
def test_default_arms_are_cut_at_the_maximum_which_is_among_them(k_max: int, arms: tuple[int, ...]) -> None:
    """With and without a table."""
    assert Controller(None, k_max=k_max).arms == arms
    assert Controller(PUBLIC, k_max=k_max).arms == arms


def test_default_arms_hold_what_the_operators_schedule_prescribes() -> None:
    """So that the static K is playable; without ``k_max`` the table's largest K is the maximum."""
    table = GoodputTable.from_schedule([[1, 8, 6], [9, 64, 2]])
    assert Controller(table).arms == (0, 1, 2, 3, 6)
    assert Controller(PUBLIC).arms == ARMS


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"arms": ()}, "arms is"),
        ({"arms": (1, 1)}, r"arms is \(1, 1\)"),
        ({"arms": (0, -1)}, "arms holds -1"),
        ({"arms": (0, 1.5)}, "arms holds 1.5"),
        ({"arms": (0, True)}, "arms holds True"),
        ({"arms": (0, 9), "k_max": 7}, "arms holds 9, k_max is 7"),
        ({"k_max": -1}, "k_max is -1"),
        ({"k_max": 2.5}, "k_max is 2.5"),
        ({"settings": Settings(min_k=6)}, "min_k is 6"),
    ],
)
def test_arguments_that_make_no_sense_are_refused_by_name_and_value(arguments: dict[str, Any], says: str) -> None:
    """At construction, never in the engine's step."""
    with pytest.raises(ValueError, match=says):
        Controller(PUBLIC, **arguments)


def test_without_a_table_the_maximum_must_be_known() -> None:
    """By ``k_max`` or by the arms."""
    with pytest.raises(ValueError, match="k_max is None"):
        Controller(None)
    assert Controller(None, arms=(0, 2)).arms == (0, 2)
    assert Controller(None, arms=np.array([0, 2])).arms == (0, 2)


def test_min_k_that_is_no_arm_means_the_next_larger_one() -> None:
    """At batch 256, where K=0 is best, ``min_k=2`` plays 3 and says why; it is never undercut by a visit."""
    controller = Controller(PUBLIC, settings=Settings(min_k=2, budget=0.5), seed=0)
    decisions = decided(world(300, 256), controller)
    assert min(d.k for d in decisions) == 3
    assert {d.reason for d in decisions} >= {Reason.MIN_K}


def test_an_arm_whose_believed_time_is_too_long_is_not_played() -> None:
    """At batch 8 the table's times are 6.7, 7.6, 9.1 and 10.7 ms: below 8 ms only K=0 and K=1 are played."""
    controller = Controller(PUBLIC, settings=Settings(max_itl_ms=8.0, budget=0.5), seed=0)
    decisions = decided(world(400, 8, 0.9), controller)
    assert {d.k for d in decisions} <= {0, 1}
    assert {d.reason for d in decisions} >= {Reason.GUARD}


def test_where_every_arm_is_too_slow_the_cheapest_is_left() -> None:
    """Also where ``min_k`` bars the cheapest of all."""
    for min_k in (0, 1):
        controller = Controller(PUBLIC, settings=Settings(max_itl_ms=0.1, min_k=min_k))
        assert set(simulate(world(60, 8), controller).k.tolist()) == {min_k}


def test_without_any_time_no_arm_is_too_slow() -> None:
    """A schedule has no times: until the first is seen, ``max_itl_ms`` has nothing to be compared with."""
    assert Controller(SCHEDULE, settings=Settings(max_itl_ms=0.5)).choose(8) == 3


def test_a_visit_ends_where_the_visited_arm_becomes_too_slow() -> None:
    """The load creeps from 40 to 80 requests during the visit: K=5 may be visited at 40 and not at 80."""
    controller = Controller(PUBLIC, settings=Settings(max_itl_ms=16.0), seed=0)
    for _ in range(3):
        controller.choose(40)
    planner = controller._planner
    planner._visit(3, 50, 1.0)
    played = [controller.choose(batch) for batch in range(40, 81)]
    assert played[0] == 5
    assert played[-1] != 5
    assert played == sorted(played, reverse=True)
    slowest = [b.itl_ms for b in controller.belief(controller._load.batch)][ARMS.index(played[-1])]
    assert slowest is not None
    assert slowest <= 16.0


def test_a_visit_broken_off_by_a_jump_does_not_end_the_next_one() -> None:
    """The last answer of the old visit comes in when the new one is under way: its arm goes on being played."""
    controller = Controller(PUBLIC, seed=0)
    controller.choose(8)
    controller._planner._visit(1, 1, 1.0)
    assert controller.choose(8) == 1  # the old visit's last step
    controller._planner.ledger.allowed_ms = 1e6
    controller.choose(60)
    controller._planner._retime = True  # so that the next block begins a visit, whatever is drawn
    controller._planner._block_left = 0
    played = [controller.choose(60)]
    assert controller._planner.visiting >= 0
    visited = controller.arms[controller._planner.visiting]
    for _ in range(4):
        controller.observe(step())  # the decisions up to the jump, the old visit's among them
    played.append(controller.choose(60))
    assert played == [visited, visited]


def test_a_fresh_controller_plays_the_operators_schedule() -> None:
    """The prior of a table without times is best where the schedule says, at every batch size."""
    for batch in range(1, 513):
        assert Controller(SCHEDULE, seed=0).choose(batch) == SCHEDULE.best_k(batch)


def test_a_schedule_has_no_times_until_one_is_seen() -> None:
    """Then the belief has one, and the table still none."""
    controller = Controller(SCHEDULE, seed=0)
    assert {(b.itl_ms, b.itl_low, b.itl_high, b.goodput, b.table_itl_ms, b.drift) for b in controller.belief(8)} == {
        (None,) * 6
    }
    simulate(world(60, 8), controller)
    for b in controller.belief(8):
        assert b.itl_ms is not None
        assert 1.0 < b.itl_ms < 100.0
        assert b.table_itl_ms is None
        assert b.drift is None


def test_a_fresh_controller_believes_the_table() -> None:
    """One belief per arm, in the table's times; the best arm is the table's."""
    controller = Controller(PUBLIC, seed=0)
    for batch in (1, 16, 64, 100, 256):
        beliefs = controller.belief(batch)
        assert [b.k for b in beliefs] == list(ARMS)
        for b in beliefs:
            assert b.itl_ms == pytest.approx(PUBLIC.itl_ms(batch, b.k), rel=0.01)
            assert b.drift == pytest.approx(1.0, rel=0.01)
            assert b.goodput == pytest.approx(1000.0 * b.al / (b.itl_ms or 0.0))
    assert Controller(PUBLIC, seed=0).choose(256) == PUBLIC.best_k(256) == 0


def test_belief_needs_a_batch() -> None:
    """0 and less are refused with the value."""
    for batch in (0, -1):
        with pytest.raises(ValueError, match=f"batch_size is {batch}"):
            Controller(PUBLIC).belief(batch)


def test_without_a_table_it_starts_on_the_cheapest_arm_at_every_batch_size() -> None:
    """Nothing deeper is played before its price is known and paid, however the batch wobbles."""
    controller = Controller(None, k_max=5, settings=Settings(budget=0.0), seed=0)
    wobbles = world(300, lambda step: 8 + abs(step // 3 % 16 - 8), 0.9)
    assert set(simulate(wobbles, controller).k.tolist()) == {0}


def test_without_a_table_it_climbs_to_the_best_arm() -> None:
    """The first visit is to the next arm; in the end the best one is played nearly always."""
    controller = Controller(None, k_max=5, seed=0)
    run = simulate(world(800, 4, 0.9), controller)
    assert run.k[0] == 0
    assert run.k[np.flatnonzero(run.k)[0]] == 1
    assert share(run, (5,), 600) > 0.9


def test_without_a_budget_nothing_is_explored() -> None:
    """``budget=0``: no step is an excursion and nothing is spent."""
    for table in (PUBLIC, SCHEDULE):
        controller = Controller(table, settings=Settings(budget=0.0), seed=0)
        decisions = decided(world(500, 8, k_factor=2.0), controller)
        assert Reason.EXPLORE not in {d.reason for d in decisions}
        assert (controller.counters["explored"], controller.ledger["spent_ms"]) == (0, 0.0)


def test_exploring_stays_within_what_was_earned() -> None:
    """1 % of the time, and at most one visit's surprise beyond it."""
    controller = Controller(PUBLIC, settings=Settings(budget=0.01), seed=0)
    run = simulate(world(2000, 64), controller)
    assert controller.counters["explored"] > 0
    assert controller.ledger["spent_ms"] < 0.01 * run.elapsed.sum() + VISIT * 20.0


def test_blocks_are_counted_in_chooses() -> None:
    """The draws come every ``BLOCK`` chooses, whatever the steps took: the random state moves there alone."""
    for elapsed in (0.01, 1000.0):
        controller = Controller(PUBLIC, seed=0)
        moved, last = [], None
        for n in range(3 * BLOCK):
            controller.choose(8)
            controller.observe(step(elapsed_ms=None, t_ms=n * elapsed))
            state = controller.snapshot()["random"]
            if state != last:
                moved.append(n)
            last = state
        assert moved == [0, BLOCK, 2 * BLOCK]


def test_the_same_seed_decides_alike_and_another_one_not() -> None:
    """Over 400 steps of the same world."""
    runs = [decided(world(400, 16, k_factor=1.1), Controller(PUBLIC, seed=seed)) for seed in (3, 3, 4)]
    assert runs[0] == runs[1] != runs[2]


def test_every_played_reason_is_one_of_the_controllers_own() -> None:
    """``fallback`` is the engine's adapter's; explored steps are counted."""
    controller = Controller(PUBLIC, settings=Settings(budget=0.2), seed=0)
    decisions = decided(world(600, 16, k_factor=1.2), controller)
    reasons = [d.reason for d in decisions]
    assert Reason.FALLBACK not in reasons
    assert {Reason.EXPLOIT, Reason.EXPLORE} <= set(reasons)
    assert controller.counters["explored"] == reasons.count(Reason.EXPLORE)
    assert controller.counters["switches"] == sum(a.k != b.k for a, b in pairwise(decisions))
    assert controller.counters["steps"] == 600


def test_the_corrected_table_is_the_table_as_now_believed() -> None:
    """The engine is 1.5 times slower than the table in all that K adds: the corrected table says so."""
    controller = Controller(PUBLIC, seed=0)
    assert controller.corrected_table().itl_ms(64, 3) == pytest.approx(PUBLIC.itl_ms(64, 3))
    simulate(world(800, 64, k_factor=1.5), controller)
    corrected = controller.corrected_table()
    believed = controller.belief(64)[2].itl_ms
    assert corrected.itl_ms(64, 3) == pytest.approx(believed)
    assert corrected.itl_ms(64, 3) > 1.1 * (PUBLIC.itl_ms(64, 3) or 0.0)
    assert corrected.to_schedule(max_batch=512)[-1][1] == 512


def test_the_corrected_table_of_a_schedule_without_times_is_the_schedule() -> None:
    """And without any table there is nothing to make one from until a time is seen."""
    assert Controller(SCHEDULE).corrected_table() == SCHEDULE
    bare = Controller(None, k_max=3, seed=0)
    with pytest.raises(ValueError, match="no step time"):
        bare.corrected_table()
    simulate(world(40, 8), bare)
    assert bare.corrected_table().itl_ms(8, 0) == pytest.approx(6.7, rel=0.1)


def test_all_zero_drafts_teach_no_acceptance() -> None:
    """The posterior of acceptance per position stays; that the drafter returned nothing is another matter."""
    controller = Controller(PUBLIC, seed=0)
    controller.observe(step())
    before = (list(controller._acceptance.alpha), list(controller._acceptance.beta))
    for _ in range(20):
        controller.observe(step(k=3, drafted=0))
    assert (controller._acceptance.alpha, controller._acceptance.beta) == before


def test_goodput_counts_what_was_emitted() -> None:
    """Drafts accepted behind a stop are worth nothing; the acceptance itself is the raw one."""
    raw, stopped = Controller(PUBLIC, seed=0), Controller(PUBLIC, seed=0)
    for _ in range(60):
        raw.observe(step(accepted=[3] * 8))
        stopped.observe(step(accepted=[3] * 8, emitted=[2] * 8))
    assert stopped.belief(8)[2].al < raw.belief(8)[2].al - 0.5
    assert stopped._acceptance.alpha == raw._acceptance.alpha


def test_the_public_attributes_are_plain() -> None:
    """``arms`` is a tuple of int and ``counters`` a dict of int, also after steps with numpy numbers."""
    controller = Controller(PUBLIC, arms=[np.int64(0), np.int64(3)], seed=0)
    for _ in range(10):
        controller.choose(np.int64(8), np.int64(900))
        controller.observe(
            StepRecord(
                batch_size=np.int64(8),
                elapsed_ms=np.float32(9.0),
                k=np.int64(3),
                drafted=np.full(8, 3),
                accepted=np.full(8, 2),
            )
        )
    assert [type(k) for k in controller.arms] == [int, int]
    assert {type(count) for count in controller.counters.values()} == {int}
