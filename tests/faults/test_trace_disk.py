"""The disk under a trace fails in every way: the steps go on, what is lost is counted, what is there can be read."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import adaptk.trace
from adaptk import tracedisk
from adaptk.trace import TraceError, TraceWriter, read_trace
from adaptk.tracefile import header_line
from tests.faults.disks import needs_mount, row, run_on_tmpfs, wait_for


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(adaptk.trace, "_POLL_S", 0.02)
    monkeypatch.setattr(adaptk.trace, "_RETRY_S", 0.1)
    yield
    for writer in list(adaptk.trace._open_writers):
        writer.close(0.1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


def seqs(path: Path) -> list[int]:
    return [row.decision.seq for row in read_trace(path).rows if row.decision is not None]


def write(writer: TraceWriter, first: int, last: int) -> None:
    for seq in range(first, last):
        writer.write(*row(seq))


def written(writer: TraceWriter, rows: int) -> bool:
    return wait_for(lambda: writer.rows >= rows)


_FILL = """
    import json, os, sys, pathlib
    import adaptk.trace as trace
    from adaptk import tracedisk
    trace._POLL_S, trace._RETRY_S = 0.02, 0.1
    tracedisk._FLOOR_SHARE = {share}
    folder = pathlib.Path(sys.argv[1])
    writer = trace.TraceWriter(folder / "t.jsonl", max_pending=500)
    (folder / "other").write_bytes(bytes(600_000))
    def free():
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize / (disk.f_blocks * disk.f_frsize)
    seq, least = 0, 1.0
    while writer.dropped < 100:
        for _ in range(100):
            writer.write(*row(seq)); seq += 1
        wait_for(lambda: not writer._pending, 0.1)
        least = min(least, free())
    lines = (folder / "t.jsonl").read_bytes()
    (folder / "other").unlink()
    had = writer.rows
    assert wait_for(lambda: writer.rows > had)
    wait_for(lambda: not writer._pending)
    for _ in range(100):
        writer.write(*row(seq)); seq += 1
    writer.close(10.0)
    read = trace.read_trace(folder / "t.jsonl")
    print(json.dumps({{
        "given": seq, "rows": writer.rows, "dropped": writer.dropped, "failed": writer.failed, "least": least,
        "seqs": [each.decision.seq for each in read.rows], "cut": read.cut, "whole": lines.endswith(b"\\n"),
    }}))
