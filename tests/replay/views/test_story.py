"""One seed looked at closely."""

from __future__ import annotations

import numpy as np
import pytest

from adaptk.replay.evaluate import Bench
from adaptk.replay.views.story import best_rival, story, visits
from tests.replay.handmade import ALWAYS, requests, world
from tests.replay.tiny import ARMS, tiny


def test_short_visits_are_kept() -> None:
    """One step in a hundred is a point of its own, with its share."""
    ks = np.full(100, 3)
    ks[57] = 1
    seen = visits(ks, np.arange(100.0), np.ones(100, dtype=bool), bins=1)
    assert dict(zip(seen.k.tolist(), seen.share.tolist(), strict=True)) == {1: 0.01, 3: 0.99}
    seen = visits(ks, np.arange(100.0), np.ones(100, dtype=bool), bins=10)
    assert len(seen.k) == 11
    assert seen.at[seen.k == 1] == pytest.approx([5.5 * 9.9])


def test_steps_that_do_not_count_have_no_points() -> None:
    seen = visits(np.array([1, 3, 3]), np.arange(3.0), np.array([False, True, True]), bins=3)
    assert seen.k.tolist() == [3, 3]


def test_the_best_rival_is_not_adaptk_and_no_bound() -> None:
    ratios = {"oracle": 1.0, "adaptk-greedy": 0.99, "adaptk": 0.98, "manager": 0.9, "fixed-3": 0.95}
    assert best_rival(ratios, ["oracle"]) == "fixed-3"
    assert best_rival({"adaptk": 0.98}, []) is None


def test_a_scripted_story() -> None:
    """Steps on the axis; the oracle has no regret; belief stands beside the truth."""
    told = story(tiny(), 0, "fixed-0")
    assert (told.scenario, told.seed, told.axis) == ("T1", 0, "step")
    assert set(told.visits) == {"oracle", "table", "adaptk"}
    assert list(told.regret) == ["oracle", "table", "adaptk", "adaptk-greedy", "fixed-0"]
    assert told.regret["oracle"].value[-1] == pytest.approx(0.0, abs=1e-9)
    row = Bench(tiny(), 0).run("fixed-0").row
    assert told.regret["fixed-0"].value[-1] == pytest.approx(row.regret_ms)
    assert [arm.belief.k for arm in told.arms] == list(ARMS)
    assert 1 <= told.arms_batch <= 4
    for arm in told.arms:
        assert arm.table_itl_ms == pytest.approx(arm.true_itl_ms)
        assert arm.table_al == pytest.approx(arm.true_al)
    assert told.batch.value.max() == 4.0


def test_requests_have_a_clock() -> None:
    scenario = tiny()
    load = world(requests([4, 4], [30, 20]), ALWAYS)
    told = story(type(scenario)("Q", "", lambda _: load, scenario.table, scenario.startup, ARMS, ()), 0)
    assert told.axis == "engine time, s"
    assert told.regret["table"].at[-1] == pytest.approx(Bench(
        type(scenario)("Q", "", lambda _: load, scenario.table, scenario.startup, ARMS, ()), 0
    ).run("table").row.time_ms / 1000.0)  # fmt: skip
