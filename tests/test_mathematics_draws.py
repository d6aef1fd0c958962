"""The draw for a ratio: how often each arm wins, against numerical integration of the same posteriors."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy import integrate, special, stats

from adaptk.acceptance import AcceptancePosterior
from adaptk.belief import CALIBRATED, arm_beliefs
from adaptk.latency import KNOWN, LatencyPosterior
from adaptk.prior import StepTimePrior
from adaptk.table import GoodputTable
from adaptk.thompson import Outlook, goodput_draws, winners
from tests.strategies import rows_of

Array = npt.NDArray[np.float64]

DRAWS = 200_000


def known(alpha: list[float], beta: list[float]) -> AcceptancePosterior:
    """A posterior with these Beta parameters, whose drafter always delivers and whose outputs do not end."""
    posterior = AcceptancePosterior(len(alpha))
    posterior.alpha, posterior.beta = list(alpha), list(beta)
    return posterior


def view_of(posterior: AcceptancePosterior, arms: tuple[int, ...], logs: list[float], cov: Array) -> Outlook:
    return Outlook(posterior.lengths(arms), logs, cov)


def wins(posterior: AcceptancePosterior, arms: tuple[int, ...], logs: list[float], cov: Array) -> Array:
    """Share of the draws that each arm wins."""
    view = view_of(posterior, arms, logs, cov)
    lengths, log_times = goodput_draws(posterior, arms, view, DRAWS, np.random.default_rng(11))
    best = winners(np.log(lengths) - log_times, range(len(arms)))
    return np.bincount(best, minlength=len(arms)) / DRAWS


def near(share: float, p: float) -> bool:
    """Within four binomial standard deviations: 6e-5 of right shares are not."""
    return abs(share - p) <= 4.0 * math.sqrt(p * (1.0 - p) / DRAWS)


@pytest.mark.parametrize(("later", "alpha", "beta"), [(0.3, 6.0, 4.0), (0.5, 40.0, 20.0), (0.1, 0.7, 1.3)])
def test_two_arms_one_position(later: float, alpha: float, beta: float) -> None:
    """K=1 beats K=0 with probability E[Phi((log(1 + a) - later) / s)] over a ~ Beta, s of the difference of times."""
    cov = np.array([[0.01, 0.004], [0.004, 0.02]])
    s = math.sqrt(0.01 + 0.02 - 2.0 * 0.004)
    expected, error = integrate.quad(
        lambda a: stats.norm.cdf((math.log1p(a) - later) / s) * stats.beta.pdf(a, alpha, beta), 0.0, 1.0
    )
    assert error < 1e-6
    assert 0.02 < expected < 0.98
    shares = wins(known([alpha], [beta]), (0, 1), [2.0, 2.0 + later], cov)
    assert near(shares[1], expected)


def jacobi(alpha: float, beta: float, n: int = 40) -> tuple[Array, Array]:
    """Nodes and weights of the Gauss quadrature for Beta(alpha, beta)."""
    x, w = special.roots_jacobi(n, beta - 1.0, alpha - 1.0)
    return (x + 1.0) / 2.0, w / w.sum()


@pytest.mark.parametrize("later", [0.15, 0.35])
def test_two_drafting_arms_share_their_first_position(later: float) -> None:
    """K=1 against K=3: both have the same first acceptance in a draw; Gauss quadrature over the three of them."""
    alpha, beta = [6.0, 5.0, 4.0], [3.0, 4.0, 5.0]
    cov = np.array([[0.01, 0.0], [0.0, 0.0225]])
    (a, wa), (b, wb), (c, wc) = (jacobi(x, y) for x, y in zip(alpha, beta, strict=True))
    first, second, third = np.meshgrid(a, b, c, indexing="ij")
    gain = np.log(1.0 + first * (1.0 + second * (1.0 + third))) - np.log(1.0 + first)
    weight = np.einsum("i,j,k->ijk", wa, wb, wc)
    expected = float(np.sum(weight * stats.norm.cdf((gain - later) / math.sqrt(0.0325))))
    assert 0.02 < expected < 0.98
    assert near(wins(known(alpha, beta), (1, 3), [2.0, 2.0 + later], cov)[1], expected)


def test_three_arms_with_times_known_exactly() -> None:
    """Without noise of time the winner is a region of (a1, a2): K=0, 1 or 2, on a grid of quantiles."""
    alpha, beta = [4.0, 5.0], [4.0, 3.0]
    quantiles = (np.arange(2000) + 0.5) / 2000
    a, b = np.meshgrid(stats.beta.ppf(quantiles, 4.0, 4.0), stats.beta.ppf(quantiles, 5.0, 3.0), indexing="ij")
    goodput = np.stack([np.full_like(a, 1.0), (1.0 + a) / 1.45, (1.0 + a * (1.0 + b)) / 1.8])
    expected = np.bincount(goodput.argmax(axis=0).ravel(), minlength=3) / a.size
    shares = wins(known(alpha, beta), (0, 1, 2), [0.0, math.log(1.45), math.log(1.8)], np.zeros((3, 3)))
    assert min(expected) > 0.02
    for share, p in zip(shares, expected, strict=True):
        assert abs(share - p) <= 4.0 * math.sqrt(p * (1.0 - p) / DRAWS) + 1e-3  # the grid's own error


class TestCommonRandomNumbers:
    ALPHA, BETA = (12.0, 8.0, 5.0), (4.0, 6.0, 5.0)

    def draws(self, arms: tuple[int, ...]) -> Array:
        return known(list(self.ALPHA), list(self.BETA)).draws(arms, DRAWS, np.random.default_rng(2))

    def test_an_arm_is_drawn_alike_whatever_the_others_are(self) -> None:
        """With the same random state, K=1 and K=3 have the same draws beside K=2 as without it."""
        assert np.array_equal(self.draws((0, 1, 2, 3))[:, [1, 3]], self.draws((1, 3)))

    def test_a_longer_arm_adds_to_the_shorter_one_draw_by_draw(self) -> None:
        """What K=3 has beyond K=2 is a product of three probabilities, and at most what K=2 has beyond K=1."""
        steps = np.diff(self.draws((0, 1, 2, 3)), axis=1)
        assert np.all((steps >= 0.0) & (steps <= 1.0))
        assert np.all(np.diff(steps, axis=1) <= 0.0)

    def test_their_covariance_is_that_of_the_shared_positions(self) -> None:
        """Cov(AL(1), AL(2)) = Var(a1) (1 + E a2); of AL(1) and AL(3): Var(a1) (1 + E a2 (1 + E a3)).

        Four standard errors of a sample covariance; independent draws would give 0.
        """
        lengths = self.draws((1, 2, 3))
        means = [stats.beta.mean(a, b) for a, b in zip(self.ALPHA, self.BETA, strict=True)]
        variance = float(stats.beta.var(self.ALPHA[0], self.BETA[0]))
        for column, factor in ((1, 1.0 + means[1]), (2, 1.0 + means[1] * (1.0 + means[2]))):
            centred = lengths - lengths.mean(axis=0)
            products = centred[:, 0] * centred[:, column]
            error = float(products.std()) / math.sqrt(DRAWS)
            assert variance * factor > 20.0 * error
            assert abs(float(products.mean()) - variance * factor) <= 4.0 * error

    def test_what_they_do_not_share_is_independent(self) -> None:
        """(AL(2) - AL(1)) / (AL(1) - 1) is a2: Beta distributed, and uncorrelated with a1 (four standard errors)."""
        lengths = self.draws((1, 2))
        first, second = lengths[:, 0] - 1.0, (lengths[:, 1] - lengths[:, 0]) / (lengths[:, 0] - 1.0)
        assert abs(np.corrcoef(first, second)[0, 1]) <= 4.0 / math.sqrt(DRAWS)
        # Kolmogorov-Smirnov at 1 in 10,000.
        assert stats.kstest(second[:20_000], stats.beta(self.ALPHA[1], self.BETA[1]).cdf).pvalue > 1e-4


def test_the_intervals_of_a_belief_are_the_quantiles_of_the_posterior() -> None:
    """K=1: 1 + Beta and lognormal quantiles at 5 and 95 %.

    The order statistics of 1,000 draws lie within 4 sqrt(0.05 * 0.95 / 1000) = 2.8 points of probability.
    """
    grid = {b: {0: 10.0, 1: 12.0} for b in (1, 64, 1024)}
    latency = LatencyPosterior(StepTimePrior(GoodputTable.from_rows(rows_of(grid), [0.6]), (0, 1)))
    acceptance = known([12.0], [8.0])
    belief = arm_beliefs(acceptance, latency, None, 64, None, [0, 1])[1]
    assert belief.al == pytest.approx(1.6, rel=2e-3)
    for value, p in ((belief.al_low, 0.05), (belief.al_high, 0.95)):
        assert abs(stats.beta.cdf(value - 1.0, 12.0, 8.0) - p) <= 0.028
    variance = latency.covariance(64, [0.0, 1.0])[1, 1]
    # Nothing was seen yet, so that next to nothing of it is taken off (CALIBRATED).
    sd = math.sqrt(variance) * (1.0 - (1.0 - CALIBRATED) / (1.0 + variance / (KNOWN * latency.noise**2)))
    assert sd == pytest.approx(math.sqrt(variance), rel=5e-3)
    assert belief.itl_ms == pytest.approx(12.0)
    assert belief.itl_low == pytest.approx(float(stats.lognorm.ppf(0.05, sd, scale=12.0)), rel=1e-4)
    assert belief.itl_high == pytest.approx(float(stats.lognorm.ppf(0.95, sd, scale=12.0)), rel=1e-4)


def test_the_probability_of_being_best_is_the_integral() -> None:
    """As ``p_best``, from 1,000 draws: four binomial standard deviations."""
    grid = {b: {0: 10.0, 1: 15.0} for b in (1, 64, 1024)}
    latency = LatencyPosterior(StepTimePrior(GoodputTable.from_rows(rows_of(grid), [0.6]), (0, 1)))
    cov = latency.covariance(64, [0.0, 1.0])
    s = math.sqrt(cov[0, 0] + cov[1, 1] - 2.0 * cov[0, 1])
    a, w = jacobi(12.0, 8.0)
    expected = float(w @ stats.norm.cdf((np.log1p(a) - math.log(1.5)) / s))
    beliefs = arm_beliefs(known([12.0], [8.0]), latency, None, 64, None, [0, 1])
    assert abs(beliefs[1].p_best - expected) <= 4.0 * math.sqrt(expected * (1.0 - expected) / 1000)
    assert beliefs[0].p_best + beliefs[1].p_best == pytest.approx(1.0)
