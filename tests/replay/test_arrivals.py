from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.replay.arrivals import (
    Fixed,
    Lengths,
    Lognormal,
    Pareto,
    bad_tenant,
    bursts,
    changing,
    closed_loop,
    day_night,
    mixed,
    open_loop,
    poisson,
    rollouts,
)
from adaptk.replay.workload import Floats, Requests


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def dispersion(arrival_ms: Floats, window_ms: float) -> float:
    """Variance over mean of the arrivals per window; 1 for a Poisson process."""
    counts = np.bincount((arrival_ms // window_ms).astype(int))[:-1]
    return float(counts.var() / counts.mean())


def largest_gap_from_unit_exponential(gaps: Floats) -> float:
    """Kolmogorov's distance between the gaps and an exponential of mean 1, times the root of their number."""
    ordered, n = np.sort(gaps), len(gaps)
    theory = -np.expm1(-ordered)
    above, below = np.arange(1, n + 1) / n - theory, theory - np.arange(n) / n
    return float(np.sqrt(n) * max(above.max(), below.max()))


class TestPoisson:
    def test_rate(self) -> None:
        """The rate of 20,000 arrivals is known to 1/sqrt(20,000): within four of these."""
        times = poisson(20_000, 5.0, rng())
        assert len(times) / times[-1] * 1000 == pytest.approx(5.0, rel=4 / math.sqrt(20_000))

    def test_gaps_are_exponential(self) -> None:
        """Kolmogorov's test at a level of 0.001."""
        assert largest_gap_from_unit_exponential(np.diff(poisson(20_000, 5.0, rng()), prepend=0.0) / 200.0) < 1.95

    def test_dispersion_is_one(self) -> None:
        """Over m windows its standard deviation is sqrt(2/m): within four of these."""
        assert dispersion(poisson(20_000, 5.0, rng()), 1000.0) == pytest.approx(1.0, abs=4 * math.sqrt(2 / 4000))


class TestBursts:
    def test_mean_rate(self) -> None:
        """(2·5 + 40·1)/6 per second; over 1,000 cycles its standard deviation is 2.9 %: within four of these."""
        times = bursts(50_000, 2.0, 40.0, 5.0, 1.0, rng())
        assert len(times) / times[-1] * 1000 == pytest.approx(50 / 6, rel=0.116)

    def test_overdispersed(self) -> None:
        """By seconds: a Poisson process has 1, a burst of one second brings 40 arrivals where the mean is 8."""
        assert dispersion(bursts(50_000, 2.0, 40.0, 5.0, 1.0, rng()), 1000.0) > 8

    def test_equal_rates_are_a_poisson_process(self) -> None:
        times = bursts(20_000, 5.0, 5.0, 3.0, 1.0, rng())
        assert largest_gap_from_unit_exponential(np.diff(times, prepend=0.0) / 200.0) < 1.95

    def test_off_is_silent(self) -> None:
        """200 spells on, 1 s each at 100 per second: so many long gaps, within four standard deviations (14)."""
        gaps_s = np.diff(bursts(20_000, 0.0, 100.0, 10.0, 1.0, rng())) / 1000.0
        silences = gaps_s[gaps_s > 0.2]
        assert len(silences) == pytest.approx(200, abs=57)
        assert silences.mean() == pytest.approx(10.2, rel=4 / math.sqrt(200))
        assert gaps_s[gaps_s <= 0.2].mean() == pytest.approx(0.01, rel=0.05)

    def test_starts_calm(self) -> None:
        """Calm for an hour in the mean: nearly all of 200 first arrivals come at the calm rate, 1 per second."""
        first = [bursts(1, 1.0, 1e6, 3600.0, 1.0, rng(seed))[0] for seed in range(200)]
        assert np.mean(first) == pytest.approx(1000.0, rel=4 / math.sqrt(200))


class TestDayNight:
    def test_mean_rate_and_noon(self) -> None:
        """Of whole days at swing s, the half around noon holds 1/2 + s/pi; bounds of four standard deviations."""
        day_ms = 100_000.0
        times = day_night(40_000, 5.0, 0.9, 100.0, rng())
        days = int(times[-1] // day_ms)
        whole = times[times < days * day_ms]
        assert len(whole) / (days * 100.0) == pytest.approx(5.0, rel=4 / math.sqrt(len(whole)))
        phase = whole % day_ms / day_ms
        share, spread = 0.5 + 0.9 / math.pi, math.sqrt(0.17 / len(whole))
        assert np.mean((phase > 0.25) & (phase < 0.75)) == pytest.approx(share, abs=4 * spread)

    def test_is_poisson_in_its_own_time(self) -> None:
        """Where the clock is the expected number of arrivals, gaps are exponential: Kolmogorov's test at 0.001."""
        seconds = day_night(20_000, 5.0, 1.0, 100.0, rng()) / 1000.0
        expected = 5.0 * (seconds - np.sin(2 * np.pi * seconds / 100.0) * 100.0 / (2 * np.pi))
        assert largest_gap_from_unit_exponential(np.diff(expected, prepend=0.0)) < 1.95

    def test_no_swing_is_a_poisson_process(self) -> None:
        times = day_night(20_000, 5.0, 0.0, 100.0, rng())
        assert largest_gap_from_unit_exponential(np.diff(times, prepend=0.0) / 200.0) < 1.95


PROCESSES: list[Callable[[int, np.random.Generator], Floats]] = [
    lambda n, g: poisson(n, 7.0, g),
    lambda n, g: bursts(n, 0.0, 50.0, 2.0, 0.5, g),
    lambda n, g: bursts(n, 1.0, 50.0, 0.001, 0.001, g),
    lambda n, g: day_night(n, 7.0, 1.0, 60.0, g),
]


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("n", [1, 2, 1000])
def test_times_rise_and_come_from_the_seed(process: Callable[[int, np.random.Generator], Floats], n: int) -> None:
    times = process(n, rng(3))
    assert times.shape == (n,)
    assert times[0] > 0
    assert np.all(np.diff(times) >= 0)
    assert np.array_equal(times, process(n, rng(3)))
    assert not np.array_equal(times, process(n, rng(4)))


class TestLengths:
    def test_fixed(self) -> None:
        assert Fixed(7).draw(3, rng()).tolist() == [7, 7, 7]

    def test_lognormal_mean(self) -> None:
        """Relative standard deviation sqrt(e^(sigma^2) - 1) = 0.95 at 0.8: within four over sqrt(20,000)."""
        tokens = Lognormal(300.0, 0.8, most=10**6).draw(20_000, rng())
        assert tokens.mean() == pytest.approx(300.0, rel=4 * 0.95 / math.sqrt(20_000))

    @pytest.mark.parametrize(("sigma", "share"), [(1.0, 0.26), (2.0, 0.64)])
    def test_lognormal_tail_as_its_docstring_says(self, sigma: float, share: float) -> None:
        """The longest 5 % of 200,000 answers; over seeds the share moves by less than 0.02."""
        tokens = np.sort(Lognormal(1000.0, sigma, most=10**9).draw(200_000, rng()))
        assert tokens[-10_000:].sum() / tokens.sum() == pytest.approx(share, abs=0.03)

    def test_lognormal_without_spread(self) -> None:
        assert set(Lognormal(50.0, 0.0, most=100).draw(100, rng()).tolist()) == {50}

    def test_pareto_tail(self) -> None:
        """A share (100/x)^1.5 is longer than x, within four standard deviations of a share of 20,000."""
        tokens = Pareto(100, 1.5, most=10_000).draw(20_000, rng())
        for x in (200, 800, 3200):
            share = (100 / x) ** 1.5
            assert np.mean(tokens > x) == pytest.approx(share, abs=4 * math.sqrt(share / 20_000))

    @given(
        lengths=st.builds(Fixed, st.integers(1, 10**6))
        | st.builds(Lognormal, st.floats(1e-3, 1e9), st.floats(0.0, 50.0), st.integers(1, 10**6))
        | st.integers(1, 1000).flatmap(
            lambda least: st.builds(Pareto, st.just(least), st.floats(0.01, 20.0), st.integers(least, 10**6))
        ),
        seed=st.integers(0, 2**32),
    )
    def test_within_bounds(self, lengths: Fixed | Lognormal | Pareto, seed: int) -> None:
        tokens = lengths.draw(200, rng(seed))
        most = lengths.tokens if isinstance(lengths, Fixed) else lengths.most
        assert tokens.shape == (200,)
        assert tokens.dtype == np.int64
        assert max(1, getattr(lengths, "least", 1)) <= tokens.min() <= tokens.max() <= most


class TestLoops:
    def test_open(self) -> None:
        times = poisson(50, 5.0, rng())
        requests = open_loop(times, Fixed(10), Lognormal(50.0, 1.0, most=99), rng(), kind=np.arange(50))
        assert requests.open_loop
        assert np.array_equal(requests.arrival_ms, times)
        assert requests.prompt.tolist() == [10] * 50
        assert len(set(requests.output.tolist())) > 10
        assert requests.kind.tolist() == list(range(50))
        assert requests.round is None

    def test_closed(self) -> None:
        requests = closed_loop(50, Fixed(10), Fixed(20), rng(), kind=2)
        assert not requests.open_loop
        assert (requests.arrival_ms.tolist(), requests.kind.tolist()) == ([0.0] * 50, [2] * 50)

    def test_kinds_of_another_number_are_refused(self) -> None:
        with pytest.raises(ValueError, match="kind has 3 entries: give one number, or one per request, 50"):
            closed_loop(50, Fixed(10), Fixed(20), rng(), kind=np.arange(3))


def outputs_by_round(requests: Requests) -> np.ndarray[Any, np.dtype[np.int64]]:
    assert requests.round is not None
    return requests.output.reshape(int(requests.round[-1]) + 1, -1)


class TestRollouts:
    def test_rounds_in_order(self) -> None:
        requests = rollouts(4, 64, Fixed(100), Fixed(50), rng())
        assert requests.round is not None
        assert requests.round.tolist() == [r for r in range(4) for _ in range(64)]
        assert np.array_equal(requests.kind, requests.round)
        assert not requests.open_loop

    @pytest.mark.parametrize("lengths", [Lognormal(800.0, 1.2, most=32_768), Pareto(200, 1.2, most=32_768)])
    def test_a_few_hold_up_the_batch(self, lengths: Lengths) -> None:
        """In the mean of 20 rounds of 256, less than 5 % of the requests run for more than half of the round.

        At one token per step a round takes as many steps as its longest answer.
        """
        outputs = np.sort(outputs_by_round(rollouts(20, 256, Fixed(100), lengths, rng())), axis=1)
        drained = outputs[:, int(0.95 * 256)] / outputs[:, -1]
        assert drained.mean() < 0.5

    @pytest.mark.parametrize(
        ("lengths", "share"), [(Lognormal(800.0, 1.2, most=32_768), 0.33), (Pareto(200, 1.2, most=32_768), 0.5)]
    )
    def test_longest_hold_much_of_the_tokens(self, lengths: Lengths, share: float) -> None:
        """The longest 5 % hold 33 % of a lognormal's tokens at 1.2 and near half of the Pareto's, within 5 points.

        The Pareto's, uncut, would be 0.05^(1 - 1/1.2) = 61 %; the cut takes some of it.
        """
        outputs = np.sort(rollouts(20, 256, Fixed(100), lengths, rng()).output)
        assert outputs[-256:].sum() / outputs.sum() == pytest.approx(share, abs=0.05)

    def test_rounds_differ(self) -> None:
        outputs = outputs_by_round(rollouts(2, 64, Fixed(100), Pareto(64, 1.2, most=4096), rng()))
        assert not np.array_equal(outputs[0], outputs[1])


class TestKinds:
    def test_mixed(self) -> None:
        """Shares 3/4, 0 and 1/4 of 10,000, within four standard deviations."""
        kinds = mixed(10_000, [3.0, 0.0, 1.0], rng())
        shares = np.bincount(kinds, minlength=3) / 10_000
        assert shares[1] == 0
        assert shares[0] == pytest.approx(0.75, abs=4 * math.sqrt(0.75 * 0.25 / 10_000))

    def test_changing_by_time(self) -> None:
        times = np.array([0.0, 999.9, 1000.0, 1500.0, 9999.0])
        assert changing(times, [(1000.0, 2), (1200.0, 1)]).tolist() == [0, 0, 2, 1, 1]

    def test_changing_from_the_start(self) -> None:
        assert changing(np.arange(3), [(0, 4)]).tolist() == [4, 4, 4]
        assert changing(np.arange(3), []).tolist() == [0, 0, 0]

    def test_bad_tenant(self) -> None:
        """A fifth of 4,000 requests is his while he sends, none before or after; four standard deviations."""
        before = mixed(10_000, [1.0, 1.0], rng())
        kinds = bad_tenant(before, np.arange(10_000), 0.2, 7, rng(1), start=2000, stop=6000)
        his = kinds == 7
        assert np.flatnonzero(his).min() >= 2000
        assert np.flatnonzero(his).max() < 6000
        assert his[2000:6000].mean() == pytest.approx(0.2, abs=4 * math.sqrt(0.16 / 4000))
        assert np.array_equal(kinds[~his], before[~his])
        assert not np.any(before == 7)

    def test_bad_tenant_sends_from_start_on_and_before_stop(self) -> None:
        kinds = bad_tenant(np.zeros(6, dtype=np.int64), np.arange(6), 1.0, 3, rng(), start=2, stop=4)
        assert kinds.tolist() == [0, 0, 3, 3, 0, 0]

    @pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (1.0, 1)])
    def test_none_or_all(self, share: float, expected: int) -> None:
        kinds = bad_tenant(np.zeros(100, dtype=np.int64), np.arange(100), share, 1, rng())
        assert set(kinds.tolist()) == {expected}


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("n is 0", lambda: poisson(0, 1.0, rng())),
        ("per_s is 0.0", lambda: poisson(1, 0.0, rng())),
        ("per_s is nan", lambda: poisson(1, math.nan, rng())),
        ("per_s is inf", lambda: poisson(1, math.inf, rng())),
        ("calm_per_s is -1.0", lambda: bursts(1, -1.0, 1.0, 1.0, 1.0, rng())),
        ("burst_per_s is 0.0", lambda: bursts(1, 1.0, 0.0, 1.0, 1.0, rng())),
        ("calm_s is 0.0", lambda: bursts(1, 1.0, 1.0, 0.0, 1.0, rng())),
        ("burst_s is nan", lambda: bursts(1, 1.0, 1.0, 1.0, math.nan, rng())),
        ("mean_per_s is 0.0", lambda: day_night(1, 0.0, 0.5, 1.0, rng())),
        ("swing is 1.5", lambda: day_night(1, 1.0, 1.5, 1.0, rng())),
        ("day_s is -1.0", lambda: day_night(1, 1.0, 0.5, -1.0, rng())),
        ("tokens is 0", lambda: Fixed(0)),
        ("mean is 0.0", lambda: Lognormal(0.0, 1.0, 10)),
        ("sigma is -1.0", lambda: Lognormal(1.0, -1.0, 10)),
        ("most is 0", lambda: Lognormal(1.0, 1.0, 0)),
        ("least is 0", lambda: Pareto(0, 1.0, 10)),
        ("shape is 0.0", lambda: Pareto(1, 0.0, 10)),
        ("most is 4", lambda: Pareto(5, 1.0, 4)),
        ("n is 0", lambda: closed_loop(0, Fixed(1), Fixed(1), rng())),
        ("rounds is 0", lambda: rollouts(0, 1, Fixed(1), Fixed(1), rng())),
        ("n is 0", lambda: rollouts(1, 0, Fixed(1), Fixed(1), rng())),
        ("weights is ", lambda: mixed(1, [], rng())),
        ("weights is ", lambda: mixed(1, [0.0, 0.0], rng())),
        ("weights is ", lambda: mixed(1, [1.0, -1.0], rng())),
        ("weights is ", lambda: mixed(1, [1.0, math.nan], rng())),
        ("changes is ", lambda: changing(np.arange(2), [(2, 1), (1, 0)])),
        ("changes is ", lambda: changing(np.arange(2), [(math.nan, 1)])),
        ("share is 1.1", lambda: bad_tenant(np.zeros(1, dtype=np.int64), np.arange(1), 1.1, 1, rng())),
        ("start is 5 and stop is 5", lambda: bad_tenant(np.zeros(1, dtype=np.int64), np.arange(1), 1, 1, rng(), 5, 5)),
    ],
)
def test_what_cannot_be_is_refused_by_name(name: str, call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=f"^{name}.*: give "):
        call()
