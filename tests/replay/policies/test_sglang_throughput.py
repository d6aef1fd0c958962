"""SGLang's throughput-aware steps: windows, margin, ceiling lookup, what a step down forgets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptk.replay.policies.base import Setup
from adaptk.replay.policies.sglang_throughput import SglangThroughput
from adaptk.step import StepRecord
from adaptk.table import GoodputTable
from tests.strategies import rows_of, step_records

ARMS = (0, 1, 3)


def policy_of(itl: dict[int, dict[int, float]], arms: tuple[int, ...] = ARMS) -> SglangThroughput:
    startup = GoodputTable.from_rows(rows_of(itl))
    wrong = GoodputTable.from_rows(rows_of({1: {0: 1.0, 1: 100.0, 3: 1000.0}}))
    return SglangThroughput(Setup(table=wrong, startup=startup, arms=arms))


def feed(policy: SglangThroughput, accepted: list[int], steps: int, batch: int = 2) -> list[int]:
    """K per step; request i accepts up to ``accepted[i]`` of what the step itself drafts."""
    ks = []
    for _ in range(steps):
        k = policy.choose(batch)
        kept = [min(k, n) for n in accepted]
        policy.observe(StepRecord(batch_size=batch, elapsed_ms=None, k=k, drafted=[k] * len(kept), accepted=kept))
        ks.append(k)
    return ks


def test_windows_hold_twenty_batch_means_per_position() -> None:
    policy = policy_of({1: {0: 10.0, 1: 11.0, 3: 12.0}})
    feed(policy, [3, 1], 1)
    assert policy.rates() == [1.0, 0.5, 0.5]
    policy.observe(StepRecord(batch_size=3, elapsed_ms=None, k=3, drafted=[3, 1, 0], accepted=[0, 0, 0]))
    assert policy.rates() == [0.5, 0.25, 0.25]
    feed(policy, [3, 3], 20)
    assert policy.rates() == [1.0, 1.0, 1.0]


def test_nothing_moves_before_the_windows_are_full_then_at_a_fifth_batch() -> None:
    # One of three accepted: 2 / 20 at K=3, 2 / 12 at K=1.
    policy = policy_of({1: {0: 10.0, 1: 12.0, 3: 20.0}})
    assert feed(policy, [1, 1], 21) == [3] * 20 + [1]


def test_a_late_window_waits_for_the_next_fifth_batch() -> None:
    policy = policy_of({1: {0: 10.0, 1: 12.0, 3: 20.0}})
    policy.choose(2)  # its feedback never comes
    assert feed(policy, [1, 1], 25) == [3] * 24 + [1]


@pytest.mark.parametrize(("time", "k"), [(13.1, 3), (13.3, 1)])
def test_a_switch_needs_more_than_ten_percent(time: float, k: int) -> None:
    # K=1 scores 2 / 12 = 0.1667, K=3 scores 2 / time; 1.1 * 2 / 13.2 is the edge.
    assert feed(policy_of({1: {0: 30.0, 1: 12.0, 3: time}}), [1, 1], 21)[-1] == k


def test_a_step_down_empties_the_windows_above_and_so_leads_back_up() -> None:
    policy = policy_of({1: {0: 10.0, 1: 12.0, 3: 20.0}})
    feed(policy, [1, 1], 20)
    policy.choose(2)
    assert policy.steps == 1
    assert [len(window) for window in policy._windows] == [20, 0, 0]
    # What was known of positions 2 and 3 (nothing accepted) is gone: p_1 = 1 goes on as 1, 4 / 20 > 1.1 * 2 / 12.
    assert policy.rates() == [1.0, 1.0, 1.0]
    assert feed(policy, [1, 1], 5)[-1] == 3


def test_unseen_positions_follow_geometrically() -> None:
    policy = policy_of({1: {0: 10.0, 1: 12.0, 3: 20.0}}, arms=(0, 1, 2, 5))
    feed(policy, [2, 1, 0, 0], 20, batch=4)
    assert policy.steps == 2
    assert policy.rates() == pytest.approx([0.5, 0.25, 0.125, 0.0625, 0.03125])


def test_costs_are_those_of_the_next_profiled_batch_at_or_above() -> None:
    policy = policy_of({1: {0: 1.0, 1: 1.0, 3: 1.0}, 8: {0: 2.0, 1: 3.0, 3: 5.0}, 32: {0: 4.0, 1: 8.0, 3: 16.0}})
    eight, largest = [2.0, 3.0, 5.0], [4.0, 8.0, 16.0]
    assert [policy._cost(batch) for batch in (1, 2, 8, 9, 32, 500)] == [
        [1.0] * 3,
        eight,
        eight,
        largest,
        largest,
        largest,
    ]


def test_windows_are_shared_by_all_batch_sizes() -> None:
    # Learnt at batch 1, where drafts are free; at batch 8 the same rates say K=0 at the next decision.
    policy = policy_of({1: {0: 10.0, 1: 10.0, 3: 10.0}, 8: {0: 10.0, 1: 30.0, 3: 50.0}})
    assert set(feed(policy, [1], 20, batch=1)) == {3}
    assert feed(policy, [1] * 8, 1, batch=8) == [0]


def test_k0_keeps_the_first_window_and_another_batch_leads_back() -> None:
    policy = policy_of({1: {0: 10.0, 1: 10.0, 3: 11.0}, 8: {0: 10.0, 1: 30.0, 3: 50.0}})
    assert feed(policy, [1] * 8, 100, batch=8) == [3] * 20 + [0] * 80
    assert [len(window) for window in policy._windows] == [20, 0, 0]
    assert feed(policy, [1], 6, batch=1)[-1] == 3  # p_1 = 1 goes on as 1: 4 / 11


def test_late_drafts_above_the_running_steps_are_not_counted() -> None:
    policy = policy_of({1: {0: 10.0, 1: 12.0, 3: 20.0}})
    feed(policy, [1, 1], 20)
    assert policy.choose(2) == 1
    for _ in range(2):  # made under K=3
        policy.observe(StepRecord(batch_size=2, elapsed_ms=None, k=1, drafted=[3, 3], accepted=[3, 0]))
    assert [len(window) for window in policy._windows] == [20, 0, 0]
    assert policy.rates()[0] == pytest.approx(0.95)


@pytest.mark.parametrize(("arms", "start"), [((0, 1, 3, 7), 3), ((0, 1, 2), 2), ((0, 5), 5), ((4, 5), 4), ((0,), 0)])
def test_starts_with_drafts_where_there_are_any(arms: tuple[int, ...], start: int) -> None:
    assert policy_of({1: {0: 10.0, 1: 12.0, 3: 20.0}}, arms).choose(1) == start


@settings(max_examples=60)
@given(st.lists(step_records(), max_size=60), st.sampled_from([(0,), (0, 1, 3), (1, 4), (0, 2, 7)]))
def test_any_record_is_borne(records: list[StepRecord], arms: tuple[int, ...]) -> None:
    policy = policy_of({1: {0: 10.0, 1: 12.0, 3: 20.0}, 8: {0: 11.0, 1: 20.0}}, arms)
    feed(policy, [1], 19, batch=1)
    for record in records:
        assert policy.choose(record.batch_size, record.context_tokens, record.decodes) in arms
        policy.observe(record)
    assert all(0.0 <= rate <= 1.0 for rate in policy.rates())
