"""Rows: what is in them, paired and reproducible."""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from adaptk.replay import measures
from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.evaluate import Bench, Row, evaluate, judge
from adaptk.replay.noise import Drift, Noise
from adaptk.replay.registry import NO_DRAFTER
from adaptk.replay.scenarios import Check, Scenario, find, scenarios, script
from adaptk.replay.simulator import World
from tests.replay.handmade import requests, surface, world

ARMS = (0, 1, 3, 7)
NOISE = Noise(0.05, correlation=0.3, stalls=0.01)
SCRIPTED = world(script(400, lambda s: (2, 8)[s // 100 % 2]), Drafter(profiles([0.8, 0.6])), noise=NOISE)
QUEUE = world(requests([20] * 60, [15] * 60), Drafter(profiles([0.8, 0.6])), noise=NOISE)
NAMES = ["oracle", "table", "adaptk", "fixed-0", NO_DRAFTER]


def scenario(at: World, checks: tuple[Check, ...] = (), **changes: object) -> Scenario:
    table = surface().to_table(ARMS, [0.8, 0.6])
    made = Scenario("hand", "made by hand", lambda seed: replace(at, seed=seed), table, table, ARMS, checks)
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("at", [SCRIPTED, QUEUE], ids=["script", "queue"])
def test_a_row_says_what_its_run_says(at: World) -> None:
    bench = Bench(scenario(at), 3)
    found = bench.run("adaptk")
    row, run = found.row, found.run
    assert (row.scenario, row.policy, row.seed, row.arms) == ("hand", "adaptk", 3, ARMS)
    assert row.steps == len(run.k)
    assert row.tokens == run.tokens.sum()
    assert row.time_ms == run.clock[-1] == pytest.approx(run.elapsed.sum())
    assert row.p50_ms == np.median(run.elapsed) < row.p99_ms < run.elapsed.max()
    assert row.switches_per_1000 == 1000 * np.mean(np.diff(run.k, prepend=run.k[0]) != 0)
    pace = {
        name: each.tokens_per_s if run.scripted else each.tokens / measures.expected_ms(bench.run(name).run).sum()
        for name in ("adaptk", "oracle", "table")
        for each in (bench.run(name).row,)
    }
    assert row.oracle_ratio == pytest.approx(pace["adaptk"] / pace["oracle"])
    assert row.table_ratio == pytest.approx(pace["adaptk"] / pace["table"])
    assert row.regret_ms == pytest.approx(float(measures.regret_ms(run).sum()))
    assert 0 <= row.explore_ms <= row.regret_ms
    assert (row.passed, row.failed, row.recovery_steps, row.unfinished) == (None, [], None, 0)


def test_a_queue_counts_the_tokens_that_came() -> None:
    """In a closed loop all requests wait from the start: how long says nothing of the policy."""
    found = Bench(scenario(QUEUE), 0).run("fixed-3")
    row, run = found.row, found.run
    assert row.tokens == 60 * 15
    assert row.tokens_per_s == pytest.approx(1000 * 900 / run.elapsed.sum())
    assert row.latency_ms is None


def test_latency_is_counted_from_arrival_over_those_that_ended() -> None:
    late = requests([5, 5, 5], [4, 8, 500], arrival_ms=[10.0, 300.0, 400.0])
    found = Bench(scenario(world(late, steps=40)), 0).run("fixed-0")
    ended = found.run.ended_ms
    assert np.isnan(ended[2])
    assert found.row.latency_ms == pytest.approx(((ended[0] - 10) / 4 + (ended[1] - 300) / 8) / 2)
    assert found.row.unfinished == 1


def test_a_script_has_no_latency_and_counts_equal_work() -> None:
    steady = scenario(world(script(300, 4), Drafter(profiles([0.8])), noise=NOISE))
    bench = Bench(steady, 0)
    for k in (0, 3):
        found = bench.run(f"fixed-{k}")
        row, first = found.row, found.run.itl[0, k] * found.run.noise[0] - found.run.elapsed[0]
        # All steps are alike, but that the first verifies nothing and counts as if it did.
        expected = bench.oracle.length[0, k] * 4 * 300 / (row.time_ms + first) * 1000
        assert row.tokens_per_s == pytest.approx(expected)
        assert row.latency_ms is None


def test_nobody_gains_by_lingering_where_all_are_fast() -> None:
    """Deep drafts at the fast size, where they are nearly as good, do not raise the goodput over both sizes."""
    fast = Drafter(profiles([0.95], [0.0]))
    at = scenario(world(script(400, 4, kind=lambda s: s // 200), fast))
    bench = Bench(at, 0)
    rates = {k: bench.run(f"fixed-{k}").row.tokens_per_s for k in ARMS}
    oracle = bench.oracle

    def seconds(ks: list[int]) -> float:
        times = [
            200 * oracle.length[s, oracle.k[s]] * 4 * oracle.itl[s, k] / (4 * oracle.length[s, k])
            for s, k in zip((0, 399), ks, strict=True)
        ]
        return sum(times) / 1000

    work = 4 * measures.expected_length(oracle).sum()
    for k in ARMS:
        assert rates[k] == pytest.approx(work / seconds([k, k]), rel=0.01)  # the first step verifies nothing


def test_checks_are_asked_and_those_that_fail_are_named() -> None:
    checks = (
        Check("always", lambda judged: True),
        Check("half of the oracle", lambda judged: judged.of_oracle() > 0.5),
        Check("never", lambda judged: False),
    )
    row = Bench(scenario(SCRIPTED, checks), 0).run("oracle").row
    assert (row.passed, row.failed) == (False, ["never"])
    assert Bench(scenario(SCRIPTED, checks[:2]), 0).run("oracle").row.passed


def test_recovery_is_counted_from_the_first_change() -> None:
    drift = Drift((0, 200), (1.0, 1.0), (0.2, 8.0))
    at = replace(world(script(400, 8), Drafter(profiles([0.8])), drift=drift))
    bench = Bench(scenario(at, changes=(200, 300)), 0)
    assert bench.oracle.k[199] > 0 == bench.oracle.k[200]
    assert bench.run("oracle").row.recovery_steps == 0
    assert bench.run("fixed-7").row.recovery_steps is None
    assert Bench(scenario(at, changes=(5000,)), 0).run("oracle").row.recovery_steps is None


def test_each_change_has_a_recovery_of_its_own() -> None:
    """Drafts are cheap, dear and cheap again; a change with fewer than 20 steps behind it has no recovery."""
    drift = Drift((0, 200, 300), (1.0, 1.0, 1.0), (0.2, 8.0, 0.2))
    at = replace(world(script(400, 8), Drafter(profiles([0.8])), drift=drift))
    bench = Bench(scenario(at, changes=(200, 300, 390, 5000)), 0)
    assert bench.run("oracle").row.recoveries == [0, 0, None]
    cheap = int(bench.oracle.k[350])
    assert cheap > 0 == bench.oracle.k[250]
    assert bench.run(f"fixed-{cheap}").row.recoveries == [None, 0, None]


def test_what_is_lost_under_k0_is_told_apart_for_the_beginning() -> None:
    """Drafts get dear at step 3,000: until then nothing is lost, and then as much per step as K=7 costs more."""
    drift = Drift((0, 3000), (1.0, 1.0), (0.2, 8.0))
    bench = Bench(scenario(world(script(4000, 8), Drafter(profiles([0.8])), drift=drift)), 0)
    found = bench.run("fixed-7")
    row, run = found.row, found.run
    late = run.itl[3500, 7] - run.length[3500, 7] * run.itl[3500, 0]
    whole = run.length[3500, 7] * run.itl[3500, 0] * 4000
    assert (row.over_k0_early, late > 0) == (0.0, True)
    assert row.over_k0 == pytest.approx(1000 * late / whole)
    assert (row.lasting_per_1000, row.in_visits) == (0.0, 0.0)
    assert np.isnan(bench.run("no-drafter").row.over_k0)


def test_time_below_k0_is_the_time_of_steps_that_are_worse_than_it() -> None:
    drift = Drift((0, 100), (1.0, 1.0), (0.2, 8.0))
    bench = Bench(scenario(world(script(400, 8), Drafter(profiles([0.8])), drift=drift)), 0)
    found = bench.run("fixed-7")
    assert found.row.below_k0 == pytest.approx(found.run.elapsed[100:].sum() / found.run.elapsed.sum())
    assert bench.run("fixed-0").row.below_k0 == 0.0
    assert bench.run("oracle").row.below_k0 == 0.0


def test_what_exploring_lost_is_the_regret_of_the_steps_called_so() -> None:
    found = Bench(scenario(SCRIPTED), 0).run("adaptk-unbounded")
    lost = measures.regret_ms(found.run)[found.run.exploring]
    assert found.row.explore_ms == pytest.approx(float(lost.sum()))
    assert found.row.explore_ms > 0


@pytest.mark.parametrize("at", [SCRIPTED, QUEUE], ids=["script", "queue"])
def test_without_a_drafter_an_engine_is_as_much_faster_as_the_drafter_costs(at: World) -> None:
    bench = Bench(scenario(replace(at, noise=Noise(0.0))), 0)
    without, idle, oracle = (bench.run(name).row for name in (NO_DRAFTER, "fixed-0", "oracle"))
    assert without.tokens_per_s > idle.tokens_per_s
    assert without.oracle_ratio / idle.oracle_ratio == pytest.approx(1.03, abs=0.015)  # 0.5 of 11.5 to 18.5 ms
    assert without.passed is None
    assert math.isnan(without.regret_ms)
    assert (without.arms, oracle.oracle_ratio) == ((0,), pytest.approx(1.0))


def test_without_a_table_the_largest_k_is_the_reference() -> None:
    bench = Bench(scenario(SCRIPTED, table=None), 0)
    assert set(bench.table_k(bench.oracle)) == {7}
    assert bench.run("fixed-7").row.table_ratio == pytest.approx(1.0)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_oracle_is_not_beaten_in_tokens_per_second(seed: int) -> None:
    """Paired: noise is the same for all; what is left is that drafts are paid for in two different steps."""
    bench = Bench(scenario(SCRIPTED), seed)
    oracle = bench.run("oracle").row.tokens_per_s
    for name in ("hindsight", "table", "adaptk", "turbospec", *(f"fixed-{k}" for k in ARMS)):
        assert bench.run(name).row.tokens_per_s < 1.005 * oracle, name


def test_unknown_policies_are_refused_with_a_hint() -> None:
    with pytest.raises(ValueError, match=r"policy 'oracel' is unknown: did you mean oracle\?"):
        Bench(scenario(SCRIPTED), 0).run("oracel")


def test_a_policy_that_knows_fewer_arms_is_held_against_all_of_the_scenario() -> None:
    """BanditSpec as released has K of 1 and 3; K=0 is best here, and the oracle plays it."""
    bench = Bench(scenario(world(script(200, 8), Drafter(profiles([0.3])))), 0)
    assert set(bench.oracle.k) == {0}
    found = bench.run("banditspec-released")
    assert found.row.arms == (1, 3)
    best = bench.oracle.length[0, 0] / bench.oracle.itl[0, 0]
    assert measures.best_rate(found.run) == pytest.approx(np.full(200, best))
    assert found.row.oracle_ratio <= bench.run("fixed-1").row.oracle_ratio < 0.8


def test_the_same_seed_gives_the_same_rows_and_another_does_not() -> None:
    first, again, other = (judge(scenario(SCRIPTED), NAMES, seed) for seed in (1, 1, 2))
    assert first == again
    assert [row.policy for row in first] == NAMES
    assert all(a.tokens_per_s != b.tokens_per_s for a, b in zip(first, other, strict=True))


def test_more_processes_give_the_same_rows() -> None:
    made = [scenario(SCRIPTED), scenario(QUEUE, name="queue")]

    def rows(jobs: int) -> list[bytes]:
        found = [row for rows in evaluate(made, lambda s: NAMES, (0, 1), jobs=jobs) for row in rows]
        return [msgspec.json.encode(row) for row in sorted(found, key=lambda row: (row.scenario, row.seed, row.policy))]

    assert len(rows(1)) == 2 * 2 * len(NAMES)
    assert rows(2) == rows(1)


def test_a_row_goes_through_json() -> None:
    row = judge(scenario(SCRIPTED), ["table"], 0)[0]
    assert msgspec.json.decode(msgspec.json.encode(row), type=Row) == row


def test_scenarios_are_found_by_name_whatever_its_case() -> None:
    assert find("DENSE-wave") is scenarios()["dense-wave"]
    with pytest.raises(ValueError, match=r"scenario 'dense-wavy' is unknown: did you mean dense-wave\?"):
        find("dense-wavy")
    with pytest.raises(ValueError, match=r"--list"):
        find("xyzzy-nothing")
