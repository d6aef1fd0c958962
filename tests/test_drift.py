from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.drift import Cusum


@pytest.mark.parametrize(("bad", "sign"), [(-100.0, -1), (100.0, 1)])
def test_three_bad_steps_never_fire_and_the_fourth_does(bad: float, sign: int) -> None:
    cusum = Cusum()
    assert [cusum.update(bad) for _ in range(4)] == [0, 0, 0, sign]


def test_an_alarm_starts_again_from_calm() -> None:
    cusum = Cusum()
    for _ in range(4):
        cusum.update(3.0)
    assert [cusum.update(3.0) for _ in range(4)] == [0, 0, 0, 1]
    assert cusum.run == 4


def test_the_run_of_an_alarm_is_counted_from_where_its_side_left_zero() -> None:
    """An upward excursion that overlaps the fall does not lengthen it, nor do steps before the fall began."""
    cusum = Cusum(slack=0.5, threshold=5.0)
    for z in (2.0, 2.0, 0.0, -2.0, -2.0, -2.0):
        assert cusum.update(z) == 0
    assert cusum.update(-2.0) == -1
    assert cusum.run == 4


def test_it_survives_json_in_the_middle_of_an_excursion() -> None:
    cusum, other = Cusum(), Cusum()
    for z in (0.9, 3.0, 3.0):
        cusum.update(z)
    other.load(json.loads(json.dumps(cusum.snapshot())))
    assert [c.update(3.0) for c in (cusum, other)] == [0, 0]
    assert [c.update(3.0) for c in (cusum, other)] == [1, 1]
    assert cusum.run == other.run == 5


@given(st.lists(st.floats(-10.0, 10.0), max_size=40))
def test_each_side_is_the_largest_sum_over_the_latest_residuals(residuals: list[float]) -> None:
    """Page's recursion equals the maximum over all starting points, as long as nothing was reset."""
    cusum = Cusum(slack=0.5, threshold=math.inf, clip=3.0)
    for z in residuals:
        cusum.update(z)
    clipped = [min(3.0, max(-3.0, z)) for z in residuals]
    tails = [clipped[i:] for i in range(len(clipped) + 1)]
    assert cusum.up == pytest.approx(max(sum(z - 0.5 for z in tail) for tail in tails), abs=1e-9)
    assert cusum.down == pytest.approx(max(sum(-z - 0.5 for z in tail) for tail in tails), abs=1e-9)


def test_false_alarms_are_as_rare_as_siegmund_says() -> None:
    """About 2 exp(threshold + 1.17) normal residuals between those of one side, half as many for both together."""
    cusum = Cusum(threshold=4.0)
    residuals = np.random.default_rng(5).standard_normal(40_000).tolist()
    alarms = sum(cusum.update(z) != 0 for z in residuals)
    assert len(residuals) / alarms == pytest.approx(math.exp(4.0 + 1.17), rel=0.2)


def test_a_shift_of_one_standard_deviation_is_found() -> None:
    """It gains half a deviation per step: 9 deviations in about 20 steps, and within 60 in each of 50 runs."""
    delays = []
    for seed in range(50):
        cusum, rng = Cusum(), np.random.default_rng(seed)
        delays.append(next(i for i in range(1, 1000) if cusum.update(1.0 + rng.standard_normal()) == 1))
    assert np.mean(delays) == pytest.approx(20.0, abs=5.0)
    assert max(delays) <= 60


def test_likelihood_ratios_of_skewed_trials_raise_no_more_alarms_than_allowed() -> None:
    """Bernoulli 0.95 against a fall to odds of 1 in 4: Lorden allows one alarm in exp(4) = 55 steps, at the most.

    Standardised and counted as normal the same trials fire more than twice as often as normals do.
    """
    cusum, rng = Cusum(threshold=4.0, clip=math.inf), np.random.default_rng(6)
    hit, miss = math.log(0.8 / 0.95), math.log(0.2 / 0.05)
    fired = [cusum.weigh(-1.0, hit if u < 0.95 else miss) != 0 for u in rng.random(40_000).tolist()]
    assert 0 < sum(fired) < 40_000 / math.exp(4.0)


def test_residuals_are_weighed_as_the_ratios_of_a_normal() -> None:
    one, two = Cusum(), Cusum()
    for z in np.random.default_rng(7).normal(0.3, 1.0, 300).tolist():
        z = min(3.0, max(-3.0, z))
        assert one.update(z) == two.weigh(z - 0.5, -z - 0.5)
    assert one.snapshot() == two.snapshot()
