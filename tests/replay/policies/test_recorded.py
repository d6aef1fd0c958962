"""The recorded policy, step by step."""

from __future__ import annotations

from adaptk.replay.policies.recorded import Recorded
from tests.replay.recordings import SETUP, step

BEFORE, KS = [0, 0, 4, 9], [3, 1, 0, 2]


def test_plays_what_was_recorded_at_the_same_point_of_the_work() -> None:
    policy = Recorded(SETUP, BEFORE, KS)
    played = []
    for emitted in (0, 4, 5, 3):
        played.append(policy.choose(2))
        policy.observe(step([0], emitted=[emitted]))
    assert played == KS


def test_keeps_to_the_work_where_the_steps_differ() -> None:
    """Twice the tokens per step skip a recorded step, half of them repeat it; behind the end the last K is held."""
    policy = Recorded(SETUP, BEFORE, KS)
    played = []
    for emitted in (8, 1, 1, 100, 0):
        played.append(policy.choose(2))
        policy.observe(step([0], emitted=[emitted]))
    assert played == [3, 0, 2, 2, 2]


def test_steps_that_emit_nothing_are_played_once_each_and_the_last_one_held() -> None:
    policy = Recorded(SETUP, BEFORE, KS)
    played = []
    for _ in range(3):
        played.append(policy.choose(2))
        policy.observe(step([0], emitted=[0]))
    assert played == [3, 1, 1]


def test_may_play_what_was_recorded_beside_its_arms() -> None:
    assert Recorded(SETUP._replace(arms=(0, 3)), [0], [2]).arms == (0, 2, 3)
