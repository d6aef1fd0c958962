"""The disk under a trace cannot be looked at for a while: that is no sign that anything is gone."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import adaptk.trace
from adaptk import tracedisk
from adaptk.trace import TraceWriter, read_trace
from tests.faults.disks import row, wait_for

PIECE = 4000  # bytes; some fifteen rows
PASSING = [errno.EIO, errno.ESTALE, errno.EACCES]


@pytest.fixture(autouse=True)
def _small_and_impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(adaptk.trace, "_POLL_S", 0.02)
    monkeypatch.setattr(adaptk.trace, "_RETRY_S", 0.1)
    monkeypatch.setattr(adaptk.trace, "_CHUNK_BYTES", 500)
    monkeypatch.setattr(tracedisk.TraceDisk.__init__, "__defaults__", (None, PIECE))
    yield
    for writer in list(adaptk.trace._open_writers):
        writer.close(0.1)


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four pieces may be there together."""
    monkeypatch.setattr(adaptk.trace, "TraceDisk", lambda *given: tracedisk.TraceDisk(*given[:2], 4 * PIECE))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


class Trouble:
    """Makes a call of ``os`` fail while ``on`` for what it is given, where ``hits`` says so."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str, number: int, hits: Callable[[Any], bool]) -> None:
        self.on = False
        self.times = 0
        real = getattr(os, name)

        def failing(given: Any, *rest: Any, **more: Any) -> Any:
            if self.on and hits(given):
                self.times += 1
                raise OSError(number, os.strerror(number), str(given))
            return real(given, *rest, **more)

        patch.setattr(os, name, failing)


def seqs(path: Path) -> list[int]:
    return [each.decision.seq for each in read_trace(path).rows if each.decision is not None]


def write(writer: TraceWriter, first: int, last: int) -> None:
    for seq in range(first, last):
        writer.write(*row(seq))


def written(writer: TraceWriter, rows: int) -> bool:
    return wait_for(lambda: writer.rows >= rows)


def taken(path: Path) -> int:
    return sum(each.stat().st_size for each in path.parent.iterdir())


@pytest.mark.parametrize("number", PASSING)
def test_the_running_piece_at_a_turn(
    path: Path, number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its piece grows on until it can be moved aside, and is read with those that follow; one line says what it was."""
    trouble = Trouble(monkeypatch, "lstat", number, lambda given: Path(given) == path)
    writer = TraceWriter(path)
    trouble.on = True
    write(writer, 0, 40)
    assert written(writer, 40)
    assert trouble.times > 0
    assert [each.name for each in path.parent.iterdir()] == ["trace.jsonl"]
    trouble.on = False
    write(writer, 40, 100)
    writer.close(30.0)
    assert seqs(path) == list(range(100))
    assert (read_trace(path).missing, writer.dropped) == (0, 0)
    assert "trace.jsonl.3" in {each.name for each in path.parent.iterdir()}
    assert [record.getMessage().count(os.strerror(number)) for record in caplog.records] == [1]


