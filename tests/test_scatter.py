"""Calibration of the intervals, and what they rest on."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from adaptk.acceptance import AcceptancePosterior
from adaptk.scatter import BLOCK, LONGEST, Scatter

ACCEPTANCE = np.array([0.68, 0.575, 0.52])
Array = npt.NDArray[np.float64]


def lengths(chances: Array) -> Array:
    """Acceptance length of K=1 and K=3, mean over requests, from shape ``(requests, 3)``."""
    total = 1.0 + np.cumsum(np.cumprod(chances, axis=1), axis=1)
    return np.asarray(total.mean(axis=0)[[0, 2]])


def steps(
    rng: np.random.Generator, batch: int, n: int, spread: float, life: float
) -> Iterator[tuple[list[int], Array]]:
    """Accepted drafts of K=3 and the requests' chances; requests differ by ``spread`` in log odds and are replaced."""
    own = rng.normal(0.0, spread, (batch, 1))
    odds = ACCEPTANCE / (1.0 - ACCEPTANCE)
    for _ in range(n):
        new = rng.random(batch) < 1.0 / life
        own[new] = rng.normal(0.0, spread, (int(new.sum()), 1))
        chances = odds * np.exp(own) / (1.0 + odds * np.exp(own))
        yield np.cumprod(rng.random((batch, 3)) < chances, axis=1).sum(axis=1).tolist(), chances


def coverage(batch: int, spread: float, life: float, seeds: int, n: int) -> tuple[float, float]:
    """Share of runs whose 90 % interval of the lengths of K=1 and K=3 holds what the requests at hand have."""
    held = np.zeros(2)
    for seed in range(seeds):
        posterior, true = AcceptancePosterior(5, [*ACCEPTANCE.tolist(), 0.5]), np.zeros(2)
        for step, (accepted, chances) in enumerate(steps(np.random.default_rng(seed), batch, n, spread, life), start=1):
            posterior.observe([3] * batch, accepted, 3, batch, batch=batch)
            if step == n:
                true = lengths(chances)
            if step % 32 == 1:
                posterior.settle()
        low, high = np.quantile(posterior.draws((1, 3), 1000, np.random.default_rng(0)), (0.05, 0.95), axis=0)
        held += (low <= true) & (true <= high)
    first, third = (held / seeds).tolist()
    return first, third


@pytest.mark.parametrize("batch", [1, 8, 64])
def test_ninety_percent_intervals_hold_in_calm(batch: int) -> None:
    """60 runs of 400 steps: 81 to 99 %, which a right 90 % leaves with 1 %."""
    for share in coverage(batch, 0.0, 1e9, 60, 400):
        assert 0.81 <= share <= 0.99 + 0.02 * (batch == 1)


@pytest.mark.parametrize(("batch", "life"), [(1, 100.0), (8, 100.0), (8, 30.0)])
def test_they_hold_where_requests_differ_lastingly(batch: int, life: float) -> None:
    """40 runs of 700 steps; the sequence of independent steps would give 20 to 50 %, 75 % is asked for."""
    for share in coverage(batch, 0.7, life, 40, 700):
        assert share >= 0.75


def test_independent_steps_scatter_as_expected_and_keep_the_memory_long() -> None:
    """A hundred blocks of unit normals with information 1: both ratios near 1, and hardly any excess."""
    scatter, rng = Scatter(), np.random.default_rng(3)
    for z in rng.standard_normal(100 * BLOCK).tolist():
        scatter.add(z, 1.0, 1.0, 0.0)
    assert scatter.step == pytest.approx(1.0, abs=0.2)
    assert scatter.block < 1.6
    assert scatter.excess < 0.5 / BLOCK
    assert scatter.memory > 0.3 * LONGEST


def test_what_lasts_longer_than_a_step_shows_in_blocks_only() -> None:
    """A shift of 0.5 that lasts a block, either way: variance 0.25 in log odds, and a short memory."""
    scatter, rng = Scatter(), np.random.default_rng(4)
    for block in range(60):
        for z in rng.standard_normal(BLOCK).tolist():
            scatter.add(z + (0.5 if block % 2 else -0.5), 1.0, 1.0, 0.0)
    assert scatter.step < 1.6
    assert scatter.block > 4.0
    assert scatter.excess == pytest.approx(0.25, rel=0.4)
    assert scatter.memory < 0.2 * LONGEST


def test_it_survives_json() -> None:
    scatter, other = Scatter(), Scatter()
    for step in range(3 * BLOCK + 5):
        scatter.add(float(step % 7 - 3), 1.0, 1.0, 0.1)
    other.load(json.loads(json.dumps(scatter.snapshot())))
    assert other.snapshot() == scatter.snapshot()
    assert [getattr(other, name) for name in ("step", "block", "excess", "memory", "usual")] == [
        getattr(scatter, name) for name in ("step", "block", "excess", "memory", "usual")
    ]
