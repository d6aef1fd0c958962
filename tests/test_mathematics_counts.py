"""The counts behind acceptance and the change detector, against closed forms and other people's implementations.

Oracles: bayesianbandits (Dirichlet counts with decay) and River (exponentially weighted mean, Page-Hinkley).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from bayesianbandits import DirichletClassifier
from hypothesis import given, settings
from hypothesis import strategies as st
from river.drift import PageHinkley
from river.stats import EWMean

from adaptk.acceptance import (
    BLIND_STEPS,
    FLOOR_TRIALS,
    MEMORY_TRIALS,
    RESTART_WEIGHT,
    SEED_WEIGHT,
    AcceptancePosterior,
)
from adaptk.cascade import cascade_counts
from adaptk.drift import Cusum
from adaptk.scatter import LONGEST
from adaptk.supply import FLOOR_TRIALS as FLOOR_OF_STOPS
from adaptk.supply import LEAST, SEED_TRIALS, STEPS, STOP_STEPS, UNSTOPPED, Stops, Supply

KEEP = 1.0 - 1.0 / LONGEST
requests = st.lists(st.integers(0, 6).flatmap(lambda d: st.tuples(st.just(d), st.integers(0, d))), max_size=12)
chances = st.lists(st.floats(0.05, 0.95), min_size=6, max_size=6)


def accept(posterior: AcceptancePosterior, accepted: list[int], width: int = 1) -> bool:
    """One step in which every request had ``width`` drafts; whether an alarm went off."""
    return posterior.observe([width] * len(accepted), accepted, width, len(accepted))


def ones(successes: int, of: int) -> list[int]:
    """Accepted drafts of ``of`` requests of which ``successes`` had their first draft accepted."""
    return [1] * successes + [0] * (of - successes)


class TestCascade:
    def test_a_step_by_hand(self) -> None:
        """Drafted 3, 3, 2, 0, 1; accepted 3, 1, 0, 0, 1: the third request's second draft was not observed."""
        succeeded, failed, present = cascade_counts([3, 3, 2, 0, 1], [3, 1, 0, 0, 1], k_max=3)
        assert succeeded == [3, 1, 1]
        assert failed == [1, 1, 0]
        assert present == [4, 3, 2]

    @given(requests, chances)
    def test_the_counts_are_sufficient(self, pairs: list[tuple[int, int]], a: list[float]) -> None:
        """The likelihood of a step, request by request, is a function of the counts alone."""
        direct = sum(sum(math.log(a[i]) for i in range(n)) + (math.log(1.0 - a[n]) if n < d else 0.0) for d, n in pairs)
        succeeded, failed, _ = cascade_counts([d for d, _ in pairs], [n for _, n in pairs], 6)
        by_counts = sum(s * math.log(p) + f * math.log(1.0 - p) for s, f, p in zip(succeeded, failed, a, strict=True))
        assert by_counts == pytest.approx(direct, abs=1e-9)

    @given(requests, st.integers(1, 5))
    @settings(max_examples=50)
    def test_what_lies_behind_the_last_position_is_cut_not_counted_as_failure(
        self, pairs: list[tuple[int, int]], k_max: int
    ) -> None:
        """With fewer positions the counts are the first ones of those with more."""
        drafted, accepted = [d for d, _ in pairs], [n for _, n in pairs]
        whole, cut = cascade_counts(drafted, accepted, 6), cascade_counts(drafted, accepted, k_max)
        assert [line[:k_max] for line in whole] == list(cut)

    def test_censoring_leaves_the_estimates_unbiased(self) -> None:
        """Drafts of random length: success over trials is the conditional acceptance at each position.

        60,000 requests; four standard deviations, which a right count exceeds at one of three positions with 2e-4.
        """
        rng, a = np.random.default_rng(3), np.array([0.8, 0.5, 0.3])
        drafted = rng.integers(0, 4, 60_000)
        run = np.cumprod(rng.random((60_000, 3)) < a, axis=1).sum(axis=1)
        succeeded, failed, _ = cascade_counts(drafted.tolist(), np.minimum(run, drafted).tolist(), 3)
        for s, f, p in zip(succeeded, failed, a.tolist(), strict=True):
            assert abs(s / (s + f) - p) < 4.0 * math.sqrt(p * (1.0 - p) / (s + f))


