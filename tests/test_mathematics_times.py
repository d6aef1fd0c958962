"""The Kalman filter of step times against closed forms, the batch solution and bayesianbandits.

Two arms, K=0 and K=3. Beside the smooth state stand independent offsets of cells (arm, range of tokens); a cell that is
seen once is one more noise of that observation, so that the smooth part has the exact posterior. Where a cell is seen
again the filter forgets what it has in common with the smooth part: there the oracle is the exact update of both
together, with that covariance put to zero after each.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from bayesianbandits import NormalRegressor
from scipy import stats

from adaptk import GoodputTable
from adaptk.cells import CELL, CELLS, cell
from adaptk.grid import (
    ARM,
    CONTEXT,
    CONTEXT_ARM,
    CONTEXT_SCALE,
    CONTEXT_SLOPE,
    KERNEL,
    LEVEL,
    LEVEL_SEED,
    NODE,
    NODES,
    ON_OFF,
    SLOPE,
    covariance,
)
from adaptk.latency import FLOOR, GROUP, KNOWN, LEAST_MISFIT, RETURN_STEPS, LatencyPosterior
from adaptk.prior import StepTimePrior
from tests.latencyparts import cell_part, smooth_part
from tests.strategies import rows_of

Array = npt.NDArray[np.float64]

ARMS = (0, 3)
BATCHES = (1, 4, 16, 64, 256, 1024)
TABLE = GoodputTable.from_rows(rows_of({b: {0: 8.0 + 0.02 * b, 3: 11.0 + 0.1 * b} for b in BATCHES}), [0.6])
REFERENCE = 2000.0  # tokens per request, of the first group


class Seen(NamedTuple):
    """A group: arm index, batch size, drafts verified per request, time over the table's, context."""

    arm: int
    batch: int
    width: float
    factor: float
    context: float = REFERENCE


# At nodes and between them, with all drafts and with half of them, at three contexts; no cell twice.
ONCE = (
    Seen(0, 16, 0.0, 1.01),
    Seen(1, 16, 3.0, 1.05),
    Seen(1, 48, 3.0, 1.04, 6000.0),
    Seen(1, 200, 1.5, 0.99, 500.0),
    Seen(0, 3, 0.0, 0.97, 6000.0),
)
AGAIN = (*ONCE, Seen(1, 15, 3.0, 1.06), Seen(1, 45, 3.0, 1.0), Seen(0, 16, 0.0, 1.03, 6000.0), Seen(1, 48, 3.0, 1.02))


def fresh() -> LatencyPosterior:
    return LatencyPosterior(StepTimePrior(TABLE, ARMS))


def covariate(context: float) -> float:
    return math.log((CONTEXT_SCALE + context) / (CONTEXT_SCALE + REFERENCE))


def smooth_design(seen: Seen) -> Array:
    """Linear in ln(batch) between powers of two, linear in drafts between K=0 and 3, and each arm's context."""
    place = math.log2(seen.batch)
    at_node = [np.interp(place, np.arange(NODES), np.arange(NODES) == node) for node in range(NODES)]
    return np.kron([*at_node, covariate(seen.context)], [1.0 - seen.width / 3.0, seen.width / 3.0])


def cell_design(seen: Seen) -> Array:
    """Shares of the cells of both arms, arm by arm."""
    shares = np.zeros((len(ARMS), CELLS))
    for i, (k, share) in enumerate(zip(ARMS, (1.0 - seen.width / 3.0, seen.width / 3.0), strict=True)):
        shares[i, cell(seen.batch * (k + 1))] = share
    return shares.ravel()


NOISE = 0.03**2 / GROUP + FLOOR**2


def prior_covariance(level: float = LEVEL_SEED) -> Array:
    return covariance(StepTimePrior(TABLE, ARMS), level)


def book(posterior: LatencyPosterior, groups: tuple[Seen, ...]) -> None:
    """Groups of equal samples, each booked at once."""
    for seen in groups:
        row = posterior.prior.row(seen.batch, None)
        said = (1.0 - seen.width / 3.0) * row[0] + seen.width / 3.0 * row[1]
        for _ in range(GROUP):
            assert not posterior.add(seen.arm, seen.batch, seen.width, seen.factor * math.exp(said), seen.context)
        posterior.flush()
    assert posterior.noise == 0.03  # not learnt anew within so few steps: the variance of an observation is known


def booked(groups: tuple[Seen, ...]) -> LatencyPosterior:
    posterior = fresh()
    book(posterior, groups)
    return posterior


def observations(groups: tuple[Seen, ...]) -> tuple[Array, Array, Array]:
    """Designs, deviations and variances, the cells counted as noise of their own."""
    h = np.array([smooth_design(seen) for seen in groups])
    y = np.log([seen.factor for seen in groups])
    variance = np.array([NOISE + CELL**2 * float(np.sum(cell_design(seen) ** 2)) for seen in groups])
    return h, y, variance


