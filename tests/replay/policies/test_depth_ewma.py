from __future__ import annotations

import math

import pytest

from adaptk.replay.policies.credit import Played
from adaptk.replay.policies.depth_ewma import DepthEwma, Depths, interpolated, seeds
from adaptk.step import StepRecord
from adaptk.table import GoodputTable
from tests.replay.policies.small_engine import STARTUP, best_speed, run, setup, step
from tests.strategies import rows_of


def time(depths: Depths, arm: int, ms: float, clean: bool = True, mixed: bool = False) -> None:
    depths.time(Played(arm, 1, ms, 1, 1.0, clean), mixed)


def known(arms: tuple[int, ...], costs: list[float], rates: list[float]) -> Depths:
    depths = Depths(arms)
    depths.seed(list(costs), rates)
    return depths


def test_each_innovation_of_cost_is_at_most_a_quarter_of_it() -> None:
    depths = Depths((0, 1))
    time(depths, 0, 10.0)
    time(depths, 0, 11.0)
    assert depths.costs[0] == pytest.approx(10.3)
    time(depths, 0, 500.0)
    assert depths.costs[0] == pytest.approx(10.3 + 0.3 * 0.25 * 10.3)
    time(depths, 1, 10.0)
    time(depths, 1, 1.0)
    assert depths.costs[1] == pytest.approx(9.25)


def test_a_step_of_two_depths_is_no_cost() -> None:
    """Choices 0, 0, 1, 1, 0: costs of the second step (K=0) and of the one that verifies and drafts for K=1."""
    policy = DepthEwma(setup((0, 1)), "raw")
    policy.observe(step(0, made=0, ms=50.0))  # no choice is known before it
    policy.observe(step(0, made=0, ms=10.0))
    policy.observe(step(0, made=1, ms=11.0))
    policy.observe(step(1, made=1, ms=12.0))
    policy.observe(step(1, made=0, ms=11.0))
    assert policy._bucket(1).costs == [10.0, 12.0]


def test_steps_with_prompt_tokens_are_no_cost_unless_more_than_16_in_a_row_have_them() -> None:
    depths = Depths((0,))
    for _ in range(16):
        time(depths, 0, 50.0, mixed=True)
    assert depths.costs == [None]
    time(depths, 0, 10.0)
    for _ in range(16):
        time(depths, 0, 50.0, mixed=True)
    assert depths.costs == [10.0]
    time(depths, 0, 11.0, mixed=True)
    assert depths.costs == [pytest.approx(10.3)]


def test_acceptance_is_a_mean_of_ten_steps_and_then_an_average() -> None:
    depths = Depths((0, 2))
    for accepted in [1, 0, 2, 1, 1, 1, 1, 1, 1, 1]:
        depths.accept(step(2, accepted=accepted))
    assert depths.rates == [pytest.approx(0.9), pytest.approx(1 / 9)]
    depths.accept(step(2, accepted=0))
    assert depths.rates == [pytest.approx(0.81), pytest.approx(1 / 9)]


def test_acceptance_is_pooled_over_the_requests_of_a_step() -> None:
    depths = Depths((0, 3))
    record = StepRecord(batch_size=4, elapsed_ms=None, k=3, drafted=[3, 3, 1, 0], accepted=[1, 3, 0, 0])
    depths.accept(record)
    assert depths.rates == [pytest.approx(2 / 3), 0.5, 1.0]
    assert depths.reached == [3, 2, 1]


def test_a_position_is_trusted_after_ten_reaches_and_inherits_before() -> None:
    """Nine steps with the draft refused: still 1. Ten: 0, which the next position, never reached, inherits."""
    depths = Depths((0, 1, 2))
    for _ in range(9):
        depths.accept(step(1, accepted=0))
    assert depths.lengths == [1.0, 2.0, 3.0]
    assert depths.frontier == 0
    depths.accept(step(1, accepted=1))
    assert depths.lengths == [1.0, pytest.approx(1.1), pytest.approx(1.11)]
    assert depths.frontier == 1


