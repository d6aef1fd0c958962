"""The manager of pull request 38038: its warm-up, its counts, and its ratchet."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptk.replay.casechecks import public_table
from adaptk.replay.policies.base import Setup
from adaptk.replay.policies.manager import AcceptanceManager, extended
from adaptk.step import StepRecord
from adaptk.table import GoodputTable
from tests.strategies import rows_of, step_records

ARMS = (0, 1, 3)
# K=3 is worth its time from AL(3) / AL(1) above 13 / 11, K=1 from AL(1) above 11 / 10.
CHEAP = GoodputTable.from_rows(rows_of({1: {0: 10.0, 1: 11.0, 3: 13.0}}), acceptance=[0.8])


def setup_of(table: GoodputTable, arms: tuple[int, ...] = ARMS) -> Setup:
    return Setup(table=table, startup=public_table(), arms=arms)


def step(drafted: list[int], accepted: list[int]) -> StepRecord:
    return StepRecord(
        batch_size=len(drafted), elapsed_ms=9.0, k=max(drafted, default=0), drafted=drafted, accepted=accepted
    )


def drive(policy: AcceptanceManager, steps: int, accept: int, batch: int = 2) -> list[int]:
    """K per step where each request accepts up to ``accept`` of the drafts decided the step before."""
    ks = [policy.choose(batch)]
    for _ in range(steps):
        policy.observe(step([ks[-1]] * batch, [min(ks[-1], accept)] * batch))
        ks.append(policy.choose(batch))
    return ks[:steps]


def test_the_tables_acceptance_decides_for_a_hundred_steps() -> None:
    ks = drive(AcceptanceManager(setup_of(CHEAP)), 120, accept=0)
    assert ks == [3] * 100 + [0] * 20


def test_rates_are_accepted_over_drafted_per_position_not_given_earlier_ones() -> None:
    policy = AcceptanceManager(setup_of(CHEAP))
    policy.observe(step([3, 3, 1, 0], [3, 1, 0, 0]))
    policy.observe(step([3], [2]))
    assert policy.rates == pytest.approx([3 / 4, 2 / 3, 1 / 3])


def test_goodput_is_maximised_over_times_linear_in_batch() -> None:
    table = GoodputTable.from_rows(rows_of({1: {0: 10.0, 1: 12.0}, 3: {0: 20.0, 1: 40.0}}))
    policy = AcceptanceManager(setup_of(table, (0, 1)))
    for _ in range(100):
        policy.observe(step([1] * 5, [1, 1, 1, 0, 0]))
    # 1.6 / 12 > 1 / 10; at batch 2 the times are 15 and 26, 1.6 / 26 < 1 / 15.
    assert [policy.choose(1), policy.choose(2), policy.choose(3)] == [1, 0, 0]


def test_a_position_never_drafted_keeps_k_down_for_good() -> None:
    """The ratchet: a bad table starts K at 1, all drafts are accepted, and K=3 is never tried."""
    table = GoodputTable.from_rows(rows_of({1: {0: 10.0, 1: 11.0, 3: 13.0}}), acceptance=[0.8, 0.01])
    policy = AcceptanceManager(setup_of(table))
    assert set(drive(policy, 1000, accept=3)) == {1}
    assert policy.rates == [1.0, 0.0, 0.0]


def test_k0_is_never_left() -> None:
    policy = AcceptanceManager(setup_of(CHEAP))
    drive(policy, 150, accept=0)
    assert set(drive(policy, 1000, accept=3)) == {0}


def test_extrapolation_opens_the_ratchet() -> None:
    table = GoodputTable.from_rows(rows_of({1: {0: 10.0, 1: 11.0, 3: 13.0}}), acceptance=[0.8, 0.01])
    ks = drive(AcceptanceManager(setup_of(table), extrapolate=True), 200, accept=3)
    assert ks == [1] * 100 + [3] * 100


def test_extrapolation_keeps_the_tables_acceptance_until_a_draft_was_seen() -> None:
    policy = AcceptanceManager(setup_of(CHEAP), extrapolate=True)
    for _ in range(150):
        policy.observe(step([0, 0], [0, 0]))
    assert policy.choose(2) == 3


@pytest.mark.parametrize(("forget", "rate"), [(False, 0.5), (True, 0.99**100 / (1 + 0.99**100))])
def test_history_is_kept_or_fades(forget: bool, rate: float) -> None:
    """100 steps of all accepted, then 100 of none: one half, or with q = 0.99**100 that is q / (1 + q)."""
    policy = AcceptanceManager(setup_of(CHEAP), forget=forget)
    for accepted in [1] * 100 + [0] * 100:
        policy.observe(step([1], [accepted]))
    assert policy.rates[0] == pytest.approx(rate)


def test_a_faded_count_leaves_the_rate_as_it_was() -> None:
    policy = AcceptanceManager(setup_of(CHEAP), forget=True)
    policy.observe(step([3, 3], [3, 0]))
    for _ in range(2000):
        policy.observe(step([1], [1]))
    assert policy.rates == pytest.approx([1.0, 0.5, 0.5], abs=1e-6)


def test_late_feedback_changes_no_count() -> None:
    policy = AcceptanceManager(setup_of(CHEAP))
    waiting: list[StepRecord] = []
    for i in range(102):
        policy.choose(2)
        waiting.append(step([3, 1], [i % 4, 0]))
        if len(waiting) > 2:
            policy.observe(waiting.pop(0))
    assert policy.rates == pytest.approx([75 / 200, 50 / 100, 25 / 100])


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([0.8, 0.4, 0.2], [0.8, 0.4, 0.2, 0.1, 0.05]),
        ([0.9, 0.1, 0.4, 0.9], [0.9, 0.1, 0.4, 0.9, 0.9]),
        ([0.2, 0.6], [0.2, 0.6, 0.6, 0.6, 0.6]),
        ([0.0, 0.0], [0.0] * 5),
        ([0.0, 0.5], [0.0, 0.5, 0.0, 0.0, 0.0]),
        ([], [0.0] * 5),
    ],
)
def test_extension_by_the_mean_ratio(rates: list[float], expected: list[float]) -> None:
    assert extended(rates, 5) == pytest.approx(expected)


@settings(max_examples=40)
@given(st.lists(step_records(), max_size=30), st.booleans(), st.booleans())
def test_any_record_is_borne(records: list[StepRecord], forget: bool, extrapolate: bool) -> None:
    policy = AcceptanceManager(setup_of(CHEAP), forget, extrapolate)
    for _ in range(90):
        policy.observe(step([1], [1]))
    for record in records:
        assert policy.choose(record.batch_size, record.context_tokens, record.decodes) in ARMS
        policy.observe(record)
    assert all(0.0 <= rate <= 1.0 for rate in policy.rates)
