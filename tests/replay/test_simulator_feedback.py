"""Between policy and world: what is asked and told, when, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adaptk.controller import Controller
from adaptk.decision import Decision
from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.policies.adaptive import Adaptive
from adaptk.replay.policies.bounds import Oracle
from adaptk.replay.policies.static import FixedK
from adaptk.replay.scenarios import script
from adaptk.replay.simulator import simulate
from tests.replay.handmade import NEVER, Plays, requests, setup, surface, world

DRAFTER = Drafter(profiles([0.7, 0.5]))


@pytest.mark.parametrize("delay", [0, 1, 2, 5])
def test_results_come_late_by_the_delay_and_all_of_them_come(delay: int) -> None:
    ks = [i % 8 for i in range(40)]
    policy = Plays(*ks)
    simulate(world(script(40, 2), DRAFTER, engine={"delay": delay}), policy)
    assert policy.told == [max(0, i - delay) for i in range(40)]
    assert [record.k for record in policy.seen] == ks  # the n-th observation belongs to the n-th choice


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_the_controller_gets_each_decision_back_with_its_step(delay: int) -> None:
    at = world(script(200, 4), DRAFTER, engine={"delay": delay})
    run = simulate(at, Controller(setup().table, arms=(0, 1, 3, 7), seed=1), record=True)
    decisions = [row.decision for row in run.rows]
    assert all(isinstance(decision, Decision) for decision in decisions)
    assert [decision.seq for decision in decisions if decision] == list(range(200))
    assert [decision.k for decision in decisions if decision] == run.k.tolist()
    assert [row.step.k for row in run.rows] == run.k.tolist()


def test_rows_are_kept_on_demand_only_and_for_policies_without_decisions_too() -> None:
    at = world(script(10, 2), DRAFTER)
    assert simulate(at, Plays(1)).rows == []
    kept = simulate(at, FixedK(setup(), 3), record=True).rows
    assert [row.step.k for row in kept] == [3] * 10
    assert [row.decision for row in kept] == [None] * 10


def test_a_policy_that_learns_nothing_lives_in_the_same_world() -> None:
    at = world(requests([5] * 20, [9] * 20), DRAFTER, engine={"max_requests": 4})
    silent, told = simulate(at, FixedK(setup(), 3)), simulate(at, Plays(3))
    assert silent.elapsed.tolist() == told.elapsed.tolist()
    assert silent.tokens.tolist() == told.tokens.tolist()


def test_a_world_can_be_used_again() -> None:
    load = requests([5] * 20, [9] * 20, known=np.tile(np.array([1, 0, -1], dtype=np.int8), 60))
    at = world(load, DRAFTER, engine={"max_requests": 4, "kv_tokens": 70})
    first, second = simulate(at, Plays(3)), simulate(at, Plays(3))
    assert first.preempted == second.preempted > 0
    assert first.clock.tolist() == second.clock.tolist()


def test_what_is_foreseen_is_what_the_run_keeps() -> None:
    class Told(Oracle):
        def __init__(self) -> None:
            super().__init__(setup())
            self.lengths: list[list[float]] = []
            self.times: list[list[float]] = []

        def foresee(self, length: Any, itl: Any) -> None:
            self.lengths.append(length.tolist())
            self.times.append(itl.tolist())
            super().foresee(length, itl)

    policy = Told()
    run = simulate(world(script(30, [1, 8] * 15), DRAFTER), policy)
    assert policy.lengths == run.length.tolist()
    assert policy.times == run.itl.tolist()
    arms = np.array((0, 1, 3, 7))
    assert run.k.tolist() == arms[np.argmax(run.length[:, arms] / run.itl[:, arms], axis=1)].tolist()


def test_exploring_is_noted_with_the_step_that_it_was_chosen_for() -> None:
    class Explores(Plays):
        def choose(self, *asked: Any) -> int:
            self.exploring = len(self.asked) % 3 == 2
            return super().choose(*asked)

    run = simulate(world(script(9, 2)), Explores(1))
    assert np.flatnonzero(run.exploring).tolist() == [2, 5, 8]
    adaptk = simulate(world(script(3000, 8), DRAFTER), Adaptive(setup()))
    assert 0 < adaptk.exploring.sum() < 600


def test_a_controller_is_asked_what_an_engine_asks() -> None:
    policy = Plays(0)
    simulate(world(script(2, 3, joining=lambda s: (2, 9), context=100.0)), policy)
    assert policy.asked == [(5, 500, 3)] * 2


def test_arms_beyond_the_surface_are_refused() -> None:
    with pytest.raises(ValueError, match=r"ends at K=3"):
        simulate(world(script(3, 2), surface=surface(k_max=3)), Plays(1))


def test_batches_beyond_the_surface_are_refused() -> None:
    with pytest.raises(ValueError, match=r"batches of 9: the surface by hand ends at 8"):
        world(script(3, 9))
    with pytest.raises(ValueError, match=r"batches of 9"):
        world(requests([1], [1]), engine={"max_requests": 9})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"engine": {"runner": 3}}, "runner is 3"),
        ({"engine": {"max_requests": 0}}, "max_requests is 0"),
        ({"engine": {"max_tokens": 0}}, "max_tokens is 0"),
        ({"steps": 0}, "steps is 0"),
    ],
)
def test_an_engine_that_could_do_nothing_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        world(requests([1], [1]), **change)


def test_text_that_the_drafter_does_not_know_is_refused() -> None:
    """Compiled code does not look: it would read what lies behind the array."""
    for load in (requests([1], [1], kind=[1]), script(2, 2, kind=1), script(2, 2, others=lambda s: 1, other_kind=1)):
        with pytest.raises(ValueError, match=r"kind 1, .* has 1"):
            world(load)
    with pytest.raises(ValueError, match=r"kind -1"):
        world(requests([1], [1], kind=[-1]))


def test_a_step_of_prompts_alone_goes_by_and_the_others_draft_on() -> None:
    at = world(script(4, [2, 2, 0, 2], joining=lambda s: (1, 5) if s == 2 else (0, 0)), NEVER)
    policy = Plays(3)
    run = simulate(at, policy)
    assert policy.asked == [(2, None, 2), (2, None, 2), (1, None, 0), (2, None, 2)]
    assert run.tokens.tolist() == [2, 2, 0, 2]
    assert np.all(run.length[2] == 0.0)
