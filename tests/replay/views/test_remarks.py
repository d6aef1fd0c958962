"""What is said of figures in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.evaluate import Row
from adaptk.replay.scenarios import Scenario
from adaptk.replay.views.aggregate import summaries
from adaptk.replay.views.remarks import ONE_SEED, baseline, closely, engine, remarks, verdict
from tests.replay.handmade import requests, surface, world
from tests.replay.tiny import ACCEPTANCE, row, tiny


def said(scenarios: list[Scenario], rows: list[Row]) -> list[str]:
    return remarks(scenarios, rows, summaries(rows))


def two(policy: str = "adaptk", **more: Any) -> list[Row]:
    """Two seeds, so that nothing is said of their number."""
    return [row("T1", policy, seed, **more) for seed in (0, 1)]


def arriving(last_s: float = 100.0) -> Scenario:
    load = requests([5, 5], [5, 5], arrival_ms=[0.0, 1000.0 * last_s])
    made = world(load, Drafter(profiles(ACCEPTANCE)))
    return replace(tiny("T1", ()), world=lambda seed: replace(made, seed=seed))


class TestVerdict:
    def test_in_a_script_it_is_the_table_ratio(self) -> None:
        rows = [*two(table_ratio=1.0234), *two("table")]
        assert verdict(tiny(), rows) == "adaptk against the static table: tok/s +2.3 % [+2.3,+2.3]"

    def test_without_a_table_it_is_against_the_largest_k(self) -> None:
        scenario = tiny(table=None)
        assert (
            verdict(scenario, [row("T1", table_ratio=0.95), row("T1", "fixed-3")])
            == "adaptk against fixed-3: tok/s -5.0 %"
        )

    def test_where_requests_arrive_by_the_clock_waiting_is_compared_too(self) -> None:
        """And tokens per second as they were: the table ratio is of times there."""
        rows = [row("T1", tokens_per_s=101.0, latency_ms=4.5, table_ratio=2.0), row("T1", "table", latency_ms=5.0)]
        assert verdict(arriving(), rows) == "adaptk against the static table: tok/s +1.0 %, ms/tok -10.0 %"

    @pytest.mark.parametrize("rows", [[], two(), two("table"), [*two(), *two("fixed-3")]])
    def test_where_one_of_them_did_not_run_nothing_is_said(self, rows: list[Row]) -> None:
        assert verdict(tiny(), rows) == ""

    def test_other_scenarios_do_not_count(self) -> None:
        rows = [*two(table_ratio=1.5), *two("table"), row("T2"), row("T2", "table")]
        assert "+50.0 %" in verdict(tiny(), rows)


def test_the_baseline_is_what_the_engine_does_by_itself() -> None:
    assert (baseline(tiny()), baseline(tiny(table=None))) == ("table", "fixed-3")
    assert closely([tiny(), tiny(table=None), tiny()]) == {"adaptk", "table"}
    assert closely([tiny(table=None)]) == {"adaptk", "fixed-3"}


def test_the_engine_is_named() -> None:
    assert engine(tiny()) == "engine: by hand"


def test_one_seed_is_said() -> None:
    assert said([tiny()], [row("T1")]) == [ONE_SEED]
    assert said([tiny()], two()) == []
    assert said([tiny()], []) == []


def test_no_table_is_said() -> None:
    assert said([tiny(table=None)], two()) == ["no table: the table column is relative to fixed-3."]


def test_several_scenarios_are_named() -> None:
    rows = [*two(), row("T2")]
    assert said([tiny("T1"), tiny("T2", table=None), tiny("T3", table=None)], rows) == [
        "T2: no table: the table column is relative to fixed-3."
    ]


class TestNoDrafter:
    FREE = surface(k_max=3)
    FREE = replace(FREE, draft_ms=FREE.draft_ms - FREE.draft_ms[:, :1])

    def free(self, name: str) -> Scenario:
        scenario = tiny(name)
        return replace(scenario, world=lambda seed: replace(scenario.world(seed), surface=self.FREE))

    def test_a_price_that_is_not_known_is_said_once(self) -> None:
        rows = [row(name, "no-drafter", seed) for name in ("T1", "T2") for seed in (0, 1)]
        assert said([self.free("T1"), self.free("T2")], rows) == [
            "no-drafter: the price of a loaded drafter at K=0 is not known here and taken as 0."
        ]

    def test_or_where(self) -> None:
        rows = [row(f"T{i}", "no-drafter", seed) for i in range(6) for seed in (0, 1)]
        assert "not known in T0, T2 and taken" in said([self.free("T0"), tiny("T1"), self.free("T2")], rows)[0]
        scenarios = [*(self.free(f"T{i}") for i in range(5)), tiny("T5")]
        assert "not known in 5 of 6 scenarios and taken" in said(scenarios, rows)[0]

    def test_nothing_is_said_where_it_is_known_or_did_not_run(self) -> None:
        assert said([tiny()], two("no-drafter")) == []
        assert said([self.free("T1")], two()) == []


@pytest.mark.parametrize(
    ("unfinished", "shown"),
    [
        ((1,), "adaptk did not finish 1 request: its figures are not comparable."),
        ((2, 3), "adaptk did not finish 5 requests in 2 seeds: its figures are not comparable."),
    ],
)
def test_requests_that_did_not_end_are_said(unfinished: tuple[int, ...], shown: str) -> None:
    rows = [row("T1", seed=seed, unfinished=n) for seed, n in enumerate(unfinished)]
    assert shown in said([tiny()], [*rows, *(row("T1", "table", seed) for seed in range(len(rows)))])


class TestPace:
    """The last request arrives at 100 s."""

    def rows(self, **seconds: float) -> list[Row]:
        return [one for name, s in seconds.items() for one in two(name, latency_ms=5.0, time_ms=1000.0 * s)]

    def test_an_engine_that_ends_soon_keeps_up(self) -> None:
        """However busy it was: tokens per second then say nothing of K."""
        assert said([arriving()], self.rows(adaptk=103.0, table=109.9)) == [
            "The engine keeps up under every policy (it ends at most 9.9 s after the last arrival at 100 s): tok/s is "
            "set by the arrivals, ms/tok is what to compare."
        ]

    def test_one_that_does_not_under_some_policies(self) -> None:
        (note,) = said([arriving()], self.rows(adaptk=103.0, table=130.0))
        assert note.startswith("The engine does not keep up under table: it ends up to 30 s after the last arrival")
        assert note.endswith("Under the others tok/s is set by the arrivals: compare ms/tok.")

    def test_one_that_never_does(self) -> None:
        (note,) = said([arriving()], self.rows(adaptk=120.0, table=130.0))
        assert "does not keep up under any policy" in note
        assert "tok/s" not in note

    def test_a_median_of_the_seeds_decides(self) -> None:
        rows = [row("T1", seed=seed, latency_ms=5.0, time_ms=t) for seed, t in enumerate((101e3, 102e3, 190e3))]
        assert "keeps up" in said([arriving()], rows)[0]

    def test_nothing_is_said_where_nothing_arrives_by_the_clock(self) -> None:
        assert said([tiny()], two(time_ms=1e9)) == []
