from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from adaptk.acceptance import AcceptancePosterior
from adaptk.latency import LatencyPosterior
from adaptk.prior import StepTimePrior
from adaptk.table import GoodputTable
from adaptk.thompson import Outlook, goodput_draws, outlook, winners, worth_ms
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


def fallen(batch: int) -> tuple[AcceptancePosterior, LatencyPosterior]:
    """Posteriors that saw less accepted at one batch size than elsewhere, a cold drafter, and times by context."""
    acceptance, latency = posteriors(ARMS, 0.8, 0.2)
    for i in range(40):
        here = batch if i % 4 == 3 else 4
        for _ in range(20):
            hits = [3 * (j % 5 < (2 if here == batch else 4)) for j in range(here)]
            acceptance.observe([3] * here, hits, asked=3, decodes=here, batch=here)
    for i in range(40):
        for context, slower in ((2000.0, 1.0), (16_000.0, 1.4)):
            latency.add(i % 3, batch, float(ARMS[i % 3]), 10.0 * (1.0 + 0.2 * ARMS[i % 3]) * slower, context)
    return acceptance, latency


def test_an_outlook_is_of_its_batch_size_and_context() -> None:
    """All of it is what the posteriors say of this batch size, this context and the drafts that really come."""
    acceptance, latency = fallen(64)
    for _ in range(100):
        acceptance.observe([1, 0], [1, 0], asked=3, decodes=2, batch=4)
    view = outlook(acceptance, latency, 64, 16_000.0)
    widths = acceptance.widths(ARMS)
    assert widths[2] < 2.0
    assert view.batch == 64
    assert view.lengths == acceptance.lengths(ARMS, 64) != acceptance.lengths(ARMS, 4)
    assert view.log_times == latency.log_times(64, widths, 16_000.0) != latency.log_times(64, widths, 2000.0)
    assert view.covariance.tolist() == latency.covariance(64, widths, 16_000.0).tolist()
    assert view.covariance.tolist() != latency.covariance(64, widths, 2000.0).tolist()


@pytest.mark.parametrize("visit", [False, True])
def test_lengths_are_drawn_for_the_batch_size_and_for_a_visit_where_that_is_asked(visit: bool) -> None:
    """The same numbers as the acceptance's own draws, and others than those of another batch size or purpose."""
    acceptance, latency = fallen(64)
    view = outlook(acceptance, latency, 64, None)
    lengths, _ = goodput_draws(acceptance, ARMS, view, 50, np.random.default_rng(4), visit)
    assert lengths.tolist() == acceptance.draws(ARMS, 50, np.random.default_rng(4), 64, visit).tolist()
    assert lengths.tolist() != acceptance.draws(ARMS, 50, np.random.default_rng(4), None, visit).tolist()
    assert lengths.tolist() != acceptance.draws(ARMS, 50, np.random.default_rng(4), 64, not visit).tolist()
    if not visit:
        usual, _ = goodput_draws(acceptance, ARMS, view, 50, np.random.default_rng(4))
        assert usual.tolist() == lengths.tolist()


def test_arms_whose_times_go_together_are_drawn_together() -> None:
    """Not by chance the other way round: of three arms the first two share their error, the third has its own."""
    cov = np.array([[0.04, 0.0392, 0.0], [0.0392, 0.04, 0.0], [0.0, 0.0, 0.01]])
    view = Outlook([1.0, 1.5, 2.0], [1.0, 2.0, 3.0], cov)
    _, logs = goodput_draws(AcceptancePosterior(3), ARMS, view, 40_000, np.random.default_rng(1))
    assert logs.mean(axis=0) == pytest.approx([1.0, 2.0, 3.0], abs=0.005)
    assert np.cov(logs.T) == pytest.approx(cov, abs=0.001)


def test_a_covariance_whose_halves_differ_is_drawn_as_their_mean() -> None:
    """Indefinite by its lower half, 0.05, which Cholesky reads: with the 0.03 above it is 0.04, where both agree."""
    view = Outlook([1.0, 1.5], [1.0, 1.0], np.array([[0.04, 0.03], [0.05, 0.04]]))
    _, logs = goodput_draws(AcceptancePosterior(3), (0, 3), view, 4000, np.random.default_rng(1))
    assert np.cov(logs.T) == pytest.approx(np.full((2, 2), 0.04), rel=0.05)
    assert logs[:, 1] == pytest.approx(logs[:, 0], abs=1e-6)


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
    assert view.excess_ms(arm=1, base=2, pessimism=0.0) == pytest.approx(20.0 - 20.0 * 1.5 / 3.0)


def test_a_variance_that_rounding_made_negative_is_none() -> None:
    view = Outlook([1.0, 1.5], [math.log(10.0), math.log(20.0)], np.array([[0.01, 0.0], [0.0, -1e-18]]))
    assert view.excess_ms(arm=1, base=0, pessimism=2.0) == pytest.approx(5.0)


def test_the_worth_of_a_step_by_hand() -> None:
    """At 10 ms for 2 tokens, 3 tokens are worth 15 ms."""
    assert worth_ms([2.0, 3.0], [math.log(10.0), 7.0], arm=1, base=0) == pytest.approx(15.0)
