from __future__ import annotations

import math

import pytest

from adaptk.replay.policies.base import Policy
from adaptk.replay.policies.window_bandit import WINDOW, EpsilonMean, EpsilonMedian, RunningMeans, WindowUcb
from tests.replay.policies.small_engine import setup, step


def greedy(policy: Policy, batch: int = 1) -> int:
    """The choice that no draw of epsilon made: the commonest of 31, nothing observed between."""
    choices = [policy.choose(batch) for _ in range(31)]
    return max(set(choices), key=choices.count)


def feed(policy: Policy, arm: int, times: int = 1, ms: float = 10.0, accepted: int = 0, batch: int = 1) -> None:
    """Steps that verify and draft for ``arm``; a first one without time takes the credit's place over."""
    policy.observe(step(0, made=arm, ms=None))
    for _ in range(times):
        policy.observe(step(arm, ms=ms, accepted=accepted, batch=batch))


def test_epsilon_median_plays_the_best_median_of_the_bin() -> None:
    """K=0: 1 / 10; K=1: 2 / 16; K=3: 4 / 20, twice, and once 4 / 100, which a mean would hold against it."""
    policy = EpsilonMedian(setup((0, 1, 3)))
    feed(policy, 0, 3, ms=10.0)
    feed(policy, 1, 3, ms=16.0, accepted=1)
    feed(policy, 3, 2, ms=20.0, accepted=3)
    feed(policy, 3, 1, ms=100.0, accepted=3)
    assert greedy(policy) == 3
    feed(policy, 3, 2, ms=100.0, accepted=3)
    assert greedy(policy) == 1


def test_epsilon_median_takes_the_acceptance_length_from_all_batch_sizes() -> None:
    """At batch 8 K=3 got 4 tokens each time and K=1 2; a single lucky and unlucky step at batch 1 counts for little."""
    policy = EpsilonMedian(setup((1, 3)))
    feed(policy, 1, 5, ms=10.0, accepted=1, batch=8)
    feed(policy, 3, 5, ms=10.0, accepted=3, batch=8)
    feed(policy, 1, 1, ms=10.0, accepted=1)
    feed(policy, 3, 1, ms=15.0, accepted=0)
    assert greedy(policy) == 3  # (median 4) / 15 > 2 / 10, though the step itself gave 1 / 15


def test_epsilon_median_tries_unseen_and_expired_arms_first() -> None:
    policy = EpsilonMedian(setup((0, 1, 3)))
    feed(policy, 0)
    assert greedy(policy) == 1
    feed(policy, 1)
    assert greedy(policy) == 3
    feed(policy, 3)
    assert greedy(policy) == 0  # all equally long, and K=0 emits as much as any: the first
    feed(policy, 0, WINDOW - 2)
    assert greedy(policy) == 0  # the reward of K=1 is the last but one of the window
    feed(policy, 0)
    assert greedy(policy) == 1
    assert greedy(policy, batch=2) == 0  # another bin, nothing seen


@pytest.mark.parametrize(("kind", "epsilon"), [(EpsilonMedian, 0.1), (EpsilonMean, 0.15)])
def test_epsilon_is_the_share_of_random_choices(kind: type[EpsilonMedian | EpsilonMean], epsilon: float) -> None:
    policy = kind(setup((0, 1)))
    feed(policy, 0, ms=1.0)
    feed(policy, 1, ms=9.0)
    flags, choices = [], []
    for _ in range(20_000):
        choices.append(policy.choose(1))
        flags.append(policy.exploring)
    assert sum(flags) / len(flags) == pytest.approx(epsilon, abs=0.01)  # 4 standard deviations
    assert sum(choices) / len(choices) == pytest.approx(epsilon / 2, abs=0.01)


def test_epsilon_mean_plays_the_best_mean() -> None:
    """K=1: 2 / 16 and 2 / 4, mean 0.3125; K=0: 0.2. A median window would see the same; the mean is moved by one."""
    policy = EpsilonMean(setup((0, 1)))
    feed(policy, 0, 3, ms=5.0)
    feed(policy, 1, 2, ms=16.0, accepted=1)
    assert greedy(policy) == 0
    feed(policy, 1, ms=4.0, accepted=1)
    assert greedy(policy) == 1


