"""vLLM's lookup, and what the wrong tables get wrong."""

from __future__ import annotations

import pytest

from adaptk.replay.casechecks import public_table
from adaptk.replay.drafter import conditional
from adaptk.replay.policies.base import Setup
from adaptk.replay.policies.static import PROFILES, FixedK, StaticTable
from adaptk.table import GoodputTable
from tests.strategies import rows_of

PUBLIC = public_table()
ARMS = (0, 1, 3, 5)


def setup_of(table: GoodputTable | None, arms: tuple[int, ...] = ARMS) -> Setup:
    return Setup(table=table, startup=PUBLIC, arms=arms)


def small_table(itl: dict[int, dict[int, float]], acceptance: float = 0.3) -> GoodputTable:
    return GoodputTable.from_rows(rows_of(itl), acceptance=[acceptance])


def test_equals_the_best_k_of_the_table_at_every_batch() -> None:
    policy = StaticTable(setup_of(PUBLIC))
    assert [policy.choose(batch) for batch in range(1, 400)] == [PUBLIC.best_k(batch) for batch in range(1, 400)]
    assert [policy.choose(batch) for batch in (1, 4, 16, 64, 256)] == [3, 3, 3, 1, 0]


def test_a_repeated_question_has_the_same_answer() -> None:
    policy = StaticTable(setup_of(PUBLIC))
    assert [policy.choose(64, 10_000), policy.choose(64, None, 3)] == [1, 1]


def test_prefills_count_as_requests() -> None:
    policy = StaticTable(setup_of(GoodputTable.from_schedule([[1, 64, 3], [65, 128, 1]])))
    assert policy.choose(65, decodes=64) == 1


def test_a_schedule_carries_through_gaps_and_beyond_its_end() -> None:
    policy = StaticTable(setup_of(GoodputTable.from_schedule([[1, 16, 3], [32, 128, 1]])))
    assert [policy.choose(batch) for batch in (16, 17, 31, 32, 128, 129, 10_000)] == [3, 3, 3, 1, 1, 1, 1]


def test_a_k_that_is_no_arm_becomes_the_arm_below() -> None:
    policy = StaticTable(setup_of(GoodputTable.from_schedule([[1, 8, 4], [9, 16, 2]]), arms=(1, 3)))
    assert [policy.choose(8), policy.choose(9)] == [3, 1]


def test_without_a_seed_the_profile_of_the_start_is_looked_up() -> None:
    assert StaticTable(setup_of(None)).table is PUBLIC


def test_an_empty_batch_is_answered() -> None:
    assert StaticTable(setup_of(PUBLIC)).choose(0) == 3


def test_costs_off_scales_what_drafts_cost_beyond_k0() -> None:
    table = small_table({1: {0: 10.0, 1: 12.0}, 8: {0: 20.0, 1: 30.0}})
    policy = StaticTable.costs_off(setup_of(table, (0, 1)), 2.0)
    assert [row.itl_ms for row in policy.table.rows] == [10.0, 14.0, 20.0, 40.0]
    assert StaticTable(setup_of(table, (0, 1))).choose(1) == 1  # 1.3 / 12 > 1 / 10
    assert policy.choose(1) == 0  # 1.3 / 14 < 1 / 10


def test_costs_off_keeps_times_positive() -> None:
    table = small_table({1: {0: 10.0, 1: 4.0}})
    assert StaticTable.costs_off(setup_of(table), 2.0).table.itl_ms(1, 1) == pytest.approx(0.5)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_costs_off_refuses_a_factor_that_is_none(factor: float) -> None:
    with pytest.raises(ValueError, match="factor is"):
        StaticTable.costs_off(setup_of(PUBLIC), factor)


def test_another_drafters_table_has_its_acceptance_and_our_times() -> None:
    policy = StaticTable.other_drafter(setup_of(PUBLIC), "E3")
    assert policy.table.acceptance_length(3) == pytest.approx(1 + 0.76 + 0.54 + 0.39)
    assert policy.table.itl_ms(16, 3) == PUBLIC.itl_ms(16, 3)
    assert policy.choose(64) == 3  # the right table says 1
    assert StaticTable.other_drafter(setup_of(PUBLIC), "low").choose(64) == 0


def test_every_profile_is_turned_conditional_and_back() -> None:
    for marginal in PROFILES.values():
        table = GoodputTable.from_rows(rows_of({1: {0: 1.0}}), conditional(marginal))
        assert table.acceptance_length(len(marginal)) == pytest.approx(1 + sum(marginal))


def test_an_unknown_profile_is_named() -> None:
    with pytest.raises(ValueError, match="profile is 'E9': give one of E1, E3, low"):
        StaticTable.other_drafter(setup_of(PUBLIC), "E9")


def test_another_context_is_the_deepest_level_where_there_are_two() -> None:
    short, deep = {1: {0: 10.0, 1: 14.0}}, {1: {0: 40.0, 1: 44.0}}
    table = GoodputTable.from_rows(rows_of(short, context=400) + rows_of(deep, context=8000), acceptance=[0.3])
    assert StaticTable(setup_of(table, (0, 1))).choose(1) == 0  # 1.3 / 14 < 1 / 10
    policy = StaticTable.other_context(setup_of(table, (0, 1)))
    assert policy.table.contexts == (8000,)
    assert policy.choose(1) == 1  # 1.3 / 44 > 1 / 40


def test_another_context_is_stretched_where_the_table_has_one() -> None:
    table = small_table({1: {0: 10.0, 1: 12.0}, 64: {0: 20.0, 1: 30.0}})
    policy = StaticTable.other_context(setup_of(table, (0, 1)))
    assert [row.itl_ms for row in policy.table.rows] == [10.0, 12.0, 50.0, 60.0]  # 3 * (20 - 10) more at batch 64
    assert StaticTable(setup_of(table, (0, 1))).choose(64) == 0  # 1.3 / 30 < 1 / 20
    assert policy.choose(64) == 1  # 1.3 / 60 > 1 / 50


def test_wrong_tables_of_a_schedule_are_made_from_the_start() -> None:
    seed = setup_of(GoodputTable.from_schedule([[1, 512, 1]]))
    assert StaticTable.costs_off(seed, 1.0).choose(16) == 3


def test_fixed_k_plays_its_k_and_refuses_another() -> None:
    policy = FixedK(setup_of(PUBLIC), 3)
    assert [policy.choose(1), policy.choose(500, 10**6, 2)] == [3, 3]
    with pytest.raises(ValueError, match=r"k is 2: give one of the arms \(0, 1, 3, 5\)"):
        FixedK(setup_of(PUBLIC), 2)


def test_neither_learns_nor_explores() -> None:
    for policy in (FixedK(setup_of(PUBLIC), 1), StaticTable(setup_of(PUBLIC))):
        assert not policy.learns
        assert not policy.exploring