class TestDiscounting:
    def test_below_the_cap_the_counts_are_a_geometric_sum(self) -> None:
        """alpha_n = KEEP^n alpha_0 + sum KEEP^(n-i) s_i; 200 steps of 8 requests near the table's acceptance."""
        posterior = AcceptancePosterior(1, [0.75])
        counts = [6 + (step * 7 % 3 - 1) for step in range(200)]
        for s in counts:
            assert not accept(posterior, ones(s, 8))
        n = len(counts)
        faded = KEEP ** np.arange(n - 1, -1, -1)
        assert posterior.alpha[0] + posterior.beta[0] < MEMORY_TRIALS
        assert posterior.alpha[0] == pytest.approx(0.75 * SEED_WEIGHT * KEEP**n + faded @ counts, abs=1e-9)
        assert posterior.beta[0] == pytest.approx(
            0.25 * SEED_WEIGHT * KEEP**n + faded @ (8.0 - np.array(counts)), abs=1e-9
        )

    def test_they_are_those_of_bayesianbandits(self) -> None:
        """Two positions; its Dirichlet counts, decayed by KEEP before each step, weighted with what was seen."""
        posterior = AcceptancePosterior(2, [0.7, 0.6])
        means = (0.7, 0.6)
        oracles = [DirichletClassifier({0: (1 - m) * SEED_WEIGHT, 1: m * SEED_WEIGHT}) for m in means]
        for oracle in oracles:
            oracle.partial_fit(np.array([[0.0], [0.0]]), np.array([0, 1]), sample_weight=np.zeros(2))
        rng = np.random.default_rng(1)
        for _ in range(150):
            hits = rng.random((12, 2)) < means
            accepted = np.cumprod(hits, axis=1).sum(axis=1)
            if accept(posterior, accepted.tolist(), width=2):
                pytest.fail("the change detector fired in calm: the counts would start again")
            reached = (12, int(np.sum(accepted >= 1)))
            for j, oracle in enumerate(oracles):
                s = int(np.sum(accepted > j))
                oracle.decay(decay_rate=KEEP)
                weights = np.array([reached[j] - s, s], dtype=float)
                oracle.partial_fit(np.array([[0.0], [0.0]]), np.array([0, 1]), sample_weight=weights)
        for j, oracle in enumerate(oracles):
            assert [posterior.beta[j], posterior.alpha[j]] == pytest.approx(oracle.known_alphas_[0.0], abs=1e-9)

    def test_at_the_cap_the_mean_is_exponentially_weighted(self) -> None:
        """A step of n trials takes the place of n of the trials kept: River's EWMean with n over their number."""
        posterior, n = AcceptancePosterior(1, [0.7]), 300
        kept = KEEP * MEMORY_TRIALS
        for _ in range(20):
            accept(posterior, ones(210, n))
        assert posterior.alpha[0] + posterior.beta[0] == pytest.approx(kept + n, abs=1e-9)
        oracle = EWMean(fading_factor=n / (kept + n))
        oracle.update(posterior.alpha[0] / (posterior.alpha[0] + posterior.beta[0]))
        for step in range(100):
            s = 210 + round(8.0 * math.sin(step))
            assert not accept(posterior, ones(s, n))
            oracle.update(s / n)
            trials = posterior.alpha[0] + posterior.beta[0]
            assert trials == pytest.approx(kept + n, abs=1e-9)
            assert posterior.alpha[0] / trials == pytest.approx(oracle.get(), abs=1e-9)

    def test_blind_steps_halve_the_trials_down_to_the_floor(self) -> None:
        """At K=0 nothing is seen: the trials fade by 1/BLIND_STEPS per step, the mean stays, and they end at 8."""
        posterior = AcceptancePosterior(1, [0.75])
        accept(posterior, ones(75, 100))
        before = posterior.alpha[0] + posterior.beta[0]
        for _ in range(30):
            posterior.observe([], [], 0, 4)
        keep = 1.0 - 1.0 / BLIND_STEPS
        assert posterior.alpha[0] + posterior.beta[0] == pytest.approx(before * keep**30, abs=1e-9)
        assert posterior.alpha[0] / (posterior.alpha[0] + posterior.beta[0]) == pytest.approx(0.75, abs=1e-9)
        for _ in range(1000):
            posterior.observe([], [], 0, 4)
        assert keep * FLOOR_TRIALS <= posterior.alpha[0] + posterior.beta[0] <= FLOOR_TRIALS


class TestRestart:
    """After an alarm stands what was counted since the sum left zero, and RESTART_WEIGHT trials of a guess."""

    def test_one_position_by_hand(self) -> None:
        """Acceptance 0.8, then none of 6 per step: each bad step counts 3 - 0.5 = 2.5, so the fourth passes 9.

        24 failures since: p = 0.5 / 25 is the new mean guessed; log odds are not cut (they moved by 5.3).
        """
        posterior = AcceptancePosterior(1, [0.8])
        for s in (4, 5, 5, 5, 4, 5, 5, 5) * 5:
            assert not accept(posterior, ones(s, 6))
        assert [accept(posterior, ones(0, 6)) for _ in range(4)] == [False, False, False, True]
        p = 0.5 / 25.0
        assert posterior.alarms == 1
        assert posterior.alpha[0] == pytest.approx(RESTART_WEIGHT * p, abs=1e-9)
        assert posterior.beta[0] == pytest.approx(24.0 + RESTART_WEIGHT * (1.0 - p), abs=1e-9)

    def test_a_position_that_nobody_reached_follows_in_log_odds(self) -> None:
        """K=1 played, acceptance from 0.8 down to 0: the second position moves by the same log odds, 3 trials wide."""
        posterior = AcceptancePosterior(2, [0.8, 0.5])
        posterior.settle()
        anchor = math.log(posterior.alpha[0] / posterior.beta[0])
        while not accept(posterior, ones(0, 6)):
            pass
        seen = posterior.beta[0] + posterior.alpha[0] - RESTART_WEIGHT
        p = 0.5 / (seen + 1.0)
        moved = max(-6.0, math.log(p / (1.0 - p)) - anchor)
        expected = 1.0 / (1.0 + math.exp(-(math.log(0.5 / 0.5) + moved)))
        assert posterior.alpha[1] + posterior.beta[1] == pytest.approx(RESTART_WEIGHT, abs=1e-9)
        assert posterior.alpha[1] / RESTART_WEIGHT == pytest.approx(expected, abs=1e-9)


