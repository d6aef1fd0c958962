from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.replay.policies.windows import MedianWindow, SumWindow

ARMS = (0, 1, 3)
rewards = st.lists(st.tuples(st.sampled_from(ARMS), st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0])), max_size=60)


@given(rewards, st.integers(1, 20))
def test_medians_are_those_of_the_last_rewards(given_rewards: list[tuple[int, float]], size: int) -> None:
    window = MedianWindow(ARMS, size)
    for arm, reward in given_rewards:
        window.add(arm, reward)
    for arm, median in zip(ARMS, window.medians(), strict=True):
        kept = [reward for a, reward in given_rewards[-size:] if a == arm]
        assert median == (statistics.median(kept) if kept else math.inf)


@given(rewards.filter(bool), st.integers(1, 20))
def test_sums_are_those_of_the_last_rewards(given_rewards: list[tuple[int, float]], size: int) -> None:
    window = SumWindow(ARMS, size)
    for arm, reward in given_rewards:
        window.add(arm, reward)
    kept = given_rewards[-size:]
    assert len(window) == len(kept)
    assert window.largest == max(reward for _, reward in kept)
    for i, arm in enumerate(ARMS):
        assert window.counts[i] == sum(a == arm for a, _ in kept)
        assert window.sums[i] == pytest.approx(sum(reward for a, reward in kept if a == arm))
