"""What a table knows of drafts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adaptk.snapshot import fingerprint
from adaptk.table import GoodputTable, TableError
from tests.strategies import rows_of

ROWS = rows_of({1: {0: 5.0, 3: 7.0}})


def made(**drafts: Any) -> GoodputTable:
    return GoodputTable.from_rows(ROWS, **drafts)


def test_width_by_hand() -> None:
    """Half the steps have a first draft, a quarter a second; the last share goes on."""
    table = made(supply=[0.5, 0.25])
    assert [table.width(k) for k in (0, 1, 2, 4)] == [0.0, 0.5, 0.75, 1.25]
    assert made().width(7) == 7.0


def test_supply_does_not_change_goodput() -> None:
    """Rows are of steps as they were, and acceptance counts a missing draft as a failure already."""
    plain, known = made(acceptance=[0.4, 0.9, 0.9]), made(acceptance=[0.4, 0.9, 0.9], supply=[0.5])
    assert plain.goodput(1, 3) == known.goodput(1, 3)


def test_round_trip(tmp_path: Path) -> None:
    """All three through a file, and through from_schedule."""
    fields = {"acceptance": [0.5, 0.4], "acceptance_counts": [[50, 100], [20, 50]], "supply": [0.9, 0.8]}
    for table in (made(**fields), GoodputTable.from_schedule([[1, 8, 2]], **fields)):
        table.save(tmp_path / "t.json")
        again = GoodputTable.load(tmp_path / "t.json")
        assert again == table
        assert again.acceptance_counts == ((50, 100), (20, 50))
        assert again.supply == (0.9, 0.8)
    assert '"acceptance_counts": [[50, 100], [20, 50]]' in (tmp_path / "t.json").read_text()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("supply", [0.5, 0.6], "supply\\[1\\] is 0.6, above the 0.5 before it"),
        ("supply", [1.5], "supply\\[0\\] is 1.5"),
        ("supply", [], "supply has 0 entries"),
        ("supply", "x", "supply is 'x': give one probability"),
        ("acceptance_counts", [[3, 2]], "acceptance_counts\\[0\\] accepted is 3: give a whole number from 0 to 2"),
        ("acceptance_counts", [[1.0, 2]], "accepted is 1.0"),
        ("acceptance_counts", [[True, 2]], "accepted is True"),
        ("acceptance_counts", [[1, -2]], "tried is -2"),
        ("acceptance_counts", [[1]], "acceptance_counts\\[0\\] is \\[1\\]: give \\[accepted, tried\\]"),
        ("acceptance_counts", [5], "acceptance_counts\\[0\\] is 5"),
        ("acceptance_counts", {"a": 1}, "acceptance_counts is {'a': 1}"),
    ],
)
def test_what_is_refused(field: str, value: Any, message: str) -> None:
    """By field and place."""
    with pytest.raises(TableError, match=message):
        made(**{field: value})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"low_ms": 6.0, "high_ms": 5.0}, "low_ms is 6.0, above high_ms 5.0"),
        ({"low_ms": -1.0}, "low_ms is -1.0"),
        ({"graph_mode": ""}, "graph_mode is ''"),
        ({"graph_mode": 3}, "graph_mode is 3"),
        ({"graph_mode": "x" * 41}, "graph_mode is 'xxx"),
    ],
)
def test_new_fields_of_rows_are_checked(row: dict[str, Any], message: str) -> None:
    """Intervals and modes, too."""
    with pytest.raises(TableError, match=message):
        GoodputTable.from_rows([{"batch": 1, "k": 0, "itl_ms": 5.0, **row}])


@pytest.mark.parametrize(
    ("row", "drafts", "expected"),
    [
        ({"low_ms": 5.5, "high_ms": 6.0}, {"acceptance": [0.5]}, "5 ms lies outside its own interval, 5.5 to 6 ms"),
        ({"low_ms": 4.0, "high_ms": 6.0}, {"acceptance": [0.5]}, "its interval is wide, 4 to 6 ms"),
        ({}, {"acceptance": [0.5], "acceptance_counts": [[5, 10]]}, "position 1 rests on 10 drafts only"),
        ({}, {"acceptance": [0.5], "acceptance_counts": [[70, 100]]}, "position 1 is 0.5, its counts say 70 of 100"),
        ({}, {"acceptance": [0.5], "acceptance_counts": [[50, 100], [9, 50]]}, "has 2 positions, acceptance 1"),
    ],
)
def test_what_looks_wrong(row: dict[str, Any], drafts: dict[str, Any], expected: str) -> None:
    """One sentence, and none where all is well."""
    found = GoodputTable.from_rows([{"batch": 1, "k": 0, "itl_ms": 5.0, **row}], **drafts).check()
    assert [line for line in found if expected in line]
    well = {"acceptance": [0.5], "acceptance_counts": [[50, 100]], "supply": [0.9]}
    assert (
        GoodputTable.from_rows([{"batch": 1, "k": 0, "itl_ms": 5.0, "low_ms": 4.9, "high_ms": 5.1}], **well).check()
        == []
    )


def test_acceptance_that_rises_is_no_slip_where_drafts_were_missing_or_counted() -> None:
    """An n-gram drafter that finds something in a fifth of the steps is right about it: 0.2, then 0.8."""
    assert any("marginal" in line for line in made(acceptance=[0.2, 0.8, 0.8]).check())
    assert made(acceptance=[0.2, 0.8, 0.8], supply=[0.2]).check() == []
    assert made(acceptance=[0.2, 0.8, 0.8], acceptance_counts=[[20, 100], [80, 100], [80, 100]]).check() == []


def test_the_digest_of_a_table_is_as_it_was() -> None:
    """Snapshots taken before rows had intervals still belong to their tables; a supply makes another table."""
    table = GoodputTable.from_rows(rows_of({1: {0: 5.0, 3: 7.0}, 8: {0: 6.0}}, n=4), [0.5, 0.4])
    assert fingerprint(table) == "393c0d3a1c2b62c4"
    assert fingerprint(GoodputTable.from_rows([{"batch": 1, "k": 0, "itl_ms": 5.0}])) == "7defc605b80bb0c9"
    assert fingerprint(GoodputTable.from_schedule([[1, 8, 3]])) == "e3faea16412f4aad"
    assert fingerprint(made()) != fingerprint(made(supply=[0.5]))
