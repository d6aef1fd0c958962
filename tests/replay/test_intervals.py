"""Bootstrap intervals: hand numbers, SciPy as oracle, coverage."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
from numpy.typing import NDArray

from adaptk.replay import intervals
from adaptk.replay.intervals import (
    Interval,
    block_length,
    bootstrap_ratio,
    bootstrap_ratio_of_sums,
    resampled_sums,
    spread,
)

Array = NDArray[np.float64]


def autoregressive(rho: float, steps: int, rng: np.random.Generator) -> Array:
    """A stationary AR(1) series of unit variance."""
    series = np.empty(steps)
    value = rng.standard_normal()
    for i, shock in enumerate(rng.standard_normal(steps) * math.sqrt(1.0 - rho * rho)):
        series[i] = value = rho * value + shock
    return series


class TestRatio:
    def test_the_point_is_the_geometric_mean(self) -> None:
        assert bootstrap_ratio([2.0, 0.5, 4.0]).value == pytest.approx(4.0 ** (1 / 3))

    def test_ends_are_scipys_percentiles_at_widened_tails(self) -> None:
        """For 8 seeds a 90 % interval takes the tails sf(sqrt(8/7) * t(0.95, 7)) = 2.14 %; within 3 % of its width."""
        ratios = np.exp(np.random.default_rng(3).normal(0.01, 0.03, 8))
        tail = scipy.stats.norm.sf(math.sqrt(8 / 7) * scipy.stats.t.ppf(0.95, 7))
        assert tail == pytest.approx(0.0214, abs=1e-4)
        oracle = scipy.stats.bootstrap(
            (np.log(ratios),), np.mean, confidence_level=1 - 2 * tail, n_resamples=20_000, method="percentile", rng=1
        ).confidence_interval
        mine = bootstrap_ratio(ratios, draws=20_000)
        width = math.log(mine.high / mine.low)
        assert math.log(mine.low) == pytest.approx(oracle.low, abs=0.03 * width)
        assert math.log(mine.high) == pytest.approx(oracle.high, abs=0.03 * width)

    def test_the_other_way_round_is_the_reciprocal(self) -> None:
        ratios = np.array([1.1, 0.9, 1.3, 1.2, 1.05])
        one, other = bootstrap_ratio(ratios, seed=5), bootstrap_ratio(1.0 / ratios, seed=5)
        assert [1.0 / one.value, 1.0 / one.high, 1.0 / one.low] == pytest.approx(list(other), rel=1e-9)

    def test_a_seed_repeats_and_another_differs(self) -> None:
        ratios = [1.1, 0.9, 1.3, 1.2, 1.05, 0.97, 1.01]
        assert bootstrap_ratio(ratios, seed=1) == bootstrap_ratio(ratios, seed=1)
        assert bootstrap_ratio(ratios, seed=1) != bootstrap_ratio(ratios, seed=2)

    def test_a_higher_level_is_wider(self) -> None:
        ratios = [1.1, 0.9, 1.3, 1.2, 1.05, 0.97, 1.01]
        narrow, wide = bootstrap_ratio(ratios, level=0.5), bootstrap_ratio(ratios, level=0.95)
        assert wide.low < narrow.low < narrow.high < wide.high

    def test_one_seed_tells_no_spread(self) -> None:
        value, low, high = bootstrap_ratio([1.07])
        assert value == 1.07
        assert math.isnan(low)
        assert math.isnan(high)

    def test_equal_ratios_have_no_width(self) -> None:
        assert bootstrap_ratio([1.07] * 5) == Interval(1.07, 1.07, 1.07)

    def test_two_seeds_reach_from_one_to_the_other(self) -> None:
        assert list(bootstrap_ratio([1.0, 1.21])) == pytest.approx([1.1, 1.0, 1.21])

    @pytest.mark.parametrize(
        ("ratios", "message"),
        [
            ([1.0, math.nan], r"ratios\[1\] is nan"),
            ([math.inf, 1.0], r"ratios\[0\] is inf"),
            ([1.0, 1.0, 0.0], r"ratios\[2\] is 0.0: .*positive"),
            ([-1.0], r"ratios\[0\] is -1.0"),
            ([], r"ratios has shape \(0,\)"),
            ([[1.0]], r"ratios has shape \(1, 1\)"),
        ],
    )
    def test_refusals(self, ratios: list[float], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            bootstrap_ratio(ratios)

    @pytest.mark.parametrize("level", [0.0, 1.0, math.nan, 90.0])
    def test_levels_refused(self, level: float) -> None:
        with pytest.raises(ValueError, match="level is"):
            bootstrap_ratio([1.0, 1.1], level=level)

    def test_too_few_draws(self) -> None:
        with pytest.raises(ValueError, match="draws is 99"):
            bootstrap_ratio([1.0, 1.1], draws=99)

    @pytest.mark.parametrize(
        "noise",
        [
            lambda rng: rng.normal(0.0, 0.02, 10),
            lambda rng: 0.02 - rng.exponential(0.02, 10),
        ],
        ids=["normal", "skewed"],
    )
    def test_coverage_over_ten_seeds(self, noise: Callable[[np.random.Generator], Array]) -> None:
        """The true ratio is in 85 to 94 % of 500 intervals of 90 % (a plain percentile interval: 84 %)."""
        rng = np.random.default_rng(11)
        found = [bootstrap_ratio(np.exp(noise(rng)), draws=600, seed=i) for i in range(500)]
        assert 0.85 <= np.mean([low <= 1.0 <= high for _, low, high in found]) <= 0.94


class TestRatioOfSums:
    def test_the_point_is_the_ratio_of_sums_not_the_mean_of_ratios(self) -> None:
        assert bootstrap_ratio_of_sums([1, 9], [1, 3]).value == 2.5

    def test_independent_steps_agree_with_scipys_paired_bootstrap(self) -> None:
        """200 independent steps: ends within 7 % of the width of SciPy's percentile interval of the same tails."""
        rng = np.random.default_rng(2)
        top, bottom = rng.poisson(3.0, 200).astype(float), rng.gamma(50.0, 0.2, 200)
        length = block_length(top - top.sum() / bottom.sum() * bottom)
        assert length <= 2
        mine = bootstrap_ratio_of_sums(top, bottom, draws=8000)
        oracle = scipy.stats.bootstrap(
            (top, bottom),
            lambda t, b, axis=-1: t.sum(axis=axis) / b.sum(axis=axis),
            paired=True,
            confidence_level=0.9,
            n_resamples=8000,
            method="percentile",
            rng=4,
        ).confidence_interval
        tolerance = 0.07 * (mine.high - mine.low)
        assert [mine.low, mine.high] == pytest.approx([oracle.low, oracle.high], abs=tolerance)

    def test_constant_steps_have_no_width(self) -> None:
        value, low, high = bootstrap_ratio_of_sums([3.0] * 50, [7.0] * 50)
        assert [value, low, high] == pytest.approx([3 / 7] * 3, rel=1e-12)

    def test_no_tokens_at_all(self) -> None:
        assert bootstrap_ratio_of_sums([0.0] * 9, [7.0] * 9) == Interval(0.0, 0.0, 0.0)

    def test_one_step_tells_no_spread(self) -> None:
        value, low, high = bootstrap_ratio_of_sums([3.0], [4.0])
        assert value == 0.75
        assert math.isnan(low)
        assert math.isnan(high)

    def test_a_denominator_that_can_vanish_has_no_interval(self) -> None:
        _, low, high = bootstrap_ratio_of_sums([1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0])
        assert math.isnan(low)
        assert math.isnan(high)

    @pytest.mark.parametrize(
        ("top", "bottom", "message"),
        [
            ([1.0, 2.0], [1.0], "numerator has 2 steps, denominator 1"),
            ([1.0, math.nan], [1.0, 1.0], r"numerator\[1\] is nan"),
            ([1.0], [math.inf], r"denominator\[0\] is inf"),
            ([1.0, 1.0], [0.0, 0.0], "denominator sums to 0.0"),
            ([1.0, 1.0], [1.0, -2.0], "denominator sums to -1.0"),
            ([], [], r"numerator has shape \(0,\)"),
        ],
    )
    def test_refusals(self, top: list[float], bottom: list[float], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            bootstrap_ratio_of_sums(top, bottom)

    def test_coverage_with_dependent_steps(self) -> None:
        """AR(1) of 0.7, 500 steps, 150 seeds: 80 to 95 % of the 90 % intervals hold the truth; single steps: < 65 %."""
        inside = naive = 0
        for seed in range(150):
            rng = np.random.default_rng(seed)
            ms = 10.0 * np.exp(0.1 * autoregressive(0.7, 500, rng))
            tokens = 3.0 + 0.1 * rng.standard_normal(500)
            truth = 3.0 / (10.0 * math.exp(0.005))
            _, low, high = bootstrap_ratio_of_sums(tokens, ms, draws=400, seed=seed)
            inside += low <= truth <= high
            single = resampled_sums(np.column_stack([tokens, ms]), 1, 400, seed)
            low, high = spread(single[:, 0], single[:, 1], 500)
            naive += low <= truth <= high
        assert 0.80 <= inside / 150 <= 0.95
        assert naive / 150 < 0.65


class TestBlocks:
    def test_a_block_of_all_steps_is_all_steps(self) -> None:
        columns = np.arange(10.0).reshape(5, 2)
        assert np.allclose(resampled_sums(columns, 5, 100), [20.0, 25.0])

    def test_blocks_run_on_from_the_end_to_the_start(self) -> None:
        """Of 1, 2, 4, 8 two circular runs of 3 are drawn, and 4 of these 6 steps count."""
        runs = np.array([7.0, 14.0, 13.0, 11.0])
        possible = np.unique(np.add.outer(runs, runs)) * 4 / 6
        found = resampled_sums(np.array([[1.0], [2.0], [4.0], [8.0]]), 3, 500)
        assert np.allclose(np.unique(found), possible)

    def test_memory_bound_does_not_change_the_draws(self, monkeypatch: pytest.MonkeyPatch) -> None:
        columns = np.random.default_rng(0).standard_normal((30, 2))
        at_once = resampled_sums(columns, 4, 101, seed=3)
        monkeypatch.setattr(intervals, "_AT_ONCE", 70)
        assert np.array_equal(resampled_sums(columns, 4, 101, seed=3), at_once)

    @pytest.mark.parametrize("rho", [0.5, 0.8])
    def test_length_of_an_autoregressive_series(self, rho: float) -> None:
        """Optimal is (1.5 n)^(1/3) * (2 rho / (1 - rho^2))^(2/3); the median of 60 series of 4,000 within a third."""
        rng = np.random.default_rng(7)
        found = np.median([block_length(autoregressive(rho, 4000, rng)) for _ in range(60)])
        assert found == pytest.approx((1.5 * 4000) ** (1 / 3) * (2 * rho / (1 - rho * rho)) ** (2 / 3), rel=0.33)

    def test_limits(self) -> None:
        trend = np.linspace(0.0, 1.0, 900)
        assert 50 < block_length(trend) < 90
        assert block_length(trend, shortest=100) == 90  # 3 sqrt(n)
        assert block_length(trend[:12], shortest=8) == 4  # a third
        assert block_length(np.ones(900), shortest=8) == 8
        assert block_length(np.ones(9), shortest=8) == 3
        assert block_length(np.array([0.1])) == 1