def test_the_frontier_is_the_largest_arm_whose_positions_are_all_trusted() -> None:
    depths = Depths((0, 1, 3, 7))
    depths.accept(step(7, accepted=1, batch=10))  # positions 1 and 2 are reached by ten requests
    assert depths.frontier == 1
    depths.accept(step(7, accepted=3, batch=10))
    assert depths.frontier == 2
    depths.accept(step(7, accepted=7, batch=10))
    assert depths.frontier == 3


def test_depths_up_to_one_beyond_the_frontier_are_dwelt_at_first() -> None:
    """Each until it has a cost; K=7 only once the positions of K=3 are trusted, K=3 once those of K=1 are."""
    depths = Depths((0, 1, 3, 7))
    for arm, ms in ((0, 10.0), (1, 10.5)):
        assert [depths.next() for _ in range(3)] == [arm] * 3
        assert depths.learning
        time(depths, arm, ms)
    assert depths.next() == 1  # nothing is known of acceptance, so that it counts as 1
    assert not depths.learning
    depths.accept(step(1, accepted=1, batch=10))
    assert depths.next() == 3
    assert depths.learning
    time(depths, 3, 11.0)
    assert depths.next() == 3
    depths.accept(step(3, accepted=3, batch=10))
    assert depths.next() == 7
    assert depths.learning


def test_depth_0_is_played_until_two_depths_have_a_cost() -> None:
    """K=1 is never timed: 32 rounds of it, then 0, and again K=1 once a step of it is timed."""
    depths = Depths((0, 1))
    assert depths.next() == 0
    time(depths, 0, 10.0)
    assert [depths.next() for _ in range(32)] == [1] * 32
    assert [depths.next() for _ in range(3)] == [0] * 3
    assert (depths.next(), depths.learning) == (1, True)  # a probe, in the fourth round
    time(depths, 1, 20.0, clean=False)
    assert [depths.next() for _ in range(2)] == [1] * 2
    time(depths, 1, 12.0)
    assert depths.costs == [10.0, 12.0]


def test_a_depth_without_a_cost_is_interpolated_once_dwelling_has_failed() -> None:
    """K=3 at 8 ms lies between K=1 at 10 and K=7 at 4: four tokens in 8 ms, but eight in 4."""
    depths = Depths((0, 1, 3, 7))
    depths.seed([9.0, 10.0, None, 4.0], [1.0] * 7)
    assert [depths.next() for _ in range(33)] == [3] * 32 + [7]
    assert interpolated([(1, 10.0), (7, 4.0)], 3) == 8.0
    assert [interpolated([(1, 10.0), (7, 4.0)], k) for k in (0, 1, 7, 9)] == [10.0, 10.0, 4.0, 4.0]


def test_the_best_ratio_is_selected_no_further_than_one_beyond_the_frontier() -> None:
    """1 / 10, 1.5 / 12, 1.875 / 16; with K=7 at 12 ms, 1.992 / 12 were the best of all."""
    depths = known((0, 1, 3), [10.0, 12.0, 16.0], [0.5] * 3)
    assert depths.next() == 1
    depths = known((0, 1, 3, 7), [10.0, 12.0, 16.0, 12.0], [0.5] * 7)
    assert depths.next() == 7
    depths = Depths((0, 1, 3, 7))
    depths.costs = [10.0, 12.0, 16.0, 1.0]
    assert depths.next() == 1  # the frontier is 0: of K=3 and K=7 nothing is believed


