"""Files that an engine would write and read."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adaptk.doctor import paths
from adaptk.settings import Settings
from adaptk.tracefile import header_line
from tests.doctor.made import by_id


def found(tmp_path: Path, ranks: int = 1, **settings: str) -> dict[str, Any]:
    given = {name: str(tmp_path / path) for name, path in settings.items()}
    return by_id(paths.findings(Settings(**given), ranks))


def test_nothing_asked_nothing_said() -> None:
    """No file, no line."""
    assert list(paths.findings(Settings(), 1)) == []


def test_one_file_for_two(tmp_path: Path) -> None:
    """The start would be refused, and so it is said with both names; once, also where all ranks' files are such."""
    [said] = [each for each in paths.findings(Settings(trace=f"{tmp_path}/x-{{rank}}", control=f"{tmp_path}/./x-1"), 2)
              if each.id == "paths"]  # fmt: skip
    assert said.status == "fail"
    assert said.what == f"ADAPTK_TRACE='{tmp_path}/x-1' and ADAPTK_CONTROL='{tmp_path}/./x-1' are one file"
    assert said.remedy == "give each a path of its own"


def test_a_trace_that_can_be_written(tmp_path: Path) -> None:
    """Nothing of the look is left in the folder; an older trace stays, and its fate is told."""
    assert found(tmp_path, trace="t.jsonl")["paths.trace"].status == "ok"
    assert list(tmp_path.iterdir()) == []
    old = header_line({})
    (tmp_path / "t.jsonl").write_bytes(old)
    assert "moved aside" in found(tmp_path, trace="t.jsonl")["paths.trace"].what
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [old]


def test_a_trace_is_written_neither_over_something_else_nor_through_a_link(tmp_path: Path) -> None:
    """As the writer itself refuses both."""
    (tmp_path / "t.jsonl").write_text('{"rows": []}')
    assert "no trace" in found(tmp_path, trace="t.jsonl")["paths.trace"].detail
    (tmp_path / "link").symlink_to("nowhere")
    assert "symbolic link" in found(tmp_path, trace="link")["paths.trace"].detail
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("path", ["missing/t.jsonl", "folder", "file/t.jsonl"])
def test_a_trace_that_cannot_be_written(path: str, tmp_path: Path) -> None:
    """adaptk starts without one, unless it is strict."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    found_here = found(tmp_path, trace=path)["paths.trace"]
    assert found_here.status == "warn"
    [strict] = paths.findings(Settings(trace=str(tmp_path / path), strict=True), 1)
    assert strict.status == "fail"
    assert found_here.detail


def test_a_full_or_read_only_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen by writing, as permissions do not tell."""

    def full(**_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    assert "No space left" in found(tmp_path, trace="t.jsonl")["paths.trace"].detail


def test_little_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that will be full soon is a warning."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5 * 2**20))
    finding = found(tmp_path, trace="t.jsonl")["paths.trace"]
    assert finding.status == "warn"
    assert "5 MiB" in finding.detail


def test_a_bounded_trace_needs_room_for_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it may take is told, and is what must be free."""
    for free, status in ((90 * 10**6, "warn"), (110 * 10**6, "ok")):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        [finding] = paths.findings(Settings(trace=str(tmp_path / "t.jsonl"), trace_max_mb=100), 1)
        assert finding.status == status
        assert "100 MB at most" in finding.what


def test_one_trace_for_many_engines(tmp_path: Path) -> None:
    """Each would move the other's aside."""
    assert found(tmp_path, 2, trace="t.jsonl")["paths.trace"].status == "warn"
    assert found(tmp_path, 2, trace="t-{rank}.jsonl")["paths.trace"].status == "ok"


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        (None, "ok", "not there yet"),
        ("shadow\n", "ok", "says shadow, the mode of the start"),
        ("on", "warn", "says on, and holds over the mode of the start, shadow"),
        ("maybe", "warn", "no control file"),
    ],
)
def test_control_files(content: str | None, status: str, said: str, tmp_path: Path) -> None:
    """Read as the engine reads them; one that was left over is a warning with what to do."""
    if content is not None:
        (tmp_path / "c").write_text(content)
    settings = Settings(mode="shadow", control=str(tmp_path / "c"))
    finding = by_id(paths.findings(settings, 1))["paths.control"]
    assert (f"adaptk mode {tmp_path / 'c'} shadow" in finding.remedy) == (content == "on")
    assert finding.status == status
    assert said in finding.what


def test_odd_control_files(tmp_path: Path) -> None:
    """A folder, a pipe, and a folder that is missing; no look waits."""
    os.mkfifo(tmp_path / "pipe")
    assert found(tmp_path, control=".")["paths.control"].status == "warn"
    assert found(tmp_path, control="pipe")["paths.control"].status == "warn"
    assert found(tmp_path, control="missing/c")["paths.control"].status == "note"


def test_many_control_files(tmp_path: Path) -> None:
    """Ranks that are alike have one line; another one has its own."""
    assert len(list(paths.findings(Settings(control=str(tmp_path / "c-{rank}")), 8))) == 1
    (tmp_path / "c-3").write_text("maybe")
    odd = list(paths.findings(Settings(control=str(tmp_path / "c-{rank}")), 8))
    assert [finding.status for finding in odd] == ["ok", "warn"]
