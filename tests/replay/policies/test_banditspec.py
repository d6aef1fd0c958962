from __future__ import annotations

import pytest

from adaptk.replay.policies.banditspec import BanditSpecPaper, BanditSpecReleased
from adaptk.replay.policies.base import Policy
from tests.replay.policies.small_engine import setup, step


def feed(policy: Policy, arm: int, times: int = 1, ms: float = 10.0, accepted: int = 0, batch: int = 1) -> None:
    policy.observe(step(0, made=arm, ms=None))
    for _ in range(times):
        policy.observe(step(arm, ms=ms, accepted=accepted, batch=batch))


def test_released_takes_seven_rewards_in_turn_and_is_greedy_ever_after() -> None:
    """K=1 was unlucky in the warm-up: no bonus ever brings it back, though K=4 falls to hardly above it."""
    policy = BanditSpecReleased(setup((0, 1, 2, 3, 4, 7)))
    assert policy.arms == (1, 2, 3, 4)
    ms = {1: 40.0, 2: 20.0, 3: 15.0, 4: 10.0}
    warm_up = []
    for _ in range(7):
        warm_up.append(policy.choose(1))
        assert policy.exploring
        feed(policy, warm_up[-1], ms=ms[warm_up[-1]])
    assert warm_up == [1, 2, 3, 4, 1, 2, 3]
    for i in range(2000):
        assert policy.choose(1) == 4
        assert not policy.exploring
        policy.observe(step(4, ms=14.0 + i % 2))


def test_released_waits_for_rewards_that_are_late() -> None:
    policy = BanditSpecReleased(setup((1, 3)))
    feed(policy, 1, 6)
    assert [policy.choose(1) for _ in range(4)] == [1, 3, 1, 3]
    feed(policy, 3, accepted=1)
    assert [policy.choose(1) for _ in range(4)] == [3, 3, 3, 3]


def test_released_follows_the_mean_down() -> None:
    policy = BanditSpecReleased(setup((1, 3)))
    feed(policy, 1, 6, ms=10.0)
    feed(policy, 3, ms=5.0)
    assert policy.choose(1) == 3
    feed(policy, 3, 2, ms=1000.0)  # mean of 200, 1 and 1 tokens per second: 67 < 100
    assert policy.choose(1) == 1


@pytest.mark.parametrize(("arms", "left"), [((0, 1, 3, 7), (1, 3)), ((0, 7), (7,)), ((0,), (0,))])
def test_released_has_arms_1_to_4_where_it_can(arms: tuple[int, ...], left: tuple[int, ...]) -> None:
    policy = BanditSpecReleased(setup(arms))
    assert policy.arms == left
    assert {policy.choose(1) for _ in range(9)} <= set(arms)


def test_paper_tries_each_arm_once_then_the_largest_bound() -> None:
    policy = BanditSpecPaper(setup((0, 1, 3)))
    for arm in (0, 1, 3):
        assert policy.choose(1) == arm
        assert policy.exploring
        feed(policy, arm)
    assert policy.choose(1) == 0
    feed(policy, 0)
    assert policy.choose(1) == 1  # equal means: the least tried
    assert policy.exploring  # of equal means the first is the greedy one


def test_paper_by_hand() -> None:
    """Means 1 and 0.5 of the largest, n = 20 and 8: 1 + sqrt(3 ln 28 / 20) = 1.707, 0.5 + sqrt(3 ln 28 / 8) = 1.618."""
    policy = BanditSpecPaper(setup((0, 1)))
    feed(policy, 0, 8)
    feed(policy, 1, 20, accepted=1)
    assert policy.choose(1) == 1
    feed(policy, 1, 16, accepted=1)  # n = 36: 1 + sqrt(3 ln 44 / 36) = 1.562, 0.5 + sqrt(3 ln 44 / 8) = 1.691
    assert policy.choose(1) == 0
    assert policy.exploring


def test_paper_counts_per_request_and_released_per_batch() -> None:
    """One request at 10 ms, then 8 at 40 ms: slower for each, faster in all."""
    paper, released = BanditSpecPaper(setup((1, 3))), BanditSpecReleased(setup((1, 3)))
    for policy in (paper, released):
        feed(policy, 1, 50, ms=10.0)
        feed(policy, 3, 50, ms=40.0, batch=8)
    assert paper.choose(8) == 1
    assert released.choose(8) == 3
