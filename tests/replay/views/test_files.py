"""What a replay writes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import pytest

from adaptk import __version__
from adaptk.replay.evaluate import Row
from adaptk.replay.views.files import document
from tests.replay.tiny import row


def test_rows_are_plain_json(tmp_path: Path) -> None:
    """All fields of a row; what is no number is null; rows read back."""
    out = tmp_path / "rows.json"
    rows = [row(), row(seed=1, table_ratio=math.nan, p99_ms=math.inf)]
    out.write_bytes(document(rows, ["adaptk", "replay"], 3, True, ["said"], 13.9))
    read = json.loads(out.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert {name: value for name, value in read.items() if name != "rows"} == {
        "schema_version": 2,
        "kind": "adaptk-replay",
        "adaptk": __version__,
        "command": ["adaptk", "replay"],
        "cut_short": True,
        "skipped": 3,
        "notes": ["said"],
        "measured_tokens_per_s": 13.9,
    }
    assert (read["rows"][1]["table_ratio"], read["rows"][1]["p99_ms"]) == (None, None)
    assert msgspec.convert(read["rows"][0], Row, strict=False) == rows[0]
