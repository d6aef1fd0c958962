from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from adaptk.acceptance import (
    ESTABLISHED,
    FLOOR_TRIALS,
    MEMORY_TRIALS,
    MOVED_TRIALS,
    RELOADED_TRIALS,
    RESTART_WEIGHT,
    SEED_WEIGHT,
    UNKNOWN_WEIGHT,
    AcceptancePosterior,
)
from adaptk.cascade import cascade_counts
from adaptk.offsets import BatchOffsets
from adaptk.scatter import LONGEST as MEMORY_STEPS

requests = st.lists(st.integers(0, 8).flatmap(lambda d: st.tuples(st.just(d), st.integers(0, d))), max_size=12)


def logit(p: float) -> float:
    return math.log(p / (1.0 - p))


def mean(posterior: AcceptancePosterior, j: int) -> float:
    return posterior.alpha[j] / (posterior.alpha[j] + posterior.beta[j])


def trials(posterior: AcceptancePosterior, j: int) -> float:
    return posterior.alpha[j] + posterior.beta[j]


def drafts(rng: np.random.Generator, a: float, k: int, batch: int) -> tuple[list[int], list[int]]:
    """``batch`` requests with ``k`` drafts each, accepted with probability ``a`` until the first that is not."""
    hits = rng.random((batch, k)) < a
    return [k] * batch, np.cumprod(hits, axis=1).sum(axis=1).tolist()


def play(posterior: AcceptancePosterior, rng: np.random.Generator, a: float, k: int, batch: int, steps: int) -> int:
    """The step in which a change was first detected, ``steps`` + 1 if in none; settled every 32 as the planner does."""
    first = steps + 1
    for step in range(1, steps + 1):
        if posterior.observe(*drafts(rng, a, k, batch), asked=k, decodes=batch):
            first = min(first, step)
        if step % 32 == 0:
            posterior.settle()
    return first


class TestCascade:
    def test_by_hand(self) -> None:
        """Two of three accepted: successes at 1 and 2, failure at 3. None of two: failure at 1. All of one: none."""
        assert cascade_counts([3, 2, 1], [2, 0, 1], k_max=4) == ([2, 1, 0, 0], [1, 0, 1, 0], [3, 2, 1, 0])

    def test_positions_behind_a_rejection_are_not_observed(self) -> None:
        succeeded, failed, present = cascade_counts([3, 3], [0, 0], k_max=3)
        assert (succeeded, failed, present) == ([0, 0, 0], [2, 0, 0], [2, 2, 2])

    @given(requests, st.integers(0, 7))
    def test_equals_a_loop_over_requests_and_positions(self, pairs: list[tuple[int, int]], k_max: int) -> None:
        succeeded, failed, present = [0] * k_max, [0] * k_max, [0] * k_max
        for d, n in pairs:
            for position in range(min(d, k_max)):
                present[position] += 1
                succeeded[position] += position < n
                failed[position] += position == n
        counted = cascade_counts([d for d, _ in pairs], [n for _, n in pairs], k_max)
        assert counted == (succeeded, failed, present)

    @given(st.integers(1, 9), st.lists(st.integers(0, 9), min_size=1, max_size=9), st.integers(1, 9))
    def test_the_short_way_for_equal_drafts_counts_alike(self, width: int, accepted: list[int], k_max: int) -> None:
        """A request without drafts adds nothing, but sends the count the long way."""
        accepted = [min(n, width) for n in accepted]
        equal = [width] * len(accepted)
        assert cascade_counts(equal, accepted, k_max) == cascade_counts([*equal, 0], [*accepted, 0], k_max)


class TestLength:
    def test_one_plus_the_sum_of_the_products(self) -> None:
        posterior = AcceptancePosterior(3, [0.8, 0.5, 0.4])
        a, b, c = 0.8, 0.5, 0.4
        assert posterior.lengths((0, 1, 3)) == pytest.approx([1.0, 1.0 + a, 1.0 + a + a * b + a * b * c])

    def test_the_last_acceptance_is_held_for_further_positions(self) -> None:
        assert AcceptancePosterior(4, [0.8, 0.5]).means() == AcceptancePosterior(4, [0.8, 0.5, 0.5, 0.5]).means()

    def test_draws_have_the_length_as_their_mean(self) -> None:
        posterior = AcceptancePosterior(7, [0.8, 0.6])
        draws = posterior.draws((0, 1, 3, 7), 20_000, np.random.default_rng(1))
        assert draws.mean(axis=0) == pytest.approx(posterior.lengths((0, 1, 3, 7)), rel=0.01)

    def test_arms_share_the_draws_of_their_common_positions(self) -> None:
        """Within a draw more drafts never yield fewer tokens, nor more than one each."""
        draws = AcceptancePosterior(3).draws((0, 1, 2, 3), 500, np.random.default_rng(1))
        assert np.all(np.diff(draws, axis=1) >= 0.0)
        assert np.all(np.diff(draws, axis=1) <= 1.0)
        assert np.all(draws[:, 0] == 1.0)

    def test_an_engine_without_drafts_yields_one_token(self) -> None:
        posterior = AcceptancePosterior(0)
        posterior.observe([0, 0], [0, 0], asked=0, decodes=2)
        posterior.settle()
        assert posterior.lengths((0,)) == [1.0]
        assert posterior.draws((0,), 3, np.random.default_rng(0)).tolist() == [[1.0]] * 3


class TestFirstGuess:
    @pytest.mark.parametrize(
        ("given", "trusted", "weight"),
        [([0.6], True, SEED_WEIGHT), ([0.6], False, UNKNOWN_WEIGHT), (None, True, UNKNOWN_WEIGHT)],
    )
    def test_it_weighs_what_it_is_worth(self, given: list[float] | None, trusted: bool, weight: float) -> None:
        """A table of this engine 16 trials, one of another engine as little as none at all."""
        posterior = AcceptancePosterior(2, given, trusted=trusted)
        assert [trials(posterior, j) for j in range(2)] == pytest.approx([weight] * 2)
        assert AcceptancePosterior(2, [0.6]).alpha == AcceptancePosterior(2, [0.6], trusted=True).alpha

    def test_a_missing_draft_in_it_is_not_a_rejected_one(self) -> None:
        """0.36 accepted of all positions, of which the drafter fills 0.6, then 0.3: 0.6 of those that are there."""
        posterior = AcceptancePosterior(3, [0.36, 0.30], [0.6, 0.3])
        assert [mean(posterior, j) for j in range(3)] == pytest.approx([0.36 / 0.6, 0.30 / 0.5, 0.30])
        assert posterior.means() == pytest.approx([0.36, 0.30, 0.30], rel=0.01)

    def test_it_is_bounded_away_from_certainty(self) -> None:
        """Where the drafter filled nothing, nothing is known."""
        assert AcceptancePosterior(2, [1.0, 0.0]).means() == pytest.approx([0.99, 0.01])
        unknown = AcceptancePosterior(1).alpha[0] / UNKNOWN_WEIGHT
        assert mean(AcceptancePosterior(2, [0.9], [1.0, 0.0]), 1) == pytest.approx(unknown)


