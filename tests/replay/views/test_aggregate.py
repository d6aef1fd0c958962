"""Rows of seeds as summaries."""

from __future__ import annotations

import math

import pytest

from adaptk.replay.intervals import bootstrap_ratio
from adaptk.replay.views.aggregate import overall, paired, ratio, summaries
from tests.replay.tiny import row


def test_a_summary_by_hand() -> None:
    """Geometric means of the ratios, medians of the rest, and how often each check failed."""
    rows = [
        row(seed=0, oracle_ratio=0.8, table_ratio=1.0, tokens_per_s=90.0, regret_ms=1.0, recovery_steps=7),
        row(seed=1, oracle_ratio=0.9, table_ratio=4.0, tokens_per_s=100.0, regret_ms=5.0, passed=False, failed=["x"]),
        row(seed=2, oracle_ratio=1.0, table_ratio=2.0, tokens_per_s=200.0, regret_ms=2.0, recovery_steps=9),
    ]
    (one,) = summaries(rows)
    assert (one.scenario, one.policy, one.seeds, one.passed, one.failed) == ("A", "adaptk", 3, 2, {"x": 1})
    assert one.oracle == bootstrap_ratio([0.8, 0.9, 1.0])
    assert one.oracle.value == pytest.approx(0.72 ** (1 / 3))
    assert one.table.value == pytest.approx(2.0)
    assert (one.tokens_per_s, one.regret_ms, one.recovery_steps, one.latency_ms) == (100.0, 2.0, 9, None)


def test_most_seeds_that_never_recover_make_never() -> None:
    (one,) = summaries([row(seed=0, recovery_steps=7), row(seed=1), row(seed=2)])
    assert one.recovery_steps is None


def test_latency_is_a_median_of_the_seeds_that_have_one() -> None:
    (one,) = summaries([row(seed=0, latency_ms=4.0), row(seed=1), row(seed=2, latency_ms=6.0)])
    assert one.latency_ms == 5.0


def test_scenarios_keep_their_order_and_the_best_policy_is_first() -> None:
    """One without a ratio is last."""
    rows = [
        row("B", "slow", oracle_ratio=0.5),
        row("B", "odd", oracle_ratio=math.nan),
        row("B", "fast", oracle_ratio=0.9),
        row("A", "slow"),
    ]
    assert [(s.scenario, s.policy) for s in summaries(rows)] == [
        ("B", "fast"),
        ("B", "slow"),
        ("B", "odd"),
        ("A", "slow"),
    ]


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_ratios_that_have_no_logarithm_are_left_out(bad: float) -> None:
    assert ratio([0.5, bad]).value == 0.5
    assert math.isnan(ratio([bad]).value)


def test_one_seed_has_no_interval() -> None:
    (one,) = summaries([row()])
    assert one.oracle.value == 0.9
    assert math.isnan(one.oracle.low)


def test_an_engine_without_drafter_is_not_judged() -> None:
    """Checks, and what is lost against an oracle of another engine, say nothing of it."""
    lacks = {"passed": None, "regret_ms": math.nan, "explore_ms": math.nan, "below_k0": math.nan}
    rows = [row(policy="no-drafter", seed=seed, **lacks) for seed in (0, 1)]
    (one,) = summaries(rows)
    assert (one.passed, one.failed) == (None, {})
    assert all(math.isnan(value) for value in (one.regret_ms, one.explore_ms, one.below_k0))
    (over,) = overall(rows)
    assert (over.passed, over.judged) == (0, 0)


def test_unfinished_requests_add_up() -> None:
    (one,) = summaries([row(seed=0, unfinished=2), row(seed=1, unfinished=3)])
    assert one.unfinished == 5


def test_a_figure_over_that_of_another_policy_is_paired_by_seed() -> None:
    """A seed that one of them lacks does not count."""
    speeds = {("adaptk", 0): 110.0, ("table", 0): 100.0, ("adaptk", 1): 90.0, ("table", 1): 60.0, ("adaptk", 2): 1.0}
    rows = [row(policy=policy, seed=seed, tokens_per_s=speed) for (policy, seed), speed in speeds.items()]
    assert paired(rows, "adaptk", "table", lambda row: row.tokens_per_s) == bootstrap_ratio([1.1, 1.5])
    assert math.isnan(paired(rows, "adaptk", "table", lambda row: row.latency_ms).value)
    assert math.isnan(paired(rows, "adaptk", "oracle", lambda row: row.tokens_per_s).value)


def test_over_scenarios_by_hand() -> None:
    """Each scenario weighs the same; passes count where there are checks."""
    rows = [
        row("A", seed=0, oracle_ratio=0.5, table_ratio=1.0),
        row("A", seed=1, oracle_ratio=0.5, table_ratio=1.0, passed=False),
        row("B", seed=0, oracle_ratio=0.9, table_ratio=0.25, passed=None),
        row("B", seed=1, oracle_ratio=0.4, table_ratio=1.0, passed=None),
    ]
    (one,) = overall(rows)
    assert one.oracle == pytest.approx(bootstrap_ratio([math.sqrt(0.45), math.sqrt(0.2)]))
    assert one.table.value == pytest.approx(0.25**0.25)
    assert (one.worst_by_oracle.scenario, one.worst_by_table.scenario) == ("A", "B")
    assert one.worst_by_table.ratio.value == pytest.approx(0.5)
    assert (one.scenarios, one.passed, one.judged) == (2, 1, 2)


def test_a_seed_that_some_scenario_lacks_does_not_count() -> None:
    """Else a sweep that was cut short would compare different scenarios from seed to seed."""
    rows = [row("A", seed=0, oracle_ratio=0.5), row("A", seed=1, oracle_ratio=0.6), row("B", seed=0, oracle_ratio=0.8)]
    (one,) = overall(rows)
    assert one.oracle.value == pytest.approx(math.sqrt(0.4))
    rows = [row("A", seed=1, oracle_ratio=0.6), row("B", seed=0, oracle_ratio=0.8)]
    (one,) = overall(rows)
    assert one.oracle.value == pytest.approx(math.sqrt(0.48))
    assert math.isnan(one.oracle.low)


def test_policies_that_ran_in_fewer_scenarios_are_last() -> None:
    rows = [row("A", "some", oracle_ratio=0.99), row("A", "all", oracle_ratio=0.5), row("B", "all", oracle_ratio=0.5)]
    assert [one.policy for one in overall(rows)] == ["all", "some"]
