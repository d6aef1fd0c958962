from __future__ import annotations

import math

import pytest

from adaptk.replay.policies.credit import Credit, Played, batch_bin, bin_middle, step_ms
from adaptk.step import StepRecord
from tests.replay.policies.small_engine import step


def test_a_step_is_the_last_choices_and_not_its_own() -> None:
    """Choices 3, 3, 0, 0: the first step has no drafts, the third mixes two K."""
    credit = Credit((0, 1, 3))
    assert credit.read(step(0, made=3)) is None
    assert credit.read(step(3, made=3, accepted=2, batch=2)) == Played(3, 2, 10.0, 6, 3.0, True)
    assert credit.read(step(3, made=0, accepted=1, batch=2)) == Played(3, 2, 10.0, 4, 2.0, False)
    assert credit.read(step(0, made=0, batch=2)) == Played(0, 2, 10.0, 2, 1.0, True)


def test_fewer_drafts_than_asked_for_are_the_arms_own() -> None:
    credit = Credit((0, 1, 3))
    credit.read(step(0, made=3))
    played = credit.read(StepRecord(batch_size=3, elapsed_ms=8.0, k=3, drafted=[2, 1, 0], accepted=[2, 0, 0]))
    assert played == Played(3, 3, 8.0, 5, 2.0, True)  # two of three requests speculated


def test_more_drafts_than_asked_for_are_an_arm_that_asks_for_so_many() -> None:
    credit = Credit((0, 1, 3))
    credit.read(step(0, made=1))
    played = credit.read(step(2, made=1))
    assert played is not None
    assert (played.arm, played.clean) == (3, False)
    beyond = credit.read(step(9, made=1))
    assert beyond is not None
    assert beyond.arm == 3


def test_an_engine_that_drafts_for_the_last_choice_never_mixes() -> None:
    credit = Credit((0, 1, 3))
    credit.read(step(0, made=3))
    played = credit.read(step(3, made=0, draft_k=3))
    assert played is not None
    assert played.clean


@pytest.mark.parametrize(
    "record",
    [
        step(0, batch=0),
        step(0, batch=2, decodes=0, prefill_tokens=64),
        step(0, ms=None),
        step(0, ms=math.nan),
        step(0, ms=math.inf),
        step(0, ms=-1.0),
        step(0, ms=1e-300),
    ],
)
def test_a_step_without_requests_or_time_is_nobodys(record: StepRecord) -> None:
    credit = Credit((0, 1))
    credit.read(step(0))
    assert credit.read(record) is None
    assert credit.read(step(0)) == Played(0, 1, 10.0, 1, 1.0, True)


def test_a_step_without_drafts_is_nobodys_where_0_is_no_arm() -> None:
    credit = Credit((1, 3))
    credit.read(step(0, made=0))
    assert credit.read(step(0, made=0)) is None


def test_only_tokens_that_counted_count() -> None:
    credit = Credit((0, 3))
    credit.read(step(0, made=3))
    record = StepRecord(batch_size=3, elapsed_ms=8.0, k=3, drafted=[3] * 3, accepted=[3] * 3, emitted=[4, 1, 4])
    played = credit.read(record)
    assert played is not None
    assert (played.tokens, played.length) == (9, 4.0)


def test_prefills_do_not_count_as_decoding() -> None:
    credit = Credit((0, 3))
    credit.read(step(0))
    played = credit.read(step(0, batch=5, decodes=3, prefill_tokens=99))
    assert played is not None
    assert (played.batch, played.tokens) == (3, 3)


def test_the_devices_time_is_preferred_where_it_is_one() -> None:
    def record(device_ms: float) -> StepRecord:
        return StepRecord(batch_size=1, elapsed_ms=9.0, device_ms=device_ms, k=0, drafted=[0], accepted=[0])

    assert step_ms(record(7.0)) == 7.0
    assert step_ms(record(math.nan)) == 9.0


def test_bins_hold_what_their_middle_says() -> None:
    for batch in range(1, 600):
        index = batch_bin(batch)
        low, high = ((1 << index) // 2 + 1, 1 << index) if index else (1, 1)
        assert low <= batch <= high
        assert bin_middle(index) == (low + high) / 2
    assert batch_bin(0) == 0
