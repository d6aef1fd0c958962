"""The long worlds: each can be built, is the same each time, and can be passed."""

from __future__ import annotations

from functools import cache

import cloudpickle
import numpy as np
import pytest

from adaptk.replay.cases import CASES
from adaptk.replay.evaluate import Bench
from adaptk.replay.measures import Judged
from adaptk.replay.policies.static import StaticTable
from adaptk.replay.scenarios import Scenario, scenarios
from adaptk.replay.simulator import simulate
from adaptk.replay.workload import Requests, Script
from adaptk.replay.worlds import STEPS, WORLDS

ALL = WORLDS()
every_world = pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
# What the worlds are called that must be there, whatever is added.
NAMED = {
    "dense-wave", "moe-hill", "acceptance-drift", "table-x1.5", "table-other-drafter", "time-drift", "padding-cliff",
    "context-growth", "steep-first-draft", "mixed-100", "mixed-70", "contaminated-20", "contaminated-50",
    "short-outputs", "rl-drain", "rl-weights", "azure-bursts", "table-half", "table-double", "calm-1", "calm-8",
    "calm-64", "staircase-named", "staircase-unnamed", "acceptance-turns", "cost-turns", "tenants", "no-table",
    "mixed-follows-k", "autocorrelated", "delayed-v1", "delayed-v2", "lasting-closed", "lasting-open",
}  # fmt: skip
APART = {
    "mixed-100", "mixed-70", "mixed-follows-k", "contaminated-20", "contaminated-50", "steep-first-draft", "no-table",
    "short-outputs", "autocorrelated", "delayed-v1", "delayed-v2", "lasting-closed", "lasting-open",
}  # fmt: skip


@cache
def bench(name: str) -> Bench:
    """One simulation of the oracle per world, shared by the tests."""
    return Bench(scenarios()[name], 0)


def test_the_worlds_that_were_promised_are_there() -> None:
    names = [scenario.name for scenario in ALL]
    assert len(set(names)) == len(names)
    assert set(names) >= NAMED
    assert all(scenarios()[name].name == name for name in names)
    assert len({scenario.about for scenario in ALL}) == len(ALL)
    assert {scenario.name for scenario in ALL if scenario.group == "apart"} == APART
    assert {scenario.group for scenario in ALL} == {"core", "apart"}


@every_world
def test_it_is_long_and_its_oracle_passes(scenario: Scenario) -> None:
    at = bench(scenario.name)
    run = at.oracle
    judged = Judged(run, StaticTable(at.setup), at.table_k(run))
    assert [check.what for check in scenario.checks if not check.holds(judged)] == []
    assert judged.of_oracle() == pytest.approx(1.0, abs=0.02 if scenario.name == "cold-drafter" else 1e-6)
    assert len(run.k) >= (10_000 if not scenario.name.startswith("seed-") else 1_000)
    assert set(run.k.tolist()) <= set(scenario.arms)
    if not isinstance(at.world.load, Script):
        assert np.all(np.isfinite(run.ended_ms))  # all steps that it needs are there


@every_world
def test_its_table_and_profile_are_sane(scenario: Scenario) -> None:
    assert scenario.startup.has_times
    assert set(scenario.startup.ks) == set(scenario.arms)
    assert scenario.arms == tuple(sorted(set(scenario.arms)))
    assert scenario.arms[0] == 0
    assert scenario.startup.acceptance is not None
    for table in filter(None, (scenario.table, scenario.startup)):
        assert set(table.ks) <= set(range(scenario.arms[-1] + 1))
        times = table.itl_grid(range(1, 257), scenario.arms)
        assert np.all(times > 0)
        assert np.all(times < 5_000)


@every_world
def test_the_same_seed_is_the_same_world_and_another_is_not(scenario: Scenario) -> None:
    first, again, other = (scenario.world(seed) for seed in (0, 0, 1))
    size = "decodes" if isinstance(first.load, Script) else "output"
    assert np.all(getattr(first.load, size) == getattr(again.load, size))
    assert first.steps == again.steps
    assert first.seed == 0 != other.seed
    assert first.surface.max_batch == again.surface.max_batch


def test_a_world_runs_the_same_twice() -> None:
    for name in ("dense-wave", "padding-cliff", "short-outputs"):
        at = bench(name)
        short = scenarios()[name].world(0)
        again = simulate(short, StaticTable(at.setup))
        assert again.clock.tolist() == simulate(at.world, StaticTable(at.setup)).clock.tolist()


@pytest.mark.parametrize(
    ("name", "best"),
    [("dense-wave", {0, 1, 3}), ("moe-hill", {3, 7}), ("padding-cliff", {0, 1, 3}), ("acceptance-drift", {1, 3})],
)
def test_the_best_k_moves(name: str, best: set[int]) -> None:
    run = bench(name).oracle
    assert {k for k in run.arms if np.mean(run.k == k) > 0.05} >= best


