"""What a run was worth, on runs made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adaptk.replay import measures
from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.measures import NEVER, Judged
from adaptk.replay.policies.bounds import Hindsight, Oracle
from adaptk.replay.policies.static import FixedK
from adaptk.replay.scenarios import script
from adaptk.replay.simulator import Run, simulate
from tests.replay.handmade import Plays, requests, setup, world


def run_of(
    ks: list[int],
    length: list[list[float]] | None = None,
    itl: list[list[float]] | None = None,
    arms: tuple[int, ...] = (0, 1, 2),
    **changes: Any,
) -> Run:
    """Steps of one request at ``ks``; K = 0, 1, 2 give 1, 1.5 and 1.8 tokens in 10, 12 and 18 ms by default."""
    steps = len(ks)
    lengths = np.array(length if length is not None else [[1.0, 1.5, 1.8]] * steps)
    times = np.array(itl if itl is not None else [[10.0, 12.0, 18.0]] * steps)
    ones, zeros = np.ones(steps, dtype=np.int64), np.zeros(steps, dtype=np.int64)
    elapsed = times[np.arange(steps), ks]
    fields: dict[str, Any] = {
        "arms": arms,
        "k": np.array(ks),
        "batch": ones,
        "decodes": ones,
        "tokens": ones,
        "prefill": zeros,
        "context": zeros,
        "elapsed": elapsed,
        "clock": np.cumsum(elapsed),
        "length": lengths,
        "itl": times,
        "length_now": lengths,
        "compiled": np.zeros(steps),
        "noise": np.ones(steps),
        "prompt_ms": np.zeros(steps),
        "extra_ms": np.zeros(steps),
        "scripted": False,
        "exploring": zeros.astype(bool),
        "ended_ms": np.zeros(0),
        "preempted": 0,
    }
    return Run(**{**fields, **changes})


def test_rates_of_the_best_and_of_any_k() -> None:
    run = run_of([0, 1, 2])
    assert measures.best_rate(run).tolist() == [1.5 / 12] * 3
    assert measures.rate_of(run, 2).tolist() == [0.1] * 3
    assert measures.rate_of(run, run.k).tolist() == [0.1, 1.5 / 12, 0.1]
    assert measures.expected_length(run).tolist() == [1.0, 1.5, 1.8]


def test_the_best_is_the_best_of_the_arms() -> None:
    assert measures.best_rate(run_of([0, 2], arms=(0, 2))).tolist() == [0.1, 0.1]


def test_efficiency_is_time_needed_over_time_taken() -> None:
    run = run_of([0, 1, 2])
    # 1, 1.5 and 1.8 tokens at 0.125 a millisecond need 8, 12 and 14.4 ms; taken were 10, 12 and 18.
    assert measures.efficiency(run, measures.best_rate(run)) == pytest.approx(34.4 / 40.0)
    assert measures.efficiency(run, measures.best_rate(run), 1, 2) == 1.0
    assert measures.efficiency(run, measures.best_rate(run), 2) == pytest.approx(14.4 / 18.0)
    assert measures.efficiency(run, measures.rate_of(run, 0)) == pytest.approx((10 + 15 + 18) / 40.0)


def test_in_a_script_every_step_counts_with_the_same_work() -> None:
    """Lingering at K=2, where the first step is quick for everybody, does not hide what the second one lost."""
    itl = [[5.0, 6.0, 9.0], [10.0, 12.0, 18.0]]
    run = run_of([2, 0], itl=itl, scripted=True)
    # The best arm makes 1.5 tokens in 6 and 12 ms; for these K=2 takes 9 / 1.8 * 1.5 = 7.5 ms, K=0 10 * 1.5 = 15 ms.
    assert measures.efficiency(run, measures.best_rate(run)) == pytest.approx(18.0 / 22.5)


def test_prompts_count_on_both_sides() -> None:
    run = run_of([0, 1, 2], prompt_ms=np.array([0.0, 5.6, 10.0]))
    assert measures.efficiency(run, measures.best_rate(run), prompts=True) == pytest.approx(
        (34.4 + 15.6) / (40.0 + 15.6)
    )
    assert measures.expected_ms(run).tolist() == [10.0, 12.0 + 5.6, 18.0 + 10.0]


def test_tokens_per_second_at_the_same_work() -> None:
    """A step that makes 1 of 3 tokens that count takes three times its own time; prompts and stalls count once."""
    run = run_of(
        [0, 1],
        scripted=True,
        decodes=np.array([1, 2]),
        noise=np.array([1.0, 2.0]),
        prompt_ms=np.array([0.0, 4.0]),
        extra_ms=np.array([7.0, 0.0]),
    )
    assert measures.tokens_per_s(run, np.array([3.0, 6.0])) == pytest.approx(
        1000 * 9.0 / (3 * 10.0 + 7.0 + 2 * 12.0 * 2.0 + 4.0 * 2.0)
    )
    assert measures.tokens_per_s(run) == pytest.approx(1000 * 2 / 22.0)


def test_compilation_and_a_cold_drafter_count_against_a_policy() -> None:
    slow = run_of([1, 1], compiled=np.array([12.0, 0.0]))
    assert measures.efficiency(slow, measures.best_rate(slow)) == pytest.approx(24.0 / 36.0)
    cold = run_of([1, 1], length_now=np.array([[1.0, 1.2, 1.3]] * 2))
    assert measures.efficiency(cold, measures.best_rate(cold)) == pytest.approx(1.2 / 1.5)
    assert measures.regret_ms(slow).tolist() == pytest.approx([12.0, 0.0])
    assert measures.regret_ms(cold).tolist() == pytest.approx([2.4, 2.4])


def test_steps_without_decodes_count_nowhere() -> None:
    zero = [0.0, 0.0, 0.0]
    run = run_of([2, 1], length=[zero, [1.0, 1.5, 1.8]], itl=[zero, [10.0, 12.0, 18.0]])
    assert measures.efficiency(run, measures.best_rate(run)) == 1.0
    assert measures.regret_ms(run).tolist() == [0.0, 0.0]
    assert np.isnan(measures.efficiency(run, measures.best_rate(run), 0, 1))


def test_regret_by_hand() -> None:
    assert measures.regret_ms(run_of([0, 1, 2])).tolist() == pytest.approx([2.0, 0.0, 3.6])


def test_share_and_switches() -> None:
    run = run_of([0, 0, 1, 2, 2, 0, 0])
    assert measures.switches(run) == 3
    assert measures.switches(run, 2, 5) == 1
    assert measures.share(run, [0]) == pytest.approx(4 / 7)
    assert measures.share(run, [1, 2], 2, 5) == 1.0


@pytest.mark.parametrize(
    ("stays", "lasting"),
    [
        ([(0, 20)], 0),
        ([(0, 20), (1, 20)], 1),
        ([(0, 20), (1, 8), (0, 20)], 0),  # a visit that returns
        ([(0, 20), (1, 9), (0, 20)], 2),  # too long for a visit
        ([(0, 20), (1, 8), (2, 20)], 2),  # it does not return
        ([(0, 20), (1, 4), (0, 3), (1, 4), (0, 20)], 0),
        ([(0, 20), (1, 4)], 1),  # nobody knows whether it would have returned
        ([(0, 3), (1, 20), (0, 3), (1, 20)], 1),
    ],
)
def test_lasting_switches(stays: list[tuple[int, int]], lasting: int) -> None:
    run = run_of([k for k, length in stays for _ in range(length)])
    assert measures.lasting_switches(run) == lasting


def test_time_in_visits_is_that_of_steps_that_return() -> None:
    """K = 0, 1, 2 take 10, 12 and 18 ms."""
    run = run_of([0] * 5 + [2] * 8 + [0] * 5 + [1] * 9 + [2] * 3)
    # Eight steps at K=2 return; K=1 stays, and whether the last three would have returned nobody knows.
    assert measures.time_in_visits(run) == pytest.approx(8 * 18 / (10 * 10 + 11 * 18 + 9 * 12))
    assert measures.time_in_visits(run, visit=7) == 0.0
    assert measures.lasting_switches(run) == 2


def test_time_over_k0_is_what_steps_lost_and_not_what_they_won() -> None:
    itl = [[10.0, 12.0, 18.0], [10.0, 18.0, 30.0], [10.0, 12.0, 18.0]]
    run = run_of([1, 1, 2], itl=itl, compiled=np.array([0.0, 0.0, 3.0]))
    # For 1.5, 1.5 and 1.8 tokens K=0 needs 15, 15 and 18 ms; taken were 12, 18 and 18 + 3.
    assert measures.over_k0(run) == pytest.approx((3 + 3) / 48.0)
    assert measures.over_k0(run, 2) == pytest.approx(3 / 30.0)
    assert measures.over_k0(run, 1) == 0.0
    zero = [0.0, 0.0, 0.0]
    assert np.isnan(measures.over_k0(run_of([2], length=[zero], itl=[zero])))


def test_the_first_time_that_an_arm_is_held() -> None:
    run = run_of([0] * 5 + [1] * 9 + [0] + [1] * 5 + [2] * 5 + [0])
    assert measures.first(run, [1], 0) == NEVER
    assert measures.first(run, [1], 0, hold=9) == 5
    assert measures.first(run, [1, 2], 0) == 15
    assert measures.first(run, [1, 2], 10) == 5
    assert measures.first(run, [1], 20) == NEVER  # fewer steps are left than must be held


def test_recovery_looks_for_a_window_that_is_good_on_average() -> None:
    run = run_of([1] * 30 + [2] * 40 + [1] * 40)
    assert measures.recovery(run, 0) == 0
    # K=2 is at 0.8: with two such steps a window of 20 is at 0.98.
    assert measures.recovery(run, 30) == 38
    assert measures.recovery(run, 30, good=1.0) == 40
    assert measures.recovery(run, 30, end=88) == 38  # the window's last step is 87
    assert measures.recovery(run, 30, end=87) == NEVER
    assert measures.recovery(run, 95) == NEVER
    assert measures.recovery(run_of([2] * 50), 0) == NEVER


def test_a_judge_holds_a_run_against_oracle_table_and_fixed_k() -> None:
    run = run_of([1, 2])
    judged = Judged(run, Plays(0), np.array([0, 2]))
    assert judged.of_oracle() == pytest.approx((12 + 14.4) / 30.0)
    assert judged.of_table() == pytest.approx((15 + 18) / 30.0)
    assert judged.of_table(1) == 1.0
    assert judged.of_fixed(0) == pytest.approx((15 + 18) / 30.0)
    assert judged.of_fixed(1, 0, 1) == 1.0


WORLDS = [
    world(script(300, lambda s: 1 + s % 8), Drafter(profiles([0.7, 0.5])), seed=1),
    world(script(300, lambda s: 1 + s // 38, kind=lambda s: s // 150), Drafter(profiles([0.9], [0.2])), seed=2),
    world(requests([20] * 40, [30] * 40), Drafter(profiles([0.8, 0.4])), engine={"kv_tokens": 300}, seed=3),
]


@pytest.mark.parametrize("at", WORLDS)
def test_the_oracle_is_efficient_and_nothing_else_is_more_so(at: Any) -> None:
    oracle = simulate(at, Oracle(setup()))
    assert Judged(oracle, Plays(0), oracle.k).of_oracle() == pytest.approx(1.0)
    assert measures.regret_ms(oracle) == pytest.approx(np.zeros(len(oracle.k)))
    others = [Plays(k) for k in (0, 1, 3, 7)] + [Plays(0, 7, 3, 1, 0, 3), Hindsight(setup(), oracle)]
    for policy in others:
        policy.arms = (0, 1, 3, 7)
        run = simulate(at, policy)
        assert Judged(run, policy, run.k).of_oracle() <= 1.0 + 1e-12
        assert measures.regret_ms(run).min() >= -1e-9


def test_fixed_k_against_itself_is_one() -> None:
    run = simulate(WORLDS[0], FixedK(setup(), 3))
    assert Judged(run, Plays(0), run.k).of_fixed(3) == pytest.approx(1.0)
    assert Judged(run, Plays(0), run.k).of_table() == pytest.approx(1.0)
