"""Estimates of step times against simulated engines whose truth is known."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from adaptk.profile.estimate import Block, Group, GroupEstimate, cells, estimate, rows
from adaptk.table import GoodputTable
from tests.profile.simulated import SimulatedEngine, even_session

ARMS = (0, 1, 3, 7)
GROUPS = (Group(1, 256), Group(8, 256), Group(64, 256))


def _session(seed: int, visits: int = 4, gap_s: float = 30.0, **engine: Any) -> tuple[SimulatedEngine, list[Block]]:
    simulated = SimulatedEngine(seed, **engine)
    return simulated, even_session(simulated, GROUPS, ARMS, visits, gap_s)


def _estimated(simulated: SimulatedEngine, blocks: list[Block]) -> dict[Group, GroupEstimate]:
    return estimate(blocks, {k: simulated.width(k) for k in ARMS})


def _steady(k: int = 1, visit: int = 0, ms: float = 10.0, number: int = 8, **more: Any) -> Block:
    fields = {"batch": 8, "k": k, "context": 256.0, "mean_context": 250.0, "visit": visit, "at_s": float(visit)}
    return Block(**{**fields, "ms": (ms,) * number, "widths": (float(k),) * number, **more})


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param({}, id="drift, noise and stalls"),
        pytest.param({"drift": 0.0}, id="no drift"),
        pytest.param({"supply": 0.3, "per_token": 0.3}, id="drafts now and then"),
        pytest.param({"drift": 0.0, "noise": 0.01, "stalls": 0.0}, id="a quiet machine"),
        pytest.param({"memory_s": 10.0}, id="drift faster than the visits follow each other"),
    ],
)
def test_intervals_hold_the_truth_of_the_session_and_estimates_are_right(engine: dict[str, Any]) -> None:
    """At least 90 % of the 95 % intervals hold the truth, at the session's mean drift; bias is below 1 %.

    288 cells in 24 sessions, 3 to 4 % of them outside where the code is right. The seeds are fixed, so a sound program
    never fails.
    """
    held, off = [], []
    for seed in range(24):
        simulated, blocks = _session(seed, **engine)
        for group, found in _estimated(simulated, blocks).items():
            for k, cell in found.cells.items():
                truth = simulated.truth(group.batch, k) * simulated.level
                assert cell.low_ms is not None
                assert cell.high_ms is not None
                held.append(cell.low_ms <= truth <= cell.high_ms)
                off.append(cell.itl_ms / truth - 1.0)
    assert np.mean(held) >= 0.9
    assert abs(np.mean(off)) < 0.01


def test_arms_are_compared_free_of_common_drift() -> None:
    """The log-ratio's error is a tenth of the interval's width under drift, and two errors hold 95 % of the truths."""
    scores, errors, widths = [], [], []
    for seed in range(20):
        simulated, blocks = _session(seed, drift=0.1)
        for group, found in _estimated(simulated, blocks).items():
            widths += [cell.relative_width for cell in found.cells.values()]
            for k, other in found.log_ratios:
                ratio, error = found.log_ratio(k, other)
                truth = math.log(simulated.truth(group.batch, k) / simulated.truth(group.batch, other))
                scores.append((ratio - truth) / error)
                errors.append(error)
                assert found.log_ratio(other, k) == (-ratio, error)
    assert np.mean(np.abs(scores) < 2.0) >= 0.93
    assert np.median(errors) < 0.1 * np.median(widths)


def test_the_mean_of_two_modes_is_right_where_the_median_is_not() -> None:
    """A drafter that finds drafts in one of five steps: the mean step counts, and the slow mode is no stall."""
    simulated = SimulatedEngine(3, supply=0.2, per_token=1.0, drift=0.0, per_draft=0.0)
    blocks = even_session(simulated, [Group(1)], (7,), 12, 0.0, steps=16)
    cell = estimate(blocks, {7: 1.4})[Group(1)].cells[7]
    truth = simulated.truth(1, 7)
    assert cell.itl_ms == pytest.approx(truth, rel=0.01)
    assert float(np.median([ms for block in blocks for ms in block.ms])) < 0.9 * truth


def test_times_are_those_of_the_long_run_width() -> None:
    """Where the visits' prompts had other drafts than usual, times are moved to the usual width."""
    simulated = SimulatedEngine(5, supply=0.3, drift=0.0, per_token=0.3)
    blocks = even_session(simulated, [Group(8)], ARMS, 6, 0.0)
    found = estimate(blocks, {k: 0.6 * k for k in ARMS})[Group(8)]
    assert found.width_ms == pytest.approx(0.3 * 8, rel=0.1)
    for k in ARMS:
        assert found.cells[k].itl_ms == pytest.approx(simulated.truth(8, k, 0.6 * k), rel=0.015)
    as_seen = estimate(blocks)[Group(8)]
    assert as_seen.cells[7].itl_ms < 0.8 * found.cells[7].itl_ms


