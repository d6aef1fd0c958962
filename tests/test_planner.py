"""Decisions by hand: acceptance and step times are told, not learnt, so that every score is known."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from adaptk import planner as module
from adaptk.decision import Reason
from adaptk.guard import place
from adaptk.planner import (
    BLOCK,
    CAUTION,
    CAUTION_SHAPED,
    CLIMB_BLOCK,
    CONFIRM,
    DRAWS,
    FLIP,
    MARGIN,
    MOST_LEAD,
    NEWS,
    PROBE,
    PROBE_SHARE,
    VISIT,
    Planner,
)
from adaptk.settings import Settings

Array = NDArray[np.float64]
ARMS = (0, 1, 3)


class Told:
    """Stands for both posteriors: acceptance lengths and step times in ms per arm, and how unsure the times are.

    ``times`` may be a function of the batch size; ``spread`` is each arm's own standard deviation in log units.
    """

    def __init__(
        self,
        times: Sequence[float] | Callable[[int], Sequence[float]],
        lengths: Sequence[float] = (1.0, 1.0, 1.0),
        spread: Sequence[float] | float = 0.0,
        timed: bool = True,
        arms: tuple[int, ...] = ARMS,
    ) -> None:
        self.times, self.tokens, self.arms = times, list(lengths)[: len(arms)], arms
        self.spread = [spread] * len(arms) if isinstance(spread, float) else list(spread)
        self.prior = SimpleNamespace(timed=timed, guessed=not timed, shaped=False)
        self.contamination = SimpleNamespace(trusted=True)
        self.level_known, self.alarms, self.moved = True, 0, 0.0
        self.stairs: Callable[[int], int] = lambda batch: 0
        self.ticks: list[int] = []
        self.settled = 0

    def lengths(self, arms: Sequence[int], batch: int | None = None) -> list[float]:
        return list(self.tokens)

    def lengths_now(self, arms: Sequence[int], batch: int | None = None) -> list[float]:
        return list(self.tokens)

    def widths(self, arms: Sequence[int]) -> list[float]:
        return [float(k) for k in arms]

    def draws(self, arms: Sequence[int], n: int, rng: Any, *of_visit: Any) -> Array:
        return np.tile(self.tokens, (n, 1))

    def settle(self) -> None:
        self.settled += 1

    def log_times(self, batch: int, widths: Sequence[float], context: float | None) -> list[float]:
        return [math.log(ms) for ms in (self.times(batch) if callable(self.times) else self.times)]

    def covariance(self, batch: int, widths: Sequence[float], context: float | None) -> Array:
        return np.diag(np.square(self.spread))

    def stair(self, batch: int) -> tuple[int, ...]:
        return (self.stairs(batch),)

    def tick(self, steps: int) -> None:
        self.ticks.append(steps)


def planner_of(
    told: Any, climbing: bool = False, rng: Any = None, first_look: bool = False, **settings: Any
) -> Planner:
    """A planner that, unless ``first_look``, has had its first look at the runner-up."""
    rng = np.random.default_rng(0) if rng is None else rng
    planner = Planner(told, told, Settings(**settings), rng, climbing)
    planner._first_look = planner._first_look and first_look
    return planner


def rich(planner: Planner, ms: float = 1e6) -> Planner:
    planner.ledger.allowed_ms = planner.ledger.purse_ms = ms
    return planner


Step = tuple[int, Reason, float]


def play(planner: Planner, steps: int, batch: int = 64, context: float | None = None, ms: float = 0.0) -> list[Step]:
    """Decisions in a row, visits judged after their last step as the controller does, ``ms`` earned at each step."""
    taken = []
    for _ in range(steps):
        if planner.visiting >= 0 and not planner.visit_scheduled:
            planner.judge(batch, context)
        taken.append(planner.next(batch, context, regime_changed=False))
        if ms:
            planner.ledger.earn(ms, ms)
    return taken


def explored(taken: Sequence[Step]) -> list[int]:
    return [arm for arm, reason, _ in taken if reason is Reason.EXPLORE]


def faster(*leads: float) -> list[float]:
    """Times in ms, 10 for no lead in log goodput."""
    return [10.0 * math.exp(-lead) for lead in leads]


class TestBest:
    @pytest.mark.parametrize(("lead", "held"), [(0.5 * MARGIN, True), (1.5 * MARGIN, False)])
    def test_a_lead_below_the_margin_is_held(self, lead: float, held: bool) -> None:
        """Nothing is uncertain: 0.2 % better does not pay for a change of shapes, 0.6 % does."""
        planner = planner_of(Told(faster(0.0, lead, -0.5)))
        planner.arm = 0
        planner._look(64, None)
        assert planner.best(64, None) == ((0, Reason.HOLD) if held else (1, Reason.EXPLOIT))
        assert planner.arm == (0 if held else 1)

    def test_the_arm_at_the_start_is_the_winner_whatever_its_lead(self) -> None:
        assert planner_of(Told(faster(0.0, 0.1 * MARGIN, -0.5))).best(64, None) == (1, Reason.EXPLOIT)

    def test_what_is_uncertain_must_lead_by_more(self) -> None:
        """Half a standard deviation of the difference, at most 2 %: 0.5 * sqrt(2) * 0.01 = 0.7 % beside the margin.

        The deviation is that of 16 draws, here of one seed: to within a half.
        """
        told = Told(faster(0.0, -0.1, -0.5), spread=0.01)
        planner = planner_of(told)
        assert planner.best(64, None) == (0, Reason.EXPLOIT)
        told.times = faster(0.0, 0.007, -0.5)
        planner._look(64, None)
        assert planner._lead[1] - MARGIN == pytest.approx(0.5 * math.sqrt(2.0) * 0.01, rel=0.5)
        assert planner.best(64, None) == (0, Reason.HOLD)
        told.spread = [1.0] * 3
        planner._look(64, None)
        assert planner._lead[1] == pytest.approx(MARGIN + MOST_LEAD)
        told.times = faster(0.0, 1.1 * (MARGIN + MOST_LEAD), -0.5)
        planner._look(64, None)
        assert planner.best(64, None) == (1, Reason.EXPLOIT)

    def test_where_the_load_has_moved_on_only_the_margin_counts(self) -> None:
        """K=0 runs at batch 64; from 65 on K=1 leads by 1 %: held until the load is a tenth away, both ways."""
        for beyond, within in ((71, 70), (58, 59)):
            told = Told(lambda batch: faster(0.0, 0.01 if batch != 64 else -0.01, -0.5), spread=1.0)
            planner = planner_of(told)
            planner.arm = 0
            planner._look(64, None)
            assert planner.best(64, None) == (0, Reason.EXPLOIT)
            assert planner.best(within, None) == (0, Reason.HOLD)
            assert planner.best(beyond, None) == (1, Reason.EXPLOIT)

    def test_what_is_held_does_not_settle_the_load(self) -> None:
        """Creeping from 64 in steps below a tenth: still K=0 was the best at 64, so at 71 it is left."""
        told = Told(lambda batch: faster(0.0, 0.01 if batch != 64 else -0.01, -0.5), spread=1.0)
        planner = planner_of(told)
        planner.arm = 0
        planner._look(64, None)
        arms = [planner.best(batch, None)[0] for batch in range(64, 75)]
        assert arms == [0] * 7 + [1] * 4

    def test_even_where_the_load_has_moved_the_margin_is_kept(self) -> None:
        planner = planner_of(Told(lambda batch: faster(0.0, 0.5 * MARGIN if batch > 64 else -0.01, -0.5)))
        assert planner.best(64, None)[0] == 0
        assert planner.best(100, None) == (0, Reason.HOLD)

    def test_an_arm_beyond_the_operators_limit_is_not_held(self) -> None:
        planner = planner_of(Told([10.0, 20.0, 30.0], [1.0, 2.01, 3.1]), max_itl_ms=25.0)
        planner.arm = 2
        assert planner.best(64, None) == (1, Reason.GUARD)  # K=3 would be the best

    def test_min_k_says_so(self) -> None:
        planner = planner_of(Told(faster(0.0, -0.3, -0.5)), min_k=1)
        assert planner.best(64, None) == (1, Reason.MIN_K)


class TestStairs:
    """Step times jump at 64 requests; the smoothed batch size is 64, the step's own 65."""

    @staticmethod
    def planner(gain: float, edge: int = 64, **settings: Any) -> Planner:
        told = Told(lambda batch: faster(0.0, gain if batch > 64 else -0.05, -0.5))
        told.stairs = lambda batch: int(batch > edge)
        return planner_of(told, budget=0.0, **settings)

    def test_over_a_stair_the_better_arm_is_played_at_once(self) -> None:
        planner = self.planner(1.5 * FLIP)
        assert planner.next(64, None, False, 64)[:2] == (0, Reason.EXPLOIT)
        assert planner.next(64, None, False, 65)[:2] == (1, Reason.EXPLOIT)
        assert planner.next(64, None, False, 64)[:2] == (0, Reason.EXPLOIT)
        assert planner.arm == 0  # the running arm stays that of the smoothed load

    def test_not_for_less_than_what_a_change_costs(self) -> None:
        planner = self.planner(0.7 * FLIP)
        assert [planner.next(64, None, False, exact)[0] for exact in (64, 65)] == [0, 0]

    def test_not_without_a_stair_between(self) -> None:
        planner = self.planner(0.3, edge=70)
        assert [planner.next(64, None, False, exact)[0] for exact in (64, 65, 70, 71)] == [0, 0, 0, 1]

    def test_where_the_arm_is_beyond_the_limit_there_it_is_left_whatever_the_gain(self) -> None:
        """K=3 is best on both stairs but takes 30 ms beyond the edge."""
        told = Told(lambda batch: [10.0, 11.0, 30.0 if batch > 64 else 12.0], [1.0, 1.5, 9.0])
        told.stairs = lambda batch: int(batch > 64)
        planner = planner_of(told, budget=0.0, max_itl_ms=20.0)
        assert [planner.next(64, None, False, exact)[0] for exact in (64, 65, 64)] == [2, 1, 2]

    def test_a_visit_is_not_flipped(self) -> None:
        planner = rich(self.planner(0.3))
        planner.arm = 0
        planner.ledger.budget = 0.01
        planner._retime = True
        assert [planner.next(64, None, False, 65)[:2] for _ in range(PROBE)] == [(1, Reason.EXPLORE)] * PROBE


