from __future__ import annotations

import os
from itertools import combinations
from pathlib import Path

import pytest

from adaptk.onefile import refuse_one_file
from adaptk.settings import Settings, SettingsError

PATHS = ("table", "trace", "state", "control")


@pytest.mark.parametrize(("one", "other"), combinations(PATHS, 2))
def test_any_two_are_told_by_name_with_both_paths_and_a_remedy(one: str, other: str) -> None:
    """Whichever they are, the file being there or not."""
    said = f"^ADAPTK_{one.upper()}='x' and ADAPTK_{other.upper()}='./x' are one file: give each a path of its own$"
    with pytest.raises(SettingsError, match=said):
        refuse_one_file(Settings(**{one: "x", other: "./x"}))


@pytest.mark.parametrize("path", ["/dev/null", "."])
def test_what_is_no_file_is_not_destroyed_by_two(path: str) -> None:
    """A device or a folder is left to the words of each one's own use."""
    refuse_one_file(Settings(trace=path, state=path))


@pytest.mark.parametrize("there", [True, False])
def test_other_spellings(tmp_path: Path, there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative and absolute, by a link of the file or of its folder, by another rank's name, and by another name of the
    file itself."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    file = folder / "x-3"
    if there:
        file.touch()
        os.link(file, tmp_path / "same")
    (tmp_path / "linked").symlink_to(folder)
    (tmp_path / "link").symlink_to(file)
    others = (
        "folder/x-3",
        "folder/../folder//x-3",
        "linked/x-3",
        "link",
        "folder/x-{rank}",
        *(["same"] if there else []),
    )
    for other in others:
        with pytest.raises(SettingsError, match="are one file"):
            refuse_one_file(Settings(trace=other, state=str(file)), rank=3)
    refuse_one_file(Settings(trace="folder/x-{rank}", state=str(file)), rank=2)


def test_paths_of_their_own_and_paths_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Say nothing: not even a loop, a name that is too long, or a folder that is gone."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    refuse_one_file(Settings())
    for odd in ("x" * 300, str(loop), "y/" * 3000, "\udcff", "gone"):
        refuse_one_file(Settings(table=odd, trace=str(tmp_path / "t"), state=str(tmp_path / "s"), control="c"))
