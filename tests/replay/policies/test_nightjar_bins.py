from __future__ import annotations

import random

import pytest

from adaptk.replay.policies.credit import Played
from adaptk.replay.policies.nightjar_bins import BinPlanner, NightjarBins, pass_ms
from adaptk.table import GoodputTable
from tests.replay.policies.small_engine import STARTUP, setup


class Draws(random.Random):
    """Explores in the bins listed, always the last arm."""

    def __init__(self, explores: list[bool]) -> None:
        super().__init__(0)
        self._explores = explores

    def random(self) -> float:
        return 0.0 if self._explores.pop(0) else 1.0

    def choice(self, seq):  # type: ignore[no-untyped-def]
        return seq[-1]


def sample(arm: int, ms: float, tokens: int = 1) -> Played:
    return Played(arm, 1, ms, tokens, float(tokens), True)


def test_blocks_of_16_and_32_steps_have_bins_of_4_and_6() -> None:
    """Exploring the first bin of each block, and the last one of the second, which has 2 steps left."""
    planner = BinPlanner((0, 3), Draws([True, False, False, False, True, False, False, False, False, True]))
    planner.take(sample(0, 10.0, 5))
    planner.take(sample(3, 10.0))
    played = [planner.next(0.0) for _ in range(16)]
    planner.take(sample(0, 10.0, 5))
    planner.take(sample(3, 10.0))
    played += [planner.next(0.0) for _ in range(32)]
    explore, exploit = (3, True), (0, False)
    assert played == [explore] * 4 + [exploit] * 12 + [explore] * 6 + [exploit] * 24 + [explore] * 2


def test_the_share_of_exploring_bins_falls_with_the_cube_root_of_the_block() -> None:
    planner = BinPlanner((0, 3), random.Random(1))
    shares = []
    for block in (16, 32, 64, 128, 256, 512, 1024, 2048, *[4096] * 40):
        for arm in (0, 3):
            planner.take(sample(arm, 10.0))
        shares.append(sum(planner.next(0.0)[1] for _ in range(block)) / block)
    assert sum(shares[8:]) / 40 == pytest.approx(4096 ** (-1 / 3), abs=0.02)  # 2,560 bins: 4 standard deviations


def test_an_arm_never_tried_comes_first_and_old_blocks_are_forgotten() -> None:
    planner = BinPlanner((0, 1), Draws([False] * 99))
    assert planner.next(0.0) == (0, True)
    planner.take(sample(0, 10.0))
    assert planner.next(0.0) == (1, True)
    planner.take(sample(1, 5.0))
    assert [planner.next(0.0) for _ in range(14)] == [(1, False)] * 14
    planner.take(sample(1, 5.0))
    assert [planner.next(0.0) for _ in range(32)] == [(1, False)] * 32  # both are known of the last block
    planner.take(sample(1, 5.0))
    assert planner.next(0.0) == (0, True)  # K=0 was last seen two blocks ago


def test_the_best_is_tokens_over_milliseconds_of_all_steps() -> None:
    """K=1: 2 tokens in 10 ms and in 40 ms: 0.08 (the mean of ratios would be 0.125); K=0: 0.1."""
    planner = BinPlanner((0, 1), Draws([False] * 9))
    planner.take(sample(0, 10.0))
    planner.take(sample(1, 10.0, 2))
    planner.take(sample(1, 40.0, 2))
    assert planner.next(0.0) == (0, False)


def test_re_enabling_must_pay_within_a_bin() -> None:
    """K=1: 2 tokens in 16 ms against 1 in 10; with 20 ms on 4 steps 2 in 21: worse. With 12 ms 2 in 19: better."""
    planner = BinPlanner((0, 1), Draws([False] * 9))
    planner.take(sample(0, 10.0))
    planner.take(sample(1, 16.0, 2))
    assert planner.next(20.0) == (0, False)
    assert planner.next(12.0) == (1, False)


def test_the_penalty_grows_with_the_gap_and_no_further_than_the_context() -> None:
    """At batch 64 a pass costs 0.8 + 0.02 x 48.5 ms; 100 steps at K=0 are 6,400 tokens, 25 passes."""
    policy = NightjarBins(setup((0, 1)))
    seen: list[float] = []

    class Planner(BinPlanner):
        def next(self, penalty_ms: float) -> tuple[int, bool]:
            seen.append(penalty_ms)
            return (1 if len(seen) == 101 else 0), False

    policy._planners[6] = Planner((0, 1), random.Random(0))
    for _ in range(101):
        policy.choose(64, context_tokens=1_000_000)
    one = 0.8 + 0.02 * 48.5
    assert seen[:2] == [0.0, pytest.approx(one)]
    assert seen[100] == pytest.approx(25 * one)
    policy.choose(64, context_tokens=1_000_000)
    assert seen[-1] == 0.0  # the drafter ran in the step before
    policy.choose(64, context_tokens=512)
    for _ in range(50):
        policy.choose(64, context_tokens=512)
    assert seen[-1] == pytest.approx(2 * one)


def test_a_profile_without_times_prices_nothing() -> None:
    assert pass_ms(STARTUP, 1.0) == pytest.approx(0.82)
    assert pass_ms(GoodputTable.from_schedule([[1, 64, 3]]), 1.0) == 0.0