@pytest.mark.parametrize("share", [0.0, 0.05, 0.15])
def test_stalls_are_left_out_and_counted(share: float) -> None:
    """Up to one step in seven ten times as long moves an estimate by less than 1 %."""
    simulated = SimulatedEngine(1, stalls=share, drift=0.0)
    cell = estimate(even_session(simulated, [Group(8)], (3,), 8, 0.0, steps=16))[Group(8)].cells[3]
    assert cell.itl_ms == pytest.approx(simulated.truth(8, 3), rel=0.01)
    assert cell.stalled == pytest.approx(share, abs=0.04)
    assert cell.n == round(256 * (1.0 - cell.stalled))


def test_a_second_mode_of_many_steps_is_kept() -> None:
    """40 % of the steps a third slower are no stalls, whatever made them so."""
    rng = np.random.default_rng(0)
    blocks = [
        _steady(3, visit, ms=0.0)._replace(ms=tuple(np.where(rng.random(20) < 0.4, 13.0, 10.0)), widths=(3.0,) * 20)
        for visit in range(10)
    ]
    cell = estimate(blocks)[Group(8, 256.0)].cells[3]
    assert cell.stalled == 0.0
    assert cell.itl_ms == pytest.approx(np.mean([block.ms for block in blocks]))


def test_a_stalled_block_among_sound_ones_is_left_out() -> None:
    """A neighbour took the core for a whole block: one of eight, and the estimate does not move."""
    blocks = [_steady(k, visit, 10.0 + k) for visit in range(4) for k in (1, 1, 3, 3)]
    blocks[0] = blocks[0]._replace(ms=(25.0,) * 8)
    cell = estimate(blocks)[Group(8, 256.0)].cells[1]
    assert cell.itl_ms == pytest.approx(11.0)
    assert (cell.blocks, cell.visits, cell.n) == (7, 4, 56)


@pytest.mark.parametrize("visits", [1, 2])
def test_with_few_visits_the_interval_is_unknown(visits: int) -> None:
    """One or two visits say nothing of drift, however many steps they have."""
    cell = estimate([_steady(visit=visit, number=500) for visit in range(visits)])[Group(8, 256.0)].cells[1]
    assert cell.low_ms is None
    assert cell.high_ms is None
    assert cell.relative_width == math.inf
    assert GoodputTable.from_rows(rows([cell])).rows[0].itl_ms == pytest.approx(10.0)


def test_drift_between_visits_is_in_the_interval_and_not_in_the_comparison() -> None:
    """Four visits at 10, 11, 12 and 13 ms: wide interval, sharp comparison."""
    blocks = [_steady(k, visit, (10.0 + visit) * (1.0 + k / 10.0)) for visit in range(4) for k in (0, 1, 0, 1)]
    found = estimate(blocks)[Group(8, 256.0)]
    assert found.cells[1].relative_width > 0.3
    ratio, error = found.log_ratio(1, 0)
    assert ratio == pytest.approx(math.log(1.1))
    assert error < 0.001


