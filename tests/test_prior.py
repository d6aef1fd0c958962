from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adaptk.acceptance import AcceptancePosterior
from adaptk.prior import StepTimePrior
from adaptk.table import GoodputTable
from tests.strategies import rows_of, schedules

arm_sets = st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True).map(sorted)
acceptances = st.none() | st.lists(st.floats(0.1, 0.95), min_size=1, max_size=4)


def best_arm(prior: StepTimePrior, batch: int) -> int:
    """The arm with the highest goodput at the start, when nothing was observed yet."""
    assert prior.table is not None
    lengths = AcceptancePosterior(prior.arms[-1], prior.table.acceptance).lengths(prior.arms)
    return prior.arms[int(np.argmax(np.log(lengths) - prior.row(batch, None)))]


def test_with_times_it_is_the_logarithm_of_the_table() -> None:
    table = GoodputTable.from_rows(rows_of({1: {0: 5.0, 3: 8.0}, 64: {0: 9.0, 3: 20.0}}))
    prior = StepTimePrior(table, (0, 1, 3))
    assert prior.row(64, None) == pytest.approx([math.log(ms) for ms in (9.0, 9.0 + 11.0 / 3.0, 20.0)])
    assert prior.known(3)
    assert not prior.known(1)


@settings(max_examples=60)
@given(schedules(), arm_sets, acceptances)
def test_the_schedule_is_best_at_the_start(
    schedule: list[list[int]], others: list[int], acceptance: list[float] | None
) -> None:
    """Whatever acceptance the table brings; at the edges of each tier and in its middle."""
    arms = sorted({*others, *(k for _, _, k in schedule)})
    prior = StepTimePrior(GoodputTable.from_schedule(schedule, acceptance), arms)
    for first, last, k in schedule:
        for batch in (first, (first + last) // 2, last):
            assert best_arm(prior, batch) == k


@settings(max_examples=60)
@given(schedules(), arm_sets)
def test_a_k_that_is_no_arm_is_moved_to_the_nearest(schedule: list[list[int]], arms: list[int]) -> None:
    assume(len(arms) > 1)
    prior = StepTimePrior(GoodputTable.from_schedule(schedule), arms)
    for first, _, k in schedule:
        assert abs(best_arm(prior, first) - k) == min(abs(arm - k) for arm in arms)


def test_between_tiers_of_neighbouring_arms_the_step_time_has_no_cliff() -> None:
    """At the edge every arm changes by no more than 2 %; from K=3 straight to K=0 it must change by more."""
    neighbours = GoodputTable.from_schedule([[1, 64, 3], [65, 128, 1], [129, 512, 0]])
    prior = StepTimePrior(neighbours, (0, 1, 3))
    for batch in (64, 128):
        assert np.abs(np.subtract(prior.row(batch + 1, None), prior.row(batch, None))).max() < 0.02
    far = StepTimePrior(GoodputTable.from_schedule([[1, 64, 3], [65, 512, 0]]), (0, 1, 3))
    assert np.abs(np.subtract(far.row(65, None), far.row(64, None))).max() > 0.1


def test_inside_a_tier_the_step_time_has_no_cliff() -> None:
    prior = StepTimePrior(GoodputTable.from_schedule([[1, 64, 3], [65, 128, 1], [129, 512, 0]]), (0, 1, 3))
    steps = [np.subtract(b, a) for a, b in pairwise(prior.row(n, None) for n in range(32, 513))]
    assert np.abs(steps).max() < 0.02


def test_neighbouring_ranges_of_one_k_are_one_tier() -> None:
    parts = StepTimePrior(GoodputTable.from_schedule([[1, 10, 3], [11, 20, 3], [21, 40, 1]]), (0, 1, 3))
    whole = StepTimePrior(GoodputTable.from_schedule([[1, 20, 3], [21, 40, 1]]), (0, 1, 3))
    for batch in (1, 10, 11, 20, 21, 40, 100):
        assert parts.row(batch, None) == whole.row(batch, None)


def test_a_context_matters_only_where_the_table_has_contexts() -> None:
    rows = rows_of({8: {0: 10.0, 3: 12.0}}, context=100) + rows_of({8: {0: 20.0, 3: 24.0}}, context=10_000)
    with_contexts = StepTimePrior(GoodputTable.from_rows(rows), (0, 3))
    assert with_contexts.row(8, 100_000.0) == pytest.approx([math.log(20.0), math.log(24.0)])
    assert with_contexts.row(8, 50.0) == pytest.approx([math.log(10.0), math.log(12.0)])
    without = StepTimePrior(GoodputTable.from_rows(rows_of({8: {0: 10.0, 3: 12.0}})), (0, 3))
    assert without.row(8, 100_000.0) == without.row(8, None)


def test_contexts_are_answered_to_within_the_step_of_their_buckets() -> None:
    rows = rows_of({8: {0: 10.0}}, context=0) + rows_of({8: {0: 110.0}}, context=10_000)
    prior = StepTimePrior(GoodputTable.from_rows(rows), (0,))
    for context in (100.0, 1_000.0, 5_000.0):
        assert math.exp(prior.row(8, context)[0]) == pytest.approx(10.0 + context / 100.0, rel=0.07)


def test_without_a_table_more_drafts_take_longer() -> None:
    prior = StepTimePrior(None, (0, 1, 3))
    assert not prior.timed
    assert prior.row(64, None) == sorted(prior.row(64, None))


class TestCaptureSizes:
    """Captured for 8, 16, 64 and 256 tokens; step times linear in batch: 10 + 0.1 B (K + 1) ms."""

    SIZES = (8, 16, 64, 256)

    def row(self, batch: int, arms: tuple[int, ...] = (0, 1, 3), staircase: bool = False) -> list[float]:
        grid = {b: {k: 10.0 + 0.1 * b * (k + 1) for k in arms} for b in (1, 10, 512)}
        table = GoodputTable.from_rows(rows_of(grid), meta={"staircase": staircase})
        return [math.exp(t) for t in StepTimePrior(table, arms, self.SIZES).row(batch, None)]

    @pytest.mark.parametrize(
        ("batch", "tokens"),
        [(8, (8, 16, 64)), (9, (16, 64, 64)), (16, (16, 64, 64)), (17, (64, 64, 256)), (64, (64, 256, 256))],
    )
    def test_the_table_is_read_at_the_padded_size(self, batch: int, tokens: tuple[int, ...]) -> None:
        assert self.row(batch) == pytest.approx([10.0 + 0.1 * n for n in tokens])

    def test_also_where_it_is_no_whole_number_of_requests(self) -> None:
        """K=2 at 20 requests: 60 tokens, padded to 64."""
        assert self.row(20, arms=(0, 2))[1] == pytest.approx(10.0 + 0.1 * 64)

    def test_beyond_the_largest_size_nothing_is_padded(self) -> None:
        assert self.row(65) == pytest.approx([10.0 + 0.1 * 256, 10.0 + 0.1 * 256, 10.0 + 0.1 * 260])
        assert self.row(300) == pytest.approx([10.0 + 0.1 * 300 * (k + 1) for k in (0, 1, 3)])

    def test_a_table_that_is_a_staircase_already_knows(self) -> None:
        """It is answered at its own next step, batch 10; the padded size, 16 requests, would be on the one behind."""
        assert self.row(9, staircase=True) == pytest.approx([10.0 + 0.1 * 10 * (k + 1) for k in (0, 1, 3)])

    def test_without_a_table_the_roofline_is_read_at_the_padded_size(self) -> None:
        padded, plain = StepTimePrior(None, (0, 3), self.SIZES), StepTimePrior(None, (0, 3))
        assert padded.row(17, None)[0] == plain.row(64, None)[0]
        assert padded.row(17, None)[1] == plain.row(64, None)[1]


@pytest.mark.parametrize(("batch", "stair"), [(1, 0), (8, 0), (9, 1), (64, 1), (65, 2), (1000, 2)])
def test_a_stair_is_a_step_of_a_table_that_is_a_staircase(batch: int, stair: int) -> None:
    rows = rows_of({8: {0: 10.0}, 64: {0: 12.0}})
    assert StepTimePrior(GoodputTable.from_rows(rows, meta={"staircase": True}), (0,)).stair(batch) == stair
    assert StepTimePrior(GoodputTable.from_rows(rows), (0,)).stair(batch) == 0
