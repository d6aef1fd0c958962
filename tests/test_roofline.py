from __future__ import annotations

from itertools import accumulate
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.roofline import relative_cost, schedule_slope, slopes_that_prefer

arm_sets = st.lists(st.integers(0, 9), min_size=2, max_size=5, unique=True).map(sorted)
acceptances = st.lists(st.floats(0.1, 0.95), min_size=9, max_size=9)


def lengths(acceptance: list[float], arms: list[int]) -> dict[int, float]:
    cumulative = [1.0, *accumulate(accumulate(acceptance, mul), initial=1.0)][1:]
    return {k: cumulative[k] for k in arms}


def best(length: dict[int, float], slope: float) -> int:
    return max(length, key=lambda k: length[k] / (1.0 + slope * k))


@given(acceptances, arm_sets, st.data())
def test_inside_its_range_an_arm_is_best_and_outside_it_is_not(
    acceptance: list[float], arms: list[int], data: st.DataObject
) -> None:
    length = lengths(acceptance, arms)
    k = data.draw(st.sampled_from(arms))
    low, high = slopes_that_prefer(k, length)
    assert low < high
    for share in (0.02, 0.5, 0.98):
        assert best(length, low + share * (high - low)) == k
    if k != arms[-1]:
        assert best(length, 0.99 * low) > k
    if k != arms[0]:
        assert best(length, 1.01 * high) < k


@given(acceptances, arm_sets, st.data())
def test_neighbouring_arms_share_an_end_of_their_ranges(
    acceptance: list[float], arms: list[int], data: st.DataObject
) -> None:
    length = lengths(acceptance, arms)
    i = data.draw(st.integers(0, len(arms) - 2))
    assert slopes_that_prefer(arms[i], length)[0] == pytest.approx(slopes_that_prefer(arms[i + 1], length)[1])


def test_indifference_by_hand() -> None:
    """1 + a = 1.5 tokens for a step of 1 + s: as good as 1 token for 1 at s = 0.5."""
    length = {0: 1.0, 1: 1.5}
    assert slopes_that_prefer(0, length) == pytest.approx((0.5, 0.8))
    assert slopes_that_prefer(1, length) == pytest.approx((0.25, 0.5))


def test_a_lone_arm_has_some_positive_slope() -> None:
    assert slopes_that_prefer(3, {3: 2.0}) == (0.1, 0.1)


def test_within_a_tier_the_slope_rises_towards_the_tier_of_fewer_drafts() -> None:
    length = lengths([0.7] * 9, [0, 1, 3])
    schedule = [(1, 16, 3), (17, 64, 1), (65, 256, 0)]
    slopes = [schedule_slope(b, schedule, length) for b in range(1, 257)]
    assert slopes[:-1] == sorted(slopes[:-1])
    assert slopes[0] < slopes[16] < slopes[255]


def test_a_hill_has_its_lowest_slope_on_top() -> None:
    """K rises and falls again, as it does for mixtures of experts."""
    length = lengths([0.7] * 9, [0, 1, 3])
    schedule = [(1, 8, 0), (9, 64, 3), (65, 256, 1)]
    slopes = [schedule_slope(b, schedule, length) for b in (1, 8, 9, 64, 65, 256)]
    assert slopes[0] > slopes[2] < slopes[5]
    assert [best(length, s) for s in slopes] == [0, 0, 3, 3, 1, 1]


def test_batches_above_the_last_tier_keep_its_last_slope() -> None:
    length = lengths([0.7] * 9, [0, 1, 3])
    schedule = [(1, 16, 3), (17, 64, 1)]
    assert schedule_slope(10_000, schedule, length) == schedule_slope(64, schedule, length)


def test_without_a_schedule_a_step_costs_more_with_every_request_and_draft() -> None:
    assert relative_cost(8, 3) < relative_cost(64, 3)
    assert relative_cost(64, 1) < relative_cost(64, 3)
    assert relative_cost(64, 3) == pytest.approx(1.0 + 1.0 + 0.12)
