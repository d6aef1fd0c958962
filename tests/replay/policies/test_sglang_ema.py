"""SGLang's ladder: its slots, its thresholds, its flips."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptk.replay.casechecks import public_table
from adaptk.replay.policies.base import Setup
from adaptk.replay.policies.sglang_ema import SLOTS, SglangEma, Slot
from adaptk.step import StepRecord
from tests.strategies import step_records


def policy_of(arms: tuple[int, ...] = (0, 1, 3, 5, 7)) -> SglangEma:
    return SglangEma(Setup(table=None, startup=public_table(), arms=arms))


def feed(policy: SglangEma, batch: int, accepted: int, steps: int) -> int:
    """Steps in which each request accepts ``accepted`` of what its slot drafts; the K after them."""
    for _ in range(steps):
        k = policy.choose(batch)
        drafted, kept = [k] * batch, [min(k, accepted)] * batch
        policy.observe(StepRecord(batch_size=batch, elapsed_ms=None, k=k, drafted=drafted, accepted=kept))
    return policy.choose(batch)


def test_a_batch_belongs_to_the_slot_of_its_padded_size() -> None:
    policy = policy_of()
    keys = {
        batch: next(key for key, slot in policy.slots.items() if slot is policy.slot(batch)) for batch in range(300)
    }
    assert [keys[batch] for batch in (0, 1, 7, 8, 30, 31, 32, 56, 57, 64, 299)] == [
        1,
        1,
        1,
        8,
        8,
        32,
        32,
        32,
        64,
        64,
        64,
    ]


def test_slots_start_at_three_or_below_with_an_average_one_less() -> None:
    assert [(slot.steps, slot.average) for slot in policy_of().slots.values()] == [(3, 2), (3, 2), (1, 0), (0, -1)]


def test_the_average_moves_by_a_fifth_of_the_batchs_mean() -> None:
    policy = policy_of()
    policy.observe(StepRecord(batch_size=4, elapsed_ms=None, k=3, drafted=[3, 3, 0, 3], accepted=[3, 2, 0, 1]))
    assert policy.slots[1].average == pytest.approx(0.8 * 2 + 0.2 * 2)
    policy.observe(StepRecord(batch_size=2, elapsed_ms=None, k=3, drafted=[3, 3], accepted=[0, 1]))
    assert policy.slots[1].average == pytest.approx(0.8 * 2 + 0.2 * 0.5)


def test_the_first_decision_is_at_batch_15_then_each_fifth() -> None:
    policy = policy_of()
    ks = [feed(policy, 1, 7, 1) for _ in range(25)]
    # All accepted: e = 3 - 0.8**15 = 2.96 > 2.5 at batch 15, 5 - 2.04 * 0.8**5 = 4.33 < 4.5 at 20, 4.78 at 25.
    assert ks == [3] * 14 + [5] * 10 + [7]


def test_the_ladder_flips_between_3_and_5_where_users_saw_it_flip() -> None:
    """A single request whose accepted drafts swing about 2.0: the average crosses both thresholds at each decision.

    With c = 0.8**5 and five batches of 3 then five of 1, the average swings between 1.49 and (3 - 2c - c²) / (1 - c²)
    = 2.506, above 2.5 (up from 3) and below 2.25 (down from 5).
    """
    policy = policy_of()
    feed(policy, 1, 3, 15)
    ks = [feed(policy, 1, accepted, 5) for accepted in [1, 3] * 20]
    assert ks == [3, 5] * 20
    assert 2.506 < policy.slots[1].average < 2.507


@pytest.mark.parametrize(
    ("steps", "average", "after"),
    [
        (5, 2.26, 5),
        (5, 2.25, 3),  # 3 - 0.5 - 0.25
        (7, 0.25, 1),  # all the way at once
        (3, 0.26, 3),
        (3, 2.5, 3),
        (3, 2.51, 5),
        (1, 4.6, 7),  # up all the way, too
        (7, 7.0, 7),
        (1, 0.0, 1),
    ],
)
def test_thresholds_of_slot_1(steps: int, average: float, after: int) -> None:
    assert decide(policy_of().slots[1], steps, average) == after


@pytest.mark.parametrize(
    ("steps", "average", "after"),
    [(3, 0.51, 3), (3, 0.5, 0), (1, 0.5, 0), (1, 0.51, 3), (0, 3.0, 1)],  # K=1 is never kept
)
def test_thresholds_of_slot_8(steps: int, average: float, after: int) -> None:
    assert decide(policy_of().slots[8], steps, average) == after


def decide(slot: Slot, steps: int, average: float) -> int:
    """The steps after one decision, nothing drafted meanwhile."""
    slot._at = slot.candidates.index(steps)
    slot.average = average
    for _ in range(15):
        slot.update(None)
    return slot.steps


def test_off_is_probed_every_five_batches_for_five_batches() -> None:
    policy = policy_of()
    assert feed(policy, 32, 0, 15) == 0
    ks, probing = [], []
    for _ in range(20):
        ks.append(policy.choose(32))
        probing.append(policy.exploring)
        feed(policy, 32, 0, 1)
    assert ks == ([0] * 5 + [1] * 5) * 2
    assert probing == [k == 1 for k in ks]


def test_a_probe_that_pays_stays() -> None:
    policy = policy_of()
    feed(policy, 32, 0, 15)
    assert feed(policy, 32, 1, 10) == 1  # e = 1 - 0.8**5 = 0.67 > 0.5
    assert not policy.exploring


def test_slots_do_not_share_what_they_saw() -> None:
    policy = policy_of()
    feed(policy, 32, 0, 15)
    assert [policy.choose(batch) for batch in (1, 8, 64)] == [3, 3, 0]


def test_drafts_in_flight_count_in_the_average_but_not_at_zero_steps() -> None:
    policy = policy_of()
    late = StepRecord(batch_size=1, elapsed_ms=None, k=5, drafted=[3], accepted=[0])
    feed(policy, 1, 3, 15)
    before = policy.slots[1].average
    policy.observe(late)
    assert policy.choose(1) == 5
    assert policy.slots[1].average == pytest.approx(0.8 * before)
    feed(policy, 32, 0, 15)
    before = policy.slots[32].average
    policy.observe(StepRecord(batch_size=32, elapsed_ms=None, k=0, drafted=[1] * 32, accepted=[1] * 32))
    assert policy.slots[32].average == before


def test_late_feedback_delays_the_move_by_its_lateness() -> None:
    policy = policy_of()
    waiting: list[StepRecord] = []
    ks = []
    for _ in range(20):
        k = policy.choose(1)
        ks.append(k)
        waiting.append(StepRecord(batch_size=1, elapsed_ms=None, k=k, drafted=[k], accepted=[k]))
        if len(waiting) > 2:
            policy.observe(waiting.pop(0))
    assert ks == [3] * 17 + [5] * 3


def test_prompts_by_themselves_do_not_count() -> None:
    policy = policy_of()
    for _ in range(17):
        policy.observe(StepRecord(batch_size=32, elapsed_ms=1.0, k=0, drafted=[0] * 32, accepted=[0] * 32, decodes=0))
        policy.observe(StepRecord(batch_size=0, elapsed_ms=1.0, k=0, drafted=[], accepted=[]))
    assert [slot.steps for slot in policy.slots.values()] == [3, 3, 1, 0]


def test_decodes_choose_the_slot() -> None:
    policy = policy_of()
    assert [policy.choose(64, decodes=60), policy.choose(64, decodes=31), policy.choose(64, decodes=8)] == [0, 1, 3]


@pytest.mark.parametrize(
    ("arms", "candidates"),
    [
        ((0, 1, 3, 5, 7), [[1, 3, 5, 7], [0, 1, 3], [0, 1], [0]]),
        ((0, 1, 3, 5), [[1, 3, 5], [0, 1, 3], [0, 1], [0]]),
        ((0, 1, 2), [[1], [0, 1], [0, 1], [0]]),
        ((0, 2, 4), [[0, 2], [0, 2], [0], [0]]),
        ((1, 3), [[1, 3], [1, 3], [1], [1]]),
        ((0,), [[0], [0], [0], [0]]),
    ],
)
def test_candidates_are_cut_to_the_arms(arms: tuple[int, ...], candidates: list[list[int]]) -> None:
    assert [list(slot.candidates) for slot in policy_of(arms).slots.values()] == candidates


@settings(max_examples=60)
@given(st.lists(step_records(), max_size=60), st.sampled_from([(0,), (0, 1, 3), (1, 4), (0, 2, 7)]))
def test_any_record_is_borne(records: list[StepRecord], arms: tuple[int, ...]) -> None:
    policy = policy_of(arms)
    for record in records:
        assert policy.choose(record.batch_size, record.context_tokens, record.decodes) in arms
        policy.observe(record)
    assert set(policy.slots) == set(SLOTS)