class TestPositions:
    def test_they_are_the_betas_of_the_counts(self) -> None:
        """Mean, and the 5 % and 95 % quantiles to the noise of 1,000 draws; what the drafter left empty is not in."""
        posterior = AcceptancePosterior(3, [0.7])
        for accepted in ([3, 2, 0, 1], [1, 0, 2, 3], [0, 3, 1, 2]):
            posterior.observe([3, 3, 3, 3, 0, 0], [*accepted, 0, 0], asked=3, decodes=6)
        assert posterior.means()[0] < 0.95 * mean(posterior, 0)
        for j, position in enumerate(posterior.positions()):
            beta = stats.beta(posterior.alpha[j], posterior.beta[j])
            assert position.mean == pytest.approx(mean(posterior, j))
            assert (position.low, position.high) == pytest.approx(beta.ppf([0.05, 0.95]), abs=0.02)

    def test_trials_that_count_for_less_widen_the_interval(self) -> None:
        """At a batch size whose peculiarity is not known a trial is worth less than one: the spread says so."""
        posterior = AcceptancePosterior(1, [0.7])
        for _ in range(60):
            posterior.observe([1] * 8, [1, 0, 1, 1, 1, 0, 1, 1], asked=1, decodes=8)
        (narrow,) = posterior.positions()
        posterior._dilution = [4.0]
        (wide,) = posterior.positions()
        assert (wide.high - wide.low) / (narrow.high - narrow.low) == pytest.approx(2.0, rel=0.15)

    def test_asking_changes_nothing_and_the_answer_is_the_same_each_time(self) -> None:
        posterior = AcceptancePosterior(3, [0.7])
        before = posterior.snapshot()
        assert posterior.positions() == posterior.positions()
        assert posterior.snapshot() == before
        assert AcceptancePosterior(0).positions() == []


class TestCounted:
    def test_it_is_the_last_step_that_was_asked_for_drafts(self) -> None:
        """Accepted and rejected by position; a step at K=0 leaves it, one whose drafter found nothing counts 0."""
        posterior = AcceptancePosterior(3)
        assert posterior.counted is None
        posterior.observe([3, 3, 2], [3, 1, 0], asked=3, decodes=3)
        assert posterior.counted == ([2, 1, 1], [1, 1, 0])
        posterior.observe([], [], asked=0, decodes=3)
        assert posterior.counted == ([2, 1, 1], [1, 1, 0])
        posterior.observe([0, 0], [0, 0], asked=3, decodes=2)
        assert posterior.counted == ([0, 0, 0], [0, 0, 0])

    def test_shares_of_the_first_draft(self) -> None:
        """Where nothing can be drafted both are 1."""
        posterior = AcceptancePosterior(2, [0.7, 0.2])
        for _ in range(100):
            posterior.observe([2, 2, 0, 0, 0, 0, 0, 0], [1, 2, 0, 0, 0, 0, 0, 0], asked=2, decodes=8)
        assert posterior.drafted_share == pytest.approx(0.25, abs=0.02)
        assert posterior.accepted_share == mean(posterior, 0) > 0.9
        nothing = AcceptancePosterior(0)
        assert (nothing.drafted_share, nothing.accepted_share) == (1.0, 1.0)


