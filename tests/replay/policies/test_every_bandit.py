"""What holds for all rules that learn from rewards or rounds, whatever their score."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptk.replay.policies.banditspec import BanditSpecPaper, BanditSpecReleased
from adaptk.replay.policies.base import Policy, Rival, Setup
from adaptk.replay.policies.depth_ewma import DepthEwma
from adaptk.replay.policies.nightjar_bins import NightjarBins
from adaptk.replay.policies.utility_phases import UtilityPhases
from adaptk.replay.policies.window_bandit import EpsilonMean, EpsilonMedian, WindowUcb
from adaptk.step import StepRecord
from tests.replay.policies.small_engine import best_speed, run, setup
from tests.strategies import step_records

RULES: dict[str, Callable[[Setup], Rival]] = {
    "epsilon-median": EpsilonMedian,
    "epsilon-mean": EpsilonMean,
    "window-ucb": WindowUcb,
    "phases": UtilityPhases,
    "banditspec": BanditSpecPaper,
    "banditspec-released": BanditSpecReleased,
    "nightjar-bins": NightjarBins,
    "depth-raw": lambda given_setup: DepthEwma(given_setup, "raw"),
    "depth-bucketed": lambda given_setup: DepthEwma(given_setup, "bucketed"),
    "depth-seeded": lambda given_setup: DepthEwma(given_setup, "seeded"),
}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
ACCEPTANCE = [0.7, 0.6, 0.5, 0.4, 0.4, 0.4, 0.4]
calls = st.lists(st.one_of(step_records(), st.integers(0, 600)), max_size=40)


@every_rule
@given(calls=calls, arms=st.sampled_from([(0,), (2,), (0, 1, 3, 7), (1, 3), tuple(range(8))]))
@settings(max_examples=25)
def test_any_records_in_any_order_give_arms(
    rule: Callable[[Setup], Rival], calls: list[StepRecord | int], arms: tuple[int, ...]
) -> None:
    policy: Policy = rule(setup(arms))
    assert set(policy.arms) <= set(arms)
    for call in [*calls, 8]:
        if isinstance(call, StepRecord):
            assert policy.observe(call) is None
        else:
            assert policy.choose(call, context_tokens=None if call % 2 else 99 * call, decodes=call // 2) in policy.arms


@every_rule
def test_odd_steps_do_no_lasting_harm(rule: Callable[[Setup], Rival]) -> None:
    """A hundred of each kind, then 1,000 usual steps: more than half of the last 500 play the best arm."""
    policy = rule(setup((1, 3)))
    empty = StepRecord(batch_size=0, elapsed_ms=5.0, k=3, drafted=[], accepted=[])
    prefill = StepRecord(batch_size=4, elapsed_ms=90.0, k=3, drafted=[0] * 4, accepted=[0] * 4, decodes=0)
    untimed = StepRecord(batch_size=2, elapsed_ms=None, k=3, drafted=[3, 3], accepted=[0, 3])
    broken = StepRecord(batch_size=2, elapsed_ms=math.nan, k=3, drafted=[3, 0], accepted=[1, 0], draft_k=1)
    for record in (empty, prefill, untimed, broken):
        for _ in range(100):
            policy.choose(record.batch_size)
            policy.observe(record)
    choices, _ = run(policy, 1000, lambda k: 8.0 + 0.4 * k, ACCEPTANCE)
    assert choices[500:].count(3) > 250


@every_rule
def test_the_same_seed_makes_the_same_choices(rule: Callable[[Setup], Rival]) -> None:
    def choices(seed: int) -> list[int]:
        return run(rule(setup(seed=seed)), 400, lambda k: 8.0 + 1.2 * k, ACCEPTANCE, lag=1)[0]

    assert choices(1) == choices(1)


@pytest.mark.parametrize("rule", [EpsilonMedian, EpsilonMean, NightjarBins])
def test_another_seed_makes_other_choices(rule: Callable[[Setup], Rival]) -> None:
    one, two = (run(rule(setup(seed=seed)), 400, lambda k: 8.0 + 1.2 * k, ACCEPTANCE)[0] for seed in (1, 2))
    assert one != two


@every_rule
@pytest.mark.parametrize("lag", [1, 2])
def test_late_feedback_is_credited_to_the_arm_that_earned_it(rule: Callable[[Setup], Rival], lag: int) -> None:
    """K=1 beats K=0 by 30 % and K=7 by 44 %: credit that went astray would show in the share of its choices."""
    policy = rule(setup((0, 1, 7)))
    arms = policy.arms
    choices, speed = run(policy, 1500, lambda k: 8.0 + 2.0 * k, [0.9, 0.3, 0.1, 0.1, 0.1, 0.1, 0.1], lag=lag)
    late = choices[750:]
    assert max(set(late), key=late.count) == 1
    assert speed > 0.8 * best_speed(lambda k: 8.0 + 2.0 * k, [0.9, 0.3, 0.1, 0.1, 0.1, 0.1, 0.1], arms)
