"""Which cells are measured next: order, budget, what is uncertain, and going on after an interrupt."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from adaptk.profile.alloc_value import doubt, expected_loss
from adaptk.profile.allocate import SETTLED_LOSS, Allocator, Visit
from adaptk.profile.estimate import AcceptanceCounts, Block, Group
from tests.profile.simulated import SimulatedEngine

ARMS = (0, 1, 3, 7)
GRID = tuple(Group(batch, 256.0) for batch in (1, 2, 4, 8, 16, 32, 64, 128))
# Rate 0.7, then 0.6: K=7 is best at small batches, K=0 or 1 at large ones.
ACCEPTANCE = AcceptanceCounts(
    accepted=(140000, 84000, 50400, 30240, 18144, 10886, 6532),
    tried=(200000, 140000, 84000, 50400, 30240, 18144, 10886),
    returned=(200000,) * 7,
    asked=(200000,) * 7,
)


def _goodputs(engine: SimulatedEngine, batch: int) -> dict[int, float]:
    return {k: ACCEPTANCE.acceptance_length(k)[0] / engine.truth(batch, k) for k in ARMS}


def _near_ties(share: float = 0.01) -> dict[tuple[int, int], float]:
    """Cells stretched so that at two of the batches the second best K is only ``share`` worse than the best."""
    stretched = {}
    for batch in (4, 32):
        goodputs = _goodputs(SimulatedEngine(0), batch)
        second, best = sorted(goodputs, key=goodputs.__getitem__)[-2:]
        stretched[batch, second] = goodputs[second] / (goodputs[best] * (1.0 - share))
    return stretched


def _play(
    allocator: Allocator, engine: SimulatedEngine, until: Callable[[], bool] = lambda: False, most: int = 10_000
) -> list[tuple[Visit, list[Block], float]]:
    played = []
    while len(played) < most and not until() and (visit := allocator.next(engine.now_s)) is not None:
        blocks, seconds = engine.play(visit)
        allocator.done(visit, blocks, seconds)
        played.append((visit, blocks, seconds))
    return played


def test_every_group_is_seen_before_any_is_seen_again() -> None:
    """Coarse to fine: smallest, largest and middle batch first where the budget is no matter, then rounds."""
    allocator = Allocator(GRID, ARMS, 1e4, acceptance=ACCEPTANCE)
    visits = [visit for visit, _, _ in _play(allocator, SimulatedEngine(0), most=24)]
    batches = [visit.group.batch for visit in visits]
    assert batches[:8] == [1, 128, 8, 2, 32, 4, 16, 64]
    assert [visit.why for visit in visits] == ["first look"] * 8 + ["again"] * 16
    assert all(sorted(batches[i : i + 8]) == sorted(batches[:8]) for i in (8, 16))


def test_arms_are_played_there_and_back_and_begun_with_another_one_each_time() -> None:
    """Drift within a visit hits no arm more than another."""
    allocator = Allocator(GRID[:1], ARMS, 1e4, blocks=4)
    orders = [visit.order for visit, _, _ in _play(allocator, SimulatedEngine(0), most=3)]
    assert orders[0] == (0, 1, 3, 7, 7, 3, 1, 0, 1, 3, 7, 0, 0, 7, 3, 1)
    assert [order[0] for order in orders] == [0, 1, 3]
    for order in orders:
        centre = {k: np.mean([i for i, arm in enumerate(order) if arm == k]) for k in ARMS}
        assert len(set(centre.values())) == 1


@pytest.mark.parametrize("budget", [0.1, 2.0, 5.0, 15.0, 60.0])
def test_a_visit_that_does_not_fit_is_not_begun(budget: float) -> None:
    """The clock passes the budget by no more than stalls make one visit longer; something is always measured."""
    for seed in range(3 if budget < 50.0 else 1):
        engine = SimulatedEngine(seed, stalls=0.01)
        allocator = Allocator(GRID, ARMS, budget, target=1e-6, acceptance=ACCEPTANCE)
        played = _play(allocator, engine)
        assert len(played) >= 1
        if len(played) > 1:
            assert engine.now_s <= budget + 0.5 * max(seconds for _, _, seconds in played)
        assert allocator.reason is not None
        assert allocator.next(engine.now_s) is None


def test_the_first_visit_is_the_cheapest_and_always_begun() -> None:
    """A budget of nearly nothing leaves one visit, at the smallest batch and shortest context."""
    grid = [Group(batch, context) for context in (512.0, 64.0) for batch in (32, 2)]
    allocator = Allocator(grid, ARMS, 1e-3)
    played = _play(allocator, SimulatedEngine(0))
    assert [visit.group for visit, _, _ in played] == [Group(2, 64.0)]
    assert allocator.reason == "the time is spent"


def test_a_group_costing_too_much_is_passed_over_for_one_that_fits() -> None:
    """At ten times the time per request the largest batches do not fit, the small ones are measured."""
    allocator = Allocator(GRID, ARMS, 40.0, acceptance=ACCEPTANCE)
    _play(allocator, SimulatedEngine(0, per_token=1.0))
    measured = {group.batch for group in allocator.estimates()}
    assert {1, 2, 4, 8} <= measured
    assert "no visit fits" in str(allocator.reason) or allocator.reason == "the time is spent"


def test_it_ends_when_all_is_known_well_enough() -> None:
    """Without drift every interval gets narrower than 3 % long before the budget is spent."""
    allocator = Allocator(GRID, ARMS, 1e5, acceptance=ACCEPTANCE)
    engine = SimulatedEngine(1, drift=0.0)
    played = _play(allocator, engine)
    assert engine.now_s < 500.0
    assert allocator.reason == "every interval is within 3 %, and no choice of K is in doubt"
    cells = [cell for group in allocator.estimates().values() for cell in group.cells.values()]
    assert len(cells) == len(GRID) * len(ARMS)
    assert all(cell.relative_width <= 0.03 for cell in cells)
    assert all(cell.visits >= 3 for cell in cells)
    assert all(judged.avoidable < SETTLED_LOSS for judged in allocator.doubts().values())
    assert played[-1][0].why in ("again", "decision", "interval")
    progress = allocator.progress(engine.now_s)
    assert (progress.share, progress.seen, progress.settled, progress.cells) == (1.0, 32, 32, 32)


def test_the_best_k_is_found_in_less_time_than_by_even_visits() -> None:
    """Two of eight batches have a near tie (1 %), steps scatter by 10 %: at most half the time of even visits.

    Measured over 20 seeds: a fifth to a quarter of the time; three quarters where steps scatter by 3 %, as the three
    visits that every cell gets are then nearly all that is needed.
    """
    spent: dict[bool, list[float]] = {False: [], True: []}
    losses = []
    for seed in range(2):
        for even in (False, True):
            engine = SimulatedEngine(seed, noise=0.1, slow=_near_ties())
            allocator = Allocator(GRID, ARMS, 1e4, acceptance=ACCEPTANCE)

            def sure(allocator: Allocator = allocator) -> bool:
                judged = allocator.doubts()
                enough = len(judged) == len(GRID) and all(d.loss < SETTLED_LOSS for d in judged.values())
                return enough and all(c.visits >= 3 for g in allocator.estimates().values() for c in g.cells.values())

            if even:
                _even(allocator, engine, sure)
            else:
                _play(allocator, engine, sure)
            spent[even].append(engine.now_s)
            for group, judged in allocator.doubts().items():
                goodputs = _goodputs(engine, group.batch)
                losses.append(1.0 - goodputs[judged.best] / max(goodputs.values()))
    assert sum(spent[False]) < 0.5 * sum(spent[True])
    assert np.mean(losses) < SETTLED_LOSS


def _even(allocator: Allocator, engine: SimulatedEngine, until: Callable[[], bool]) -> None:
    number = 0
    while not until():
        for group in GRID:
            visit = Visit(number, group, (*ARMS, *reversed(ARMS)), 8, "again")
            allocator.done(visit, *engine.play(visit))
            number += 1


def test_only_contending_arms_are_played_where_the_decision_is_in_doubt() -> None:
    """At a near tie the visits for the decision go to that batch and leave the hopeless arms out."""
    allocator = Allocator(GRID, ARMS, 400.0, target=0.5, acceptance=ACCEPTANCE)
    played = _play(allocator, SimulatedEngine(0, noise=0.1, drift=0.0, slow=_near_ties()))
    decisive = [visit for visit, _, _ in played if visit.why == "decision"]
    assert decisive
    at_ties = [visit for visit in decisive if visit.group.batch in (4, 32)]
    assert len(at_ties) > len(decisive) / 2
    assert any(len(visit.arms) == 2 for visit in at_ties)


def test_weights_draw_visits() -> None:
    """A group of weight 0 gets no visits for its decision."""
    allocator = Allocator(GRID, ARMS, 60.0, target=0.5, acceptance=ACCEPTANCE, weights={GRID[2]: 1e6, GRID[5]: 0.0})
    played = _play(allocator, SimulatedEngine(0, noise=0.15, drift=0.0, slow=_near_ties(0.001)))
    decisive = [visit.group.batch for visit, _, _ in played if visit.why == "decision"]
    assert decisive[0] == 4


def test_a_resumed_session_goes_on_as_if_it_had_not_stopped() -> None:
    """Restored from blocks, seconds and what was left out, it knows the same and asks for the same visit next."""
    engine = SimulatedEngine(4)
    whole = Allocator(GRID, ARMS, 300.0, acceptance=ACCEPTANCE)
    played = _play(whole, engine, most=30)
    whole.failed(Visit(30, GRID[3], ARMS, 8, "again"), [7])
    resumed = Allocator(GRID, ARMS, 300.0, acceptance=ACCEPTANCE)
    seconds = {visit.number: took for visit, _, took in played} | {30: 0.0}
    resumed.restore([block for _, blocks, _ in played for block in blocks], seconds, whole.left_out)
    assert resumed.left_out == whole.left_out == ((GRID[3], 7),)
    assert resumed.estimates() == whole.estimates()
    assert resumed.doubts() == whole.doubts()
    assert resumed.next(engine.now_s) == whole.next(engine.now_s)
    without = Allocator(GRID, ARMS, 300.0, acceptance=ACCEPTANCE)
    without.restore([block for _, blocks, _ in played for block in blocks])
    assert without.estimates().keys() == whole.estimates().keys()
    assert without.next(engine.now_s) is not None


def test_what_cannot_be_measured_is_left_out() -> None:
    """A failed group, a failed arm, an arm that twice gave no step: none of them is asked for again."""
    allocator = Allocator(GRID, ARMS, 1e4)
    engine = SimulatedEngine(0, drift=0.0)
    first = allocator.next(0.0)
    assert first is not None
    allocator.failed(first)
    assert allocator.left_out == tuple((first.group, k) for k in ARMS)
    second = allocator.next(0.0)
    assert second is not None
    assert (second.group.batch, second.number) == (2, 1)
    allocator.failed(second, [7])
    third = allocator.next(0.0)
    assert third is not None
    assert third.arms == (0, 1, 3)
    for visit in _plays(allocator, engine, 40):
        assert visit.group != first.group
        assert visit.group != second.group or 7 not in visit.arms
    assert allocator.left_out == (*((first.group, k) for k in ARMS), (second.group, 7))


def test_an_arm_that_twice_in_a_row_gives_no_step_is_left_out() -> None:
    """Once may be chance; the other arms of the group are measured on."""
    allocator = Allocator(GRID[:1], ARMS, 1e4)
    engine = SimulatedEngine(0)
    for expected in (ARMS, ARMS, (0, 1, 7)):
        visit = allocator.next(engine.now_s)
        assert visit is not None
        assert visit.arms == expected
        blocks, seconds = engine.play(visit)
        allocator.done(visit, [block for block in blocks if block.k != 3], seconds)
    assert allocator.left_out == ((GRID[0], 3),)


def _plays(allocator: Allocator, engine: SimulatedEngine, most: int) -> list[Visit]:
    return [visit for visit, _, _ in _play(allocator, engine, most=most)]


def test_arms_without_steps_end_the_search_for_them() -> None:
    """An engine that never shows a usable step is given up, not asked for ever."""
    allocator = Allocator(GRID[:2], ARMS, 1e4)
    asked = 0
    while (visit := allocator.next(float(asked))) is not None:
        allocator.done(visit, [], 1.0)
        asked += 1
    assert asked == 4
    assert allocator.reason == "no cell can be measured"
    assert allocator.progress(4.0).cells == 0


@pytest.mark.parametrize(("now_s", "batch", "why"), [(20.0, 8, "interval"), (40.0, 1, "again")])
def test_no_group_goes_unseen_for_two_thirds_of_the_session(now_s: float, batch: int, why: str) -> None:
    """While one group is hard to measure, the others are seen again, so that their intervals hold the drift."""
    allocator = Allocator([Group(1), Group(2), Group(8)], (1,), 1e4)
    blocks = [
        Block(size, 1, None, None, 8 * visit + size, 4.0 * visit, (10.0 * (1.0 + spread * visit),) * 8, (1.0,) * 8)
        for visit in range(4)
        for size, spread in ((1, 1e-4), (2, 1e-4), (8, 0.1))
    ]
    allocator.restore(blocks)
    visit = allocator.next(now_s)
    assert visit is not None
    assert (visit.group.batch, visit.why) == (batch, why)


def test_a_short_budget_takes_fewer_steps_for_all_rather_than_all_steps_for_few() -> None:
    """Where three rounds of eight steps do not fit, every cell is still seen."""
    allocator = Allocator(GRID, ARMS, 12.0, acceptance=ACCEPTANCE)
    played = _play(allocator, SimulatedEngine(0))
    assert {visit.group for visit, _, _ in played} == set(GRID)
    assert min(visit.steps for visit, _, _ in played) < 8
    assert min(visit.steps for visit, _, _ in played) >= 3


def test_without_acceptance_intervals_alone_decide() -> None:
    """No K can be judged: nothing is in doubt, and the session ends on widths."""
    allocator = Allocator(GRID[:3], ARMS, 1e4)
    _play(allocator, SimulatedEngine(0, drift=0.0))
    assert allocator.doubts() == {}
    assert allocator.reason == "every interval is within 3 %"


def test_acceptance_that_comes_later_is_used() -> None:
    """Setting it anew moves times to the new widths and judges the arms."""
    allocator = Allocator(GRID[:1], ARMS, 1e4)
    _play(allocator, SimulatedEngine(0, drift=0.0), most=4)
    before = allocator.estimates()[GRID[0]].cells[7].itl_ms
    allocator.acceptance = AcceptanceCounts(accepted=(50,), tried=(100,), returned=(50,), asked=(100,))
    assert allocator.estimates()[GRID[0]].cells[7].itl_ms < before
    assert allocator.doubts()[GRID[0]].best in ARMS


def test_progress_and_summary_can_be_asked_at_any_time() -> None:
    """From before the first visit to after the last; shares rise to 1."""
    engine = SimulatedEngine(0)
    allocator = Allocator(GRID, ARMS, 30.0, acceptance=ACCEPTANCE)
    assert allocator.progress(0.0) == (0.0, 30.0, 0, 0, 32)
    assert allocator.summary() == "0 of 32 cells measured, 0 within 3 %."
    shares = []
    for _ in range(1000):
        if not _play(allocator, engine, most=1):
            break
        shares.append(allocator.progress(engine.now_s))
        assert 0.0 <= shares[-1].share <= 1.0
        assert 0.0 <= shares[-1].seconds_left <= 30.0
    assert shares[-1].seen == 32
    assert allocator.progress(engine.now_s).share == 1.0
    assert allocator.summary().endswith(f"Ended: {allocator.reason}.")


def test_the_same_visits_give_the_same_questions() -> None:
    """It draws nothing."""
    runs = [_play(Allocator(GRID, ARMS, 40.0, acceptance=ACCEPTANCE), SimulatedEngine(3)) for _ in range(2)]
    assert runs[0] == runs[1]


@pytest.mark.parametrize(("ahead", "error"), [(0.0, 0.02), (0.01, 0.02), (0.05, 0.02), (0.2, 0.001)])
def test_expected_loss_is_the_mean_of_what_is_lost(ahead: float, error: float) -> None:
    """Against draws from the normal, 200,000 of them (standard error below 1e-4)."""
    draws = np.random.default_rng(0).normal(ahead, error, 200_000)
    assert expected_loss(ahead, error) == pytest.approx(float(np.maximum(-draws, 0.0).mean()), abs=2e-4)


def test_doubt_that_timing_cannot_remove_is_not_avoidable() -> None:
    """With sharp times and few counts the loss stays, and no visit is asked for it."""
    blocks = [
        Block(8, k, 256.0, 256.0, v, float(v), (10.0 + 3.9 * k,) * 8, (float(k),) * 8)
        for v in range(3)
        for k in (0, 1, 1, 0)
    ]
    allocator = Allocator([Group(8, 256.0)], (0, 1), 1e4)
    allocator.restore(blocks)
    few = AcceptanceCounts(accepted=(20,), tried=(50,), returned=(50,), asked=(50,))
    known = allocator.estimates()[Group(8, 256.0)]
    judged = doubt(known, few.log_length_ratio, (0, 1))
    assert judged is not None
    assert judged.loss > 10 * SETTLED_LOSS
    assert judged.avoidable < SETTLED_LOSS
    assert judged.contenders == (0, 1)
    assert doubt(known, few.log_length_ratio, (0,)) is None
    assert expected_loss(0.1, math.inf) == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grid": []}, "grid has 0 groups"),
        ({"grid": [Group(1), Group(1)]}, "2 groups, 1 of them different"),
        ({"grid": [Group(0)]}, "batch of at least 1"),
        ({"grid": [Group(1, math.nan)]}, "context of at least 0"),
        ({"arms": ()}, "arms is"),
        ({"arms": (1, 1)}, "arms is"),
        ({"arms": (-1,)}, "arms is"),
        ({"budget_s": 0.0}, "budget_s is 0.0"),
        ({"budget_s": math.inf}, "budget_s is inf"),
        ({"target": math.nan}, "target is nan"),
        ({"min_visits": 0}, "min_visits is 0"),
        ({"steps": 0}, "steps is 0"),
        ({"blocks": 3}, "blocks is 3"),
        ({"weights": {Group(1): -1.0}}, "weights has -1.0"),
    ],
)
def test_impossible_plans_are_refused(change: dict[str, Any], message: str) -> None:
    """By name, with the value."""
    with pytest.raises(ValueError, match=message):
        Allocator(**{"grid": [Group(1)], "arms": (0, 1), "budget_s": 1.0, **change})


def test_blocks_of_another_visit_are_refused() -> None:
    """They would be booked to the wrong cell."""
    allocator = Allocator(GRID, ARMS, 1e4)
    visit = allocator.next(0.0)
    assert visit is not None
    blocks: Sequence[Block] = SimulatedEngine(0).play(visit._replace(number=5))[0]
    with pytest.raises(ValueError, match="visit 5"):
        allocator.done(visit, blocks, 1.0)
