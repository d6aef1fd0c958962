from __future__ import annotations

import json
import math
from statistics import NormalDist

import numpy as np
import pytest

from adaptk.contamination import FIRST_NOISE, LEAST_NOISE, MOST_EXCESS, MOST_NOISE, WINDOW, Contamination

GROUP = 4  # residuals handed over together; a window is not tied to them


def residuals(
    rng: np.random.Generator, n: int, noise: float, share: float, factors: tuple[float, float]
) -> list[float]:
    """Log residuals of lognormal steps of which ``share`` take a factor, uniform between two numbers, as long."""
    sound = noise * rng.standard_normal(n)
    slowed = np.log(rng.uniform(*factors, size=n))
    return np.where(rng.random(n) < share, sound + slowed, sound).tolist()


def feed(contamination: Contamination, values: list[float]) -> list[tuple[float, float, bool]]:
    """Noise, share and trust after each group."""
    seen = []
    for i in range(0, len(values), GROUP):
        contamination.take(values[i : i + GROUP], 0.0)
        seen.append((contamination.noise, contamination.share, contamination.trusted))
    return seen


def learnt(noise: float, share: float, factors: tuple[float, float], seed: int) -> tuple[float, float, Contamination]:
    """Geometric mean of the noise and mean of the share over 3,000 steps, after 1,000 of them."""
    contamination = Contamination()
    values = residuals(np.random.default_rng(seed), 4000, noise, share, factors)
    seen = feed(contamination, values)[1000 // GROUP :]
    return math.exp(np.mean([math.log(n) for n, _, _ in seen])), float(np.mean([s for _, s, _ in seen])), contamination


RANDOM, FIXED = (1.5, 3.0), (2.0, 2.0)


class TestLearning:
    """Eight windows' memory: one reading scatters by a tenth, so means over 90 windows are judged.

    Fixed seeds; over eight others all these bounds held.
    """

    @pytest.mark.parametrize("noise", [0.01, 0.03, 0.1])
    @pytest.mark.parametrize(
        ("share", "factors"), [(0.0, RANDOM), (0.1, RANDOM), (0.3, RANDOM), (0.1, FIXED), (0.3, FIXED)]
    )
    def test_noise_and_share(self, noise: float, share: float, factors: tuple[float, float]) -> None:
        """Noise to within 15 %, the share of slowed steps to within 0.05, whether all take as long or not."""
        scatter, slowed, contamination = learnt(noise, share, factors, seed=1)
        assert scatter == pytest.approx(noise, rel=0.15)
        assert slowed == pytest.approx(share, abs=0.05)
        assert contamination.trusted
        assert contamination.distrusted == 0

    @pytest.mark.parametrize("factors", [RANDOM, FIXED])
    @pytest.mark.parametrize("noise", [0.01, 0.03])
    def test_half_of_the_steps_slowed(self, noise: float, factors: tuple[float, float]) -> None:
        scatter, slowed, contamination = learnt(noise, 0.5, factors, seed=1)
        assert scatter == pytest.approx(noise, rel=0.15)
        assert slowed == pytest.approx(0.5, abs=0.05)
        assert contamination.trusted

    @pytest.mark.parametrize("factors", [RANDOM, FIXED])
    @pytest.mark.parametrize("share", [0.65, 0.75])
    @pytest.mark.parametrize("noise", [0.01, 0.03])
    def test_most_steps_slowed_are_too_many(self, noise: float, share: float, factors: tuple[float, float]) -> None:
        """Noise and share are still right, though few windows hold ten sound steps; times are not trusted."""
        scatter, slowed, contamination = learnt(noise, share, factors, seed=1)
        assert scatter == pytest.approx(noise, rel=0.25)
        assert slowed == pytest.approx(share, abs=0.05)
        assert not contamination.trusted
        assert contamination.distrusted == 1

    @pytest.mark.parametrize("factor", [1.5, 3.0])
    def test_other_fixed_factors(self, factor: float) -> None:
        scatter, slowed, _ = learnt(0.02, 0.3, (factor, factor), seed=2)
        assert scatter == pytest.approx(0.02, rel=0.15)
        assert slowed == pytest.approx(0.3, abs=0.05)

    def test_by_how_much_steps_are_slowed(self) -> None:
        """Mean and variance of log U(1.5, 3), by hand: E = (3 ln 3 - 1.5 ln 1.5) / 1.5 - 1; and of the noise."""
        _, _, contamination = learnt(0.03, 0.3, RANDOM, seed=3)
        x = np.log(np.linspace(1.5, 3.0, 100_001))
        assert x.mean() == pytest.approx((3.0 * math.log(3.0) - 1.5 * math.log(1.5)) / 1.5 - 1.0, abs=1e-4)
        assert contamination.excess == pytest.approx(x.mean(), abs=0.1)
        assert contamination.excess_variance == pytest.approx(x.var() + 0.03**2, abs=0.03)

    @pytest.mark.parametrize("off", [-0.03, 0.03])
    def test_a_level_that_is_expected_wrongly_by_a_standard_deviation_changes_little(self, off: float) -> None:
        """Slowed are those four of them above it: three and five bound the sound ones as well."""
        contamination, values = Contamination(), residuals(np.random.default_rng(0), 4000, 0.03, 0.3, RANDOM)
        for i in range(0, len(values), GROUP):
            contamination.take([v + 5.0 for v in values[i : i + GROUP]], 5.0 + off)
        assert contamination.noise == pytest.approx(0.03, rel=0.3)
        assert contamination.share == pytest.approx(0.3, abs=0.1)

    def test_quicker_steps_than_expected_are_sound(self) -> None:
        contamination = Contamination()
        feed(contamination, (0.03 * np.random.default_rng(0).standard_normal(640) - 1.0).tolist())
        assert contamination.share == 0.0

    def test_nothing_is_learnt_before_a_window_is_full(self) -> None:
        contamination = Contamination()
        contamination.take([0.0] * (WINDOW - 1), 0.0)
        assert (contamination.noise, contamination.share) == (FIRST_NOISE, 0.0)
        contamination.take([0.0], 0.0)
        assert contamination.noise < FIRST_NOISE

    def test_the_first_window_teaches_the_noise_alone(self) -> None:
        """It is judged by a noise that was only guessed."""
        values, contamination = [0.0, 0.05] * 8 + [1.0] * 16, Contamination()
        contamination.take(values, 0.0)
        assert contamination.noise != FIRST_NOISE
        assert contamination.share == 0.0
        contamination.take(values, 0.0)
        assert contamination.share > 0.1

    def test_hours_long_steps_count_no_more_than_a_stall(self) -> None:
        contamination = Contamination()
        feed(contamination, ([0.0, 0.01, -0.01] * 8 + [20.0] * 8) * 20)
        assert contamination.share == pytest.approx(0.25, abs=0.01)
        assert 0.7 < contamination.excess <= MOST_EXCESS

    @pytest.mark.parametrize(("scatter", "limit"), [(0.0, LEAST_NOISE), (5.0, MOST_NOISE)])
    def test_the_noise_stays_within_its_limits(self, scatter: float, limit: float) -> None:
        contamination = Contamination()
        feed(contamination, (scatter * np.random.default_rng(0).standard_normal(3200)).tolist())
        assert contamination.noise == pytest.approx(limit, rel=0.01)


def window(sound: int) -> list[float]:
    """A window by hand: ``sound`` steps within 2 % of what is expected, the others far above and apart."""
    middle = (sound - 1) / 2.0
    return [0.02 * (i - middle) / middle for i in range(sound)] + [1.0 + 0.2 * i for i in range(WINDOW - sound)]


class TestTrust:
    @pytest.mark.parametrize("sound", [12, 16, 24, 32])
    def test_a_window_by_hand(self, sound: int) -> None:
        contamination = Contamination()
        feed(contamination, window(sound) * 20)
        assert contamination.share == pytest.approx(1.0 - sound / WINDOW, abs=0.01)

    def test_with_too_few_sound_steps_it_is_lost_and_with_hysteresis_won_again(self) -> None:
        """Ten sound steps in 32 are too few; 14 (share 0.56) do not win it back, 20 do; nor do 14 lose it then."""
        contamination = Contamination()
        feed(contamination, window(10) * 20)
        assert contamination.share > 0.65
        assert not contamination.trusted
        feed(contamination, window(14) * 20)
        assert contamination.share == pytest.approx(18 / 32, abs=0.01)
        assert not contamination.trusted
        feed(contamination, window(20) * 20)
        assert contamination.trusted
        feed(contamination, window(14) * 20)
        assert contamination.trusted

    def test_onsets_are_counted_not_windows(self) -> None:
        contamination = Contamination()
        for onset in (1, 2, 3):
            feed(contamination, window(10) * 20)
            assert contamination.distrusted == onset
            feed(contamination, window(28) * 20)
            assert contamination.distrusted == onset

    def test_sound_steps_that_scatter_too_much_are_not_trusted_either(self) -> None:
        """Lost when the noise learnt is 0.29, won at 0.13, in between, at 0.22, neither.

        Windows of the quantiles of a normal: they do not cluster, so the noise learnt is 1.46 of theirs.
        """
        quantiles, contamination = [NormalDist().inv_cdf((i + 0.5) / WINDOW) for i in range(WINDOW)], Contamination()
        for noise, trusted in ((0.155, True), (0.205, False), (0.155, False), (0.1, True), (0.155, True)):
            feed(contamination, [noise * z for z in quantiles] * 20)
            assert contamination.noise == pytest.approx(1.46 * noise, rel=0.02)
            assert contamination.trusted is trusted
        assert contamination.distrusted == 1

    @pytest.mark.parametrize("noise", [0.01, 0.03, 0.1])
    def test_noise_alone_never_loses_it(self, noise: float) -> None:
        """No false alarm in 20,000 steps."""
        contamination = Contamination()
        feed(contamination, (noise * np.random.default_rng(5).standard_normal(20_000)).tolist())
        assert contamination.distrusted == 0


@pytest.mark.parametrize(("share", "n", "chance"), [(0.0, 3, 0.0), (0.5, 3, 0.125), (0.3, 2, 0.09)])
def test_the_chance_that_a_group_holds_no_sound_step(share: float, n: int, chance: float) -> None:
    contamination = Contamination()
    contamination.share = share
    assert contamination.all_slow(n) == pytest.approx(chance)


def test_it_survives_json_in_the_middle_of_a_window() -> None:
    one, other = Contamination(), Contamination()
    values = residuals(np.random.default_rng(4), 3 * WINDOW + 12, 0.03, 0.7, RANDOM)
    feed(one, values)
    other.load(json.loads(json.dumps(one.snapshot(), allow_nan=False)))
    for contamination in (one, other):
        feed(contamination, values)
    assert other.snapshot() == one.snapshot()
    assert one.snapshot()["residuals"] == values[-(2 * len(values) % WINDOW) :]
