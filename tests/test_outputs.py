"""Files that are written in one move."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from adaptk.outputs import OutputError, check_outputs, write_whole


def test_a_file_is_replaced_in_one_move(tmp_path: Path) -> None:
    """Through a link to its target; nothing else is left behind."""
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_whole(link, b"new")
    assert target.read_text() == "new"
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, target]


def test_nothing_is_renamed_before_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content is synced, then moved, then the folder is synced: a power cut leaves the old file or the new one."""
    done: list[str] = []
    sync, rename = os.fsync, os.replace

    def synced(fd: int) -> None:
        done.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        sync(fd)

    def replaced(path: Path, target: Path) -> Path:
        done.append("moved")
        rename(path, target)
        return target

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    write_whole(tmp_path / "new", b"x")
    assert done[0].startswith(str(tmp_path / "new."))
    assert done[1:] == ["moved", str(tmp_path)]


def test_a_folder_that_cannot_be_synced_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every file system has that; the file is there."""

    def fail(*_: Any) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr("adaptk.outputs._sync_folder", fail)
    write_whole(tmp_path / "new", b"x")
    assert (tmp_path / "new").read_bytes() == b"x"


@pytest.mark.parametrize("mode", [0o666, 0o600])
def test_a_new_file_has_no_more_rights_than_asked(tmp_path: Path, mode: int) -> None:
    """Less what the process's mask takes away; an older file's rights are not taken over."""
    mask = os.umask(0o022)
    try:
        (tmp_path / "file").touch(0o777)
        write_whole(tmp_path / "file", b"x", mode)
    finally:
        os.umask(mask)
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode & ~0o022


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
