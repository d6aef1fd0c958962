from __future__ import annotations

import json

import numpy as np
import pytest

from adaptk.prefill import PrefillCost
from adaptk.prior import StepTimePrior
from adaptk.table import GoodputTable
from tests.strategies import rows_of

TABLE = GoodputTable.from_rows(rows_of({b: {k: 8.0 + 0.02 * b * (k + 1) for k in (0, 1, 3)} for b in (1, 64, 256)}))
BASE_MS = 14.0


def fresh(table: GoodputTable | None = TABLE) -> PrefillCost:
    return PrefillCost(StepTimePrior(table, (0, 1, 3)))


def mixed(
    cost: PrefillCost, rng: np.random.Generator, ms: float, most: int, steps: int, stalls: float = 0.0
) -> list[float]:
    """Steps with up to ``most`` prompt tokens at ``ms`` each, 3 % noise; what was left of those that were used."""
    rest = []
    for _ in range(steps):
        tokens = int(rng.integers(1, most))
        elapsed = (BASE_MS + ms * tokens) * float(np.exp(0.03 * rng.standard_normal()))
        usable = cost.usable_ms(1, 32, tokens, elapsed + (200.0 if rng.random() < stalls else 0.0))
        if usable is not None:
            rest.append(usable)
    return rest


@pytest.mark.parametrize("table", [TABLE, None], ids=["timed", "untimed"])
@pytest.mark.parametrize("ms", [0.01, 0.044, 0.3])
def test_the_cost_of_prompt_tokens_is_learnt_within_a_tenth(ms: float, table: GoodputTable | None) -> None:
    cost = fresh(table)
    mixed(cost, np.random.default_rng(0), ms, most=512, steps=300)
    assert cost.ms_per_token == pytest.approx(ms, rel=0.1)


def test_stalls_do_not_raise_it() -> None:
    """One step in a hundred takes 200 ms longer: it lengthens one difference and shortens the next."""
    costs = []
    for seed in range(8):
        cost = fresh()
        mixed(cost, np.random.default_rng(seed), 0.02, most=512, steps=300, stalls=0.01)
        costs.append(cost.ms_per_token)
    assert np.mean(costs) == pytest.approx(0.02, rel=0.05)


def test_where_the_prompts_tell_next_to_nothing_it_is_not_blown_up() -> None:
    """Free tokens, few at a time: noise must not add up to a cost of more than half a percent of a step for 16."""
    cost = fresh()
    mixed(cost, np.random.default_rng(0), 0.0, most=64, steps=1500)
    assert cost.ms_per_token * 16 < 0.005 * BASE_MS


def test_it_starts_from_the_tables_cost_of_one_more_token() -> None:
    """8 + 0.02 ms per token by construction; a flat table and no table have none."""
    assert fresh().ms_per_token == pytest.approx(0.02)
    assert fresh(GoodputTable.from_rows(rows_of({8: {0: 10.0, 3: 10.0}}))).ms_per_token == 0.0
    assert fresh(GoodputTable.from_rows(rows_of({8: {3: 10.0}}))).ms_per_token == 0.0
    assert fresh(None).ms_per_token == 0.0


def test_with_nothing_known_the_first_pair_sets_it() -> None:
    cost = fresh(None)
    cost.usable_ms(1, 32, 0, BASE_MS)
    cost.usable_ms(1, 32, 100, BASE_MS + 3.0)
    assert cost.ms_per_token == pytest.approx(0.03)


def test_a_flat_table_does_not_keep_it_at_nothing() -> None:
    cost = fresh(GoodputTable.from_rows(rows_of({8: {0: 10.0, 3: 10.0}})))
    mixed(cost, np.random.default_rng(0), 0.044, most=512, steps=300)
    assert cost.ms_per_token == pytest.approx(0.044, rel=0.1)


def test_mixed_steps_are_left_out_while_clean_ones_are_frequent() -> None:
    cost = fresh()
    for _ in range(50):
        assert cost.usable_ms(1, 32, 0, BASE_MS) == BASE_MS
        assert cost.usable_ms(1, 32, 300, BASE_MS + 6.0) is None


def test_where_clean_steps_are_rare_the_prompts_part_is_taken_off() -> None:
    cost, rng = fresh(), np.random.default_rng(1)
    mixed(cost, rng, 0.05, most=512, steps=400)
    rest = mixed(cost, rng, 0.05, most=512, steps=100)
    assert len(rest) == 100
    assert np.median(rest) == pytest.approx(BASE_MS, rel=0.05)


def test_a_step_that_was_nearly_all_prompt_says_nothing_of_the_arm() -> None:
    cost = fresh()
    mixed(cost, np.random.default_rng(0), 0.05, most=512, steps=400)
    assert cost.usable_ms(1, 32, 10_000, 505.0) is None


@pytest.mark.parametrize(("arm", "decodes", "tokens"), [(2, 32, 200), (1, 40, 200), (1, 32, 110)])
def test_only_neighbours_that_differ_in_prompt_tokens_alone_are_compared(arm: int, decodes: int, tokens: int) -> None:
    """Another arm, another batch, or hardly another number of tokens: nothing is learnt."""
    cost = fresh()
    cost.usable_ms(1, 32, 100, 20.0)
    cost.usable_ms(arm, decodes, tokens, 90.0)
    assert cost.ms_per_token == pytest.approx(0.02)


def test_it_survives_json_between_two_steps_of_a_pair() -> None:
    cost, other = fresh(), fresh(None)
    mixed(cost, np.random.default_rng(0), 0.05, most=512, steps=301)
    other.load(json.loads(json.dumps(cost.snapshot())))
    rests = [mixed(one, np.random.default_rng(7), 0.05, most=512, steps=50) for one in (cost, other)]
    assert len(rests[0]) > 0
    assert rests[0] == rests[1]
    assert other.ms_per_token == cost.ms_per_token


def test_prompts_that_are_all_alike_are_told_from_what_is_believed_of_the_arm() -> None:
    """No pair of steps differs in prompt tokens; 512 of them take 20 ms beside a decode step of 10 ms."""
    cost = PrefillCost(StepTimePrior(TABLE, (0, 1, 3)))
    assert not cost.alike(512)
    for _ in range(300):
        if cost.alike(512):
            cost.compare(512, 30.0, believed_ms=10.0)
        usable = cost.usable_ms(1, 8, 512, 30.0)
    assert cost.ms_per_token == pytest.approx(20.0 / 512, rel=0.1)
    assert usable == pytest.approx(10.0, rel=0.2)
    assert not cost.alike(256)
