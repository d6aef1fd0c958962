"""Least squares with coefficients of at least zero."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.replay.traces.nonnegative import nonnegative_least_squares


@given(st.integers(0, 10**6))
def test_no_coefficient_can_be_moved_to_a_better_fit(seed: int) -> None:
    """The conditions of an optimum, up to the ridge: no slope where a term is in use, none downhill where it is not."""
    rng = np.random.default_rng(seed)
    columns, target = rng.standard_normal((30, 5)), rng.standard_normal(30)
    weights = rng.uniform(0.5, 2.0, 30)
    found = nonnegative_least_squares(columns, target, weights)
    slope = columns.T @ (weights * (target - columns @ found))
    assert found.min() >= 0
    assert np.abs(slope[found > 0]).max(initial=0.0) < 0.05
    assert slope.max() < 0.05


def test_recovers_what_made_the_data() -> None:
    rng = np.random.default_rng(1)
    columns = rng.uniform(0.0, 1.0, (200, 4))
    truth = np.array([1.0, 0.0, 3.0, 0.5])
    np.testing.assert_allclose(nonnegative_least_squares(columns, columns @ truth, np.ones(200)), truth, atol=0.005)


def test_columns_that_cannot_be_told_apart_share() -> None:
    x = np.linspace(1.0, 2.0, 20)
    found = nonnegative_least_squares(np.stack([x, x], axis=1), 4.0 * x, np.ones(20))
    assert found == pytest.approx([2.0, 2.0], rel=1e-3)


def test_a_column_of_zeros_takes_no_part() -> None:
    columns = np.stack([np.ones(5), np.zeros(5)], axis=1)
    assert nonnegative_least_squares(columns, np.full(5, 2.0), np.ones(5)) == pytest.approx([2.0, 0.0], rel=1e-3)
