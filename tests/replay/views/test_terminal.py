"""Tables in 80 columns."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.replay.intervals import Interval
from adaptk.replay.views.aggregate import overall, summaries
from adaptk.replay.views.terminal import interval, legend, listing, overall_lines, scenario_lines, share
from adaptk.textlines import WIDTH, Line, folded, number, shortened, wrapped
from tests.replay.tiny import row


def texts(lines: list[Line]) -> list[str]:
    return [line.text for line in lines]


def test_a_table_by_eye() -> None:
    rows = [
        row(seed=s, policy=p, oracle_ratio=r, below_k0=0.025)
        for s in (0, 1)
        for p, r in (("adaptk", 0.95), ("table", 0.9))
    ]
    rows.append(row(policy="no-drafter", passed=None, below_k0=math.nan, oracle_ratio=0.8))
    assert texts(scenario_lines(["A: a wave", "engine: by hand"], summaries(rows), "adaptk wins")) == [
        "A: a wave",
        "engine: by hand",
        "policy                          oracle [90 %] table   tok/s  sw/1k   <K=0 passed",
        "adaptk                    0.950 [0.950,0.950] 1.100   100.0    5.0  2.5 %    2/2",
        "table                     0.900 [0.900,0.900] 1.100   100.0    5.0  2.5 %    2/2",
        "no-drafter                              0.800 1.100   100.0    5.0      -      -",
        "adaptk wins",
    ]


def test_columns_that_say_nothing_are_left_out_and_waiting_has_one() -> None:
    lines = texts(scenario_lines(["A: a log"], summaries([row(latency_ms=7.25, passed=None)])))
    assert "passed" not in lines[1]
    assert lines[1].endswith("ms/tok")
    assert lines[2].endswith("   7.2")
    assert "ms/tok" not in "".join(texts(legend(False, False)))
    assert "passed:" in "".join(texts(legend(False, True)))


def test_adaptk_stands_out() -> None:
    styles = {
        line.text.split()[0]: line.style for line in scenario_lines(["A"], summaries([row(), row(policy="table")]))
    }
    assert (styles["adaptk"], styles["table"], styles["policy"]) == ("own", "", "head")


def test_over_scenarios_the_worst_one_is_named() -> None:
    rows = [row("A", oracle_ratio=0.8), row("moe-hill", oracle_ratio=0.7, table_ratio=1.3)]
    rows += [row(name, "fixed-1") for name in ("A", "moe-hill")]
    lines = texts(overall_lines(overall(rows), 2, {"adaptk", "table"}))
    worst = lines[lines.index("Worst scenario") + 2 :]
    assert worst == ["adaptk                   0.700                       1.100",
                     "                          moe-hill                    A"]  # fmt: skip


def test_names_are_listed_with_what_is_said_of_them() -> None:
    """A line each: what is said is cut where a part of it ends."""
    long = "a-name-of-more-than-24-characters"
    lines = listing([("shorter", "one"), ("short", "one, two; " + "three " * 20), (long, "four")])
    assert lines == ["shorter  one", "short    one, two", f"{long}  four"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one, two", "one, two"),
        ("one (two), three", "one (two)"),
        ("one: two (three four)", "one: two"),
        ("one two three four", "one two"),
        ("onetwothreefour", "onetwothre"),
    ],
)
def test_what_is_too_long_is_cut_where_it_hurts_least(text: str, shown: str) -> None:
    assert shortened(text, 10) == shown


@pytest.mark.parametrize("whole", ["steep-first-draft", "90 %", "+5.0 % [+3.1,+6.0]"])
def test_some_things_are_not_broken(whole: str) -> None:
    for before in range(60, 80):
        assert any(whole in line for line in wrapped("x" * before + f" {whole}"))


@pytest.mark.parametrize(("part", "shown"), [(0.123, "12.3 %"), (1.0, "100 %"), (0.0, "0.0 %"), (math.nan, "-")])
def test_shares(part: float, shown: str) -> None:
    assert share(part) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Interval(0.98765, 0.9812, 0.9953), "0.988 [0.981,0.995]"),
        (Interval(0.5, math.nan, math.nan), "0.500"),
        (Interval(math.nan, math.nan, math.nan), "-"),
        (Interval(12.3456, 9.9999, 123.4), "12.35 [10.00,123.4]"),
    ],
)
def test_intervals(value: Interval, shown: str) -> None:
    assert interval(value) == shown


def test_no_negative_zero() -> None:
    assert number(-1e-12, 6) == "0.0"


NUMBERS = st.floats(min_value=0.0, max_value=1e12) | st.just(math.nan)


@given(st.text(max_size=120), st.text(min_size=1, max_size=60), NUMBERS, NUMBERS, st.booleans())
def test_no_line_is_wider_than_80_columns(name: str, policy: str, ratio: float, figure: float, checked: bool) -> None:
    """Whatever names and figures come."""
    rows = [
        row(
            s,
            p,
            oracle_ratio=ratio,
            table_ratio=ratio,
            tokens_per_s=figure,
            latency_ms=figure,
            below_k0=min(ratio, 1.0),
            passed=True if checked else None,
        )
        for s in (name, "B")
        for p in (policy, "adaptk-acceptance-greedy-unbounded")
    ]
    lines = scenario_lines([f"{name}: {name}", policy], summaries(rows), name)
    lines += overall_lines(overall(rows), 2, {policy, "adaptk-acceptance-greedy-unbounded"})
    lines += [Line(text) for text in [*listing([(name, policy), (policy, name)]), *wrapped(name)]]
    assert max(len(line.text) for line in lines) <= WIDTH
    assert not any("\n" in line.text for line in lines)


@given(st.text(alphabet="abc-", min_size=1, max_size=60), st.integers(4, 30))
def test_folding_loses_nothing(text: str, width: int) -> None:
    assert "".join(piece.strip() for piece in folded(text, width)) == text