def test_a_group_that_drifts_more_than_the_others_has_its_own_interval() -> None:
    """Three groups scatter by 1 % between visits, one by 5 %: its intervals after three visits still hold the truth.

    400 sessions, 93 to 97 % of them held; at least 90 % are asked for.
    """
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        blocks = [
            _steady(1, 3 * batch + visit, 10.0 * math.exp(rng.normal(0.0, 0.05 if batch == 8 else 0.01)), batch=batch)
            for batch in (1, 2, 4, 8)
            for visit in range(3)
        ]
        cell = estimate(blocks)[Group(8, 256.0)].cells[1]
        assert cell.low_ms is not None
        assert cell.high_ms is not None
        held += cell.low_ms <= 10.0 <= cell.high_ms
    assert held >= 0.9 * 400


def test_arms_of_different_visits_are_compared_with_the_drift_in_the_error() -> None:
    """Without a visit in common, the comparison is as unsure as the two intervals."""
    blocks = [_steady(visit % 2, visit, 10.0 + visit % 3) for visit in range(8)]
    found = estimate(blocks)[Group(8, 256.0)]
    assert found.log_ratio(0, 1)[1] > 0.03
    lone = estimate([_steady(0, 0), _steady(1, 1)])[Group(8, 256.0)]
    assert lone.log_ratio(0, 1)[1] == math.inf
    with pytest.raises(KeyError):
        lone.log_ratio(0, 5)


def test_the_order_of_blocks_does_not_matter() -> None:
    """What was restored from a journal says the same as what was just measured."""
    simulated, blocks = _session(2)
    shuffled = list(blocks)
    random.Random(0).shuffle(shuffled)
    expected = cells(_estimated(simulated, blocks))
    for cell, again in zip(expected, cells(_estimated(simulated, shuffled)), strict=True):
        assert again.itl_ms == pytest.approx(cell.itl_ms, rel=1e-9)
        assert again.low_ms == pytest.approx(cell.low_ms, rel=1e-9)


def test_odd_blocks_do_no_harm() -> None:
    """Empty blocks, times that are none, and a single step; a block that contradicts itself is refused."""
    assert estimate([]) == {}
    assert estimate([_steady(number=0)]) == {}
    assert estimate([_steady(ms=math.nan), _steady(ms=-1.0), _steady(ms=math.inf)]) == {}
    odd = _steady(number=3)._replace(ms=(10.0, math.nan, 10.0))
    assert estimate([odd])[Group(8, 256.0)].cells[1].n == 2
    single = estimate([_steady(number=1)])[Group(8, 256.0)].cells[1]
    assert (single.itl_ms, single.n, single.p10_ms) == (pytest.approx(10.0), 1, 10.0)
    huge = estimate([_steady(visit=v, ms=1e8) for v in range(3)], {1: 1e6})[Group(8, 256.0)].cells[1]
    assert math.isfinite(huge.itl_ms)
    with pytest.raises(ValueError, match="8 times and 2 widths"):
        estimate([_steady()._replace(widths=(1.0, 1.0))])


def test_rows_make_a_table_with_the_contexts_really_held() -> None:
    """All cells of a level share one: the level itself where they held about as much, else what they held."""
    blocks = [
        _steady(
            k, visit, 10.0 + k, batch=batch, context=level, mean_context=(level if level > 64.0 else 85.0) + batch + k
        )
        for visit in range(3)
        for k in (0, 1)
        for batch in (1, 8)
        for level, held in ((64.0, 85.0), (512.0, 512.0))
    ]
    table = GoodputTable.from_rows(rows(cells(estimate(blocks))))
    assert table.contexts == (90.0, 512.0)
    assert len(table.rows) == 8
    assert all(row.low_ms is not None and row.low_ms <= row.itl_ms <= row.high_ms for row in table.rows)
    unknown = [_steady(visit=visit, context=None, mean_context=None) for visit in range(3)]
    assert rows(cells(estimate(unknown)))[0]["context"] is None


def test_levels_whose_caches_held_the_same_stay_apart() -> None:
    """Two levels with equal mean contexts would be one cell twice: their own names are kept."""
    blocks = [_steady(context=level, mean_context=100.0) for level in (64.0, 512.0)]
    assert [row["context"] for row in rows(cells(estimate(blocks)))] == [64.0, 512.0]
