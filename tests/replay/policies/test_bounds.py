"""The oracle and the best table in hindsight bound what they say they bound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from adaptk.replay import measures
from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.policies.bounds import Hindsight, Oracle
from adaptk.replay.policies.static import FixedK, StaticTable
from adaptk.replay.scenarios import script
from adaptk.replay.simulator import Run, simulate
from adaptk.step import StepRecord
from adaptk.table import GoodputTable
from tests.replay.handmade import setup, surface, world

ARMS = (0, 1, 3, 7)
# Each size has a best K of its own; what is best at a size does not change.
STEADY = world(script(240, lambda s: 1 + s % 8), Drafter(profiles([0.8, 0.6])))


def foreseen(length: list[float], itl: list[float], arms: tuple[int, ...] = (0, 1, 2)) -> int:
    policy = Oracle(setup()._replace(arms=arms))
    policy.foresee(np.array(length), np.array(itl))
    return policy.choose(4)


def expected_ms(run: Run, best: np.ndarray) -> float:
    """Time for the oracle's expected tokens of each step at the expected goodput of what was played."""
    return float(np.sum(run.decodes * best / measures.rate_of(run, run.k)))


def test_the_oracle_plays_the_highest_goodput_of_its_arms() -> None:
    assert foreseen([1.0, 1.5, 1.8], [10.0, 12.0, 18.0]) == 1
    assert foreseen([1.0, 1.5, 1.8], [10.0, 12.0, 18.0], arms=(0, 2)) == 0
    assert foreseen([1.0, 1.5, 1.8], [10.0, 12.0, 18.0], arms=(1, 2)) == 1
    assert foreseen([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]) == 0  # of equals the smallest


def test_the_oracle_stays_where_nobody_decodes() -> None:
    policy = Oracle(setup())
    policy.foresee(np.array([1.0] * 7 + [9.0]), np.array([10.0] * 8))
    policy.foresee(np.zeros(8), np.zeros(8))
    assert policy.choose(4) == 7


def test_hindsight_plays_the_best_ratio_of_sums_of_each_size() -> None:
    oracle = simulate(STEADY, Oracle(setup()))
    policy = Hindsight(setup(), oracle)
    for batch in range(1, 9):
        at = oracle.batch == batch
        by_hand = max(ARMS, key=lambda k: oracle.length[at, k].sum() / oracle.itl[at, k].sum())
        assert policy.choose(batch) == by_hand
    assert len({policy.choose(batch) for batch in range(1, 9)}) > 1


def test_hindsight_takes_the_next_smaller_size_between_those_that_it_met() -> None:
    oracle = simulate(world(script(40, [2, 8] * 20), Drafter(profiles([0.8, 0.6]))), Oracle(setup()))
    policy = Hindsight(setup(), oracle)
    assert policy.choose(2) != policy.choose(8)
    assert [policy.choose(b) for b in (1, 3, 7, 9, 500)] == [policy.choose(b) for b in (2, 2, 2, 8, 8)]


def test_hindsight_is_no_slower_than_any_table_or_fixed_k() -> None:
    """Where what is best at a size stays so, hindsight is the oracle and no table beats it."""
    oracle = simulate(STEADY, Oracle(setup()))
    best = measures.best_rate(oracle)
    bound = expected_ms(simulate(STEADY, Hindsight(setup(), oracle)), best)
    assert bound == pytest.approx(expected_ms(oracle, best))
    rng = np.random.default_rng(0)
    tables = [StaticTable(setup()), *(FixedK(setup(), k) for k in ARMS)]
    for _ in range(40):
        cuts = sorted(rng.choice(np.arange(2, 9), 2, replace=False).tolist())
        ks = rng.choice(ARMS, 3).tolist()
        runs = [[1, cuts[0] - 1, ks[0]], [cuts[0], cuts[1] - 1, ks[1]], [cuts[1], 8, ks[2]]]
        tables.append(StaticTable(setup(), GoodputTable.from_schedule(runs)))
    times = [expected_ms(simulate(STEADY, table), best) for table in tables]
    assert min(times) >= bound * (1 - 1e-12)
    assert max(times) > 1.1 * bound


def test_hindsight_bounds_tables_also_where_acceptance_changes_under_them() -> None:
    """Then the oracle beats it; by the ratio of sums at one size no table does."""
    at = world(script(200, 4, kind=lambda s: s // 100), Drafter(profiles([0.95], [0.1])))
    oracle = simulate(at, Oracle(setup()))
    hindsight = simulate(at, Hindsight(setup(), oracle))

    def goodput(run: Run) -> float:
        return float(measures.expected_length(run).sum() / run.itl[np.arange(200), run.k].sum())

    fixed = [goodput(simulate(at, FixedK(setup(), k))) for k in ARMS]
    assert goodput(hindsight) == pytest.approx(max(fixed))
    assert goodput(oracle) > goodput(hindsight)


def test_no_drafter_beats_k0_by_the_price_of_a_loaded_drafter() -> None:
    at = world(script(50, 4))
    without = simulate(replace(at, surface=surface().without_drafter()), FixedK(setup()._replace(arms=(0,)), 0))
    idle = simulate(at, FixedK(setup(), 0))
    assert idle.elapsed - without.elapsed == pytest.approx(np.full(50, 0.5))
    assert without.tokens.tolist() == idle.tokens.tolist()


@pytest.mark.parametrize(
    "make", [lambda: Oracle(setup()), lambda: Hindsight(setup(), simulate(STEADY, Oracle(setup())))]
)
def test_neither_learns(make: Any) -> None:
    policy = make()
    before = policy.choose(4)
    policy.observe(StepRecord(batch_size=4, elapsed_ms=1e6, k=before, drafted=[7] * 4, accepted=[0] * 4))
    assert (policy.choose(4), policy.learns) == (before, False)
