"""The long worlds: each can be built, is the same each time, and can be passed."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from adaptk.replay.evaluate import Bench
from adaptk.replay.measures import Judged
from adaptk.replay.policies.static import StaticTable
from adaptk.replay.scenarios import Scenario, scenarios
from adaptk.replay.simulator import simulate
from adaptk.replay.workload import Script
from adaptk.replay.worlds import STEPS, WORLDS

ALL = WORLDS()
every_world = pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
# What the worlds are called that must be there, whatever is added.
NAMED = {
    "dense-wave", "moe-hill", "acceptance-drift", "table-x1.5", "table-other-drafter", "time-drift", "padding-cliff",
    "context-growth", "steep-first-draft", "mixed-100", "mixed-70", "contaminated-20", "contaminated-50",
    "short-outputs", "rl-drain", "rl-weights", "azure-bursts",
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
    at = bench("short-outputs")
    short = at.world.load
    assert isinstance(short, Script)
    assert short.output == 6.0
    assert at.oracle.length[:, 7].mean() < 0.75 * at.oracle.length[:, 7].max()


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