class TestBlocks:
    def test_a_plan_stays_for_a_block(self) -> None:
        """Nothing is drawn or settled in between, and time passes once a block."""
        told = Told(faster(0.0, -0.1, -0.1))
        planner = planner_of(told)
        assert planner.next(64, None, False)[0] == 0
        told.times, settled = faster(0.0, 0.5, -0.1), told.settled
        assert [arm for arm, *_ in play(planner, BLOCK - 1)] == [0] * (BLOCK - 1)
        assert told.settled == settled
        assert planner.next(64, None, False)[0] == 1
        assert told.ticks == [0, BLOCK]

    @pytest.mark.parametrize(("moved", "waits"), [(0.9 * NEWS, True), (1.1 * NEWS, False), (-1.1 * NEWS, False)])
    def test_news_of_the_running_arms_time_does_not_wait_for_the_end(self, moved: float, waits: bool) -> None:
        told = Told(faster(0.0, -0.1, -0.1))
        planner = planner_of(told)
        play(planner, 3)
        told.times, told.moved = faster(0.0, 0.5, -0.1), moved
        assert planner.next(64, None, False)[0] == (0 if waits else 1)
        assert told.moved == (moved if waits else 0.0)

    def test_another_load_is_planned_for_at_once_and_explored_soon(self) -> None:
        told = Told(faster(0.0, -0.1, -0.1))
        planner = planner_of(told)
        play(planner, 2)
        told.times = faster(0.0, 0.5, -0.1)
        assert planner.next(128, None, True)[0] == 1
        play(planner, CONFIRM - 1, 128)
        assert len(told.ticks) == 1
        planner.next(128, None, False)
        assert len(told.ticks) == 2

    @pytest.mark.parametrize("every", [1, 2, 3])
    def test_loads_that_keep_jumping_still_get_new_blocks(self, every: int) -> None:
        """Another regime at every step, every second, every third: a block at least every ``CONFIRM`` steps or so."""
        told = Told(faster(0.0, -0.1, -0.1))
        planner = planner_of(told)
        for i in range(4 * BLOCK):
            planner.next(32 if i // every % 2 else 64, None, i > 0 and i % every == 0)
        assert 4 * BLOCK / (CONFIRM + 2) <= len(told.ticks) <= 4 * BLOCK / CONFIRM + 2

    def test_plans_that_are_remembered_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_KEPT_PLANS", 8)
        planner = planner_of(Told(lambda batch: faster(0.0, 0.1 if batch < 50 else -0.1, -0.5)), budget=0.0)
        for batch in (*range(1, 100), *range(1, 100)):
            assert planner._planned(batch, None).winner == (1 if batch < 50 else 0)
            assert len(planner._plan) <= 8


class TestVisits:
    def test_what_is_known_is_not_explored(self) -> None:
        """Draws without spread prefer the best arm, all of them."""
        planner = rich(planner_of(Told(faster(-0.1, 0.0, -0.1), spread=0.0)))
        taken = play(planner, 20 * BLOCK)
        assert {(arm, reason, chance) for arm, reason, chance in taken} == {(1, Reason.EXPLOIT, 1.0)}

    def test_a_visit_lasts_four_steps_with_one_propensity(self) -> None:
        """K=1 runs, K=3 is unsure: of a visit all steps bear its chance, and those after it none."""
        planner = rich(planner_of(Told(faster(-9.0, 0.0, -0.05), spread=(0.0, 0.0, 0.3))))
        taken: list[Step] = []
        while not explored(taken):
            taken = play(planner, BLOCK)
        assert explored(taken) == [2] * VISIT
        first = [reason for _, reason, _ in taken].index(Reason.EXPLORE)
        chances = [chance for *_, chance in taken[first : first + VISIT + 1]]
        assert chances == [chances[0]] * VISIT + [1.0]
        assert 0.0 < chances[0] < 1.0

    def test_after_a_visit_that_failed_the_place_rests(self) -> None:
        """Three, six and eight blocks from one visit to the next at least; another octave of context does not wait."""
        planner = rich(planner_of(Told(faster(-9.0, 0.0, -0.3), spread=(0.0, 0.0, 1.0))))
        blocks = [block for block in range(200) if explored(play(planner, BLOCK))]
        assert len(blocks) >= 3
        gaps = np.diff(blocks)
        assert gaps[0] >= 3
        assert np.all(gaps[1:] >= 8)  # by then the arm's own wait, nine blocks, is the longer one
        assert not planner.patience.allows(2, place(64, None))
        assert planner.patience.allows(2, place(64, 5000.0))

    @pytest.mark.parametrize("surprised", [False, True])
    def test_a_visit_that_won_is_kept_and_looked_at_again_soon(self, surprised: bool) -> None:
        """K=3 turned out to be the best: eight more steps, then the next block.

        Where its time was a surprise it may have been the engine's, so that K=1 is asked as well.
        """
        told = Told(faster(-9.0, 0.0, -0.05), spread=(0.0, 0.0, 0.3))
        planner = rich(planner_of(told))
        while planner.visiting < 0:
            planner.next(64, None, False)
        while planner.visit_scheduled:
            planner.next(64, None, False)
        told.times, told.spread, begun = faster(-9.0, 0.0, 0.2), [0.0] * 3, len(told.ticks)
        told.alarms += surprised
        planner.judge(64, None)
        assert planner.patience.allows(2, place(64, None))
        taken = play(planner, CONFIRM)
        assert [arm for arm, *_ in taken] == [2] * CONFIRM
        assert len(told.ticks) == begun
        taken = play(planner, PROBE + 1)
        assert len(told.ticks) == begun + 1
        assert explored(taken) == ([1] * PROBE if surprised else [])

    def test_after_a_change_what_failed_may_be_visited_at_once(self) -> None:
        planner = rich(planner_of(Told(faster(-9.0, 0.0, -0.3))))
        planner.patience.failed(2, place(64, None))
        planner.change_detected(of_time=False)
        assert planner.patience.allows(2, place(64, None))

    def test_another_load_breaks_a_visit_off(self) -> None:
        planner = rich(planner_of(Told(faster(-9.0, 0.0, -0.05))))
        planner.arm, planner._retime = 1, True
        assert planner.next(64, None, False) == (2, Reason.EXPLORE, 1.0)
        assert planner.next(200, None, True) == (1, Reason.EXPLOIT, 1.0)
        assert planner.visiting == -1

    @pytest.mark.parametrize("budget", [0.0, 0.01])
    def test_with_no_budget_nothing_is_explored(self, budget: float) -> None:
        """K=0, K=1 and K=3 all alike and unsure, a new context and an alarm on the way; with 1 % something is."""
        planner = planner_of(Told(faster(0.0, 0.0, 0.0), spread=0.2), budget=budget)
        taken = play(planner, 60 * BLOCK, ms=10.0)
        planner.change_detected(of_time=True)
        taken += play(planner, 60 * BLOCK, context=5000.0, ms=10.0)
        assert bool(explored(taken)) is (budget > 0.0)
        if budget == 0.0:
            assert {chance for *_, chance in taken} == {1.0}
            assert Reason.GUARD in {reason for _, reason, _ in taken}  # drawn and refused

    def test_a_visit_that_cannot_be_worth_its_price_is_refused(self) -> None:
        """K=3 takes 1,000 times as long and 4 % of the draws say otherwise by next to nothing."""
        told = Told([100.0, 10.0, 10.0], spread=(0.0, 0.0, 1e-4))
        planner = rich(planner_of(told))
        assert planner._may_visit(2, 1, 64, None, *planner._look(64, None))
        told.times = [100.0, 10.0, 10_000.0]
        assert not planner._may_visit(2, 1, 64, None, *planner._look(64, None))

    def test_a_visit_begins_only_if_it_can_be_paid(self) -> None:
        """K=3 takes 12 ms for what K=1 has in 10: 2 ms a step, 9 ms for four and a half. Half a deviation: 0."""
        told = Told([100.0, 10.0, 12.0], spread=(0.0, 0.0, 1e-9))
        planner = planner_of(told)
        view, scores = planner._look(64, None)
        scores[:, 2] += 1.0  # all draws hope for more
        for ms, affordable in ((8.99, False), (9.01, True)):
            planner.ledger.allowed_ms = ms
            assert planner._may_visit(2, 1, 64, None, view, scores) is affordable


class TestLimits:
    def test_an_arm_beyond_the_limit_is_neither_played_nor_visited(self) -> None:
        """Draws love K=3, which is believed to take 21 ms; the limit is 20."""
        told = Told([10.0, 12.0, 21.0], [1.0, 1.3, 9.0], spread=0.5)
        planner = rich(planner_of(told, max_itl_ms=20.0))
        assert {arm for arm, *_ in play(planner, 100 * BLOCK)} == {0, 1}

    def test_nor_is_one_below_min_k(self) -> None:
        planner = rich(planner_of(Told(faster(0.0, 0.0, 0.0), spread=0.5), min_k=1))
        taken = play(planner, 100 * BLOCK)
        assert {arm for arm, *_ in taken} == {1, 2}
        assert explored(taken)

    def test_a_change_of_time_asks_no_arm_beyond_the_limit(self) -> None:
        planner = rich(planner_of(Told([10.0, 12.0, 21.0], [1.0, 1.3, 9.0]), max_itl_ms=20.0))
        play(planner, 1)
        planner.change_detected(of_time=True)
        assert explored(play(planner, 2 * BLOCK)) == [0] * PROBE

    def test_a_visit_ends_where_the_load_creeps_beyond_the_limit(self) -> None:
        told = Told(lambda batch: [10.0, 12.0, 19.0 if batch <= 64 else 21.0], [1.0, 1.3, 1.5])
        planner = rich(planner_of(told, max_itl_ms=20.0))
        planner.arm, planner._retime = 1, True
        told.tokens = [0.1, 1.3, 1.5]
        assert planner.next(64, None, False)[:2] == (2, Reason.EXPLORE)
        assert planner.next(65, None, False)[:2] == (1, Reason.EXPLOIT)
        assert planner.visiting == -1

    def test_where_no_arm_is_within_the_limit_the_quickest_is_played(self) -> None:
        planner = rich(planner_of(Told([30.0, 25.0, 40.0], [1.0, 1.3, 9.0], spread=0.5), max_itl_ms=20.0))
        assert {arm for arm, *_ in play(planner, 20 * BLOCK)} == {1}

    def test_new_limits_are_obeyed_from_the_next_step_on(self) -> None:
        told = Told(faster(-0.5, -0.1, 0.0))
        planner = rich(planner_of(told))
        play(planner, 3)
        planner._permitted = [0]
        planner.limits_changed()
        assert planner.next(64, None, False)[0] == 0


class TestRetime:
    """Was it the arm's time that changed, or the engine's? The runner-up is asked for three steps."""

    def test_another_octave_of_context_asks_the_runner_up_once(self) -> None:
        told = Told(faster(-0.1, -0.3, 0.0))
        planner = rich(planner_of(told))
        assert not explored(play(planner, 2 * BLOCK, context=500.0))
        taken = play(planner, 2 * BLOCK, context=1500.0)
        assert taken[:PROBE] == [(0, Reason.EXPLORE, 1.0)] * PROBE
        assert explored(taken) == [0] * PROBE
        assert not explored(play(planner, 2 * BLOCK, context=2500.0))  # below 3,072: the same octave
        assert explored(play(planner, 2 * BLOCK, context=500.0)) == [0] * PROBE

    def test_so_does_a_change_of_time_but_not_one_of_acceptance(self) -> None:
        planner = rich(planner_of(Told(faster(-0.1, -0.3, 0.0))))
        play(planner, 3)
        planner.change_detected(of_time=False)
        assert not explored(play(planner, 2 * BLOCK))
        planner.change_detected(of_time=True)
        assert explored(play(planner, 2 * BLOCK)) == [0] * PROBE

    def test_both_at_once_are_a_change_of_time(self) -> None:
        planner = rich(planner_of(Told(faster(-0.1, -0.3, 0.0))))
        play(planner, 3)
        planner.change_detected(of_time=True)
        planner.change_detected(of_time=False)
        assert explored(play(planner, 2 * BLOCK)) == [0] * PROBE

    def test_it_waits_until_it_can_be_paid(self) -> None:
        """K=0 takes 10 ms more for the same, 35 ms for three and a half steps: at 1 % of 10 ms after 350 steps."""
        planner = planner_of(Told([20.0, 40.0, 10.0]))
        play(planner, 1, ms=10.0)
        planner.change_detected(of_time=True)
        taken = play(planner, 15 * BLOCK, ms=10.0)
        first = next(i for i, (_, reason, _) in enumerate(taken) if reason is Reason.EXPLORE)
        assert 350 - 2 <= first <= 350 + BLOCK
        assert explored(taken) == [0] * PROBE

    @pytest.mark.parametrize(
        ("timed", "ms", "looks"), [(True, 10.2, True), (True, 12.7, True), (True, 13.0, False), (False, 10.2, False)]
    )
    def test_a_measured_table_is_looked_at_once_without_any_cause(self, timed: bool, ms: float, looks: bool) -> None:
        """How far off it is at one arm says little of the others. 2.7 ms more cost 9.45 for three and a half steps.

        No more than one step of 10 ms is spent on that.
        """
        planner = rich(planner_of(Told([10.0, ms, 90.0], timed=timed), first_look=True, min_k=0))
        planner.ledger.purse_ms = 0.0  # no blind probes
        visited = explored(play(planner, 3 * BLOCK))
        assert visited == ([1] * PROBE if looks else [])

    def test_after_a_change_it_is_looked_again_soon(self) -> None:
        """Eight steps, then blocks as ever."""
        told = Told(faster(-0.1, -0.3, 0.0))
        planner = planner_of(told)
        play(planner, 3)
        planner.change_detected(of_time=False)
        begun = len(told.ticks)
        play(planner, CONFIRM)
        assert len(told.ticks) == begun + 1
        play(planner, BLOCK)
        assert len(told.ticks) == begun + 2
        play(planner, 1)
        assert len(told.ticks) == begun + 3

    def test_a_lone_arm_has_none(self) -> None:
        planner = rich(planner_of(Told([10.0], arms=(3,))))
        play(planner, 3)
        planner.change_detected(of_time=True)
        assert not explored(play(planner, 2 * BLOCK))
        assert not planner._retime


class TestTrust:
    def test_while_times_are_not_trusted_nothing_is_visited_and_the_reason_says_so(self) -> None:
        """Unsure arms, an alarm, and K=0 with a probe to pay: not one visit until they are trusted again."""
        told = Told(faster(0.0, 0.0, 0.0), spread=0.5)
        planner = rich(planner_of(told))
        told.contamination.trusted = False
        planner.change_detected(of_time=True)
        taken = play(planner, 20 * BLOCK)
        assert {reason for _, reason, _ in taken} == {Reason.HOLD}
        assert {chance for *_, chance in taken} == {1.0}
        told.contamination.trusted = True
        assert explored(play(planner, 20 * BLOCK))

    def test_the_chance_of_a_block_that_is_broken_off_ends_with_it(self) -> None:
        """One in five blocks stays at K=0 where a probe could be paid; then trust is lost."""
        told = Told([10.0, 10.5, 90.0])
        planner = rich(planner_of(told))
        while planner.next(64, None, False)[2] != pytest.approx(1.0 - PROBE_SHARE):
            planner.limits_changed()
        told.contamination.trusted = False
        planner.change_detected(of_time=False)
        assert planner.next(64, None, False)[2] == 1.0

    def test_the_plan_is_still_followed(self) -> None:
        """Acceptance is learnt without times."""
        told = Told(faster(0.0, -0.5, -0.5))
        planner = planner_of(told)
        told.contamination.trusted = False
        assert planner.next(64, None, False)[:2] == (0, Reason.HOLD)
        told.tokens = [1.0, 2.0, 1.0]
        assert play(planner, BLOCK + 1)[-1][:2] == (1, Reason.HOLD)


class TestCaution:
    @pytest.mark.parametrize(("share", "timed", "winner"), [(1.2, False, 0), (0.8, False, 1), (1.2, True, 1)])
    def test_without_any_measured_table_a_guess_must_beat_the_cheapest_arm_by_more_than_its_mean(
        self, share: float, timed: bool, winner: int
    ) -> None:
        """K=1 leads by 0.05; what caution takes off is 0.06 or 0.04. With a measured table the mean decides."""
        told = Told(faster(0.0, 0.05, -0.5), spread=(0.0, 0.05 * share / CAUTION, 0.0), timed=timed)
        assert planner_of(told).best(64, None)[0] == winner
        planner = planner_of(told)
        planner._look(64, None)
        assert planner.best(64, None)[0] == winner

    @pytest.mark.parametrize(("share", "winner"), [(1.2, 0), (0.8, 1)])
    def test_another_engines_table_takes_less_to_be_believed(self, share: float, winner: int) -> None:
        """The same lead of 0.05, at which caution is for spreads twice as large as without any table."""
        told = Told(faster(0.0, 0.05, -0.5), spread=(0.0, 0.05 * share / CAUTION_SHAPED, 0.0), timed=False)
        told.prior.shaped = True
        assert planner_of(told).best(64, None)[0] == winner

    def test_what_a_schedule_prescribes_needs_no_proof(self) -> None:
        """It has no times either, but its prior says what the operator chose: K=1 wins by its mean, unsure as it is."""
        told = Told(faster(0.0, 0.02, -0.5), spread=(0.05, 0.05, 0.05), timed=False)
        told.prior.guessed = False
        assert planner_of(told).best(64, None) == (1, Reason.EXPLOIT)

    def test_only_what_is_uncertain_against_the_cheapest_arm_counts(self) -> None:
        """Errors that arms share cancel: variance of the difference a + b - 2c, by hand."""
        told = Told(faster(0.0, 0.05, 0.04), timed=False)
        cov = np.array([[0.04, 0.04, 0.0], [0.04, 0.04, 0.0], [0.0, 0.0, 0.01]])
        told.covariance = lambda *_: cov  # type: ignore[method-assign]
        planner = planner_of(told)
        assert planner.best(64, None)[0] == 1
        scores = planner._planned(64, None).scores
        assert scores[1] - scores[0] == pytest.approx(0.05)
        assert scores[2] - scores[0] == pytest.approx(0.04 - CAUTION * math.sqrt(0.05))


class TestBlindProbe:
    """K=0 runs and shows nothing of the drafter; K=1 takes three times as long for 1.2 tokens.

    30 ms where 12 were right are 18 ms a step, 63 for three and a half: 6.3 steps' time, where the purse usually holds
    1.4.
    """

    @staticmethod
    def planner(**settings: Any) -> Planner:
        return planner_of(Told([10.0, 30.0, 90.0], [1.0, 1.2, 1.3]), **settings)

    def test_it_is_begun_once_it_was_saved_up_for(self) -> None:
        taken = play(self.planner(), 4000, ms=10.0)
        visited = explored(taken)
        assert set(visited) == {1}
        assert len(visited) % PROBE == 0
        probes = len(visited) // PROBE
        assert probes >= 1
        assert probes * 63.0 <= 0.01 * 10.0 * 4000

    def test_at_most_seven_tenths_of_the_budget_go_into_probes(self) -> None:
        planner = self.planner()
        probes = 0
        for steps in range(1, 12_001):
            if explored(play(planner, 1, ms=10.0)):
                probes += 1 / PROBE
            assert 63.0 * probes <= 0.7 * 0.01 * 10.0 * steps + 1e-6
        assert 63.0 * probes > 0.25 * 0.01 * 10.0 * 12_000

    def test_one_that_costs_little_is_begun_in_four_blocks_of_five(self) -> None:
        """150 blocks: four standard deviations are 0.13; false alarm 1 in 16,000, the seed is fixed."""
        planner = rich(planner_of(Told([10.0, 10.5, 90.0])))
        probed = 0
        for _ in range(150):
            planner.ledger.purse_ms = 1e6
            planner.patience.forgive()
            probed += bool(explored(play(planner, BLOCK)))
        assert probed / 150 == pytest.approx(PROBE_SHARE, abs=0.13)

    @pytest.mark.parametrize("settings", [{"budget": 0.0}, {"max_itl_ms": 20.0}, {"min_k": 1}])
    def test_none_without_budget_beyond_the_limit_or_where_drafts_are_made_anyway(self, settings: Any) -> None:
        assert not explored(play(self.planner(**settings), 2000, ms=10.0))


class Dice:
    """A generator whose draws of times are always the same, so that only the throws differ from seed to seed."""

    def __init__(self, seed: int) -> None:
        self._times, self._throws = np.random.default_rng(7), np.random.default_rng(seed)
        self.standard_normal = self._times.standard_normal
        self.integers, self.random = self._throws.integers, self._throws.random


class TestPropensity:
    """The same state and the same draws 400 times: the arm played against the chance that was written down.

    Bound: four standard deviations of a share of 400 throws; 6e-5 of false alarms a comparison, and the seeds are
    fixed.
    """

    N = 400

    def frequencies(self, prepare: Callable[[Any], Planner], step: int) -> dict[int, tuple[float, float]]:
        """Per arm: how often a step of the block (0 the first) played it, and the chance it said."""
        seen: dict[int, list[float]] = {}
        for seed in range(self.N):
            planner = prepare(Dice(seed))
            arm, _, chance = [planner.next(64, None, False) for _ in range(step + 1)][-1]
            seen.setdefault(arm, []).append(chance)
        assert all(len(set(chances)) == 1 for chances in seen.values())
        return {arm: (len(chances) / self.N, chances[0]) for arm, chances in seen.items()}

    def check(self, prepare: Callable[[Any], Planner], step: int = 0) -> dict[int, float]:
        found = self.frequencies(prepare, step)
        for often, chance in found.values():
            assert abs(often - chance) <= 4.0 * math.sqrt(chance * max(0.0, 1.0 - chance) / self.N) + 1e-9
        assert sum(chance for _, chance in found.values()) <= 1.0 + 1e-9
        return {arm: chance for arm, (_, chance) in found.items()}

    def test_two_arms_are_drawn_beside_the_running_one(self) -> None:
        def prepare(dice: Any) -> Planner:
            planner = rich(planner_of(Told(faster(-0.05, 0.0, -0.05), spread=0.1), rng=dice))
            planner.arm = 1
            return planner

        chances = self.check(prepare)
        assert set(chances) == {0, 1, 2}
        assert sum(chances.values()) == pytest.approx(1.0)
        assert all(chance * DRAWS == pytest.approx(round(chance * DRAWS)) for chance in chances.values())

    def test_what_is_refused_goes_to_the_running_arm(self) -> None:
        """K=3 still waits after a visit that failed: its draws stay where they are."""

        def prepare(dice: Any) -> Planner:
            planner = rich(planner_of(Told(faster(-0.05, 0.0, -0.05), spread=0.1), rng=dice))
            planner.arm = 1
            planner.patience._until[2, place(64, None)] = 50.0
            return planner

        chances = self.check(prepare)
        assert set(chances) == {0, 1}
        assert sum(chances.values()) == pytest.approx(1.0)

    def test_a_blind_probe_stands_beside_what_was_drawn(self) -> None:
        """K=0 runs; K=1 is drawn at times and probed in four of five blocks of the rest; K=3 is drawn.

        The fourth step is one of a visit that was drawn, but no more one of a probe.
        """

        def prepare(dice: Any) -> Planner:
            planner = rich(planner_of(Told(faster(0.0, -0.05, -0.05), spread=0.1), rng=dice))
            planner.arm = 0
            return planner

        for step in (0, PROBE - 1):
            chances = self.check(prepare, step)
            assert set(chances) == {0, 1, 2}
            assert sum(chances.values()) == pytest.approx(1.0)
            assert chances[1] > PROBE_SHARE * (1.0 - chances[2]) - 1e-9
        fourth = self.check(prepare, PROBE)
        assert sum(fourth.values()) == pytest.approx(1.0)
        assert fourth[2] == chances[2]
        assert fourth[1] < 0.5 * chances[1]

    def test_a_probe_alone(self) -> None:
        def prepare(dice: Any) -> Planner:
            planner = rich(planner_of(Told(faster(0.0, -0.05, -0.5)), rng=dice))
            planner.arm = 0
            return planner

        assert self.check(prepare) == pytest.approx({0: 1.0 - PROBE_SHARE, 1: PROBE_SHARE})

    @pytest.mark.parametrize("change", ["empty ledger", "no trust", "resting place"])
    def test_where_nothing_may_be_visited_the_arm_is_certain(self, change: str) -> None:
        def prepare(dice: Any) -> Planner:
            told = Told(faster(-0.05, 0.0, -0.05), spread=0.1)
            planner = planner_of(told, rng=dice) if change == "empty ledger" else rich(planner_of(told, rng=dice))
            planner.arm = 1
            told.contamination.trusted = change != "no trust"
            if change == "resting place":
                planner.patience.failed(2, place(64, None))
            return planner

        assert self.check(prepare) == {1: 1.0}


class TestClimb:
    def test_before_any_time_was_seen_the_cheapest_arm_is_held(self) -> None:
        told = Told(faster(0.0, 0.5, 0.5), timed=False)
        told.level_known = False
        planner = rich(planner_of(told, climbing=True))
        assert play(planner, BLOCK) == [(0, Reason.HOLD, 1.0)] * BLOCK

    def test_the_next_arm_is_visited_once_its_price_is_there(self) -> None:
        """K=1 takes 11 ms instead of 10: 1 ms a step, 4.5 for a visit, which 1 % of 10 ms earns in 45 steps."""
        planner = planner_of(Told([10.0, 11.0, 13.0], timed=False), climbing=True)
        taken = play(planner, 3 * BLOCK, ms=10.0)
        first = next(i for i, (_, reason, _) in enumerate(taken) if reason is Reason.EXPLORE)
        assert 45 <= first <= 45 + CLIMB_BLOCK
        assert taken[first : first + VISIT] == [(1, Reason.EXPLORE, 1.0)] * VISIT
        assert not planner.climbing

    def test_without_a_budget_it_stays_at_the_cheapest_arm(self) -> None:
        planner = planner_of(Told([10.0, 5.0, 5.0], timed=False), climbing=True, budget=0.0)
        assert {arm for arm, *_ in play(planner, 4 * BLOCK, ms=10.0)} == {0}

    def test_min_k_leaves_nothing_to_climb(self) -> None:
        planner = planner_of(Told([10.0, 5.0, 5.0], timed=False), climbing=True, min_k=3)
        assert play(planner, 3)[-1][0] == 2
        assert not planner.climbing


class TestContinuity:
    @pytest.mark.parametrize("steps", [1, 2, 37, 300, 1000])
    def test_it_survives_json_anywhere(self, steps: int) -> None:
        """In the middle of visits, waits and plans: both go on alike, with generators in the same state."""

        def told() -> Told:
            return Told(lambda batch: faster(0.0, 0.02 if batch > 60 else -0.02, 0.0), spread=0.1)

        one, other = planner_of(told()), planner_of(told())
        play(one, steps, ms=10.0)
        one._rng.random()
        other._rng.bit_generator.state = one._rng.bit_generator.state
        other.load(json.loads(json.dumps(one.snapshot(), allow_nan=False)))
        then = [play(planner, 400, 62, 3000.0, ms=10.0) for planner in (one, other)]
        assert then[0] == then[1]
        assert explored(then[0])
        assert one.snapshot() == other.snapshot()

    def test_a_snapshot_is_no_longer_tied_to_the_planner(self) -> None:
        planner = rich(planner_of(Told(faster(0.0, 0.0, 0.0), spread=0.1)))
        play(planner, 3)
        taken = planner.snapshot()
        then = json.dumps(taken)
        play(planner, 3 * BLOCK, ms=10.0)
        assert json.dumps(taken) == then
