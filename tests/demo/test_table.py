"""The printed result."""

from __future__ import annotations

from adaptk.demo import load, measure, table
from adaptk.demo.measure import Row, Run, Step, Turn
from adaptk.demo.policies import DISTORTED, POLICIES

SPEEDS = {"none": 110, "k0": 100, "k1": 120, "k3": 150, "k7": 130, "table": 160, "adaptk": 156}
SPEEDS |= dict(zip(DISTORTED, (120, 152), strict=True))


def _rows(rounds: int, dropped: int = 0, policies: tuple[str, ...] = POLICIES) -> list[Row]:
    parts = [
        Row(
            policy=policy,
            phase=phase,
            round=round_,
            tokens_per_s=float(SPEEDS[policy]),
            steps=100,
            dropped=dropped,
            tokens=SPEEDS[policy] * 10,
            seconds=10.0,
        )
        for round_ in range(rounds)
        for phase in load.PHASES
        for policy in policies
    ]
    return [*parts, *measure.overall(parts, load.PHASES)]


def test_table_fits_80_columns_and_says_what_it_compares() -> None:
    """Speeds, ratios to K=0 and to the best fixed K (here K=3), and adaptk over the best other policy (the table)."""
    text = table.render(_rows(5, dropped=120), 5)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == [*load.PHASES, "overall"]
    assert lines[3].split() == ["K=0", "100.0", "100.0", "100.0", "100.0"]
    adaptk = [line for line in lines if line.startswith("adaptk ") and "over" not in line]
    assert adaptk[1].split()[1:3] == ["1.56", "[1.56,1.56]"]
    assert adaptk[2].split()[1:3] == ["1.04", "[1.04,1.04]"]
    assert "adaptk over the best other policy, chat: 0.97 [0.97,0.97] (table)" in lines
    assert "Dropped: 12600 of 23100 steps" in text.replace("\n", " ")
    assert "94 % confidence" in text


def test_distorted_policies_are_told_apart_and_set_against_the_right_table() -> None:
    """A star each, a line that says what it means, and the ratios that say whether the distortion was overcome."""
    text = table.render(_rows(5, policies=(*POLICIES, *DISTORTED)), 5)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line.startswith("table* ")]
    assert "adaptk over the right table, overall: 0.97 [0.97,0.97]" in lines
    assert "table* over the right table, overall: 0.75 [0.75,0.75]" in lines
    assert "adaptk* over the right table, overall: 0.95 [0.95,0.95]" in lines
    assert "* from a table that is wrong on purpose." in lines
    assert "*" not in table.render(_rows(5), 5)


def test_one_round_shows_no_interval_and_claims_nothing() -> None:
    """The quick run's table."""
    text = table.render(_rows(1), 1)
    assert "[" not in text
    assert "claims nothing" in text


def test_an_interrupted_run_shows_what_there_is() -> None:
    """Missing figures are dashes; without any there is one sentence."""
    few = [row for row in _rows(1) if row.phase == "copy" and row.policy in ("k0", "adaptk")]
    lines = table.render(few, 0).splitlines()
    assert lines[2].split() == ["K=0", "100.0", "-", "-", "-"]
    assert table.render([], 0) == "Nothing was measured."


def test_greedy_note_counts_turns_equal_to_k0() -> None:
    """Two of three turns agree; turns that are not greedy are not looked at."""
    turns = [
        Turn(policy, phase, 0, Run([Step(1.0, 1, 1)], digest))
        for policy, phase, digest in (
            ("k0", "copy", "a"),
            ("k1", "copy", "a"),
            ("k3", "copy", "b"),
            ("adaptk", "copy", "a"),
            ("k0", "chat", "c"),
            ("k1", "chat", "d"),
        )
    ]
    assert "in 2 of 3 turns" in table.greedy_note(turns, ["copy"])
    assert table.greedy_note(turns[:1], ["copy"]) == ""
