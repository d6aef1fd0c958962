"""Which policies run where, in what order rows come, and what an interrupt leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from adaptk.replay import scenarios as known
from adaptk.replay import sweep
from adaptk.replay.evaluate import judge
from adaptk.replay.policies.base import Setup
from adaptk.replay.scenarios import Scenario
from adaptk.replay.sweep import chosen, collect, illustrated, pieces, planned, stories_of
from adaptk.replay.views.aggregate import summaries
from tests.replay.handmade import Plays
from tests.replay.tiny import interrupt_run, row, tiny

QUIET: Callable[[str], None] = lambda _: None  # noqa: E731


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> dict[str, Scenario]:
    made = {name: tiny(name) for name in ("T1", "T2", "T3")}
    monkeypatch.setattr(known, "scenarios", lambda: made)
    return made


def test_scenarios_by_name_and_group(three: dict[str, Scenario]) -> None:
    """Whatever the case, none twice."""
    groups = {"T1": "cases", "T2": "core", "T3": "cases", "T4": "apart"}
    three.update({name: tiny(name, group=group) for name, group in groups.items()})
    assert [s.name for s in chosen(["t2", "T1", "T2"])] == ["T2", "T1"]
    assert [s.name for s in chosen(["all"])] == ["T1", "T2", "T3", "T4"]
    assert [s.name for s in chosen(["worlds", "cases"])] == ["T2", "T4", "T1", "T3"]
    assert [[s.name for s in chosen([group])] for group in ("core", "Apart")] == [["T2"], ["T4"]]
    with pytest.raises(ValueError, match="scenario 'T9' is unknown"):
        chosen(["T9"])


def test_a_fixed_k_is_left_out_where_it_is_no_arm() -> None:
    """And refused where no scenario has it."""
    wide, narrow = tiny("wide"), tiny("narrow", arms=(0, 1))
    plan = planned([wide, narrow], ["fixed-3", "table"])
    assert plan == {"wide": ["fixed-3", "table"], "narrow": ["table"]}
    with pytest.raises(ValueError, match=r"'fixed-3' is no arm .* one of \[0, 1\]"):
        planned([narrow], ["fixed-3"])
    with pytest.raises(ValueError, match="policy 'tabel' is unknown: did you mean table"):
        planned([wide], ["tabel"])


def test_rows_come_in_order_and_are_counted(three: dict[str, Scenario]) -> None:
    """By scenario, seed and policy; the same rows as those of the bench."""
    scenarios, said = [three["T2"], three["T1"]], []
    plan = planned(scenarios, ["table", "fixed-0"])
    done = collect(scenarios, plan, 2, 1, said.append)
    assert len(said) == pieces(scenarios, plan, 2, 1) == 8
    assert said[0] == "T2, seed 0: table"
    assert not done.cut_short
    found = [(r.scenario, r.seed, r.policy) for r in done.rows]
    assert found == [(s, seed, p) for s in ("T2", "T1") for seed in (0, 1) for p in ("table", "fixed-0")]
    assert done.rows[:2] == judge(three["T2"], ["table", "fixed-0"], 0)


def test_processes_change_nothing(three: dict[str, Scenario]) -> None:
    """Nor does a scenario with nothing to run."""
    scenarios, said = [three["T1"], three["T2"], three["T3"]], []
    plan = {**planned(scenarios, ["table", "adaptk"]), "T3": []}
    alone = collect(scenarios, plan, 1, 1, QUIET)
    together = collect(scenarios, plan, 1, 2, said.append)
    assert together.rows == alone.rows
    assert sorted(said) == ["T1, seed 0", "T2, seed 0"]
    assert pieces(scenarios, plan, 1, 2) == 2


def test_an_interrupt_keeps_what_was_finished(three: dict[str, Scenario], monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_run(monkeypatch, 2)
    done = collect([three["T1"]], {"T1": ["table", "fixed-0", "fixed-1"]}, 1, 1, QUIET)
    assert done.cut_short
    assert [r.policy for r in done.rows] == ["table", "fixed-0"]


def test_the_policy_of_a_trace_is_first(three: dict[str, Scenario]) -> None:
    """It is made anew for each seed, from that seed's setup."""
    seen: list[int] = []

    def recorded(setup: Setup) -> Plays:
        seen.append(setup.seed)
        return Plays(0, k_max=3)

    scenario = replace(three["T1"], own_policies={"recorded": recorded})
    plan = planned([scenario], ["usual"])
    assert plan["T1"][0] == "recorded"
    done = collect([scenario], {"T1": ["recorded", "fixed-0"]}, 2, 1, QUIET)
    assert seen == [0, 1]
    assert [(r.policy, r.seed) for r in done.rows] == [("recorded", 0), ("fixed-0", 0), ("recorded", 1), ("fixed-0", 1)]
    assert done.rows[0].time_ms == done.rows[1].time_ms


def test_stories_are_of_where_adaptk_is_furthest_from_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the scenarios; where it did not run, last."""
    monkeypatch.setattr(sweep, "MOST_STORIES", 2)
    scenarios = [tiny(name) for name in "ABCD"]
    rows = [row("A", oracle_ratio=0.9), row("B", oracle_ratio=0.99), row("C", oracle_ratio=0.5), row("D", "table")]
    assert [s.name for s in stories_of(scenarios, summaries(rows))] == ["A", "C"]


def test_pictures_are_of_the_best_rival(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = summaries([row("T1", p, oracle_ratio=r) for p, r in (("oracle", 1.0), ("fixed-1", 0.9), ("fixed-0", 0.8))])
    said: list[str] = []
    found = illustrated([tiny("T1")], parts, 1, said.append)
    assert said == list(found) == ["T1"]
    assert "fixed-1 " in found["T1"][1].alt

    def impatient(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "_pictures", impatient)
    assert illustrated([tiny("T1")], parts, 1, said.append) == {}
