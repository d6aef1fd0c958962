from __future__ import annotations

from collections.abc import Callable

import pytest

from adaptk.replay.policies.utility_phases import UtilityPhases
from tests.replay.policies.small_engine import setup, step


def played(policy: UtilityPhases, steps: int, ms: Callable[[int], float], accepted: Callable[[int], int]) -> list[int]:
    """Choices of a policy that hears of each step at once; drafts are verified one step after their choice."""
    choices: list[int] = []
    for _ in range(steps):
        asked = choices[-1] if choices else 0
        k = policy.choose(1)
        policy.observe(step(asked, made=k, ms=ms(asked), accepted=accepted(asked)))
        choices.append(k)
    return choices


def runs(choices: list[int]) -> list[tuple[int, int]]:
    """``(K, times in a row)``."""
    found: list[tuple[int, int]] = []
    for k in choices:
        if found and found[-1][0] == k:
            found[-1] = (k, found[-1][1] + 1)
        else:
            found.append((k, 1))
    return found


def test_a_test_descends_until_utility_falls_then_the_winner_stays() -> None:
    """Utilities 1, 0.8 (K=7), 1.25 (K=3), 1.11 (K=1): ends at K=1. One step in each arm mixes two K and is left out."""
    utility = {0: 1.0, 7: 0.8, 3: 1.25, 1: 1.11}
    policy = UtilityPhases(setup())
    choices = played(policy, 700, lambda k: 10.0 * (1 + k) / utility[k], lambda k: k)
    test = [(0, 5), (7, 5), (3, 5), (1, 5)]
    assert runs(choices) == [*test, (3, 16 * 20), *test, (3, 340)]  # the second one from one above the winner


def test_a_test_ends_where_utility_falls_whatever_lies_below() -> None:
    """Utilities 1.2 (K=7), 0.9 (K=3) and, never seen, 1.5 (K=1)."""
    utility = {0: 1.0, 7: 1.2, 3: 0.9, 1: 1.5}
    choices = played(UtilityPhases(setup()), 200, lambda k: 10.0 * (1 + k) / utility[k], lambda k: k)
    assert runs(choices) == [(0, 5), (7, 5), (3, 5), (7, 185)]


def test_steps_of_two_k_are_no_samples() -> None:
    policy = UtilityPhases(setup((0, 1)))
    for _ in range(10):
        assert policy.choose(1) == 0
        policy.observe(step(0, made=1))
        policy.observe(step(1, made=0))


def test_a_phase_is_at_most_512_steps_long() -> None:
    policy = UtilityPhases(setup((0, 1)))
    choices = played(policy, 2000, lambda k: 10.0, lambda k: k)
    lengths = [n for k, n in runs(choices) if k == 1]
    assert lengths == [5 + 160, 5 + 320, 5 + 512, 5 + 512, 451]


def test_a_winner_that_changed_stays_as_long_as_its_test_says() -> None:
    policy = UtilityPhases(setup((0, 1)))
    played(policy, 10 + 160 + 10 + 320, lambda k: 10.0, lambda k: k)
    choices = played(policy, 10 + 160 + 3, lambda k: 10.0 + 30.0 * k, lambda k: k)
    assert runs(choices) == [(0, 5), (1, 5), (0, 160 + 3)]


def test_speculation_is_off_below_a_utility_of_1() -> None:
    policy = UtilityPhases(setup((0, 1, 3)))
    choices = played(policy, 60, lambda k: 10.0 * (1 + 2 * k), lambda k: k)
    assert set(choices[20:]) == {0}
    assert policy.exploring is False


def test_after_a_phase_at_0_the_test_starts_from_the_largest_arm() -> None:
    policy = UtilityPhases(setup((0, 1, 3)))
    choices = played(policy, 300, lambda k: 10.0 * (1 + 2 * k), lambda k: k)
    assert runs(choices)[:6] == [
        (0, 5),
        (3, 5),
        (1, 5),
        (0, 16 * 15 + 3),
        (3, 5),
        (1, 5),
    ]  # the phase's last step is a sample


def test_an_arm_without_samples_is_given_up_after_16_choices() -> None:
    """A drafter that never drafts: no step is ever credited to K=3."""
    policy = UtilityPhases(setup((0, 3)))
    choices = []
    for _ in range(60):
        choices.append(policy.choose(1))
        policy.observe(step(0, made=choices[-1]))
    assert runs(choices)[:3] == [(0, 5), (3, 16), (0, 39)]


def test_without_times_the_largest_arm_stays() -> None:
    policy = UtilityPhases(setup((0, 3)))
    choices = []
    for _ in range(100):
        choices.append(policy.choose(1))
        policy.observe(step(0, made=choices[-1], ms=None))
    assert runs(choices) == [(0, 16), (3, 84)]


@pytest.mark.parametrize("arms", [(0,), (3,)])
def test_a_single_arm_is_played(arms: tuple[int, ...]) -> None:
    policy = UtilityPhases(setup(arms))
    assert set(played(policy, 100, lambda k: 10.0, lambda k: k)) == set(arms)


def test_bins_of_batch_size_have_tests_of_their_own() -> None:
    policy = UtilityPhases(setup((0, 1)))
    played(policy, 20, lambda k: 10.0, lambda k: k)
    assert policy.choose(1) == 1
    assert not policy.exploring
    assert policy.choose(64) == 0
    assert policy.exploring
