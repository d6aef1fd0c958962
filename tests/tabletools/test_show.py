"""A table in lines of text."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

from adaptk.replay.costs.p32374 import ACCEPTANCE
from adaptk.table import GoodputTable
from adaptk.tabletools import show
from adaptk.tabletools.survey import survey
from adaptk.textlines import Line
from tests.strategies import tables
from tests.tabletools.measured import COUNTS, of_levels, public_rows, public_table, with_intervals


def text_of(lines: list[Line]) -> str:
    return "\n".join(line.text for line in lines)


def everything(table: GoodputTable, max_batch: int | None = None) -> str:
    title = show.title_lines(table, "table.json")
    if not table.has_times:
        return text_of([*title, *show.schedule_lines(table, max_batch)])
    seen = survey(table, max_batch=max_batch)
    return text_of([*title, *show.run_lines(seen, table), *show.tie_lines(seen)])


class TestLines:
    def test_the_public_profile(self) -> None:
        """Runs with goodput and gain, the best fixed K by name."""
        text = everything(public_table())
        assert "1 to 50                            3        257.4 to 184.5          68 % to 39 %" in text
        assert "K=3 (best fixed)                                       5.5 %      27 %       256" in text
        assert "Rows have no intervals" in text

    def test_key_provenance_and_acceptance(self) -> None:
        """Where they are there; where not, that is said."""
        table = GoodputTable.from_rows(
            public_rows(),
            [0.5],
            {"key": {"model": "m", "device": "H100"}, "provenance": {"date": "2026-11-30", "steps": [1]}},
            acceptance_counts=[[5, 10]],
            supply=[0.9],
        )
        text = everything(table)
        assert "key: model=m, device=H100" in text
        assert "provenance: date=2026-11-30" in text
        assert "0.5 (of 10 trials); drafts returned" in text
        plain = everything(GoodputTable.from_rows(public_rows()))
        assert "key: none" in plain
        assert "0.7 is assumed" in plain.replace("\n", " ")

    def test_what_lies_beyond_the_rows_is_named(self) -> None:
        """Below the first batch size, above the last, and above the last of one K; nothing where all are there."""
        rows = [
            {"batch": b, "k": k, "itl_ms": 5.0 + 0.1 * b * k}
            for b in (8, 32, 64)
            for k in (0, 1, 3)
            if (b, k) != (64, 3)
        ]
        text = everything(GoodputTable.from_rows(rows, [0.5]), max_batch=100)
        assert "Below batch 8 there are no rows: times are those of batch 8." in text
        assert "Above batch 64 there are no rows" in text
        assert "K=3: no rows above batch 32; the times there are taken from other rows." in text
        assert "no rows" not in everything(GoodputTable.from_rows([{**row, "batch": 1} for row in rows[:3]], [0.5]))

    def test_ties_are_named(self) -> None:
        """With the lead and the interval that it lies in."""
        text = everything(with_intervals(0.04, COUNTS))
        assert "batch 64: K=1 leads K=3 by 3." in text
        assert "more than the intervals" in everything(with_intervals(0.001, COUNTS))

    def test_one_k_is_ahead_of_nothing(self) -> None:
        """Where there is no other arm, nothing is said of it."""
        rows = [{"batch": b, "k": 3, "itl_ms": 5.0, "low_ms": 4.9, "high_ms": 5.1} for b in (1, 8)]
        assert show.tie_lines(survey(GoodputTable.from_rows(rows, [0.5]))) == []
        assert show.tie_lines(survey(GoodputTable.from_rows([{"batch": 1, "k": 0, "itl_ms": 5.0}]))) == []

    def test_only_what_was_judged_is_said_to_be_ahead(self) -> None:
        """Rows without an interval, at one K or at all but one; a context between two levels, which has no rows."""
        some = [msgspec.structs.replace(row, low_ms=None) if row.k == 5 else row for row in with_intervals(0.001).rows]
        text = everything(GoodputTable.from_rows(some, ACCEPTANCE)).replace("\n", " ")
        assert "by more than the intervals of their times, where both have one." in text
        one = [msgspec.structs.replace(row, low_ms=None) if row.k else row for row in with_intervals(0.001).rows]
        text = everything(GoodputTable.from_rows(one, ACCEPTANCE)).replace("\n", " ")
        assert "Nowhere have the best K and another one both an interval" in text
        said = text_of(show.tie_lines(survey(of_levels(512, 4096), 2000.0)))
        assert said.startswith("No rows stand at this context")

    def test_levels_of_context(self) -> None:
        """Which one answers, and which there are."""
        text = everything(of_levels(512, 4096))
        assert "mean context 512; levels of context in the table: 512, 4096" in text
        assert "This is context 512; --context 4096 gives the other levels." in text

    def test_beyond_the_rows(self) -> None:
        """Extrapolated batch sizes are not passed off as measured."""
        assert "Above batch 256 there are no rows" in everything(public_table(), 600)

    def test_a_schedule(self) -> None:
        """As such, without a word on goodput."""
        text = everything(GoodputTable.from_schedule([[1, 8, 6], [9, 32, 4], [33, 128, 3]]), max_batch=20)
        assert "It has no step times" in text
        assert "9 to 32" in text
        assert "33 to 128" not in text

    def test_control_characters_of_a_file_do_not_reach_the_terminal(self) -> None:
        """A name could otherwise clear the screen."""
        meta = {"name": "a\x1b[2Jb", "key": {"model": "x\x1b]0;y"}, "provenance": {"command": "\x07"}}
        assert "\x1b" not in everything(public_table(meta))
        assert "\x07" not in everything(public_table(meta))

    @settings(max_examples=40)
    @given(tables)
    def test_any_table_fits(self, table: GoodputTable) -> None:
        """80 columns."""
        assert all(len(line) <= 80 for line in everything(table).split("\n"))


class TestDocument:
    def test_times_and_schedules(self) -> None:
        """The survey's fields, or the schedule."""
        table = public_table()
        assert len(show.document(table, survey(table))["cells"]) == 20
        assert show.document(GoodputTable.from_schedule([[1, 8, 3]]), None)["schedule"] == ((1, 8, 3),)


@pytest.mark.parametrize(("share", "expected"), [(0.0, "0.0 %"), (0.0999, "10.0 %"), (1e9, "1e+11 %"), (-0.5, "-50 %")])
def test_percent(share: float, expected: str) -> None:
    """Short whatever the share."""
    assert show.percent(share) == expected