class TestEvidence:
    def test_one_step_by_hand(self) -> None:
        """Of four first drafts three are accepted, of three second ones none; the table's 16 trials fade by 1/300."""
        posterior = AcceptancePosterior(2, [0.5])
        posterior.observe([2, 2, 2, 2], [1, 1, 1, 0], asked=2, decodes=4)
        fade = 1.0 - 1.0 / MEMORY_STEPS
        assert posterior.alpha == pytest.approx([8.0 * fade + 3.0, 8.0 * fade])
        assert posterior.beta == pytest.approx([8.0 * fade + 1.0, 8.0 * fade + 3.0])

    def test_a_steps_evidence_fades_to_a_third_in_the_memory(self) -> None:
        first, second = AcceptancePosterior(1, [0.5]), AcceptancePosterior(1, [0.5])
        first.observe([1, 1], [1, 1], asked=1, decodes=2)
        second.observe([1, 1], [0, 0], asked=1, decodes=2)
        assert first.alpha[0] - second.alpha[0] == pytest.approx(2.0)
        for step in range(300):
            for posterior in (first, second):
                posterior.observe([1, 1], [step % 2, 1 - step % 2], asked=1, decodes=2)
        assert first.alpha[0] - second.alpha[0] == pytest.approx(2.0 / math.e, rel=0.01)

    @pytest.mark.parametrize(("batch", "limit"), [(2, 2 * MEMORY_STEPS), (64, MEMORY_TRIALS)])
    def test_memory_is_bounded_in_steps_and_in_trials(self, batch: int, limit: float) -> None:
        posterior = AcceptancePosterior(1, [0.5])
        for _ in range(2000):
            posterior.observe([1] * batch, [0, 1] * (batch // 2), asked=1, decodes=batch)
        assert trials(posterior, 0) == pytest.approx(limit, rel=0.03)

    def test_what_was_not_drafted_moves_with_what_was_in_log_odds(self) -> None:
        posterior = AcceptancePosterior(3, [0.8, 0.7, 0.6])
        posterior.observe([1] * 16, [1] * 8 + [0] * 8, asked=1, decodes=16)
        assert mean(posterior, 1) == pytest.approx(0.7)
        posterior.settle()
        shift = logit(mean(posterior, 0)) - logit(0.8)
        assert shift < -0.5
        assert logit(mean(posterior, 1)) - logit(0.7) == pytest.approx(shift)
        assert logit(mean(posterior, 2)) - logit(0.6) == pytest.approx(shift)

    def test_settling_twice_moves_once(self) -> None:
        posterior = AcceptancePosterior(3, [0.8])
        posterior.observe([1] * 16, [1] * 8 + [0] * 8, asked=1, decodes=16)
        posterior.settle()
        once = posterior.means()
        posterior.settle()
        assert posterior.means() == once

    def test_each_settling_moves_by_what_is_new(self) -> None:
        posterior = AcceptancePosterior(2, [0.8])
        for _ in range(2):
            before = [logit(mean(posterior, j)) for j in range(2)]
            posterior.observe([1] * 16, [1] * 8 + [0] * 8, asked=1, decodes=16)
            posterior.settle()
            after = [logit(mean(posterior, j)) for j in range(2)]
            assert after[1] - before[1] == pytest.approx(after[0] - before[0])

    def test_what_was_not_drafted_fades_with_the_steps_and_is_cut_by_a_joint_move(self) -> None:
        """100 calm steps at K=1: the second position's 200 trials fade by the memory. A move of 0.5 leaves it 40."""
        posterior = AcceptancePosterior(2, [0.5])
        posterior.alpha[1] = posterior.beta[1] = 100.0
        for step in range(100):
            posterior.observe([1, 1], [step % 2, 1 - step % 2], asked=1, decodes=2)
        posterior.settle()
        assert trials(posterior, 1) == pytest.approx(200.0 * (1.0 - 1.0 / MEMORY_STEPS) ** 100, rel=1e-3)
        posterior.observe([1] * 64, [1] * 60 + [0] * 4, asked=1, decodes=64)
        posterior.settle()
        assert trials(posterior, 1) == pytest.approx(MOVED_TRIALS)

    def test_positions_move_by_the_mean_of_the_others_weighted_by_their_trials(self) -> None:
        """Two are drafted, the third follows: by (n1 * d1 + n2 * d2) / (n1 + n2) in log odds."""
        posterior = AcceptancePosterior(3, [0.8, 0.7, 0.6])
        posterior.observe([2] * 16, [2] * 2 + [1] * 6 + [0] * 8, asked=2, decodes=16)
        moves = [logit(mean(posterior, j)) - logit(p) for j, p in enumerate((0.8, 0.7))]
        weights = [trials(posterior, j) for j in range(2)]
        posterior.settle()
        assert weights[0] > 1.2 * weights[1]
        moved = logit(mean(posterior, 2)) - logit(0.6)
        assert moved == pytest.approx(np.average(moves, weights=weights))

    def test_trials_of_a_batch_size_not_known_yet_count_for_less(self) -> None:
        """By hand: the step's variance of its own, over that and what the batch size may differ by; and their dilution.

        Learnt at batch 4 alone, then one step at 64, of which as much is unknown as was learnt elsewhere.
        """
        posterior = AcceptancePosterior(1, [0.5])
        for step in range(100):
            posterior.observe([1] * 4, [1, 0, step % 2, 1 - step % 2], asked=1, decodes=4, batch=4)
        (a,), (b,), (diluted,) = posterior.alpha, posterior.beta, posterior._dilution
        _, unknown = posterior.offsets.look(64)
        assert unknown > 0.05
        posterior.observe([1] * 64, [1] * 40 + [0] * 24, asked=1, decodes=64, batch=64)
        n, fade = a + b, 1.0 - 1.0 / MEMORY_STEPS
        p = a / n
        doubt = 1.0 + 64.0 * diluted / n
        weight = doubt / (doubt + 64.0 * p * (1.0 - p) * posterior.offsets.unknown)
        assert weight < 0.7
        assert posterior.alpha[0] == pytest.approx(a * fade + 40.0 * weight, rel=1e-6)
        assert posterior.beta[0] == pytest.approx(b * fade + 24.0 * weight, rel=1e-6)
        kept, seen = n * fade, 64.0 * weight
        expected = (diluted * kept * fade + seen * weight) / (kept + seen)
        assert posterior._dilution[0] == pytest.approx(expected, rel=1e-6)

    def test_the_detector_looks_for_what_one_step_can_show(self) -> None:
        """A shift of the standard deviation of one step's log odds: 64 drafts at one half carry 16, so 1 / 4.

        The information follows by 2 % a step, and the shift stays between 0.2 and 1.5.
        """
        posterior = AcceptancePosterior(1, [0.5])
        posterior.observe([1] * 4, [1, 1, 0, 0], asked=1, decodes=4)
        assert posterior.snapshot()["information"] == pytest.approx(0.25 + 0.02 * (1.0 - 0.25))
        assert posterior.snapshot()["shift"] == 1.5
        for _ in range(400):
            posterior.observe([1] * 64, [1] * 32 + [0] * 32, asked=1, decodes=64)
        assert posterior.snapshot()["shift"] == pytest.approx(0.25, rel=0.01)
        for _ in range(400):
            posterior.observe([1] * 640, [1] * 320 + [0] * 320, asked=1, decodes=640)
        assert posterior.snapshot()["shift"] == 0.2

    def test_k0_widens_and_moves_nothing(self) -> None:
        posterior = AcceptancePosterior(3, [0.8])
        play(posterior, np.random.default_rng(3), 0.8, 3, 8, 50)
        posterior.settle()
        before, sure = posterior.means(), np.std(posterior.draws((3,), 4000, np.random.default_rng(0)))
        for _ in range(400):
            assert not posterior.observe([0] * 8, [0] * 8, asked=0, decodes=8)
        assert posterior.means() == pytest.approx(before, abs=0.01)
        assert np.std(posterior.draws((3,), 4000, np.random.default_rng(0))) > 2.0 * sure
        assert [trials(posterior, j) for j in range(3)] == pytest.approx([FLOOR_TRIALS] * 3, rel=0.03)

    def test_a_step_whose_requests_had_no_drafts_teaches_no_acceptance(self) -> None:
        posterior = AcceptancePosterior(2, [0.8])
        before = (list(posterior.alpha), list(posterior.beta))
        posterior.observe([0, 0], [0, 0], asked=2, decodes=0)
        assert (posterior.alpha, posterior.beta) == before

    @settings(max_examples=50)
    @given(st.lists(st.tuples(requests, st.integers(0, 7), st.booleans()), max_size=12))
    def test_any_records_leave_a_posterior_that_can_be_drawn_from(
        self, steps: list[tuple[list[tuple[int, int]], int, bool]]
    ) -> None:
        posterior = AcceptancePosterior(5, [0.9, 0.0, 1.0])
        for pairs, asked, settle in steps:
            drafted, accepted = [d for d, _ in pairs], [n for _, n in pairs]
            emitted = [n // 2 + 1 for n in accepted]
            posterior.observe(drafted, accepted, max(asked, *drafted, 0), len(pairs), emitted)
            if settle:
                posterior.settle()
        assert min(posterior.alpha + posterior.beta + posterior.supply.alpha + posterior.supply.beta) > 0.0
        draws = posterior.draws((0, 1, 5), 50, np.random.default_rng(0))
        assert np.all((draws >= 1.0) & (draws <= 6.0))


class TestChange:
    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize(("batch", "k", "within"), [(1, 3, 20), (8, 1, 6), (8, 3, 5), (64, 3, 4)])
    def test_a_fall_from_085_to_02_is_detected_and_learnt(self, seed: int, batch: int, k: int, within: int) -> None:
        """Within the stated number of steps; the acceptance believed 30 steps later is right, whatever was drafted."""
        posterior, rng = AcceptancePosterior(3, [0.85]), np.random.default_rng(seed)
        play(posterior, rng, 0.85, k, batch, 300)
        assert play(posterior, rng, 0.2, k, batch, within) <= within
        play(posterior, rng, 0.2, k, batch, 30)
        posterior.settle()
        assert mean(posterior, 0) == pytest.approx(0.2, abs=0.25 if batch == 1 else 0.1)
        assert mean(posterior, 2) < 0.6  # it was hardly ever reached, or never drafted

    def test_an_alarm_restarts_from_the_steps_since_the_suspicion(self) -> None:
        """Not from the calm before: the belief is at once within 0.15 of the truth on average, half of them in 0.1."""
        errors = []
        for seed in range(20):
            posterior, rng = AcceptancePosterior(1, [0.85]), np.random.default_rng(seed)
            play(posterior, rng, 0.85, 1, 64, 150)
            play(posterior, rng, 0.2, 1, 64, 4)
            assert posterior.alarms == 1
            errors.append(abs(mean(posterior, 0) - 0.2))
        assert np.mean(errors) < 0.15
        assert np.median(errors) < 0.1

    def test_a_position_behind_those_counted_moves_by_their_mean_cut_at_six(self) -> None:
        """Acceptance rises from 0.01 to all: two positions are counted, the third follows by 6 log odds, not by more.

        Had only the last of them spoken, or none, it would move by another amount: each is cut, weighted by what its
        counts say, and their mean is added to the third's log odds.
        """
        posterior = AcceptancePosterior(3, [0.01, 0.5, 0.01])
        posterior.settle()
        anchors = [logit(mean(posterior, j)) for j in range(3)]
        while not posterior.observe([2] * 40, [2] * 40, asked=2, decodes=40):
            pass
        moves, weights = [], []
        for j in range(2):
            n = trials(posterior, j) - RESTART_WEIGHT
            p = (n + 0.5) / (n + 1.0)
            moves.append(min(6.0, logit(p) - anchors[j]))
            weights.append(n * p * (1.0 - p))
        assert moves[0] == 6.0 > moves[1] > 3.0
        assert trials(posterior, 2) == pytest.approx(RESTART_WEIGHT)
        assert logit(mean(posterior, 2)) - anchors[2] == pytest.approx(np.average(moves, weights=weights))

    def test_a_fall_is_cut_at_six_too(self) -> None:
        """From 0.99 to nothing: 4.6 log odds and as many below zero; what nobody reached falls by 6."""
        posterior = AcceptancePosterior(2, [0.99, 0.9])
        posterior.settle()
        anchors = [logit(mean(posterior, j)) for j in range(2)]
        while not posterior.observe([1] * 60, [0] * 60, asked=1, decodes=60):
            pass
        n = trials(posterior, 0) - RESTART_WEIGHT
        assert logit(0.5 / (n + 1.0)) - anchors[0] < -8.0
        assert logit(mean(posterior, 1)) - anchors[1] == pytest.approx(-6.0)

    @pytest.mark.parametrize("reached", [2, 3])
    def test_three_trials_speak_for_their_position_two_do_not(self, reached: int) -> None:
        """The first position falls; of the second two or three drafts were reached, none accepted. All by hand."""
        posterior = AcceptancePosterior(2, [0.8, 0.5])
        posterior.settle()
        anchors = [logit(mean(posterior, j)) for j in range(2)]
        hits, steps = [], 0
        while True:
            hits.append(int(steps < reached))
            steps += 1
            if posterior.observe([2] * 12, [hits[-1]] + [0] * 11, asked=2, decodes=12):
                break
        run = round((trials(posterior, 0) - RESTART_WEIGHT) / 12.0)
        assert run == len(hits)
        n, s = (12 * run, reached), (reached, 0)
        moves, weights = [], []
        for j in range(2 if reached == 3 else 1):
            p = (s[j] + 0.5) / (n[j] + 1.0)
            moves.append(logit(p) - anchors[j])
            weights.append(n[j] * p * (1.0 - p))
        odds = math.exp(anchors[1] + np.average(moves, weights=weights))
        assert posterior.beta[1] == pytest.approx(reached + RESTART_WEIGHT / (1.0 + odds))
        assert posterior.alpha[1] == pytest.approx(RESTART_WEIGHT * odds / (1.0 + odds))
        assert posterior._dilution == [1.0, 1.0]

    def test_a_restart_counts_in_trials_at_a_peculiar_batch_size_too(self) -> None:
        """Beside the guess stand whole steps of the batch: hits and misses are what would have been seen elsewhere."""
        posterior, rng = AcceptancePosterior(1, [0.8]), np.random.default_rng(0)
        for block in range(40):
            batch, a = (32, 0.6) if block % 4 == 3 else (4, 0.8)
            for _ in range(20):
                posterior.observe(*drafts(rng, a, 1, batch), asked=1, decodes=batch, batch=batch)
        assert posterior.alarms == 0
        assert posterior.offsets.ratio < 0.8
        steps = 0
        while not posterior.observe([1] * 32, [0] * 32, asked=1, decodes=32, batch=32):
            steps += 1
        counted = (trials(posterior, 0) - RESTART_WEIGHT) / 32
        assert counted == pytest.approx(round(counted), abs=1e-9)
        assert 2 <= counted <= steps + 2

    def test_a_step_of_no_batch_size_is_held_against_what_all_have_in_common(self) -> None:
        """After peculiar steps at one batch size it is counted as by a posterior that has learnt of none."""
        posterior, rng = AcceptancePosterior(2, [0.8]), np.random.default_rng(0)
        for block in range(40):
            batch, a = (32, 0.6) if block % 4 == 3 else (4, 0.8)
            for _ in range(20):
                posterior.observe(*drafts(rng, a, 2, batch), asked=2, decodes=batch, batch=batch)
        assert posterior.offsets.ratio < 0.8
        other = AcceptancePosterior(2)
        other.load(posterior.snapshot())
        other.offsets = BatchOffsets()
        posterior._reference.positions, other._reference.positions = [], []
        for _ in range(50):
            drafted, accepted = drafts(rng, 0.75, 2, 8)
            for one in (posterior, other):
                one.observe(drafted, accepted, asked=2, decodes=8)
        ours, without = posterior.snapshot(), other.snapshot()
        assert ours.pop("offsets") != without.pop("offsets")
        assert ours == without

    def test_what_comes_and_goes_is_no_alarm_each_time(self) -> None:
        """0.85 and 0.2 in turn: the first fall is one, after it either belief is taken up again within six steps.

        Fixed seeds: of 8, two had alarms at their last fall.
        """
        for seed in (0, 1, 4):
            posterior, rng = AcceptancePosterior(3, [0.85]), np.random.default_rng(seed)
            play(posterior, rng, 0.85, 3, 16, 200)
            play(posterior, rng, 0.2, 3, 16, 100)
            for a in (0.85, 0.2) * 3:
                assert play(posterior, rng, a, 3, 16, 6) <= 6
                play(posterior, rng, a, 3, 16, 100)
                assert mean(posterior, 0) == pytest.approx(a, abs=0.05)
            assert posterior.alarms == 1

    def test_a_restart_holds_no_more_than_the_memory(self) -> None:
        """Steps of 2,000 trials: those since the suspicion are more than are kept at a position."""
        posterior = AcceptancePosterior(1, [0.8])
        for _ in range(20):
            posterior.observe([1] * 2000, [1] * 1600 + [0] * 400, asked=1, decodes=2000)
        while not posterior.observe([1] * 2000, [1] * 200 + [0] * 1800, asked=1, decodes=2000):
            pass
        assert trials(posterior, 0) == pytest.approx(MEMORY_TRIALS)
        assert mean(posterior, 0) == pytest.approx(0.1, abs=0.002)

    def test_a_suspicion_from_before_a_spell_at_k0_is_dropped(self) -> None:
        """Three bad steps of the four that an alarm needs, nothing drafted for a while, and another bad one."""
        for rest, alarmed in ((0, True), (20, False)):
            posterior = AcceptancePosterior(1, [0.8])
            for s in (4, 5, 5, 5, 4, 5, 5, 5) * 5:
                posterior.observe([1] * 6, [1] * s + [0] * (6 - s), asked=1, decodes=6)
            for _ in range(3):
                assert not posterior.observe([1] * 6, [0] * 6, asked=1, decodes=6)
            for _ in range(rest):
                posterior.observe([], [], asked=0, decodes=6)
            assert posterior.observe([1] * 6, [0] * 6, asked=1, decodes=6) is alarmed

    def test_what_was_believed_for_moments_only_is_not_what_comes_back(self) -> None:
        """0.9 for long, 0.1 for some steps, then 0.5: the belief that is kept for a return is still that of 0.9."""
        for seed in range(4):
            posterior, rng = AcceptancePosterior(1, [0.85]), np.random.default_rng(seed)
            play(posterior, rng, 0.9, 1, 16, 300)
            for a, steps in ((0.1, 10), (0.5, 20)):
                assert play(posterior, rng, a, 1, 16, steps) <= steps
            assert posterior.alarms >= 2
            assert play(posterior, rng, 0.9, 1, 16, 15) <= 15
            assert trials(posterior, 0) > 250.0  # those of long ago

    def test_what_was_believed_for_long_is(self) -> None:
        """0.9, then 0.1 for more than 60 steps, 0.5 for a while: what comes back at once is 0.1."""
        for seed in range(4):
            posterior, rng = AcceptancePosterior(1, [0.85]), np.random.default_rng(seed)
            play(posterior, rng, 0.9, 1, 16, 300)
            play(posterior, rng, 0.1, 1, 16, 2 * ESTABLISHED)
            play(posterior, rng, 0.5, 1, 16, 20)
            alarms = posterior.alarms
            assert play(posterior, rng, 0.1, 1, 16, 15) <= 15
            assert posterior.alarms == alarms  # a return is no alarm
            assert mean(posterior, 0) < 0.2
            assert trials(posterior, 0) > 250.0

    def test_single_requests_scatter_as_chance_does(self) -> None:
        """One draft a step, half of them accepted: the scatter over the binomial is about 1, and none is hidden."""
        posterior, rng = AcceptancePosterior(1, [0.5]), np.random.default_rng(1)
        play(posterior, rng, 0.5, 1, 1, 320)
        data = posterior.snapshot()["scatter"]
        assert data["_square"] / data["_variance"] == pytest.approx(1.0, abs=0.05)

    def test_a_step_that_is_certain_has_a_variance_of_a_hundredth(self) -> None:
        """All is accepted for 1,000 steps: what is expected to scatter is small, and never none, to divide by."""
        posterior = AcceptancePosterior(1, [0.9])
        for _ in range(1000):
            posterior.observe([1], [1], asked=1, decodes=1)
        p = mean(posterior, 0)
        assert p * (1.0 - p) < 0.005
        assert posterior.snapshot()["scatter"]["_variance"] == pytest.approx(0.01, rel=0.1)

    def test_a_rise_from_02_to_085_is_detected_within_8_steps(self) -> None:
        for seed in range(5):
            posterior, rng = AcceptancePosterior(3, [0.2]), np.random.default_rng(seed)
            play(posterior, rng, 0.2, 1, 8, 300)
            assert play(posterior, rng, 0.85, 1, 8, 8) <= 8

    def test_false_alarms_are_rare_in_calm(self) -> None:
        """Over 12,000 steps in 24 worlds that stay as they are, at most two."""
        alarms = 0
        for seed in range(24):
            a, batch = (0.2, 0.5, 0.85)[seed % 3], (1, 4, 16, 64)[seed % 4]
            posterior, rng = AcceptancePosterior(3, [a]), np.random.default_rng(100 + seed)
            for _ in range(5):
                play(posterior, rng, a, 3, batch, 100)
            alarms += posterior.alarms
        assert alarms <= 2

    def test_lasting_differences_between_steps_are_taken_for_scatter(self) -> None:
        """Acceptance that scatters from step to step by 0.1 raises no more than one alarm in 500 steps."""
        alarms = 0
        for seed in range(5):
            posterior, rng = AcceptancePosterior(3, [0.7]), np.random.default_rng(seed)
            for step in range(600):
                a = float(np.clip(0.7 + 0.1 * rng.standard_normal(), 0.3, 0.99))
                changed = posterior.observe(*drafts(rng, a, 3, 32), asked=3, decodes=32)
                alarms += changed and step >= 100
        assert alarms <= 5

    @pytest.mark.parametrize(("hits", "side"), [(6, 0), (2, 1)])
    def test_a_step_says_less_for_a_change_where_little_is_known(self, hits: int, side: int) -> None:
        """By hand: 8 drafts against a table's 16 trials at one half, log likelihood ratios of a shift by 1.5.

        6 accepted say 6 * 1.5 - 8 * log(1/2 + e^1.5 / 2) for a rise, over 1 + 8 / 16 for what is not known of the half.
        """
        posterior = AcceptancePosterior(1, [0.5])
        assert not posterior.observe([1] * 8, [1] * hits + [0] * (8 - hits), asked=1, decodes=8)
        rise = (6 * 1.5 - 8 * math.log(0.5 + 0.5 * math.exp(1.5))) / 1.5
        sums = posterior.snapshot()["cusum"]
        assert sums[side] == pytest.approx(rise)
        assert sums[1 - side] == 0.0

    def test_an_alarm_forgets_what_was_counted_before(self) -> None:
        posterior, rng = AcceptancePosterior(1, [0.85]), np.random.default_rng(0)
        play(posterior, rng, 0.85, 1, 16, 300)
        believed = trials(posterior, 0)
        steps = play(posterior, rng, 0.2, 1, 16, 20)
        assert steps <= 20
        assert trials(posterior, 0) < 0.2 * believed

    @pytest.mark.parametrize("batch", [1, 2])
    def test_few_skewed_trials_raise_no_more_false_alarms(self, batch: int) -> None:
        """0.9 accepted: over 20 runs of 1,000 steps at most three alarms; threshold 9 allows 5 in 40,000 at most."""
        alarms = 0
        for seed in range(20):
            posterior, rng = AcceptancePosterior(3, [0.9]), np.random.default_rng(seed)
            play(posterior, rng, 0.9, 3, batch, 1000)
            alarms += posterior.alarms
        assert alarms <= 3


class TestCold:
    """A drafter that is poor for some steps after it was left alone."""

    @staticmethod
    def visited(spells: int) -> AcceptancePosterior:
        """Half of what is usually accepted in the first 8 steps after each spell at K=0, and as usual after them."""
        posterior, rng = AcceptancePosterior(3, [0.8]), np.random.default_rng(5)
        play(posterior, rng, 0.8, 3, 16, 100)
        for _ in range(spells):
            for _ in range(12):
                posterior.observe([], [], asked=0, decodes=16)
            play(posterior, rng, 0.4, 3, 16, 8)
            play(posterior, rng, 0.8, 3, 16, 60)
        for _ in range(12):
            posterior.observe([], [], asked=0, decodes=16)
        return posterior

    def test_what_it_does_next_is_expected_to_be_as_poor_and_the_long_run_is_not(self) -> None:
        """By hand: every acceptance is multiplied by the factor that was seen; draws of a visit are, others are not."""
        posterior = self.visited(5)
        factor = posterior._warmth.factor
        assert factor < 0.75
        a, b, c = (mean(posterior, j) for j in range(3))
        assert a == pytest.approx(0.8, abs=0.06)
        assert posterior.lengths((0, 1, 3)) == pytest.approx([1.0, 1.0 + a, 1.0 + a + a * b + a * b * c], rel=0.01)
        a, b, c = a * factor, b * factor, c * factor
        now = posterior.lengths_now((0, 1, 3))
        assert now == pytest.approx([1.0, 1.0 + a, 1.0 + a + a * b + a * b * c], rel=0.01)
        for visit, expected in ((True, now), (False, posterior.lengths((0, 1, 3)))):
            draws = posterior.draws((0, 1, 3), 20_000, np.random.default_rng(0), visit=visit)
            assert draws.mean(axis=0) == pytest.approx(expected, rel=0.02)

    def test_a_poor_step_counts_little_at_first(self) -> None:
        """By hand: of 32 drafts none is accepted; what counts are those expected, but for 1/40 squared of them."""
        posterior = AcceptancePosterior(1, [0.8])
        for _ in range(40):
            posterior.observe([1] * 20, [1] * 16 + [0] * 4, asked=1, decodes=20)
        for _ in range(10):
            posterior.observe([], [], asked=0, decodes=20)
        (a,), (b,) = posterior.alpha, posterior.beta
        assert not posterior.observe([1] * 32, [0] * 32, asked=1, decodes=32)
        fade, believed = 1.0 - 1.0 / MEMORY_STEPS, (1.0 / 40.0) ** 2
        hits = 32.0 * a / (a + b) * (1.0 - believed)
        assert posterior.alpha[0] == pytest.approx(a * fade + hits, rel=1e-6)
        assert posterior.beta[0] == pytest.approx(b * fade + 32.0 - hits, rel=1e-6)

    def test_a_good_one_counts_in_full(self) -> None:
        posterior = AcceptancePosterior(1, [0.5])
        for _ in range(10):
            posterior.observe([], [], asked=0, decodes=20)
        (a,), (b,) = posterior.alpha, posterior.beta
        posterior.observe([1] * 32, [1] * 32, asked=1, decodes=32)
        fade = 1.0 if a + b <= FLOOR_TRIALS else 1.0 - 1.0 / MEMORY_STEPS
        assert posterior.alpha[0] == pytest.approx(a * fade + 32.0)
        assert posterior.beta[0] == pytest.approx(b * fade)


class TestNewWeights:
    def test_they_widen_at_once_and_keep_the_mean(self) -> None:
        posterior = AcceptancePosterior(3, [0.6])
        play(posterior, np.random.default_rng(0), 0.7, 3, 16, 300)
        before, sure = posterior.means(), np.std(posterior.draws((3,), 4000, np.random.default_rng(0)))
        posterior.note_weights_changed()
        assert posterior.means() == pytest.approx(before, abs=1e-9)
        assert np.std(posterior.draws((3,), 4000, np.random.default_rng(0))) > 5.0 * sure
        assert [trials(posterior, j) for j in range(3)] == pytest.approx([RELOADED_TRIALS] * 3)

    def test_positions_that_are_not_drafted_follow_from_there(self) -> None:
        """What the drafted ones moved before the change of weights is not moved once more."""
        posterior = AcceptancePosterior(3, [0.6])
        play(posterior, np.random.default_rng(0), 0.8, 1, 16, 40)
        posterior.note_weights_changed()
        before = [logit(mean(posterior, j)) for j in range(3)]
        posterior.observe([1] * 16, [1] * 8 + [0] * 8, asked=1, decodes=16)
        posterior.settle()
        moved = [logit(mean(posterior, j)) - before[j] for j in range(3)]
        assert moved[0] < -0.3
        assert moved[1:] == pytest.approx([moved[0]] * 2)

    def test_what_was_believed_before_the_old_weights_does_not_come_back(self) -> None:
        """A fall under the old weights is forgotten with them: what was before it is no belief to return to."""
        posterior, rng = AcceptancePosterior(1, [0.85]), np.random.default_rng(0)
        play(posterior, rng, 0.9, 1, 16, 300)
        play(posterior, rng, 0.1, 1, 16, 100)
        posterior.note_weights_changed()
        play(posterior, rng, 0.9, 1, 16, 30)
        assert trials(posterior, 0) < 40 * 16

    def test_few_trials_stay_as_few(self) -> None:
        posterior = AcceptancePosterior(2)
        before = list(posterior.alpha), list(posterior.beta)
        posterior.note_weights_changed()
        assert (posterior.alpha, posterior.beta) == before

    def test_five_steps_of_the_new_weights_outweigh_the_old(self) -> None:
        """0.7 before, 0.3 after, 80 first drafts: believed within 0.15 of that."""
        posterior = AcceptancePosterior(3, [0.6])
        play(posterior, np.random.default_rng(0), 0.7, 3, 16, 300)
        posterior.note_weights_changed()
        play(posterior, np.random.default_rng(1), 0.3, 3, 16, 5)
        assert posterior.means()[0] == pytest.approx(0.3, abs=0.15)


class TestNeverDrafted:
    @pytest.mark.parametrize(("a", "low", "high"), [(0.9, 0.6, 0.97), (0.2, 0.03, 0.5)])
    def test_a_position_beyond_those_drafted_follows_them_and_stays_unsure(
        self, a: float, low: float, high: float
    ) -> None:
        """Only K=1 is played, also through an alarm: deeper positions are near the first, never 0, and wider."""
        posterior = AcceptancePosterior(15, [0.6])
        play(posterior, np.random.default_rng(0), a, 1, 16, 300)
        posterior.settle()
        means = posterior.means()
        assert all(low < mean < high for mean in means[1:])
        first, fourth = (posterior.draws((k,), 4000, np.random.default_rng(0)) for k in (1, 4))
        assert np.std(fourth) > 2.0 * np.std(first)

    def test_nothing_breaks_where_nothing_is_ever_accepted(self) -> None:
        posterior = AcceptancePosterior(15, [0.6])
        for _ in range(200):
            posterior.observe([15] * 8, [0] * 8, asked=15, decodes=8)
        posterior.settle()
        assert all(0.0 < mean < 0.05 for mean in posterior.means())
        assert np.all(posterior.draws((15,), 200, np.random.default_rng(0), visit=True) < 1.2)

    def test_k_max_may_be_0(self) -> None:
        posterior = AcceptancePosterior(0)
        posterior.observe([0], [0], asked=0, decodes=1, batch=1)
        for batch in (2, 6):
            posterior.observe([0] * batch, [0] * batch, asked=3, decodes=batch, batch=batch)
        posterior.note_weights_changed()
        posterior.settle()
        assert posterior.lengths_now((0,), 4) == [1.0]
        assert posterior.draws((0,), 3, np.random.default_rng(0), visit=True).tolist() == [[1.0]] * 3


class TestVisitDraws:
    @pytest.mark.parametrize(("prior", "steps"), [([0.8, 0.6], 0), ([0.5], 3), ([0.9], 40), ([0.1], 40)])
    def test_they_have_the_mean_and_about_the_spread_of_the_betas(self, prior: list[float], steps: int) -> None:
        """Means to 1.5 %, standard deviations to 20 %."""
        posterior = AcceptancePosterior(5, prior)
        play(posterior, np.random.default_rng(0), prior[0], 3, 4, steps)
        betas, normals = (
            posterior.draws((1, 3, 5), 40_000, np.random.default_rng(1), visit=visit) for visit in (False, True)
        )
        assert normals.mean(axis=0) == pytest.approx(betas.mean(axis=0), rel=0.015)
        assert normals.std(axis=0) == pytest.approx(betas.std(axis=0), rel=0.2)

    def test_a_drafter_that_often_returns_nothing_is_drawn_with_that(self) -> None:
        posterior = AcceptancePosterior(3, [0.8])
        for step in range(60):
            posterior.observe([3, 3, 0, 0], [3 - step % 2, 1, 0, 0], asked=3, decodes=4)
        normals = posterior.draws((1, 3), 40_000, np.random.default_rng(1), visit=True)
        assert normals.mean(axis=0) == pytest.approx(posterior.lengths((1, 3)), rel=0.02)


class TestSupply:
    def test_a_drafter_that_returns_half_yields_half(self) -> None:
        """Half of the requests get three drafts, all are accepted: 0.5 * 3 tokens above one, verified in 1.5 drafts."""
        posterior = AcceptancePosterior(3, [0.9])
        for _ in range(200):
            posterior.observe([3, 3, 0, 0], [3, 3, 0, 0], asked=3, decodes=4)
        assert posterior.drafted_share == pytest.approx(0.5, abs=0.02)
        assert posterior.lengths((0, 1, 3)) == pytest.approx([1.0, 1.5, 2.5], abs=0.05)
        assert posterior.widths((0, 1, 3)) == pytest.approx([0.0, 0.5, 1.5], abs=0.05)

    def test_a_drafter_that_stops_short_shows_it_where_it_stops(self) -> None:
        """Two of three drafts: the first two positions are always there, the third never."""
        posterior = AcceptancePosterior(3, [0.9])
        for _ in range(200):
            posterior.observe([2, 2], [1, 2], asked=3, decodes=2)
        assert posterior.widths((1, 2, 3)) == pytest.approx([1.0, 2.0, 2.0], abs=0.03)

    def test_requests_that_have_just_joined_say_nothing_of_the_drafter(self) -> None:
        """The batch grows by two every third step; they have no drafts in their first one, later all have."""
        posterior, batch = AcceptancePosterior(3, [0.9]), 4
        for step in range(60):
            joined = 2 if step % 3 == 2 else 0
            posterior.observe([3] * batch + [0] * joined, [2] * batch + [0] * joined, asked=3, decodes=batch + joined)
            batch = batch + joined if step < 50 else 4
        assert posterior.widths((3,)) == pytest.approx([3.0], abs=0.02)

    def test_a_batch_that_grows_does_not_hide_a_drafter_that_returns_nothing(self) -> None:
        posterior = AcceptancePosterior(3, [0.9])
        for step in range(60):
            batch = 8 + step % 2
            posterior.observe([3] + [0] * (batch - 1), [2] + [0] * (batch - 1), asked=3, decodes=batch)
        assert posterior.drafted_share == pytest.approx(1.0 / 8.0, abs=0.02)

    def test_a_smaller_k_says_nothing_of_what_lies_behind_it(self) -> None:
        posterior = AcceptancePosterior(3, [0.9])
        for _ in range(100):
            posterior.observe([1, 1], [1, 1], asked=1, decodes=2)
        assert posterior.widths((3,)) == pytest.approx([3.0], abs=0.03)

    def test_the_long_run_is_what_a_table_holds(self) -> None:
        """Acceptance that counts missing drafts as rejected, drafts verified, and the share that came, falling."""
        posterior = AcceptancePosterior(3, [0.9])
        for _ in range(1000):
            posterior.observe([3, 1, 0, 0], [2, 1, 0, 0], asked=3, decodes=4)
        acceptance, widths, supply = posterior.long_run((0, 1, 3))
        assert supply == pytest.approx([0.5, 0.25, 0.25], abs=0.01)
        assert widths == pytest.approx([0.0, 0.5, 1.0], abs=0.04)
        given = (0.5, 0.5, 1.0)
        assert acceptance == pytest.approx([mean(posterior, j) * given[j] for j in range(3)], rel=0.05)
        assert AcceptancePosterior(3).long_run((0, 3))[1:] == ([0.0, 3.0], None)
        assert AcceptancePosterior(0).long_run((0,)) == ([], [0.0], None)

    def test_a_drafter_that_comes_back_is_believed_again(self) -> None:
        posterior = AcceptancePosterior(3, [0.9])
        for _ in range(100):
            posterior.observe([0] * 4, [0] * 4, asked=3, decodes=4)
        assert posterior.drafted_share < 0.05
        for _ in range(100):
            posterior.observe([3] * 4, [3] * 4, asked=3, decodes=4)
        assert posterior.drafted_share > 0.9


class TestStops:
    @pytest.mark.parametrize("hazard", [0.02, 0.1, 0.3])
    def test_the_length_is_that_of_the_tokens_that_counted(self, hazard: float) -> None:
        """Requests end at a token with the stated probability; what lies behind is worth nothing."""
        posterior, rng = AcceptancePosterior(7, [0.9]), np.random.default_rng(2)
        counted = []
        for _ in range(400):
            drafted, accepted = drafts(rng, 0.9, 7, 16)
            ends = rng.geometric(hazard, size=16).tolist()
            emitted = [min(n + 1, end) for n, end in zip(accepted, ends, strict=True)]
            posterior.observe(drafted, accepted, asked=7, decodes=16, emitted=emitted)
            counted.append(sum(emitted) / 16)
        assert posterior.lengths((7,))[0] == pytest.approx(np.mean(counted), rel=0.03)

    def test_they_lower_a_large_k_most(self) -> None:
        with_stops, without = AcceptancePosterior(7, [0.9]), AcceptancePosterior(7, [0.9])
        for _ in range(100):
            with_stops.observe([7, 7], [7, 7], asked=7, decodes=2, emitted=[3, 8])
            without.observe([7, 7], [7, 7], asked=7, decodes=2, emitted=[8, 8])
        ratios = np.divide(with_stops.lengths((0, 1, 3, 7)), without.lengths((0, 1, 3, 7)))
        assert ratios[0] == 1.0
        assert np.all(np.diff(ratios) < -0.01)


def test_it_survives_json_in_the_middle_of_everything() -> None:
    """Taken while drafts, supply, stops and a suspicion are under way; both go on alike through an alarm."""
    posterior, rng = AcceptancePosterior(3, [0.85]), np.random.default_rng(0)
    play(posterior, rng, 0.85, 3, 8, 70)
    posterior.observe([3, 1, 0], [1, 1, 0], asked=3, decodes=3, emitted=[2, 1, 1])
    posterior.observe([3] * 8, [0] * 8, asked=3, decodes=8)
    other = AcceptancePosterior(3)
    other.load(json.loads(json.dumps(posterior.snapshot())))
    assert other.snapshot() == posterior.snapshot()
    assert posterior.alarms == 0
    answers = []
    for _ in range(40):
        drafted, accepted = drafts(rng, 0.2, 1, 8)
        answers.append([p.observe(drafted, accepted, 1, 8) for p in (posterior, other)])
    posterior.settle()
    other.settle()
    assert [True, True] in answers
    assert all(one == two for one, two in answers)
    assert other.snapshot() == posterior.snapshot()
    assert other.lengths((0, 1, 3)) == posterior.lengths((0, 1, 3))


def test_a_belief_that_may_come_back_survives_json() -> None:
    """Taken after a fall: both see the return of the former acceptance at the same step, and believe the same then."""
    posterior, rng = AcceptancePosterior(3, [0.85]), np.random.default_rng(0)
    play(posterior, rng, 0.85, 3, 8, 300)
    assert play(posterior, rng, 0.2, 3, 8, 40) <= 40
    other = AcceptancePosterior(3)
    other.load(json.loads(json.dumps(posterior.snapshot())))
    alarms = posterior.alarms
    returns = [play(one, np.random.default_rng(1), 0.85, 3, 8, 20) for one in (posterior, other)]
    assert returns[0] == returns[1] <= 5
    assert posterior.alarms == alarms
    assert trials(posterior, 0) > 300.0
    assert other.snapshot() == posterior.snapshot()


@pytest.mark.parametrize("all_accepted", [True, False])
def test_what_never_happens_can_still_be_drawn_from(all_accepted: bool) -> None:
    """Thousands of steps without a rejection, or without an acceptance, by a drafter that now and then returns less."""
    posterior = AcceptancePosterior(3, [0.7])
    drafted = [3] * 400
    accepted = drafted if all_accepted else [0] * 400
    for step in range(8000):
        few = [1] * 400 if all_accepted and step % 1000 == 20 else drafted
        posterior.observe(few, [min(a, d) for a, d in zip(accepted, few, strict=True)], asked=3, decodes=400)
        if step % 32 == 0:
            posterior.settle()
        if step % 160 == 159:
            for visit in (False, True):
                lengths = posterior.draws((0, 1, 3), 50, np.random.default_rng(0), visit=visit)
                assert abs(float(lengths[:, 2].mean()) - (4.0 if all_accepted else 1.0)) < 0.2