class TestPageHinkley:
    @given(st.lists(st.floats(-3.0, 3.0), min_size=1, max_size=60))
    def test_both_sums_are_rivers(self, residuals: list[float]) -> None:
        """River measures from the running mean of its input, so it is fed what lies ``z`` above that mean.

        Its first input lies on the mean by definition and starts both sums.
        """
        ours = Cusum(slack=0.5, threshold=math.inf)
        river = PageHinkley(min_instances=1, delta=0.5, threshold=math.inf, alpha=1.0)
        river.update(0.0)
        for n, z in enumerate(residuals, start=2):
            river.update(river._x_mean.get() + z * n / (n - 1.0))
            ours.update(z)
            assert ours.up == pytest.approx(river._sum_increase - river._min_increase, abs=1e-9)
            assert ours.down == pytest.approx(river._max_decrease - river._sum_decrease, abs=1e-9)

    @pytest.mark.parametrize("shift", [-1.5, 1.5])
    def test_the_alarm_is_at_the_same_step(self, shift: float) -> None:
        ours = Cusum()
        river = PageHinkley(min_instances=1, delta=ours.slack, threshold=ours.threshold, alpha=1.0)
        river.update(0.0)
        rng = np.random.default_rng(8)
        for n in range(2, 400):
            z = float(np.clip(rng.standard_normal() + (shift if n > 60 else 0.0), -3.0, 3.0))
            river.update(river._x_mean.get() + z * n / (n - 1.0))
            sign = ours.update(z)
            assert (sign != 0) == river.drift_detected
            if sign:
                break
        assert sign == math.copysign(1.0, shift)
        assert n > 60


class TestSupply:
    def test_a_drafter_that_delivers_half_by_hand(self) -> None:
        """10 requests asked for one draft, 5 came: below the caps the counts are a geometric sum again."""
        supply, keep = Supply(1), 1.0 - 1.0 / STEPS
        for _ in range(8):
            supply.observe([5], 1, 10)
        total = (1.0 - keep**8) / (1.0 - keep)
        assert supply.alpha[0] == pytest.approx(SEED_TRIALS * keep**8 + 5.0 * total, abs=1e-9)
        assert supply.beta[0] == pytest.approx(LEAST * keep**8 + 5.0 * total, abs=1e-9)

    def test_the_second_position_is_conditional_on_the_first(self) -> None:
        """8 of 16 have a first draft, 4 of those 8 a second: both shares tend to one half."""
        supply = Supply(2)
        for _ in range(400):
            supply.observe([8, 4], 2, 16)
        assert supply.means() == pytest.approx([0.5, 0.5], abs=1e-3)

    def test_the_hazard_of_a_stop_by_hand(self) -> None:
        """3 of 4 drafts accepted and the output ended at the second token: one stop in two tokens, ten times over."""
        stops, keep = Stops(), 1.0 - 1.0 / STOP_STEPS
        for _ in range(10):
            stops.observe([3], [2], in_all=3)
        total = (1.0 - keep**10) / (1.0 - keep)
        tokens = UNSTOPPED * keep**10 + (2.0 + UNSTOPPED / STOP_STEPS) * total
        assert stops.hazard == pytest.approx(total / tokens, abs=1e-9)

    def test_a_stop_that_was_not_looked_for_is_as_likely_and_less_sure(self) -> None:
        """Without drafts the counts fade to those of four tokens; draws have the mean, and the spread of their Beta."""
        stops, rng = Stops(), np.random.default_rng(0)
        for _ in range(100):
            stops.observe([3] * 8, [2] * 8, in_all=24)
        hazard, sure = stops.hazard, np.std(stops.goes_on(2000, rng))
        for _ in range(2000):
            stops.fade()
        trials = FLOOR_OF_STOPS  # they stay just below
        drawn = np.asarray(stops.goes_on(4000, rng))
        assert stops.hazard == pytest.approx(hazard)
        assert drawn.shape == (4000, 1)
        assert drawn.mean() == pytest.approx(1.0 - hazard, abs=4.0 * np.std(drawn) / np.sqrt(4000))
        assert np.std(drawn) == pytest.approx(np.sqrt(hazard * (1.0 - hazard) / (trials + 1.0)), rel=0.06)
        assert np.std(drawn) > 5.0 * sure

    def test_where_outputs_hardly_end_the_mean_is_drawn(self) -> None:
        """No random number is spent on it."""
        stops, rng = Stops(), np.random.default_rng(0)
        before = rng.bit_generator.state
        assert stops.goes_on(100, rng) == 1.0
        assert rng.bit_generator.state == before