class TestUpdate:
    def test_one_group_by_hand(self) -> None:
        """Batch 16 is a node, so one entry is seen: mean c/(v+r) y, covariances less c c'/(v+r); the cell's alike."""
        posterior = booked((Seen(1, 16, 3.0, 1.05),))
        mean, cov = smooth_part(posterior)
        prior = prior_covariance()
        at = 4 * len(ARMS) + 1
        c, total = prior[at], prior[at, at] + CELL**2 + NOISE
        assert mean == pytest.approx(c / total * math.log(1.05), abs=1e-12)
        assert cov == pytest.approx(prior - np.outer(c, c) / total, abs=1e-12)
        cells, variances = cell_part(posterior)
        own = CELLS + cell(64)
        assert cells[own] == pytest.approx(CELL**2 / total * math.log(1.05), abs=1e-12)
        assert variances[own] == pytest.approx(CELL**2 - CELL**4 / total, abs=1e-12)
        assert np.count_nonzero(cells) == 1

    def test_groups_one_by_one_are_all_at_once(self) -> None:
        """The joint posterior of five groups, solved in one piece."""
        mean, cov = smooth_part(booked(ONCE))
        prior = prior_covariance()
        h, y, variance = observations(ONCE)
        gain = np.linalg.solve(h @ prior @ h.T + np.diag(variance), h @ prior).T
        assert mean == pytest.approx(gain @ y, abs=1e-9)
        assert cov == pytest.approx(prior - gain @ h @ prior, abs=1e-9)

    def test_it_is_the_regression_of_bayesianbandits(self) -> None:
        """Whitened by a root of the prior, the state is N(0, 1): its regressor with weights 1 / variance agrees."""
        root = np.linalg.cholesky(prior_covariance())
        oracle = NormalRegressor(alpha=1.0, beta=1.0)
        for row, y, variance in zip(*observations(ONCE), strict=True):
            oracle.partial_fit((row @ root)[None], np.array([y]), sample_weight=np.array([1.0 / variance]))
        mean, cov = smooth_part(booked(ONCE))
        precision = np.triu(oracle.cov_inv_) + np.triu(oracle.cov_inv_, 1).T  # it keeps the upper triangle
        assert mean == pytest.approx(root @ oracle.coef_, abs=1e-9)
        assert cov == pytest.approx(root @ np.linalg.inv(precision) @ root.T, abs=1e-9)

    def test_the_order_of_the_groups_does_not_matter(self) -> None:
        """Turned round but for the first, which sets the context that the others are measured from."""
        (mean, cov), (other_mean, other_cov) = smooth_part(booked(ONCE)), smooth_part(booked((ONCE[0], *ONCE[:0:-1])))
        assert mean == pytest.approx(other_mean, abs=1e-9)
        assert cov == pytest.approx(other_cov, abs=1e-9)

    def test_cells_seen_again_are_shared_out_as_if_independent(self) -> None:
        """The exact update of state and cells together, their covariance dropped after each group.

        The offsets' variances also creep back to the prior's, three steps a group: 1e-4 of a thousandth here.
        """
        n = (NODES + 1) * len(ARMS)
        mean, cov = np.zeros(n + len(ARMS) * CELLS), np.zeros((n + len(ARMS) * CELLS,) * 2)
        cov[:n, :n] = prior_covariance()
        cov[n:, n:] = CELL**2 * np.eye(len(ARMS) * CELLS)
        for seen in AGAIN:
            h = np.concatenate([smooth_design(seen), cell_design(seen)])
            gain = cov @ h / (h @ cov @ h + NOISE)
            mean = mean + gain * (math.log(seen.factor) - h @ mean)
            cov = cov - np.outer(gain, h @ cov)
            offsets = np.diag(np.diag(cov[n:, n:]))
            cov[n:, :n] = cov[:n, n:] = 0.0
            cov[n:, n:] = offsets
        posterior = booked(AGAIN)
        own_mean, own_cov = smooth_part(posterior)
        cells, variances = cell_part(posterior)
        assert own_mean == pytest.approx(mean[:n], abs=2e-5)
        assert own_cov == pytest.approx(cov[:n, :n], abs=2e-6)
        assert cells == pytest.approx(mean[n:], abs=2e-5)
        assert variances == pytest.approx(np.diag(cov)[n:], abs=2e-5)