"""


@needs_mount
class TestFull:
    """A real file system of one megabyte that another file has filled, until that is removed."""

    @pytest.mark.parametrize("share", [0.01, -1.0])
    def test_it_goes_on_when_there_is_room_again(self, tmp_path: Path, share: float) -> None:
        """One hundredth of the disk is left to others; without that the kernel takes a part of a row, which is cut off
        again. What happens is told once: it is full, rows are dropped, it goes on; at the end, how many were lost."""
        found = run_on_tmpfs(_FILL.format(share=share), tmp_path, "size=1m")
        assert found["rows"] + found["dropped"] == found["given"]
        assert found["rows"] == len(found["seqs"])
        assert found["seqs"] == sorted(set(found["seqs"]))
        assert found["seqs"][-1] == found["given"] - 1
        assert max(b - a for a, b in pairwise(found["seqs"])) > 1  # what was dropped shows
        assert (found["cut"], found["whole"]) == (0, True)
        assert (found["least"] >= 0.01) == (share == 0.01)
        log = found["log"].splitlines()
        told = (
            "the disk's last" if share == 0.01 else "No space",
            "are being dropped",
            "written again",
            "did not reach",
        )
        assert len(log) == len(told)
        for line, said in zip(log, told, strict=True):
            assert said in line

    def test_a_disk_without_a_byte_at_the_start(self, tmp_path: Path) -> None:
        """The writer starts, and writes once there is room."""
        code = """
            import json, pathlib, sys
            import adaptk.trace as trace
            trace._POLL_S, trace._RETRY_S = 0.02, 0.1
            folder = pathlib.Path(sys.argv[1])
            with open(folder / "other", "wb", buffering=0) as file:
                try:
                    while True: file.write(bytes(4096))
                except OSError: pass
            writer = trace.TraceWriter(folder / "t.jsonl")
            at_first = (folder / "t.jsonl").exists()
            writer.write(*row(0))
            assert wait_for(lambda: writer.failed >= 2)
            (folder / "other").unlink()
            assert wait_for(lambda: writer.rows == 1)
            writer.close()
            print(json.dumps({"at_first": at_first, "rows": len(trace.read_trace(folder / "t.jsonl").rows)}))
        """
        found = run_on_tmpfs(code, tmp_path, "size=64k")
        assert (found["at_first"], found["rows"]) == (False, 1)
        assert found["log"].count("No space left") == 1

    def test_a_read_only_disk(self, tmp_path: Path) -> None:
        """Is refused at the start, with the reason."""
        code = """
            import json, pathlib, sys
            import adaptk.trace as trace
            try:
                trace.TraceWriter(pathlib.Path(sys.argv[1]) / "t.jsonl")
            except trace.TraceError as error:
                print(json.dumps({"said": str(error)}))
        """
        assert "Read-only file system" in run_on_tmpfs(code, tmp_path, "size=64k,ro")["said"]


class TestTroubles:
    @pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.EDQUOT, errno.ESTALE, errno.EFBIG])
    def test_an_error_that_passes(
        self, path: Path, number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Rows wait for the disk; nothing is lost, and one line says what it was."""
        real = os.write
        writer = TraceWriter(path)
        write(writer, 0, 10)
        assert written(writer, 10)
        monkeypatch.setattr(os, "write", lambda fd, data: _fail(number))
        write(writer, 10, 20)
        assert wait_for(lambda: writer.failed >= 3)
        monkeypatch.setattr(os, "write", real)
        assert written(writer, 20)
        writer.close()
        assert seqs(path) == list(range(20))
        assert writer.dropped == 0
        assert [record.getMessage().count(os.strerror(number)) for record in caplog.records] == [1, 0]

    @pytest.mark.parametrize("mendable", [True, False])
    def test_a_part_of_a_row(self, path: Path, mendable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """Is cut off again; where that fails too, the trace goes on in another piece, and no row is lost or doubled."""
        real, state = os.write, {"calls": 0}

        def partial(fd: int, data: Any) -> int:
            state["calls"] += 1
            if state["calls"] == 1:
                return real(fd, bytes(data)[: len(data) // 2])
            return _fail(errno.EIO)

        writer = TraceWriter(path)
        monkeypatch.setattr(adaptk.trace, "_POLL_S", 0.3)
        if not mendable:
            monkeypatch.setattr(os, "ftruncate", lambda fd, size: _fail(errno.EIO))
        monkeypatch.setattr(os, "write", partial)
        write(writer, 0, 21)
        assert wait_for(lambda: writer.failed >= 2)
        monkeypatch.setattr(os, "write", real)
        assert written(writer, 21)
        writer.close()
        assert seqs(path) == list(range(21))
        assert read_trace(path).cut == (0 if mendable else 1)
        assert len(list(path.parent.iterdir())) == (1 if mendable else 2)

    def test_a_trouble_that_stays(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What waits is bounded, the rest is dropped, and all of it is counted when the writer closes."""
        writer = TraceWriter(path, max_pending=50)
        monkeypatch.setattr(os, "write", lambda fd, data: _fail(errno.EIO))
        write(writer, 0, 10)
        assert wait_for(lambda: writer.failed >= 1)
        write(writer, 10, 300)
        assert len(writer._pending) + len(writer._lines) <= 60
        assert 0 < writer.dropped < 300
        writer.close()
        assert (writer.dropped, writer.rows) == (300, 0)
        monkeypatch.undo()
        assert seqs(path) == []

    def test_a_slow_disk(self, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        """A step never waits for it: rows are dropped and counted instead, which is told once."""
        real = os.write

        def slow(fd: int, data: Any) -> int:
            time.sleep(0.5)
            return real(fd, data)

        writer = TraceWriter(path, max_pending=100)
        monkeypatch.setattr(os, "write", slow)
        longest = 0.0
        for seq in range(4000):
            given = row(seq)
            began = time.perf_counter()
            writer.write(*given)
            longest = max(longest, time.perf_counter() - began)
            if seq % 1000 == 999:
                time.sleep(0.6)
        monkeypatch.setattr(os, "write", real)
        writer.close(10.0)
        assert longest < 0.4  # one write took 0.5
        assert writer.dropped > 1000
        assert writer.rows + writer.dropped == 4000
        assert len(seqs(path)) == writer.rows
        assert sum("too slow" in record.getMessage() for record in caplog.records) == 1

    def test_a_disk_that_hangs_at_the_end(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Holds up the shutdown for two seconds, and no longer."""
        release, real = threading.Event(), os.write
        writer = TraceWriter(path)
        monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data) if release.wait(60.0) else 0)
        write(writer, 0, 10)
        began = time.monotonic()
        writer.close()
        assert 1.5 < time.monotonic() - began < 10.0
        release.set()
        assert written(writer, 10)


class TestTaken:
    """What is at the path is somebody else's to move, remove and replace."""

    def test_a_removed_file_is_made_anew(self, path: Path) -> None:
        """With a header, as the next piece of the run."""
        writer = TraceWriter(path)
        write(writer, 0, 10)
        assert written(writer, 10)
        path.unlink()
        write(writer, 10, 20)
        assert written(writer, 20)
        writer.close()
        assert (seqs(path), writer.dropped) == (list(range(10, 20)), 0)
        assert (read_trace(path).header["part"], read_trace(path).missing) == (1, 1)

    def test_a_removed_folder_is_waited_for(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """Its rows are kept until it is there again; adaptk makes no folder."""
        folder = tmp_path / "logs"
        folder.mkdir()
        writer = TraceWriter(folder / "t.jsonl")
        shutil.rmtree(folder)
        write(writer, 0, 10)
        assert wait_for(lambda: writer.failed >= 2)
        assert not folder.exists()
        folder.mkdir()
        assert written(writer, 10)
        writer.close()
        assert seqs(folder / "t.jsonl") == list(range(10))
        assert sum("No such file" in record.getMessage() for record in caplog.records) == 1

    def test_a_file_that_a_rotator_moved(self, path: Path) -> None:
        """Another is begun at the path; both are read."""
        writer = TraceWriter(path)
        write(writer, 0, 10)
        assert written(writer, 10)
        path.rename(path.with_name("trace.jsonl.1"))
        write(writer, 10, 20)
        assert written(writer, 20)
        writer.close()
        assert read_trace(path).header["part"] == 1
        assert seqs(path) == list(range(20))

    def test_a_file_that_a_rotator_copied_and_emptied(self, path: Path) -> None:
        """It gets a header again; both are read."""
        writer = TraceWriter(path)
        write(writer, 0, 10)
        assert written(writer, 10)
        shutil.copy(path, path.with_name("trace.jsonl.1"))
        os.truncate(path, 0)
        write(writer, 10, 20)
        assert written(writer, 20)
        writer.close()
        assert seqs(path) == list(range(20))

    def test_a_file_that_was_cut(self, path: Path) -> None:
        """What remains of it stays, and the trace goes on in another."""
        writer = TraceWriter(path)
        write(writer, 0, 10)
        assert written(writer, 10)
        os.truncate(path, path.stat().st_size - 50)
        write(writer, 10, 20)
        assert written(writer, 20)
        writer.close()
        trace = read_trace(path)
        assert (seqs(path), trace.cut, trace.missing) == ([*range(9), *range(10, 20)], 1, 0)

    def test_another_file_in_its_place(self, path: Path) -> None:
        """Is not touched, whether the trace's own was moved or removed."""
        writer = TraceWriter(path)
        write(writer, 0, 10)
        assert written(writer, 10)
        path.rename(path.with_name("elsewhere"))
        path.write_text("somebody's")
        write(writer, 10, 20)
        assert written(writer, 20)
        assert seqs(path.with_name("elsewhere")) == list(range(20))
        path.with_name("elsewhere").unlink()
        write(writer, 20, 30)
        assert written(writer, 30)
        writer.close()
        assert path.read_text() == "somebody's"
        assert seqs(path.with_name("trace.jsonl.1")) == list(range(20, 30))
        assert writer.dropped == 0

    def test_a_descriptor_that_was_closed_and_given_to_another_file(self, path: Path) -> None:
        """Nothing is written into that; the trace goes on in a piece of its own."""
        writer = TraceWriter(path)
        write(writer, 0, 10)
        assert written(writer, 10)
        fd = writer._disk._fd
        other = os.open(path.with_name("other"), os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(other, fd)
        try:
            write(writer, 10, 20)
            assert written(writer, 20)
            writer.close()
            assert os.fstat(other).st_size == 0
            os.write(fd, b"still open")
        finally:
            os.close(other)
            os.close(fd)
        assert seqs(path) == list(range(20))


class TestRights:
    def test_files_are_their_owners_alone(self, path: Path) -> None:
        """How many drafts were accepted, request by request, may give away what a request was about."""
        for _ in range(2):
            TraceWriter(path).close()
        modes = {each.name: each.stat().st_mode & 0o777 for each in path.parent.iterdir()}
        assert modes == {"trace.jsonl": 0o600, "trace.jsonl.1": 0o600}

    @pytest.mark.parametrize("there", [True, False])
    def test_a_symbolic_link_is_refused(self, path: Path, there: bool) -> None:
        """Whoever may write into a shared folder could lead the trace over another file."""
        target = path.with_name("precious")
        if there:
            target.write_text("precious")
        path.symlink_to(target)
        with pytest.raises(TraceError, match="is a symbolic link: give the path that it leads to"):
            TraceWriter(path)
        assert path.is_symlink()
        assert target.read_text() == "precious" if there else not target.exists()

    def test_what_came_to_the_path_while_the_disk_was_full_stays(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The trace that could not begin at the start begins beside it."""
        real = os.write
        monkeypatch.setattr(os, "write", lambda fd, data: _fail(errno.ENOSPC))
        writer = TraceWriter(path)
        assert not path.exists()
        path.write_text("somebody's")
        write(writer, 0, 10)
        assert wait_for(lambda: writer.failed >= 2)
        monkeypatch.setattr(os, "write", real)
        assert written(writer, 10)
        writer.close()
        assert path.read_text() == "somebody's"
        assert seqs(path.with_name("trace.jsonl.1")) == list(range(10))

    def test_a_link_planted_at_the_last_moment_is_not_followed(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between the look and the creation; the trace lies beside it then."""
        target, real = path.with_name("target"), os.open

        def race(name: Any, *rest: Any, **more: Any) -> int:
            if Path(name) == path and not path.is_symlink():
                path.symlink_to(target)
            return real(name, *rest, **more)

        monkeypatch.setattr(os, "open", race)
        writer = TraceWriter(path)
        write(writer, 0, 1)
        writer.close()
        assert path.is_symlink()
        assert not target.exists()
        assert seqs(path.with_name("trace.jsonl.1")) == [0]

    @pytest.mark.parametrize(
        "content",
        [
            b'{"schema_version": 1, "rows": []}',
            gzip.compress(b"a backup"),
            gzip.compress(b"a backup" * 1000)[:15],
            gzip.compress(os.urandom(100_000))[:-5],
            gzip.compress(b""),
            gzip.compress(bytes(400)),
            gzip.compress(b'{"schema_ver'),
            b"\x1f\x8b",
            bytes(100_000),
            bytes(100) + b"a disk's image",
        ],
        ids=["table", "backup", "damaged", "large", "nothing", "packed zeros", "packed start", "two", "zeros", "image"],
    )
    def test_something_else_is_not_moved_aside(self, path: Path, content: bytes) -> None:
        """A path that names another file by mistake."""
        path.write_bytes(content)
        with pytest.raises(TraceError, match="holds something that is no trace: give another path"):
            TraceWriter(path)
        assert [each.name for each in path.parent.iterdir()] == ["trace.jsonl"]

    @pytest.mark.parametrize(
        "content",
        [
            *(b"", b'{"schema_ver', bytes(400), b'{"schema' + bytes(400)),
            *(gzip.compress(header_line({"a": 1})), gzip.compress(header_line({"a": os.urandom(999).hex()}))[:800]),
        ],
    )
    def test_what_was_a_trace_is_moved_aside(self, path: Path, content: bytes) -> None:
        """An empty file, a part of a header, the zeros of a power cut, or a trace, compressed in whole or part."""
        path.write_bytes(content)
        TraceWriter(path).close()
        assert path.with_name("trace.jsonl.1").read_bytes() == content


def _fail(number: int) -> Any:
    raise OSError(number, os.strerror(number))


def test_the_floor_is_small_on_small_disks_and_bounded_on_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smaller of a hundredth and 256 MiB; a system that tells no size is trusted."""

    def room(blocks: int, free: int) -> bool:
        disk = os.statvfs_result((4096, 4096, blocks, free, free, 0, 0, 0, 0, 255))
        monkeypatch.setattr(os, "fstatvfs", lambda fd: disk)
        try:
            tracedisk._check_room(0, 4096)
        except OSError as error:
            return error.errno != errno.ENOSPC
        return True

    cases = [(25_600, 258), (25_600, 256), (10**9, 65_538), (10**9, 65_536), (0, 0)]
    assert [room(*case) for case in cases] == [True, False, True, False, True]
