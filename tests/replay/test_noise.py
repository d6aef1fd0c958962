"""What disturbs step times: as much as it says, in steps as it says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from adaptk.replay.noise import Drift, Noise

STEPS = 100_000
SIGMAS = 4.5


def factors(**noise: float) -> np.ndarray:
    return Noise(**noise).factors(STEPS, np.random.default_rng(1))


def test_jitter_is_lognormal_with_the_given_deviation() -> None:
    logs = np.log(factors(sigma=0.05))
    assert abs(logs.mean()) < SIGMAS * 0.05 / math.sqrt(STEPS)
    assert logs.std() == pytest.approx(0.05, rel=SIGMAS / math.sqrt(2 * STEPS))
    assert abs(np.corrcoef(logs[1:], logs[:-1])[0, 1]) < SIGMAS / math.sqrt(STEPS)


@pytest.mark.parametrize("correlation", [0.3, 0.9])
def test_neighbours_are_correlated_and_the_deviation_stays(correlation: float) -> None:
    """The effective number of steps is n·(1 - c²)/(1 + c²) for the variance."""
    logs = np.log(factors(sigma=0.1, correlation=correlation))
    effective = STEPS * (1 - correlation**2) / (1 + correlation**2)
    assert logs.std() == pytest.approx(0.1, rel=SIGMAS / math.sqrt(2 * effective))
    for lag in (1, 2):
        assert np.corrcoef(logs[lag:], logs[:-lag])[0, 1] == pytest.approx(correlation**lag, abs=0.02)


def test_it_is_stationary_from_the_first_step() -> None:
    starts = [math.log(Noise(0.1, correlation=0.9).factors(1, np.random.default_rng(seed))[0]) for seed in range(2000)]
    assert np.std(starts) == pytest.approx(0.1, rel=SIGMAS / math.sqrt(2 * 2000))


@pytest.mark.parametrize("length", [1.0, 5.0])
def test_the_share_of_stalled_steps_is_kept_whatever_a_stall_lasts(length: float) -> None:
    hit = factors(sigma=0.0, stalls=0.3, stall_factor=4.0, stall_steps=length) > 1.0
    # Steps of one stall stand or fall together: n / (2·length) independent ones.
    assert abs(hit.mean() - 0.3) < SIGMAS * math.sqrt(0.3 * 0.7 / (STEPS / (2 * length)))
    edges = np.flatnonzero(np.diff(hit.astype(int)) == 1)
    longest = hit.sum() / len(edges)
    expected = length if length > 1 else 1 / 0.7
    assert longest == pytest.approx(expected, rel=SIGMAS / math.sqrt(len(edges)))


def test_stalls_have_their_size() -> None:
    sizes = factors(sigma=0.0, stalls=0.2, stall_factor=5.0)
    hit = sizes[sizes > 1.0]
    assert hit.min() >= 1.0 + 4.0 * 0.3
    assert hit.max() <= 1.0 + 4.0 * 1.7
    assert hit.mean() == pytest.approx(5.0, abs=SIGMAS * 1.62 / math.sqrt(len(hit)))


def test_the_same_generator_gives_the_same_noise() -> None:
    assert np.all(factors(sigma=0.1, stalls=0.1) == factors(sigma=0.1, stalls=0.1))


def test_drift_in_jumps_holds_before_between_and_behind() -> None:
    level, k_factor = Drift((2, 4), (1.0, 3.0), (0.5, 1.0)).curves(6)
    assert level.tolist() == [1.0, 1.0, 1.0, 1.0, 3.0, 3.0]
    assert k_factor.tolist() == [0.5, 0.5, 0.5, 0.5, 1.0, 1.0]


def test_drift_in_a_line() -> None:
    level, _ = Drift((1, 3), (1.0, 2.0), (1.0, 1.0), linear=True).curves(5)
    assert level.tolist() == [1.0, 1.0, 1.5, 2.0, 2.0]


def test_no_drift_is_none() -> None:
    assert [curve.tolist() for curve in Drift().curves(3)] == [[1.0] * 3] * 2


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        (Noise(stalls=0.9, stall_steps=4.0), "stalls is 0.9: give a share from 0 to 0.8"),
        (Noise(stalls=-0.1), "stalls is -0.1"),
        (Noise(correlation=1.0), "correlation is 1.0"),
        (Noise(sigma=-1.0), "sigma -1.0"),
    ],
)
def test_noise_that_cannot_be_is_refused(noise: Noise, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        noise.factors(10, np.random.default_rng(0))


@pytest.mark.parametrize(
    "drift",
    [
        Drift((0, 5), (1.0,), (1.0, 1.0)),
        Drift((5, 0), (1.0, 1.0), (1.0, 1.0)),
        Drift((), (), ()),
        Drift((0,), (0.0,), (1.0,)),
    ],
)
def test_drift_that_cannot_be_is_refused(drift: Drift) -> None:
    with pytest.raises(ValueError, match="give"):
        drift.curves(10)
