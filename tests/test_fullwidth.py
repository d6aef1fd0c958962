"""Rows of a table whose drafter leaves drafts out, read as if it left none."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.fullwidth import at_width, full_width
from adaptk.grid import between, interpolate
from adaptk.roofline import relative_cost

ARMS = (0, 1, 3, 7)


def widths_of(*supply: float) -> list[float]:
    """Drafts per request of K = 0, 1, 3, 7; the last share goes on."""
    held = [supply[min(j, len(supply) - 1)] for j in range(7)]
    return [sum(held[:k]) for k in ARMS]


def test_what_was_measured_is_met_at_its_width() -> None:
    """Points on a line, as of a compute-bound engine: within 4 % between the arms, where log time is linear."""
    widths = widths_of(0.5, 0.4, 0.3, 0.2)
    times = [10.0 * (1.0 + w) for w in widths]
    row = full_width(ARMS, ARMS, widths, times, 16)
    met = [interpolate(row, *between(ARMS, w)) for w in widths]
    assert np.exp(met) == pytest.approx(times, rel=0.04)
    assert math.exp(row[0]) == pytest.approx(10.0, rel=1e-3)
    assert math.exp(row[3]) == pytest.approx(80.0, rel=0.05)


def test_rows_with_all_their_drafts_stay_as_they_are() -> None:
    times = [10.0, 10.5, 14.0, 20.0]
    assert np.exp(full_width(ARMS, ARMS, [0.0, 1.0, 3.0, 7.0], times, 16)) == pytest.approx(times, rel=1e-9)


def test_beyond_the_last_width_it_goes_on_in_a_line_through_the_upper_half() -> None:
    """From 0.5 on 2 ms a draft; the first half draft cost nothing. What the roofline weighs is 1 in 50."""
    there = at_width(3.0, [0.0, 0.5, 1.25], [10.0, 10.0, 11.5], batch=8)
    assert there == pytest.approx(11.5 + 1.75 * 2.0, rel=0.01)


def test_a_drafter_that_finds_nothing_tells_nothing_of_the_cost_of_a_draft() -> None:
    """Noise of 5 % at widths that nearly coincide is not extrapolated: the roofline's cost per draft is."""
    guess = relative_cost(8, 1.0) / relative_cost(8, 0.0) - 1.0
    for widths in ([0.0, 0.0, 0.0, 0.0], [0.0, 1e-3, 2e-3, 3e-3]):
        for last in (10.0, 10.5):
            there = at_width(7.0, widths, [10.0, 10.0, 10.0, last], batch=8)
            assert there == pytest.approx(last * (1.0 + 7.0 * guess), rel=0.05)


def test_a_draft_costs_no_more_than_a_whole_step() -> None:
    assert at_width(7.0, [0.0, 0.5], [1.0, 1000.0], batch=1) <= 1000.0 * (1.0 + 6.5)


def test_without_an_arm_at_zero_the_first_one_is_taken_at_its_own_width() -> None:
    """Below the smallest arm a step is booked on it: what it takes with the drafts it really gets, not K=0's time."""
    (only,) = full_width((3,), (0, 3), [0.0, 1.2], [10.0, 13.0], batch=8)
    assert math.exp(only) == pytest.approx(13.0, rel=0.02)


def test_what_was_measured_beyond_the_last_arm_is_not_taken_for_it() -> None:
    row = full_width((0, 1), ARMS, widths_of(0.9), [10.0, 10.9, 12.7, 16.3], batch=8)
    assert np.exp(row) == pytest.approx([10.0, 11.0], rel=0.01)


@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=7).map(lambda shares: sorted(shares, reverse=True)),
    st.lists(st.floats(1e-6, 1e9), min_size=4, max_size=4),
    st.integers(1, 4096),
)
def test_whatever_was_measured_more_drafts_take_no_less(shares: list[float], times: list[float], batch: int) -> None:
    """Finite, never falling in K, and between the extremes by no more than a step per draft."""
    row = full_width(ARMS, ARMS, widths_of(*shares), times, batch)
    assert np.all(np.isfinite(row))
    assert row == sorted(row)