class TestPrior:
    def test_a_variance_is_the_sum_of_its_parts(self) -> None:
        """K=3 is the largest arm, so its steepness is 1; K=0 has neither slope nor on/off part."""
        cov = prior_covariance(LEVEL)
        own = LEVEL**2 + 2.0 * ARM**2 + NODE**2
        assert cov[0, 0] == pytest.approx(own)
        assert cov[1, 1] == pytest.approx(own + SLOPE**2 + ON_OFF**2)
        assert cov[0, 1] == pytest.approx(LEVEL**2 + ARM**2)

    def test_two_nodes_share_what_the_kernel_says(self) -> None:
        """Batch 1 and 8, K=3: half of slope and on/off is common to all sizes, the rest falls off in ln(batch)."""
        cov = prior_covariance(LEVEL)
        near = math.exp(-0.5 * (math.log(8.0) / KERNEL) ** 2)
        common = 0.5 + 0.5 * near
        expected = LEVEL**2 + common * (SLOPE**2 + ON_OFF**2) + near * 2.0 * ARM**2
        assert cov[1, 3 * len(ARMS) + 1] == pytest.approx(expected)

    def test_context_stands_apart(self) -> None:
        """Its coefficients hang together among themselves, and with no deviation at the reference."""
        cov = prior_covariance()
        n = NODES * len(ARMS)
        assert not cov[:n, n:].any()
        both = CONTEXT**2
        expected = [[both + CONTEXT_ARM**2, both], [both, both + CONTEXT_SLOPE**2 + CONTEXT_ARM**2]]
        assert cov[n:, n:] == pytest.approx(np.array(expected))


class TestTick:
    def test_the_covariance_relaxes_to_the_drifting_prior(self) -> None:
        """cov(n) = prior + exp(-pace n / RETURN_STEPS) (cov(0) - prior), and the mean stays."""
        posterior = booked(ONCE)
        mean, before = smooth_part(posterior)
        posterior._pace = 0.4
        posterior.tick(700)
        after_mean, after = smooth_part(posterior)
        prior = prior_covariance(LEVEL)
        assert after == pytest.approx(prior + math.exp(-0.4 * 700 / RETURN_STEPS) * (before - prior), abs=1e-12)
        assert after_mean.tolist() == mean.tolist()

    def test_process_noise_between_two_groups_is_that_of_the_filter(self) -> None:
        """Group, 2,000 steps, group: the second update done by hand on the covariance in between."""
        posterior = booked(ONCE[:1])
        first, between = smooth_part(posterior)
        posterior._pace = 1.0
        posterior.tick(2000)
        prior = prior_covariance(LEVEL)
        between = prior + math.exp(-2000 / RETURN_STEPS) * (between - prior)
        book(posterior, ONCE[1:2])
        h, y, variance = (part[0] for part in observations(ONCE[1:2]))
        gain = between @ h / (h @ between @ h + variance)
        mean, cov = smooth_part(posterior)
        assert mean == pytest.approx(first + gain * (y - h @ first), abs=1e-9)
        assert cov == pytest.approx(between - np.outer(gain, h @ between), abs=1e-9)


class TestReading:
    @pytest.mark.parametrize("worth", [1.0, 0.6, 0.01])
    @pytest.mark.parametrize("context", [REFERENCE, 500.0, 9000.0])
    @pytest.mark.parametrize("batch", [1, 3, 16, 23, 100, 1000])
    def test_times_and_covariance_are_those_of_the_state(self, batch: int, context: float, worth: float) -> None:
        """Both arms whole, and K=3 with half of its drafts missing: sums of the two whole ones.

        What is read is scaled by what the prior's spread proved worth, as far as an arm's variance is above KNOWN times
        that of a step: correlations stay.
        """
        posterior = booked(AGAIN)
        posterior._prior_misfit = worth
        (mean, cov), (cells, variances) = smooth_part(posterior), cell_part(posterior)
        whole = [Seen(i, batch, float(k), 1.0, context) for i, k in enumerate(ARMS)]
        smooth, offsets = np.array([smooth_design(s) for s in whole]), np.array([cell_design(s) for s in whole])
        logs = posterior.prior.row(batch, context) + smooth @ mean + offsets @ cells
        total = smooth @ cov @ smooth.T + offsets @ np.diag(variances) @ offsets.T
        own = np.diag(total)
        scale = max(worth, LEAST_MISFIT) ** (own / (own + KNOWN * 0.03**2) / 2.0)
        total = np.diag(scale) @ total @ np.diag(scale)
        for width in (3.0, 1.5):
            mix = np.array([[1.0, 0.0], [1.0 - width / 3.0, width / 3.0]])
            widths = [0.0, width]
            assert posterior.log_times(batch, widths, context) == pytest.approx(mix @ logs, abs=1e-9)
            assert posterior.covariance(batch, widths, context) == pytest.approx(mix @ total @ mix.T, abs=1e-9)


