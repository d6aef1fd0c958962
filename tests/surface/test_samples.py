"""Medians, their intervals, and sums of parts."""

from __future__ import annotations

import numpy as np
import pytest

from adaptk.surface.samples import Summary, combined, interval_rank, summary


@pytest.mark.parametrize("n", [6, 8, 20, 75, 200])
def test_intervals_cover_the_median(n: int) -> None:
    """Of skewed samples, at least 95 % of the intervals hold the true median, and not many more than needed."""
    rng = np.random.default_rng(n)
    drawn = rng.lognormal(0.0, 0.5, size=(3000, n))
    held = 0
    for times in drawn.tolist():
        found = summary(times)
        assert found.low_ms is not None
        assert found.high_ms is not None
        held += found.low_ms <= 1.0 <= found.high_ms
    assert 0.94 <= held / 3000 <= 0.995


def test_ranks_of_the_tables() -> None:
    """Order statistics as tabulated for 95 %: none for 5, the extremes for 6 to 8, the 6th and 15th of 20."""
    assert [interval_rank(n) for n in (1, 5, 6, 8, 9, 20, 100)] == [None, None, 0, 0, 1, 5, 39]
    assert interval_rank(1500) == pytest.approx(750 - 0.98 * 1500**0.5, abs=2)


def test_few_samples_claim_nothing() -> None:
    """One sample has no spread, five have no interval."""
    assert summary([2.0]) == Summary(1, 2.0, 2.0, 2.0, 0.0, None, None)
    assert summary([1.0, 2.0, 3.0, 4.0, 5.0]).low_ms is None


def test_quantiles_are_numpys() -> None:
    """Linear between order statistics."""
    times = np.random.default_rng(0).exponential(size=37)
    found = summary(times.tolist())
    assert [found.p10_ms, found.median_ms, found.p90_ms] == pytest.approx(np.quantile(times, [0.1, 0.5, 0.9]).tolist())
    assert found.spread_ms == pytest.approx(times.std(ddof=1))


def test_sums_of_parts() -> None:
    """Medians add, distances add as standard deviations do, the fewest samples count, one part stays as it is."""
    one = Summary(30, 10.0, 9.0, 12.0, 3.0, 9.5, 10.5)
    two = Summary(20, 1.0, 0.0, 2.0, 4.0, 0.0, 1.5)
    assert combined([(1.0, one)]) is one
    found = combined([(1.0, one), (2.0, two)])
    assert (found.n, found.median_ms) == (20, 12.0)
    assert found.spread_ms == pytest.approx((3.0**2 + 8.0**2) ** 0.5)
    assert found.low_ms == pytest.approx(12.0 - (0.5**2 + 2.0**2) ** 0.5)
    assert found.high_ms == pytest.approx(12.0 + (0.5**2 + 1.0**2) ** 0.5)
    assert found.p10_ms == pytest.approx(12.0 - (1.0 + 4.0) ** 0.5)


def test_a_part_without_interval_takes_it_from_the_sum() -> None:
    """What is known of one part alone would be too narrow."""
    one = Summary(30, 10.0, 9.0, 12.0, 3.0, 9.5, 10.5)
    assert combined([(1.0, one), (1.0, summary([1.0, 2.0]))]).low_ms is None


def test_sums_cover_the_sum_of_medians() -> None:
    """Intervals of a sum of two parts hold the sum of their medians at least as often as asked."""
    rng = np.random.default_rng(5)
    held = 0
    for one, two in rng.lognormal(0, 0.3, (2000, 2, 20)).tolist():
        found = combined([(5.0, summary(one)), (1.0, summary(two))])
        held += (found.low_ms or 0.0) <= 6.0 <= (found.high_ms or 0.0)
    assert 0.93 <= held / 2000 <= 0.99
