"""The figures of a release, from rows made by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adaptk.replay.evaluate import Row
from adaptk.replay.scenarios import Scenario
from adaptk.replay.sources import from_rows
from adaptk.replay.views.files import document, read_rows
from adaptk.replay.views.standing import standing_lines, standings
from tests.replay.tiny import row, tiny


def runs(policy: str, scenario: str, ratios: list[float], **more: Any) -> list[Row]:
    return [row(scenario, policy, seed, oracle_ratio=ratio, **more) for seed, ratio in enumerate(ratios)]


def core(name: str) -> Scenario:
    return tiny(name, group="core")


OWN = [*runs("adaptk", "A", [0.98, 0.92]), *runs("adaptk", "B", [1.0, 0.9])]
OTHER = [*runs("table", "A", [0.49, 0.92]), *runs("table", "B", [0.5, 0.6])]


def test_means_lowest_world_lowest_run_and_paired_ratios() -> None:
    """A 0.98·0.92 and B 1.0·0.9; over the other: A 2 and 1, B 2 and 1.5."""
    mine, theirs = standings([*OTHER, *OWN])
    assert (mine.policy, theirs.policy) == ("adaptk", "table")
    assert mine.oracle.value == pytest.approx((0.98 * 0.92 * 1.0 * 0.9) ** 0.25)
    assert mine.oracle.low < mine.oracle.value < mine.oracle.high
    assert (mine.low.scenario, mine.low.ratio.value) == ("B", pytest.approx(math.sqrt(0.9)))
    assert (mine.low_seed.scenario, mine.low_seed.ratio.value) == ("B, seed 1", 0.9)
    assert theirs.against.value == pytest.approx((2 * 1 * 2 * 1.5) ** 0.25)
    assert (theirs.low_against.scenario, theirs.low_against.ratio.value) == ("A", pytest.approx(math.sqrt(2)))
    assert mine.against == (1.0, 1.0, 1.0)


def test_a_policy_that_ran_elsewhere_is_left_out() -> None:
    assert [one.policy for one in standings([*OWN, *runs("fixed-1", "A", [0.5, 0.5])])] == ["adaptk"]


def test_recoveries_are_of_all_changes_and_those_that_never_came_count_as_infinite() -> None:
    found = runs("adaptk", "A", [1.0, 1.0], recoveries=[1, 2, 3, 4, None])
    p50, p90, never = standings(found)[0].recovery
    assert (p50, p90, never) == (3, math.inf, 0.2)
    found = runs("adaptk", "A", [1.0, 1.0], recoveries=[1, 2, 3, 4, 5])
    assert standings(found)[0].recovery == (3, 5, 0.0)
    assert all(map(math.isnan, standings(OWN)[0].recovery))


def test_time_under_k0_is_a_mean_over_worlds_and_a_highest_world_and_calm_is_of_calm_worlds() -> None:
    found = [
        *runs("adaptk", "calm-1", [1.0, 1.0], over_k0=0.01, over_k0_early=0.02, lasting_per_1000=2.0, in_visits=0.3),
        *runs("adaptk", "B", [1.0], over_k0=0.05, over_k0_early=0.0),
        *runs("adaptk", "B", [1.0], over_k0=0.07, over_k0_early=0.0),
    ]
    one = standings(found)[0]
    assert one.over_k0 == (pytest.approx(0.035), pytest.approx(0.06))
    assert one.early == (pytest.approx(0.01), pytest.approx(0.02))
    assert one.calm == (2.0, pytest.approx(0.3))


def test_core_worlds_stand_together_and_those_apart_one_by_one() -> None:
    """And adaptk's ratio to the table where the table is right: in A, not in B."""
    rows = [
        *(msgspec.structs.replace(each, table_ratio=0.99) for each in OWN),
        *runs("table", "A", [1.0, 0.995]), *runs("table", "B", [0.5, 0.6]),
        *runs("adaptk", "D", [0.1, 0.1]),
        *runs("adaptk", "C", [0.7, 0.8]), *runs("table", "C", [0.9, 0.9]), *runs("adaptk-greedy", "C", [0.95, 0.95]),
    ]  # fmt: skip
    lines = [
        line.text
        for line in standing_lines(rows, [core("A"), core("B"), tiny("C", group="apart"), tiny("D", group="cases")])
    ]
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    assert "adaptk in 2 worlds, 2 seeds" in text
    assert "The lowest" not in text
    assert "adaptk's are B and B, seed 1." in text
    assert "Over the table where that has 0.995 of the oracle (1 of 2): 0.990 [0.990,0.990], lowest 0.990 in A." in text
    apart = lines[lines.index("adaptk in the worlds judged apart") + 2 :]
    assert len(apart) == 1
    assert apart[0].split() == ["C", "0.748", "[0.700,0.800]", "0.700", "0.0", "%", "0.0", "%", "0.900", "table"]
    assert standing_lines(runs("adaptk", "A", [0.9]), [core("A")]) == []
    assert standing_lines(OTHER, [core("A"), core("B")]) == []


def test_rows_come_back_from_files_as_they_were(tmp_path: Path) -> None:
    rows = [*OWN, row("A", "no-drafter", 0, over_k0=math.nan, regret_ms=math.nan, passed=None, recoveries=[3, None])]
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    one.write_bytes(document(rows[:2], [], 0, False))
    two.write_bytes(document(rows[2:], [], 0, False))
    back = read_rows([one, two])
    assert back[:4] == rows[:4]
    assert math.isnan(back[4].over_k0)
    assert back[4].recoveries == [3, None]
    assert msgspec.json.encode(back[4]) == msgspec.json.encode(rows[4])
    with pytest.raises(ValueError, match=r"one\.json: has adaptk in A with seed 0, which another file or row has too"):
        read_rows([one, one])
    one.write_text("[]")
    with pytest.raises(ValueError, match=r"one\.json: holds no rows of version 2"):
        read_rows([one])
    with pytest.raises(ValueError, match=r"none\.json: there is no such file: give a file that --json wrote"):
        read_rows([tmp_path / "none.json"])
    with pytest.raises(ValueError, match="scenario 'B' of the rows is unknown"):
        from_rows([two])
