from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from adaptk.acceptance import AcceptancePosterior
from adaptk.latency import LatencyPosterior
from adaptk.prior import StepTimePrior
from adaptk.table import GoodputTable
from adaptk.thompson import Outlook, goodput_draws, outlook, winners
from tests.strategies import rows_of

ARMS = (0, 1, 3)


def posteriors(
    arms: tuple[int, ...], acceptance: float, draft_share: float
) -> tuple[AcceptancePosterior, LatencyPosterior]:
    """A table whose steps take ``draft_share`` longer for each draft."""
    grid = {b: {k: 10.0 * (1.0 + draft_share * k) for k in arms} for b in (1, 64, 1024)}
    table = GoodputTable.from_rows(rows_of(grid), [acceptance])
    return AcceptancePosterior(arms[-1], [acceptance]), LatencyPosterior(StepTimePrior(table, arms))


@pytest.mark.parametrize("draft_share", [0.3, 0.6, 0.9])
def test_the_share_of_wins_is_the_probability_of_being_best(draft_share: float) -> None:
    """Two arms: P(log(1 + supply * acceptance) > difference of log times), integrated numerically."""
    acceptance, latency = posteriors((0, 1), 0.6, draft_share)
    view = outlook(acceptance, latency, 64, None)
    lengths, logs = goodput_draws(acceptance, (0, 1), view, 20_000, np.random.default_rng(0))
    share = np.mean(winners(np.log(lengths) - logs, [0, 1]) == 1)

    quantiles = (np.arange(400) + 0.5) / 400
    a = stats.beta.ppf(quantiles, acceptance.alpha[0], acceptance.beta[0])
    s = stats.beta.ppf(quantiles, acceptance.supply.alpha[0], acceptance.supply.beta[0])
    later = view.log_times[1] - view.log_times[0]
    spread = math.sqrt(np.array([-1.0, 1.0]) @ view.covariance @ np.array([-1.0, 1.0]))
    expected = stats.norm.cdf((np.log1p(np.outer(a, s)) - later) / spread).mean()
    assert 0.02 < expected < 0.98
    assert share == pytest.approx(expected, abs=0.012)  # 3.4 standard deviations of 20,000 draws at most


def test_draws_have_the_moments_of_the_outlook() -> None:
    acceptance, latency = posteriors(ARMS, 0.6, 0.2)
    view = outlook(acceptance, latency, 48, None)
    lengths, logs = goodput_draws(acceptance, ARMS, view, 40_000, np.random.default_rng(1))
    assert lengths.mean(axis=0) == pytest.approx(view.lengths, rel=0.01)
    assert logs.mean(axis=0) == pytest.approx(view.log_times, abs=0.01)
    assert np.cov(logs.T) == pytest.approx(view.covariance, abs=0.003)


def test_errors_that_arms_have_in_common_do_not_decide_between_them() -> None:
    """Level and batch are shared, so the difference of two arms is surer than either."""
    acceptance, latency = posteriors(ARMS, 0.6, 0.2)
    _, logs = goodput_draws(acceptance, ARMS, outlook(acceptance, latency, 48, None), 4000, np.random.default_rng(1))
    assert np.std(logs[:, 2] - logs[:, 1]) < min(np.std(logs[:, 1]), np.std(logs[:, 2]))


def test_a_covariance_that_rounding_made_indefinite_can_be_drawn_from() -> None:
    view = Outlook([1.0, 1.5, 2.0], [1.0, 1.1, 1.2], np.full((3, 3), 0.04) - 1e-15 * np.eye(3))
    _, logs = goodput_draws(AcceptancePosterior(3), ARMS, view, 4000, np.random.default_rng(1))
    assert np.std(logs[:, 0]) == pytest.approx(0.2, rel=0.05)
    assert logs[:, 2] - logs[:, 0] == pytest.approx(np.full(4000, 0.2), abs=1e-6)


def test_only_allowed_arms_win() -> None:
    scores = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 6.0], [1.0, 2.0, 0.0]])
    assert winners(scores, [0, 1, 2]).tolist() == [0, 2, 1]
    assert winners(scores, [1, 2]).tolist() == [2, 2, 1]
    assert winners(scores, [0]).tolist() == [0, 0, 0]


def test_the_price_of_an_arm_by_hand() -> None:
    """20 ms for 1.5 tokens; 10 ms for 1 are worth 15 ms for 1.5: 5 ms too many, and none for an arm that gains."""
    view = Outlook([1.0, 1.5, 3.0], [math.log(10.0), math.log(20.0), math.log(20.0)], 0.01 * np.eye(3))
    assert view.excess_ms(arm=1, base=0, pessimism=0.0) == pytest.approx(5.0)
    assert view.excess_ms(arm=1, base=0, pessimism=1.0) == pytest.approx(20.0 * math.exp(0.1) - 15.0)
    assert view.excess_ms(arm=2, base=0, pessimism=0.0) == 0.0
