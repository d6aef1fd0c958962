"""What a replay writes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import pytest

from adaptk import __version__
from adaptk.replay.evaluate import Row
from adaptk.replay.files import OutputError, write_json, write_whole
from tests.replay.tiny import row


def test_rows_are_plain_json(tmp_path: Path) -> None:
    """All fields of a row; what is no number is null; rows read back."""
    out = tmp_path / "rows.json"
    rows = [row(), row(seed=1, table_ratio=math.nan, p99_ms=math.inf)]
    write_json(out, rows, ["adaptk", "replay"], skipped=3, cut_short=True)
    document = json.loads(out.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert {name: value for name, value in document.items() if name != "rows"} == {
        "schema_version": 1,
        "kind": "adaptk-replay",
        "adaptk": __version__,
        "command": ["adaptk", "replay"],
        "cut_short": True,
        "skipped": 3,
    }
    assert (document["rows"][1]["table_ratio"], document["rows"][1]["p99_ms"]) == (None, None)
    assert msgspec.convert(document["rows"][0], Row, strict=False) == rows[0]


def test_a_file_is_replaced_in_one_move(tmp_path: Path) -> None:
    """Through a link to its target; nothing else is left behind."""
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_whole(link, b"new")
    assert target.read_text() == "new"
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, target]


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"rows\.json: cannot be written .*: check the folder"):
        write_whole(tmp_path / "missing" / "rows.json", b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match="cannot be written"):
        write_whole(tmp_path / "folder", b"")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
