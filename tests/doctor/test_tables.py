"""What is said of a seed table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adaptk import GoodputTable, Settings
from adaptk.doctor import tables
from adaptk.doctor.facts import Engine, Outcome
from tests.doctor.made import KEY, by_id, made_engine

ROWS = [{"batch": b, "k": k, "itl_ms": 5.0 + k + 0.1 * b * (k + 1)} for b in (1, 4, 16) for k in (0, 1, 3)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.json"


def found(path: Path, engine: Engine | None = None, **settings: Any) -> dict[str, Any]:
    return by_id(tables.findings(Settings(table=str(path), **settings), engine))


def made(path: Path, key: dict[str, Any] | None = None, rows: list[dict[str, float]] = ROWS) -> Path:
    meta = {} if key is None else {"key": key}
    GoodputTable.from_rows(rows, acceptance=[0.8, 0.7, 0.6], meta=meta).save(path)
    return path


def test_no_table() -> None:
    """It is said what adaptk starts from instead."""
    (finding,) = tables.findings(Settings(), None)
    assert "starts from K=0" in finding.what
    (finding,) = tables.findings(Settings(), made_engine(operators_schedule=((1, 64, 3),)))
    assert "your num_speculative_tokens_per_batch_size" in finding.what


@pytest.mark.parametrize("content", [None, "", "[]", "{", '{"schema_version": 1}', "\0\xff", "null"])
def test_files_that_are_no_tables(content: str | None, path: Path) -> None:
    """A line each, with the table's own words."""
    if content is not None:
        path.write_text(content)
    assert {name: finding.status for name, finding in found(path).items()} == {"table.file": "fail"}


def test_a_table_of_this_engine(path: Path) -> None:
    """Nothing but its size and that it fits, but for what it does not hold."""
    statuses = {name: finding.status for name, finding in found(made(path, KEY), made_engine()).items()}
    assert statuses == {"table.file": "ok", "table.key": "ok", "table.arms": "note"}  # K=7 has no rows
    starts = made_engine(bare=Outcome(active=True, arms=(0, 1, 3)))
    assert "table.arms" not in found(path, starts)


def test_a_table_of_another_engine(path: Path) -> None:
    """Refused as the engine does, or taken as a weak prior where that was asked for."""
    made(path, {**KEY, "device": "A100", "by_hand": 1})
    finding = found(path, made_engine())["table.key"]
    assert (finding.status, finding.detail) == ("fail", "device: 'A100' in the table, 'NVIDIA H100' here")
    assert found(path, made_engine(), allow_mismatch=True)["table.key"].status == "warn"


def test_a_table_that_cannot_be_compared(path: Path) -> None:
    """Without a key, or without an engine."""
    assert found(made(path), made_engine())["table.key"].status == "note"
    assert found(made(path, KEY))["table.key"].status == "note"


def test_what_looks_odd(path: Path) -> None:
    """The number of things, the first of them, and where to read on."""
    made(path, KEY, [*ROWS, {"batch": 64, "k": 0, "itl_ms": 500.0}])
    finding = found(path, made_engine())["table.check"]
    assert finding.status == "note"
    assert "no row for k" in finding.detail
    assert finding.remedy == f"adaptk table check {path}"


def test_a_table_for_each_rank(tmp_path: Path) -> None:
    """The first is told whole, of the others what stands in the way."""
    made(tmp_path / "t-0.json", KEY)
    made(tmp_path / "t-1.json", {**KEY, "device": "A100"})
    listed = list(tables.findings(Settings(table=str(tmp_path / "t-{rank}.json")), made_engine(ranks=3)))
    failed = [finding.id for finding in listed if finding.status == "fail"]
    assert failed == ["table.key", "table.file"]


def test_another_table_than_the_settings(path: Path) -> None:
    """What is named on the command line is looked at."""
    listed = tables.findings(Settings(table="/nowhere.json"), None, str(made(path)))
    assert all(finding.status != "fail" for finding in listed)