def test_running_means_reset_after_30_steps_below_0_7_of_their_average() -> None:
    """From 1 to 0.2 the average is still 0.2 + 0.8 x 0.95^29 = 0.381 at the 30th step, and 0.2 < 0.7 x 0.381."""
    means = RunningMeans((0, 1))
    for _ in range(100):
        means.add(0, 1.0)
    for _ in range(29):
        means.add(0, 0.2)
    assert means.means == [pytest.approx((100 + 29 * 0.2) / 129), math.inf]
    means.add(0, 0.2)
    assert means.means == [math.inf, math.inf]


def test_one_good_step_starts_the_count_anew() -> None:
    means = RunningMeans((0,))
    for _ in range(100):
        means.add(0, 1.0)
    for reward in [0.01] * 29 + [1.0] + [0.01] * 10:
        means.add(0, reward)
        assert math.isfinite(means.means[0])


def test_a_fall_to_half_never_resets() -> None:
    """The average comes down to 0.5 / 0.7 within 17 steps."""
    means = RunningMeans((0,))
    for reward in [1.0] * 100 + [0.5] * 100:
        means.add(0, reward)
    assert means.means[0] == pytest.approx(0.75)


def test_no_drop_counts_for_50_steps_after_a_reset() -> None:
    """Ever lower rewards: the second reset comes 50 + 30 steps after the first, not 30."""
    means = RunningMeans((0,))
    means.add(0, 1.0)
    reset_at = []
    for i in range(120):
        means.add(0, 0.8**i)
        if means.means[0] == math.inf:
            reset_at.append(i)
    assert len(reset_at) == 2
    assert reset_at[1] - reset_at[0] == 80


def test_ucbs_bonus_picks_the_least_tried_of_equal_arms() -> None:
    policy = WindowUcb(setup((0, 1, 3)))
    for arm, times in ((0, 5), (1, 3), (3, 4)):
        feed(policy, arm, times, ms=8.0)
    assert policy.choose(1) == 1
    assert policy.exploring  # of equal means the first is the greedy one


def test_ucb_by_hand() -> None:
    """K=0: 0.5 of the largest + sqrt(2 ln 12 / 8) = 1.288; K=1: 1 + sqrt(2 ln 12 / 4) = 2.115."""
    policy = WindowUcb(setup((0, 1)))
    feed(policy, 0, 8, ms=10.0)
    feed(policy, 1, 4, ms=10.0, accepted=1)
    assert policy.choose(1) == 1
    assert not policy.exploring
    feed(policy, 1, 16, ms=10.0, accepted=1)  # 1 + sqrt(2 ln 28 / 20) = 1.577 against 0.5 + sqrt(2 ln 28 / 8) = 1.413
    assert policy.choose(1) == 1
    feed(policy, 1, 32, ms=10.0, accepted=1)  # 1 + sqrt(2 ln 60 / 52) = 1.397 against 0.5 + sqrt(2 ln 60 / 8) = 1.512
    assert policy.choose(1) == 0
    assert policy.exploring


def test_ucb_tries_unseen_and_expired_arms_first() -> None:
    policy = WindowUcb(setup((0, 1)))
    assert policy.choose(1) == 0
    feed(policy, 0)
    assert policy.choose(1) == 1
    feed(policy, 1, accepted=1)
    feed(policy, 1, WINDOW, accepted=1)
    assert policy.choose(1) == 0
    assert policy.exploring


def test_ucb_survives_steps_without_tokens() -> None:
    policy = WindowUcb(setup((0, 1)))
    for arm in (0, 1):
        policy.observe(step(0, made=arm, ms=None))
        record = step(arm)
        policy.observe(type(record)(batch_size=1, elapsed_ms=9.0, k=arm, drafted=[arm], accepted=[0], emitted=[0]))
    assert policy.choose(1) == 0
