"""TurboSpec's acceptance, its scan, its hold, its fitted step time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptk.replay.casechecks import public_table
from adaptk.replay.policies.base import Setup
from adaptk.replay.policies.turbospec import Polynomial, TurboSpec
from adaptk.step import StepRecord
from adaptk.table import GoodputTable
from tests.strategies import step_records

ARMS = (0, 1, 3)


class Times:
    """Step times of three arms in place of the polynomial, milliseconds."""

    def __init__(self, *times: float) -> None:
        self._times = dict(zip(ARMS, times, strict=True))

    def at(self, batch: int, k: int, context: float | None) -> float:
        return self._times[k]


def policy_with(*times: float, live: bool = False) -> TurboSpec:
    policy = TurboSpec(Setup(table=None, startup=public_table(), arms=ARMS), live)
    policy._latency = Times(*times)  # type: ignore[assignment]
    return policy


def step(drafted: list[int], accepted: list[int], elapsed: float | None = 10.0, **fields: object) -> StepRecord:
    k = max(drafted, default=0)
    given_fields = {"batch_size": len(drafted), "k": k, **fields}
    return StepRecord(elapsed_ms=elapsed, drafted=drafted, accepted=accepted, **given_fields)  # type: ignore[arg-type]


def test_acceptance_is_moved_by_accepted_over_drafted_of_the_batch() -> None:
    policy = policy_with(10.0, 11.0, 13.0)
    policy.observe(step([3, 3, 1, 3], [2, 0, 0, 0]))
    assert policy.acceptance == pytest.approx(0.85 * 0.7 + 0.15 * 0.2)
    policy.observe(step([0, 0], [0, 0]))
    assert policy.acceptance == pytest.approx(0.625)


def test_the_scan_stops_at_the_first_decrease() -> None:
    # At a = 0.7: 1.1 / 10, 1.7 / 25, 2.533 / 10. K=3 would be best by far and is not looked at.
    policy = policy_with(10.0, 25.0, 10.0)
    assert policy.goodput(8, 3, None) > 2 * policy.goodput(8, 0, None)
    assert policy.choose(8) == 0
    # Rising throughout: 0.11, 1.7 / 12, 2.533 / 14.
    assert policy_with(10.0, 12.0, 14.0).choose(8) == 3


@pytest.mark.parametrize(("time", "k"), [(16.0, 0), (15.0, 1)])
def test_speculation_must_win_by_ten_percent(time: float, k: int) -> None:
    # 1.7 / 16 = 0.106 beats 1 / 10 but not 1.1 / 10; 1.7 / 15 = 0.113 beats both.
    assert policy_with(10.0, time, 100.0).choose(8) == k


def test_the_choice_is_held_for_twenty_steps_whatever_comes() -> None:
    policy = policy_with(10.0, 11.0, 12.0)
    ks = []
    for batch in range(1, 42):
        ks.append(policy.choose(batch))
        policy.observe(step([3], [0]))
    assert ks == [3] * 20 + [0] * 21  # a is 0.7 * 0.85**20 = 0.03 at the second scan


def test_nothing_leads_back_from_k0_where_nothing_is_drafted() -> None:
    policy = policy_with(10.0, 16.0, 30.0)
    ks = []
    for _ in range(100):
        ks.append(policy.choose(8))
        policy.observe(step([0] * 8, [0] * 8))
    assert set(ks) == {0}
    assert policy.acceptance == 0.7


def test_goodput_bears_an_acceptance_of_one() -> None:
    policy = policy_with(10.0, 10.0, 10.0)
    policy.acceptance = 1.0
    assert policy.goodput(2, 3, None) == pytest.approx(2 * 4 / 10)


def test_late_feedback_counts_when_it_comes() -> None:
    policy = policy_with(10.0, 11.0, 12.0)
    waiting: list[StepRecord] = []
    for _ in range(20):
        policy.choose(1)
        waiting.append(step([3], [0]))
        if len(waiting) > 2:
            policy.observe(waiting.pop(0))
    assert policy.acceptance == pytest.approx(0.7 * 0.85**18)


def test_the_polynomial_finds_a_step_time_of_degree_two() -> None:
    def truth(b: int, k: int, c: float) -> float:
        return 5.0 + 0.03 * b + 0.02 * b * (k + 1) + 2e-6 * b * c + 1e-5 * (b * (k + 1)) ** 2 + 1e-9 * b * b * c

    rows = [
        {"batch": b, "k": k, "context": c, "itl_ms": truth(b, k, c)}
        for b in (1, 8, 64, 256)
        for k in ARMS
        for c in (256.0, 2048.0, 8192.0)
    ]
    fit = Polynomial(GoodputTable.from_rows(rows))
    assert fit.at(100, 3, 4000.0) == pytest.approx(truth(100, 3, 4000.0), rel=1e-6)
    assert fit.at(100, 3, 50_000.0) == fit.at(100, 3, 8192.0)
    assert fit.at(100, 3, None) == fit.at(100, 3, 2048.0)


def test_drafts_have_a_price_of_their_own() -> None:
    """At batch 1, where more tokens to verify cost next to nothing, the public profile is met within 1.5 %."""
    table = public_table()
    fit = Polynomial(table)
    errors = [fit.at(1, k, None) / (table.itl_ms(1, k) or 0.0) - 1.0 for k in (0, 5)]
    assert errors == pytest.approx([0.0, 0.0], abs=0.015)


def test_no_step_is_quicker_than_the_quickest_row() -> None:
    rows = [{"batch": b, "k": 0, "itl_ms": t} for b, t in ((1, 30.0), (2, 20.0), (3, 10.0))]
    assert Polynomial(GoodputTable.from_rows(rows)).at(5, 0, None) == 10.0


def test_one_row_is_enough_for_an_answer() -> None:
    rows = [{"batch": 4, "k": 1, "itl_ms": 7.0}]
    assert Polynomial(GoodputTable.from_rows(rows)).at(4, 1, None) == pytest.approx(7.0)


def test_live_latency_takes_half_of_each_visit() -> None:
    policy = policy_with(10.0, 12.0, 14.0, live=True)
    policy.observe(step([1, 1], [0, 0], elapsed=20.0))
    assert policy.step_ms(2, 1, None) == pytest.approx(16.0)
    policy.observe(step([1, 1], [0, 0], elapsed=99.0, device_ms=20.0))
    assert policy.step_ms(2, 1, None) == pytest.approx(18.0)
    assert [policy.step_ms(3, 1, None), policy.step_ms(2, 3, None)] == [12.0, 14.0]


@pytest.mark.parametrize(
    "record",
    [
        step([1, 1], [0, 0], elapsed=None),
        step([1, 1], [0, 0], elapsed=math.nan),
        step([1, 1], [0, 0], elapsed=0.0),
        step([1, 1], [0, 0], elapsed=99.0, k=3),
        step([1, 1], [0, 0], elapsed=99.0, k=1, draft_k=0),
        step([1, 1], [0, 0], elapsed=99.0, prefill_tokens=64),
        step([], [], elapsed=99.0, k=0),
    ],
)
def test_live_latency_skips_steps_that_say_nothing_of_one_k(record: StepRecord) -> None:
    policy = policy_with(10.0, 12.0, 14.0, live=True)
    policy.observe(record)
    assert [policy.step_ms(2, k, None) for k in ARMS] == [10.0, 12.0, 14.0]


def test_latency_stays_frozen_unless_asked_for() -> None:
    policy = policy_with(10.0, 12.0, 14.0)
    policy.observe(step([1, 1], [0, 0], elapsed=99.0))
    assert policy.step_ms(2, 1, None) == 12.0


@settings(max_examples=60)
@given(st.lists(step_records(), max_size=50), st.booleans())
def test_any_record_is_borne(records: list[StepRecord], live: bool) -> None:
    policy = TurboSpec(Setup(table=None, startup=public_table(), arms=ARMS), live)
    for record in records:
        assert policy.choose(record.batch_size, record.context_tokens, record.decodes) in ARMS
        policy.observe(record)
    assert 0.0 <= policy.acceptance <= 1.0