def test_a_probes_interval_doubles_to_512_and_falls_back_when_the_selection_changes() -> None:
    depths = known((0, 1, 3), [10.0, 12.0, 16.0], [0.5] * 3)
    probes = []
    for i in range(1, 2700):
        if depths.next() == 3:
            assert depths.learning
            probes.append(i)
    gaps = [b - a for a, b in zip([0, *probes], probes, strict=False)]
    assert gaps == [4, 8, 16, 32, 64, 128, 256, 512, 512, 512, 512]
    depths.costs[1] = 20.0  # 1.5 / 20 < 1 / 10 < 1.875 / 16
    assert [depths.next() for _ in range(4)] == [3] * 4  # no deeper arm to probe
    depths.costs[1] = 12.0
    assert [depths.next() for _ in range(13)] == [1, 1, 1, 3, 1, 1, 1, 1, 1, 1, 1, 3, 1]


def test_a_probe_alone_teaches_acceptance_and_no_cost() -> None:
    """Choices 1, 1, 3, 1: the step that verifies the probe drafts for K=1."""
    policy = DepthEwma(setup((0, 1, 3), table=STARTUP), "seeded")
    depths = policy._bucket(1)
    before, rate = list(depths.costs), depths.rates[2]
    for asked, made in ((1, 1), (1, 3), (3, 1), (1, 1)):
        policy.observe(step(asked, made=made, ms=30.0, accepted=asked))
    assert depths.costs[2] == before[2]
    assert depths.rates[2] == pytest.approx(rate + 0.1 * (1 - rate))


def test_seeds_are_the_tables_at_the_middle_of_the_bucket() -> None:
    table = GoodputTable.from_rows(rows_of({b: {0: 1.0 * b, 1: 2.0 * b, 3: 3.0 * b} for b in (1, 64)}), [0.9, 0.8])
    costs, rates = seeds(setup((0, 1, 3), table=table), 48.5)
    assert costs == [pytest.approx(48.5 * x) for x in (1, 2, 3)]
    assert rates == [0.9, 0.8, 0.8]
    policy = DepthEwma(setup((0, 1, 3), table=table), "seeded")
    assert policy.choose(40) == 3  # 1 / 1, 1.9 / 2, 3.196 / 3
    assert not policy.exploring
    assert policy._bucket(64).costs == costs


def test_without_times_in_the_table_those_taken_at_start_are_the_seed() -> None:
    schedule = GoodputTable.from_schedule([[1, 64, 3]])
    for table in (schedule, None):
        costs, rates = seeds(setup((0, 1, 3), table=table), 1.0)
        assert costs == [STARTUP.itl_ms(1, k) for k in (0, 1, 3)]
        assert rates == [0.7, 0.6, 0.5]


def test_raw_has_one_state_and_bucketed_one_per_power_of_two() -> None:
    raw, bucketed = (DepthEwma(setup((0, 1)), form) for form in ("raw", "bucketed"))
    for policy in (raw, bucketed):
        for arm in (0, 1):
            policy.observe(step(arm, ms=None))
            policy.observe(step(arm, ms=10.0))
    assert raw.choose(1) == raw.choose(64) == bucketed.choose(1) == 1
    assert bucketed.choose(2) == 0
    assert bucketed.exploring


def test_an_unusable_time_still_teaches_acceptance() -> None:
    policy = DepthEwma(setup((0, 1)), "raw")
    policy.observe(step(1, ms=math.nan, accepted=1, batch=12))
    assert policy._bucket(12).reached == [12]


@pytest.mark.parametrize("form", ["raw", "bucketed"])
@pytest.mark.parametrize("per_draft", [0.4, 1.2, 4.0])
def test_it_comes_within_2_percent_of_the_best_fixed_arm(form: str, per_draft: float) -> None:
    """2,000 steps of batch 8, feedback two steps late; what is missing is mostly dwelling and probes."""
    acceptance = [0.7, 0.6, 0.5, 0.4, 0.4, 0.4, 0.4]
    policy = DepthEwma(setup(tuple(range(8))), "raw" if form == "raw" else "bucketed")
    _, speed = run(policy, 2000, lambda k: 8.0 + per_draft * k, acceptance, lag=2)
    assert speed > 0.98 * best_speed(lambda k: 8.0 + per_draft * k, acceptance, policy.arms)
