"""The state that an engine would begin from."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from adaptk.doctor import states
from adaptk.doctor.finding import Finding
from adaptk.settings import Settings
from adaptk.statefile import State, state_bytes
from adaptk.vllm_plugin.statelock import Lock, lock_of
from tests.doctor.made import KEY


def found(path: Path, ranks: int = 1, key: dict[str, Any] = KEY, **settings: Any) -> list[Finding]:
    return list(states.findings(Settings(state=str(path), **settings), ranks, key))


def state(**changed: Any) -> bytes:
    return state_bytes(State(adaptk="0.1.0", vllm="0.32.0", saved=1e9, key={**KEY, **changed}, snapshot={}))


def test_nothing_asked_nothing_said() -> None:
    """No line."""
    assert list(states.findings(Settings(), 1, KEY)) == []


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        (None, "ok", "not there yet"),
        (b"", "ok", "not there yet"),
        (state(), "ok", "goes on from"),
        (state()[:50], "warn", "start afresh, and move"),
        (state(device="NVIDIA H200"), "warn", "of another engine"),
        (b"{}", "warn", "never replaced"),
    ],
)
def test_what_an_engine_would_begin_from(tmp_path: Path, content: bytes | None, status: str, said: str) -> None:
    """Told apart as the engine does; nothing is touched."""
    path = tmp_path / "state.json"
    if content is not None:
        path.write_bytes(content)
    before = [(entry, entry.read_bytes()) for entry in tmp_path.iterdir()]
    (finding,) = found(path)
    assert (finding.id, finding.status) == ("paths.state", status)
    assert said in finding.what
    assert bool(finding.remedy) == (status == "warn")
    assert [(entry, entry.read_bytes()) for entry in tmp_path.iterdir()] == before


def test_it_says_when_and_by_whom_and_what_differs(tmp_path: Path) -> None:
    """So that somebody can tell whether it is the right one."""
    path = tmp_path / "state.json"
    path.write_bytes(state())
    assert found(path)[0].detail == "saved 2001-09-09 01:46:40+00:00 by adaptk 0.1.0"
    path.write_bytes(state(device="NVIDIA H200"))
    assert found(path)[0].detail == "device: 'NVIDIA H200' in the state, 'NVIDIA H100' here"
    assert "acceptance would be taken over" in found(path, allow_mismatch=True)[0].what
    assert found(path, key={})[0].status == "ok"


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("path", ["missing/s", "folder", "pipe", "table"])
def test_a_path_where_no_state_can_be_kept(tmp_path: Path, path: str, strict: bool) -> None:
    """Engines serve without one, unless they are strict."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "table").write_text("{}")
    os.mkfifo(tmp_path / "pipe")
    (finding,) = found(tmp_path / path, strict=strict)
    assert finding.status == ("fail" if strict else "warn")
    assert finding.detail


def test_a_full_or_read_only_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen by writing, as permissions do not tell."""

    def full(**_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    assert "No space left" in found(tmp_path / "s")[0].detail


def test_another_engine_that_saves_there(tmp_path: Path) -> None:
    """Seen by its lock, under any name of the file; the lock stays its own."""
    path = tmp_path / "state.json"
    (tmp_path / "link").symlink_to(path)
    lock = Lock(lock_of(path))
    assert lock.take()
    for name in (path, tmp_path / "link"):
        (finding,) = found(name)
        assert (finding.status, "another engine saves its state" in finding.what) == ("note", True)
    assert not Lock(lock_of(path)).take()
    lock.release()
    assert found(path)[0].status == "ok"


def test_many_engines(tmp_path: Path) -> None:
    """Ranks that are alike have one line, another one has its own; one file for all is a warning."""
    assert [finding.status for finding in found(tmp_path / "s-{rank}", 8)] == ["ok"]
    (tmp_path / "s-3").write_text("{}")
    assert [finding.status for finding in found(tmp_path / "s-{rank}", 8)] == ["ok", "warn"]
    assert [finding.status for finding in found(tmp_path / "s", 2)] == ["ok", "warn"]


@pytest.mark.parametrize(
    ("arms", "status", "said"),
    [((0, 1, 3), "ok", "goes on from"), ((0, 3), "note", "acceptance"), ((0, 1, 5), "warn", "moved aside")],
)
def test_a_state_of_other_arms(tmp_path: Path, arms: tuple[int, ...], status: str, said: str) -> None:
    """Where the engine's K are known they are compared, as its start will."""
    path = tmp_path / "state.json"
    snapshot = {"arms": [0, 1, 3]}
    path.write_bytes(state_bytes(State(adaptk="0.1.0", vllm="0.32.0", saved=1e9, key=KEY, snapshot=snapshot)))
    (finding,) = states.findings(Settings(state=str(path)), 1, KEY, arms)
    assert (finding.status, said in finding.what) == (status, True)