@pytest.mark.usefixtures("bound")
@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.1"])
@pytest.mark.parametrize("number", PASSING)
def test_a_piece_under_a_bound(path: Path, name: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The running one, or the oldest: rows wait, none is lost, and the bound holds for every piece afterwards."""
    trouble = Trouble(monkeypatch, "lstat", number, lambda given: Path(given).name == name)
    writer = TraceWriter(path, max_mb=1)
    write(writer, 0, 40)
    assert written(writer, 40)
    trouble.on = True
    write(writer, 40, 100)
    assert wait_for(lambda: writer.failed > 0)
    trouble.on = False
    write(writer, 100, 200)
    assert written(writer, 200)
    writer.close(30.0)
    assert taken(path) <= 4 * PIECE
    kept = seqs(path)
    assert kept == list(range(200 - len(kept), 200))
    assert (writer.dropped, writer.removed_rows) == (0, 200 - len(kept))


@pytest.mark.usefixtures("bound")
def test_the_folder_under_a_bound(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be listed while another engine has moved the running piece aside: that is under the bound all the
    same."""
    trouble = Trouble(monkeypatch, "scandir", errno.EIO, lambda given: True)
    writer = TraceWriter(path, max_mb=1)
    write(writer, 0, 5)
    assert written(writer, 5)
    other = TraceWriter(path)
    trouble.on = True
    write(writer, 5, 60)
    assert wait_for(lambda: writer.failed > 0)
    trouble.on = False
    write(writer, 60, 200)
    assert written(writer, 200)
    writer.close(30.0)
    other.close()
    assert not path.with_name("trace.jsonl.1").exists()
    assert taken(path) <= 4 * PIECE + path.stat().st_size
    assert writer.dropped == 0


def test_a_folder_that_may_not_be_listed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that others may only drop files into takes pieces all the same."""
    trouble = Trouble(monkeypatch, "scandir", errno.EACCES, lambda given: True)
    trouble.on = True
    writer = TraceWriter(path)
    write(writer, 0, 100)
    writer.close(30.0)
    trouble.on = False
    assert (seqs(path), writer.failed) == (list(range(100)), 0)
    assert "trace.jsonl.3" in {each.name for each in path.parent.iterdir()}


def test_the_open_piece(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is written to again afterwards; rows wait meanwhile."""
    writer = TraceWriter(path)
    trouble = Trouble(monkeypatch, "fstat", errno.EIO, lambda given: given == writer._disk._fd)
    trouble.on = True
    write(writer, 0, 5)
    assert wait_for(lambda: writer.failed > 0)
    trouble.on = False
    write(writer, 5, 10)
    assert written(writer, 10)
    writer.close()
    assert seqs(path) == list(range(10))
    assert [each.name for each in path.parent.iterdir()] == ["trace.jsonl"]


def test_an_open_piece_that_was_removed_at_the_server(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a network's file system: another one is begun, and the first one's descriptor does not stay open."""
    writer, real, removed = TraceWriter(path), os.fstat, path.with_name("removed")
    path.rename(removed)
    trouble = Trouble(monkeypatch, "fstat", errno.ESTALE, lambda given: real(given).st_ino == removed.lstat().st_ino)
    trouble.on = True
    write(writer, 0, 10)
    assert written(writer, 10)
    trouble.on = False
    assert os.path.realpath(f"/proc/self/fd/{writer._disk._fd}") == str(path)
    assert str(removed) not in {os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()}
    writer.close()
    assert seqs(path) == list(range(10))


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    """The folder is elsewhere, and no trace is written there behind somebody's back: rows wait until it is back."""
    folder = tmp_path / "logs"
    folder.mkdir()
    writer = TraceWriter(folder / "t.jsonl")
    write(writer, 0, 5)
    assert written(writer, 5)
    folder.rename(tmp_path / "elsewhere")
    folder.write_text("somebody's")
    write(writer, 5, 10)
    assert wait_for(lambda: writer.failed > 0)
    assert writer.rows == 5
    folder.unlink()
    (tmp_path / "elsewhere").rename(folder)
    assert written(writer, 10)
    writer.close()
    assert (seqs(folder / "t.jsonl"), writer.dropped) == (list(range(10)), 0)


@pytest.mark.parametrize("kind", ["text", "link", "folder", "packed"])
def test_something_else_at_the_path_when_the_disk_is_back(
    path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The trace that could not begin begins beside it, which is told once with the place and the remedy; what is there
    is left as it is."""
    if kind == "link":
        path.symlink_to("nowhere")
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"somebody's" if kind == "text" else b"\x1f\x8b\x08 somebody's")
    before = (path.lstat().st_ino, None if kind in ("link", "folder") else path.read_bytes())
    trouble = Trouble(monkeypatch, "lstat", errno.EIO, lambda given: Path(given) == path)
    trouble.on = True
    writer = TraceWriter(path)
    write(writer, 0, 5)
    assert wait_for(lambda: writer.failed >= 2)
    trouble.on = False
    assert written(writer, 5)
    write(writer, 5, 50)
    writer.close(30.0)
    assert (path.lstat().st_ino, None if kind in ("link", "folder") else path.read_bytes()) == before
    assert not path.with_name("nowhere").exists()
    assert seqs(max(path.parent.glob("trace.jsonl.*"))) == list(range(50))
    assert (writer.rows, writer.dropped) == (50, 0)
    first, *others = [record.getMessage().partition(": ")[2] for record in caplog.records]
    assert "Input/output error" in first
    assert others == [
        f"something else is there, rows go to {path}.1: move it away, or give another path",
        "rows are written again, 0 were dropped",
    ]