@pytest.mark.parametrize("name", ["table-x1.5", "table-other-drafter", "time-drift", "mixed-100", "context-growth"])
def test_a_wrong_table_costs_something(name: str) -> None:
    at = bench(name)
    run = simulate(at.world, StaticTable(at.setup))
    assert Judged(run, StaticTable(at.setup), run.k).of_oracle() < 0.99


@pytest.mark.parametrize(("name", "share"), [("contaminated-20", 0.2), ("contaminated-50", 0.5)])
def test_as_many_steps_are_contaminated_as_it_says(name: str, share: float) -> None:
    run = bench(name).oracle
    slow = run.elapsed[1:] / run.itl[np.arange(1, len(run.k)), run.k[1:]] > 1.25
    assert np.mean(slow) == pytest.approx(share, abs=4.5 * np.sqrt(share * (1 - share) / STEPS) + 0.01)


@pytest.mark.parametrize(("name", "share"), [("mixed-100", 1.0), ("mixed-70", 0.7)])
def test_as_many_steps_carry_prompts_as_it_says(name: str, share: float) -> None:
    assert np.mean(bench(name).oracle.prefill > 0) == pytest.approx(share, abs=4.5 * 0.5 / np.sqrt(STEPS))


def test_the_hill_is_low_high_low() -> None:
    run = bench("moe-hill").oracle
    means = [run.k[(run.batch >= low) & (run.batch <= high)].mean() for low, high in ((1, 2), (12, 40), (400, 512))]
    assert means[0] < means[1] > means[2]


def test_answers_are_short_where_they_are_called_so() -> None:
    """Acceptance alone would say 7; so short answers make it 3."""
    at = bench("short-outputs")
    short = at.world.load
    assert isinstance(short, Script)
    assert short.output == 6.0
    assert set(np.array([StaticTable(at.setup).choose(48)])) == {7}
    assert set(at.oracle.k.tolist()) == {3}


@pytest.mark.parametrize(("name", "said", "best"), [("table-half", {1}, {0}), ("table-double", {0, 1}, {3})])
def test_a_table_that_is_wrong_by_two_says_another_k_at_every_step(name: str, said: set[int], best: set[int]) -> None:
    at = bench(name)
    assert set(at.table_k(at.oracle).tolist()) == said
    assert set(at.oracle.k.tolist()) == best
    static, seeded = at.setup.startup.itl_grid([128], [0, 3])[0], at.setup.table
    assert seeded is not None
    wrong = seeded.itl_grid([128], [0, 3])[0]
    assert (static[1] - static[0]) / (wrong[1] - wrong[0]) == pytest.approx(2.0 if name == "table-half" else 0.5)


@pytest.mark.parametrize(("batch", "best"), [(1, 3), (8, 3), (64, 1)])
def test_nothing_happens_where_it_is_calm(batch: int, best: int) -> None:
    at = bench(f"calm-{batch}")
    assert set(at.oracle.k.tolist()) == set(at.table_k(at.oracle).tolist()) == {best}
    assert set(at.oracle.batch.tolist()) == {batch}


