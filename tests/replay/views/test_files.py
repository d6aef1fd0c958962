"""What a replay writes."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import msgspec
import pytest

from adaptk import __version__
from adaptk.replay.evaluate import Row
from adaptk.replay.views.files import OutputError, check_outputs, write_json, write_whole
from tests.replay.tiny import row


def test_rows_are_plain_json(tmp_path: Path) -> None:
    """All fields of a row; what is no number is null; rows read back."""
    out = tmp_path / "rows.json"
    rows = [row(), row(seed=1, table_ratio=math.nan, p99_ms=math.inf)]
    write_json(out, rows, ["adaptk", "replay"], 3, True, ["said"], 13.9)
    document = json.loads(out.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert {name: value for name, value in document.items() if name != "rows"} == {
        "schema_version": 2,
        "kind": "adaptk-replay",
        "adaptk": __version__,
        "command": ["adaptk", "replay"],
        "cut_short": True,
        "skipped": 3,
        "notes": ["said"],
        "measured_tokens_per_s": 13.9,
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


class TestOutputs:
    """What cannot be written is refused before anything runs."""

    @pytest.fixture(autouse=True)
    def here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("folder").mkdir()
        Path("input").write_text("input")
        Path("old").write_text("old")
        Path("soft").symlink_to("input")
        Path("hard").hardlink_to("input")
        os.mkfifo("pipe")

    @pytest.mark.parametrize("name", ["new", "old", "folder/new", "folder/../new"])
    def test_may_be_new_or_replace_another_file(self, name: str) -> None:
        check_outputs({"--json": Path(name), "--html": None}, {"--trace": Path("input"), "--table": None})
        assert Path("old").read_text() == "old"

    @pytest.mark.parametrize("name", ["input", "folder/../input", "soft", "hard"])
    def test_may_be_no_input_under_any_name(self, name: str) -> None:
        with pytest.raises(OutputError, match=f"^--html {name}: is the file of --trace too: give another path$"):
            check_outputs({"--json": None, "--html": Path(name)}, {"--trace": Path("input")})

    @pytest.mark.parametrize(("json", "page"), [("new", "./new"), ("old", "old")])
    def test_may_not_be_the_same(self, json: str, page: str) -> None:
        with pytest.raises(OutputError, match="is the file of --json too"):
            check_outputs({"--json": Path(json), "--html": Path(page)}, {})

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("folder", "is a folder: give the path of a file"),
            ("pipe", "is no regular file"),
            ("missing/new", "its folder does not exist; make it first"),
            ("input/new", "its folder does not exist"),
            ("a\0b", "cannot be written"),
            ("n" * 300, "cannot be written"),
        ],
    )
    def test_must_be_a_file_in_a_folder(self, name: str, why: str) -> None:
        with pytest.raises(OutputError, match=f"^--json .*{why}"):
            check_outputs({"--json": Path(name)}, {})

    def test_the_folder_must_be_open_to_writing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "access", lambda *_: False)
        with pytest.raises(OutputError, match="--json new: its folder cannot be written to: check its permissions"):
            check_outputs({"--json": Path("new")}, {})