class TestSamples:
    def test_a_group_counts_as_its_quickest_samples(self) -> None:
        """0.99 and 1.01 agree, 3 does not: the mean of the two is booked, with the noise of two."""
        posterior = fresh()
        said = posterior.prior.row(16, None)[1]
        for factor in (0.99, 1.01, 3.0):
            posterior.add(1, 16, 3.0, factor * math.exp(said), None)
        y = (math.log(0.99) + math.log(1.01)) / 2.0
        prior = prior_covariance()
        at = 4 * len(ARMS) + 1
        total = prior[at, at] + CELL**2 + 0.03**2 / 2 + FLOOR**2
        assert smooth_part(posterior)[0] == pytest.approx(prior[at] / total * y, abs=1e-12)

    @pytest.mark.parametrize(("share", "y"), [(0.1, 0.0), (0.1, 0.08), (0.35, 0.0), (0.35, 0.08), (0.35, 0.3)])
    def test_a_group_that_may_hold_slowed_steps_alone_is_a_mixture(self, share: float, y: float) -> None:
        """Three steps are all slowed with probability share^3: posterior mean and variance by integration.

        The place is that of K=3 at batch 16, where the prior is N(0, v); observed is x, or x plus the excess. The
        smooth part, variance s, is narrowed along the same gain: by s^2 / v^2 of what the whole is.
        """
        posterior = booked(AGAIN)
        posterior._doubted = True  # else a share as large as this makes it begin anew
        posterior.contamination.share = share
        posterior.contamination.excess, posterior.contamination.excess_variance = 0.3, 0.05**2
        widths, seen = [0.0, 3.0], Seen(1, 16, 3.0, 1.0)
        before, h = posterior.log_times(16, widths, REFERENCE)[1], smooth_design(seen)
        s = float(h @ smooth_part(posterior)[1] @ h)
        v = s + float(cell_design(seen) @ (cell_design(seen) * cell_part(posterior)[1]))
        for _ in range(GROUP):
            assert not posterior.add(1, 16, 3.0, math.exp(before + y), REFERENCE)
        posterior.flush()
        x = np.linspace(-12.0, 12.0, 200_001) * math.sqrt(v)
        slow, slowed = share**GROUP, math.sqrt(NOISE + 0.05**2)
        likelihood = (1.0 - slow) * stats.norm.pdf(y, x, math.sqrt(NOISE)) + slow * stats.norm.pdf(y, x + 0.3, slowed)
        weight = likelihood * stats.norm.pdf(x, 0.0, math.sqrt(v))
        weight /= weight.sum()
        mean = float(weight @ x)
        variance = float(weight @ (x - mean) ** 2)
        # Within the creep of the cells' variances back to the prior's: three steps, 3e-4 of them.
        assert posterior.log_times(16, widths, REFERENCE)[1] - before == pytest.approx(mean, abs=2e-5)
        after = float(h @ smooth_part(posterior)[1] @ h)
        assert after == pytest.approx(s - (s / v) ** 2 * (v - variance), abs=2e-6)


def test_the_covariance_stays_proper_over_ten_thousand_bookings() -> None:
    """Random cells, widths, contexts, outliers and waits: symmetric to rounding, no eigenvalue below rounding."""
    arms = (0, 1, 3)
    table = GoodputTable.from_rows(rows_of({b: {k: 8.0 + 0.02 * b * (k + 1) for k in arms} for b in BATCHES}), [0.6])
    posterior = LatencyPosterior(StepTimePrior(table, arms))
    done = 0
    book_one = posterior._book

    def counting(*values: object) -> None:
        nonlocal done
        done += 1
        book_one(*values)  # type: ignore[arg-type]

    posterior._book = counting  # type: ignore[method-assign]
    rng = np.random.default_rng(4)
    while done < 10_000:
        arm, batch = int(rng.integers(3)), int(rng.integers(1, 1200))
        width = float(rng.choice([arms[arm], rng.uniform(0.0, arms[arm])]))
        factor = float(rng.choice([1.0, 1.0, 1.0, 0.7, 1.6, 50.0]))
        ms = (8.0 + 0.02 * batch * (width + 1.0)) * factor
        context = float(rng.choice([100.0, 2000.0, 60_000.0]))
        for z in rng.standard_normal(GROUP).tolist():
            posterior.add(arm, batch, width, ms * math.exp(0.02 * z), context)
        posterior.flush()
        posterior.tick(int(rng.integers(0, 20)))
        if done % 500 == 0:
            mean, cov = smooth_part(posterior)
            values = np.linalg.eigvalsh(cov)
            assert np.abs(cov - cov.T).max() <= 1e-12 * values[-1]
            assert values[0] >= -1e-12 * values[-1]
            assert np.isfinite(mean).all()
            offsets = [posterior.cells.variance(i, at) for i in range(len(arms)) for at in range(CELLS)]
            assert min(offsets) > 0.0