def test_only_the_named_staircase_has_its_steps_in_the_table() -> None:
    """At K=1 graphs end at 28, 40 and 52 requests: 41 costs what 52 does, 40 what 29 does."""
    named, unnamed = bench("staircase-named"), bench("staircase-unnamed")
    truth = named.world.surface
    steps = [truth.itl_ms(b, 1) for b in (29, 40, 41, 52)]
    assert steps[0] == pytest.approx(steps[1], rel=0.01)  # what drafting costs has no steps
    assert steps[2] == pytest.approx(steps[3], rel=0.01)
    assert steps[2] > 1.04 * steps[1]
    batches = range(1, 201)
    real = truth.to_table(named.setup.arms, None, batches).itl_grid(batches, named.setup.arms)
    for at, right in ((named, True), (unnamed, False)):
        assert at.setup.table is not None
        off = np.abs(at.setup.table.itl_grid(batches, at.setup.arms) / real - 1.0)
        assert (off.max() < 0.02) == right
        assert (np.mean(at.table_k(at.oracle) == at.oracle.k) > 0.9) == right
    sizes = named.oracle.batch
    assert np.corrcoef(np.arange(STEPS // 2), sizes[: STEPS // 2])[0, 1] > 0.98  # it rises steadily, then stands
    assert np.sum(np.diff(sizes[STEPS // 2 :]) != 0) <= 11


@pytest.mark.parametrize(("name", "steps"), [("acceptance-turns", 1500), ("cost-turns", 2000)])
def test_the_best_k_turns_at_the_changes_and_only_there(name: str, steps: int) -> None:
    run = bench(name).oracle
    turns = scenarios()[name].changes
    assert turns == tuple(range(steps, STEPS, steps))
    assert (np.flatnonzero(np.diff(run.k)) + 1).tolist() == list(turns)
    assert set(run.k.tolist()) == {0, 3}


def test_the_tenant_comes_and_goes() -> None:
    """His text turns the best K to 0 and back, three times."""
    run = bench("tenants").oracle
    means = run.length[:, 5][: len(run.k) // 100 * 100].reshape(-1, 100).mean(axis=1)
    bad = means < 1.6
    assert np.sum(np.diff(bad.astype(int)) == 1) >= 2
    assert means.max() > 2.5
    assert set(run.k.tolist()) >= {0, 3}


def test_step_times_wander_where_they_are_said_to() -> None:
    """Deviation 0.05 and correlation 0.98: over 12,000 steps their standard errors are about 0.004 and 0.002.

    Bounds of 4.5 of them; the few stalls are left out.
    """
    noise = np.log(bench("autocorrelated").oracle.noise)
    calm = (noise[1:] < 0.25) & (noise[:-1] < 0.25)
    before, after = noise[:-1][calm], noise[1:][calm]
    assert after.std() == pytest.approx(0.05, abs=0.018)
    assert np.corrcoef(before, after)[0, 1] == pytest.approx(0.98, abs=0.009)


@pytest.mark.parametrize("name", ["lasting-closed", "lasting-open"])
def test_requests_keep_their_acceptance_for_life(name: str) -> None:
    """From 0.2 to 0.95, no mixing: the batch's mean wanders slowly. Batches are as large as it says."""
    at = bench(name)
    drafter, load, run = at.world.drafter, at.world.load, at.oracle
    assert (drafter.mix, drafter.acceptance.min(), drafter.acceptance.max()) == (None, 0.2, 0.95)
    assert isinstance(load, Requests)
    assert len(set(load.kind.tolist())) == 16
    assert 250 < load.output.mean() < 350
    low, high = np.quantile(run.decodes[run.decodes > 0], [0.25, 0.75])
    assert 24 <= low <= high <= 56
    mean = run.length[run.decodes > 20, 3]
    assert np.corrcoef(mean[20:], mean[:-20])[0, 1] > 0.5
    assert len(set(run.k.tolist())) > 1


def test_hindsight_is_the_best_table_where_requests_arrive_by_the_clock() -> None:
    """There tokens per second are set by the arrivals: what counts is how close to the best each step is."""
    at = bench("lasting-open")
    ratios = {name: at.run(name).row.oracle_ratio for name in ("hindsight", "table", "fixed-1", "fixed-3")}
    assert ratios["hindsight"] == max(ratios.values()) > max(ratios["table"], ratios["fixed-3"]) + 0.001


def test_prompts_join_where_k_is_high() -> None:
    run = bench("mixed-follows-k").oracle
    few, many = np.mean(run.prefill[run.k == 0] > 0), np.mean(run.prefill[run.k > 0] > 0)
    assert few < 0.2
    assert many > 0.45


@pytest.mark.parametrize("runner", [1, 2])
def test_results_come_two_steps_late(runner: int) -> None:
    world = bench(f"delayed-v{runner}").world
    assert (world.engine.delay, world.engine.runner) == (2, runner)
    assert bench("no-table").setup.table is None


def test_rollouts_drain_and_their_acceptance_falls() -> None:
    run = bench("rl-drain").oracle
    assert run.decodes.max() == 256
    assert np.mean(run.decodes < 32) > 0.2
    first, last = run.length[: len(run.k) // 10, 7], run.length[-len(run.k) // 10 :, 7]
    assert last[last > 0].mean() < 0.7 * first[first > 0].mean()


def test_bursts_leave_the_engine_idle_and_full() -> None:
    run = bench("azure-bursts").oracle
    idle = np.diff(run.clock) - run.elapsed[1:]
    assert idle.sum() > 0.05 * run.clock[-1]
    assert run.batch.max() > 60
    assert np.median(run.batch) < 0.5 * run.batch.max()


@pytest.mark.parametrize("scenario", [*CASES(), *WORLDS()], ids=lambda scenario: scenario.name)
def test_every_scenario_can_go_to_another_process(scenario: Scenario) -> None:
    """As joblib sends it; the world made there is the world made here."""
    there = cloudpickle.loads(cloudpickle.dumps(scenario))
    assert there.name == scenario.name
    assert there.world(0).steps == scenario.world(0).steps
