"""Tables corrected by a controller's snapshot."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from adaptk import Controller, GoodputTable, StepRecord
from adaptk.table import TableError
from adaptk.tabletools.correcting import correct, read_snapshot
from tests.tabletools.measured import of_levels, public_table

KEYED = {"key": {"device": "H100"}, "provenance": {"command": "measured"}}


@cache
def snapshot_text(kind: str, steps: int = 200) -> str:
    """A controller's snapshot after steps of 1.3 times the table's, 90 % of the drafts accepted."""
    controller = Controller(tables()[kind], seed=0, k_max=3)
    before = 0
    for _ in range(steps):
        k = controller.choose(16, 16 * 512)
        n = [min(before, 3 if i % 10 else 0) for i in range(16)]
        controller.observe(
            StepRecord(
                batch_size=16,
                elapsed_ms=9.0 + 1.1 * before,
                k=k,
                drafted=[before] * 16,
                accepted=n,
                context_tokens=8192,
            )
        )
        before = k
    return json.dumps(controller.snapshot())


def tables() -> dict[str, GoodputTable | None]:
    return {
        "timed": public_table(KEYED),
        "schedule": GoodputTable.from_schedule([[1, 64, 3]], [0.5]),
        "levels": of_levels(512, 4096),
        "none": None,
    }


def snapshot(kind: str, steps: int = 200) -> dict[str, Any]:
    taken: dict[str, Any] = json.loads(snapshot_text(kind, steps))
    return taken


class TestCorrect:
    @pytest.mark.parametrize("kind", ["timed", "schedule", "levels", "none"])
    def test_as_the_controller_believed(self, kind: str) -> None:
        """The same cells and acceptance as its own corrected_table; the provenance says from what."""
        table = tables()[kind]
        found = correct(table, snapshot(kind), "seed.json")
        expected = Controller.restore(snapshot(kind), table).corrected_table()
        assert found.table.rows == expected.rows
        assert found.table.acceptance == expected.acceptance
        assert found.steps == 200
        provenance = found.table.meta["provenance"]
        assert (provenance["corrected_from"], provenance["steps"]) == ("seed.json", 200)

    def test_key_and_provenance_of_the_seed_stay(self) -> None:
        """Corrected again and again, the first provenance is kept and nothing nests."""
        table = tables()["timed"]
        found = correct(table, snapshot("timed"), "seed.json").table
        assert found.key == {"device": "H100"}
        assert found.meta["provenance"]["seed_provenance"] == {"command": "measured"}

    def test_what_is_lost_is_said(self) -> None:
        """K that were no arms, and levels of context."""
        assert any("K=5 are left out" in note for note in correct(public_table(KEYED), snapshot("timed"), "s").notes)
        levels = correct(tables()["levels"], snapshot("levels"), "s")
        assert any("2 levels of context are one" in note for note in levels.notes)

    def test_another_table_is_refused(self) -> None:
        """With what can be done about it."""
        with pytest.raises(TableError, match=r"another table.*--allow-mismatch"):
            correct(tables()["levels"], snapshot("timed"), "s")
        with pytest.raises(TableError, match="give --no-table"):
            correct(tables()["timed"], snapshot("none"), "s")
        with pytest.raises(TableError, match="give that table"):
            correct(None, snapshot("timed"), "s")

    def test_another_table_takes_over_the_acceptance(self) -> None:
        """Where that is allowed; its own times and K stay."""
        other = GoodputTable.from_rows([{"batch": 1, "k": k, "itl_ms": 5.0 + k} for k in (0, 9)], [0.1])
        found = correct(other, snapshot("timed"), "s", allow_mismatch=True)
        assert found.table.rows == other.rows
        assert found.table.acceptance is not None
        assert found.table.acceptance[0] > 0.5
        assert any("only the acceptance" in note for note in found.notes)

    def test_nothing_learnt_is_nothing_corrected(self) -> None:
        """No step, no table."""
        with pytest.raises(TableError, match="observed no step"):
            correct(tables()["timed"], snapshot("timed", 0), "s")
        with pytest.raises(TableError, match="nothing"):
            correct(None, snapshot("none", 0), "s")

    def test_a_snapshot_that_was_changed(self) -> None:
        """Its digest says so."""
        changed = snapshot("timed")
        changed["counters"]["steps"] = 10**6
        with pytest.raises(TableError, match="digest"):
            correct(tables()["timed"], changed, "s")


class TestReadSnapshot:
    def test_alone_or_in_a_state_file(self, tmp_path: Path) -> None:
        """An object with the snapshot as its controller."""
        path = tmp_path / "state.json"
        for content in (snapshot("timed"), {"version": 1, "controller": snapshot("timed")}):
            path.write_text(json.dumps(content))
            assert read_snapshot(path) == snapshot("timed")

    @pytest.mark.parametrize(
        ("text", "expected"),
        [("{", "is no JSON"), ("[]", "no snapshot"), ('{"rows": []}', "no snapshot"), ("", "empty")],
    )
    def test_what_is_none(self, text: str, expected: str, tmp_path: Path) -> None:
        """The message names the file."""
        path = tmp_path / "state.json"
        path.write_text(text)
        with pytest.raises(TableError, match=expected) as error:
            read_snapshot(path)
        assert str(path) in str(error.value)
