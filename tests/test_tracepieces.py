"""A trace grows in pieces, and is read as one."""

from __future__ import annotations

import gzip
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import adaptk.trace
from adaptk import tracedisk, traceplace
from adaptk.cli.main import main
from adaptk.profile.traces import table_from_traces
from adaptk.replay.traces.tracerows import read_rows
from adaptk.report.analysis import analyse
from adaptk.trace import TraceWriter, read_trace
from adaptk.tracefile import Reader, header_line, whole_runs
from tests.faults.disks import row, run

PIECE = 4000  # bytes; some fifteen rows


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptk.trace, "_CHUNK_BYTES", 500)
    monkeypatch.setattr(tracedisk.TraceDisk.__init__, "__defaults__", (None, PIECE))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


def record(path: Path, rows: int, first: int = 0, **options: Any) -> TraceWriter:
    """Write steps to a trace, some at a time."""
    writer = TraceWriter(path, {"arms": [0, 1, 3]}, **options)
    for seq in range(first, first + rows):
        writer.write(*row(seq))
    writer.close(30.0)
    assert writer.dropped == 0
    return writer


def seqs(path: Path) -> list[int]:
    return [each.decision.seq for each in read_trace(path).rows if each.decision is not None]


def names(path: Path) -> set[str]:
    return {each.name for each in path.parent.iterdir()}


class TestWriting:
    def test_pieces_have_one_run_their_numbers_and_a_bounded_size(self, path: Path) -> None:
        """Each can be read alone: it begins with the whole header."""
        record(path, 100)
        pieces = Reader(path, False).files
        headers = [Reader(piece, False).header for piece in pieces]
        assert [header["part"] for header in headers] == list(range(len(pieces)))
        assert len({header["run"] for header in headers}) == 1
        assert all(header["arms"] == [0, 1, 3] for header in headers)
        assert [piece.name for piece in pieces] == [*(f"trace.jsonl.{i}" for i in range(1, len(pieces))), "trace.jsonl"]
        assert len(pieces) > 5
        assert max(piece.stat().st_size for piece in pieces) <= PIECE
        assert seqs(path) == list(range(100))

    def test_a_program_that_goes_to_another_folder(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A relative path is of the folder at the start, for all pieces."""
        monkeypatch.chdir(path.parent)
        writer = TraceWriter(path.name, {"arms": [0, 1, 3]})
        (path.parent / "elsewhere").mkdir()
        monkeypatch.chdir(path.parent / "elsewhere")
        for i in range(200):
            writer.write(*row(i))
        writer.close(30.0)
        assert len(names(path)) > 3
        assert seqs(path) == list(range(200))
        assert not list((path.parent / "elsewhere").iterdir())

    def test_numbers_go_on_behind_the_last_one_that_is_there(self, path: Path) -> None:
        """A gap that somebody left is not filled, or their order would no longer be that of time."""
        (path.parent / "trace.jsonl.7").write_text("somebody's")
        record(path, 40)
        assert names(path) == {"trace.jsonl", "trace.jsonl.7", "trace.jsonl.8", "trace.jsonl.9"}
        path.with_name("trace.jsonl.8").unlink()
        record(path, 1)
        assert "trace.jsonl.10" in names(path)
        assert "trace.jsonl.8" not in names(path)

    def test_a_bound_removes_the_oldest_pieces_of_the_run(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Never one of another run, nor a file that merely has such a name; the rows are counted."""
        record(path, 60)
        others = {name: (path.parent / name).read_bytes() for name in names(path) if name != "trace.jsonl"}
        others["trace.jsonl.0"] = b"a file of somebody"
        (path.parent / "trace.jsonl.0").write_bytes(others["trace.jsonl.0"])
        former = seqs(path)
        monkeypatch.setattr(adaptk.trace, "TraceDisk", lambda *given: tracedisk.TraceDisk(*given[:2], 4 * PIECE))
        writer = record(path, 500, max_mb=1)
        pieces = Reader(path, False).files
        assert 3 * PIECE < sum(piece.stat().st_size for piece in pieces) <= 4 * PIECE
        kept = seqs(path)
        assert kept == list(range(500 - len(kept), 500))
        assert (writer.rows, writer.removed_rows) == (500, 500 - len(kept))
        for name, content in others.items():
            assert (path.parent / name).read_bytes() == content
        assert seqs(path.with_name(f"trace.jsonl.{len(others)}")) == former

    def test_a_piece_that_another_engine_moved_counts(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """One that begins with the same path moves the running file aside: it is under the bound as before."""
        monkeypatch.setattr(adaptk.trace, "TraceDisk", lambda *given: tracedisk.TraceDisk(*given[:2], 4 * PIECE))
        writer = TraceWriter(path, {"arms": [0, 1, 3]})
        other = TraceWriter(path)
        for seq in range(500):
            writer.write(*row(seq))
        writer.close(30.0)
        other.close()
        assert not path.with_name("trace.jsonl.1").exists()
        [own] = [each for each in whole_runs(path.parent.iterdir()) if seqs(each)]
        assert sum(piece.stat().st_size for piece in Reader(own, False).files) <= 4 * PIECE
        assert seqs(own) == list(range(500 - len(seqs(own)), 500))
        assert writer.removed_rows == 500 - len(seqs(own))

    def test_a_piece_that_somebody_replaced_is_left(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Under the name of a piece that is to be removed lies another file by now."""
        monkeypatch.setattr(adaptk.trace, "TraceDisk", lambda *given: tracedisk.TraceDisk(*given[:2], 4 * PIECE))
        real = tracedisk.moved_aside

        def replacing(moved: Path) -> Path:
            aside = real(moved)
            if aside.name == "trace.jsonl.2":
                first = aside.with_name("trace.jsonl.1")
                shutil.copy(first, f"{first}.copy")
                Path(f"{first}.copy").replace(first)
            return aside

        monkeypatch.setattr(tracedisk, "moved_aside", replacing)
        assert record(path, 300, max_mb=1).removed_rows > 0
        assert "trace.jsonl.1" in names(path)
        assert "trace.jsonl.2" not in names(path)

    def test_a_piece_that_somebody_renumbered_counts(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As rotators do, all the time: the bound is kept, whatever number a piece has by now."""
        monkeypatch.setattr(adaptk.trace, "TraceDisk", lambda *given: tracedisk.TraceDisk(*given[:2], 4 * PIECE))
        real, moved = tracedisk.moved_aside, 0

        def renumbering(running: Path) -> Path:
            nonlocal moved
            aside = real(running)
            numbers = sorted(int(each.name.rpartition(".")[2]) for each in path.parent.glob("trace.jsonl.*"))
            for number in reversed(numbers):
                path.with_name(f"trace.jsonl.{number}").rename(path.with_name(f"trace.jsonl.{number + 1}"))
                moved += 1
            return aside

        monkeypatch.setattr(tracedisk, "moved_aside", renumbering)
        writer = record(path, 300, max_mb=1)
        assert moved > 20
        assert sum(each.stat().st_size for each in path.parent.iterdir()) <= 4 * PIECE
        kept = seqs(path)
        assert kept == list(range(300 - len(kept), 300))
        assert writer.removed_rows == 300 - len(kept)

    def test_another_file_with_the_inode_of_a_piece_is_left(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Inodes of what was removed are used again, by another engine's trace, say."""
        monkeypatch.setattr(adaptk.trace, "TraceDisk", lambda *given: tracedisk.TraceDisk(*given[:2], 4 * PIECE))
        others = header_line({}, "another engine's", 0)
        real = tracedisk.moved_aside

        def exchanging(running: Path) -> Path:
            aside = real(running)
            if aside.name == "trace.jsonl.1":
                aside.write_bytes(others)
            return aside

        monkeypatch.setattr(tracedisk, "moved_aside", exchanging)
        assert record(path, 300, max_mb=1).removed_rows > 0
        assert path.with_name("trace.jsonl.1").read_bytes() == others
        assert "trace.jsonl.2" not in names(path)

    @pytest.mark.parametrize("bounded", [False, True])
    def test_where_no_piece_can_be_begun(self, path: Path, bounded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """The running one grows on, unless a bound forbids it: then rows wait, and are lost at the end with a count."""
        disk = tracedisk.TraceDisk
        monkeypatch.setattr(adaptk.trace, "TraceDisk", lambda *given: disk(*given[:2], 4 * PIECE if bounded else None))
        writer = TraceWriter(path)
        monkeypatch.setattr(traceplace, "_numbered", lambda _: _refuse())
        for seq in range(100):
            writer.write(*row(seq))
        writer.close(30.0)
        if bounded:
            assert path.stat().st_size <= PIECE
            assert writer.rows + writer.dropped == 100
            assert writer.dropped > 0
        else:
            assert (writer.rows, writer.dropped) == (100, 0)
        assert writer.failed >= 1
        assert seqs(path) == list(range(writer.rows))

    @pytest.mark.parametrize("where", ["after the name was taken", "after the file was moved", "in the header"])
    def test_a_process_that_dies_while_it_turns(self, path: Path, where: str) -> None:
        """Leaves all rows readable from the path that was asked for, and a next run keeps them."""
        code = """
            import os, sys
            from adaptk import trace, tracedisk
            from tests.faults.disks import row
            where, path = sys.argv[1], sys.argv[2]
            tracedisk.TraceDisk.__init__.__defaults__ = (None, 4000)
            writer = trace.TraceWriter(path)
            real_open, real_write = os.open, os.write
            def opening(name, flags, *rest):
                if where == "after the file was moved" and str(name) == path:
                    os._exit(7)
                fd = real_open(name, flags, *rest)
                if where == "after the name was taken" and str(name) == path + ".1":
                    os._exit(7)
                return fd
            def writing(fd, data):
                if where == "in the header" and bytes(data).startswith(b'{"schema_version"'):
                    real_write(fd, bytes(data)[:30])
                    os._exit(7)
                return real_write(fd, data)
            os.open, os.write = opening, writing
            for seq in range(100):
                writer.write(*row(seq))
            writer.close(30.0)
        """
        assert (
            run(code.replace("writer = trace", "trace._CHUNK_BYTES = 500; writer = trace"), where, path).returncode == 7
        )
        found = seqs(path)
        assert found == list(range(len(found)))
        assert len(found) > 5
        record(path, 20, first=1000)
        assert set(seqs(path)) == set(range(1000, 1020))
        last = max(names(path) - {"trace.jsonl"})
        every = {seq for name in names(path) for seq in _seqs_of_file(path.with_name(name))}
        assert every >= set(found), last


class TestReading:
    @pytest.fixture
    def pieces(self, path: Path) -> list[Path]:
        record(path, 100)
        return Reader(path, False).files

    def test_a_piece_is_read_with_those_before_it(self, pieces: list[Path]) -> None:
        """So each row is read once, whichever pieces a shell's pattern names."""
        assert seqs(pieces[3]) == list(range(len(seqs(pieces[3]))))
        assert len(seqs(pieces[3])) < 100
        assert whole_runs(pieces) == [pieces[-1]]
        assert whole_runs(reversed(pieces[:3])) == [pieces[2]]

    def test_runs_are_told_apart(self, path: Path, pieces: list[Path]) -> None:
        """The latest one alone is at the path; the one before keeps its last piece beside it."""
        record(path, 30, first=500)
        assert seqs(path) == list(range(500, 530))
        former = path.with_name(f"trace.jsonl.{len(pieces)}")
        assert seqs(former) == list(range(100))
        assert whole_runs([path, *path.parent.iterdir()]) == [path, *_two(path, former)]

    def test_pieces_that_were_compressed_or_are_missing(self, pieces: list[Path]) -> None:
        """Rotators compress what was moved aside, or remove it."""
        for piece in pieces[:-1]:
            piece.with_name(f"{piece.name}.gz").write_bytes(gzip.compress(piece.read_bytes()))
            piece.unlink()
        assert seqs(pieces[-1]) == list(range(100))
        for number, piece in enumerate(pieces[:-1]):
            if number in (0, 2):
                piece.with_name(f"{piece.name}.gz").unlink()
        trace = read_trace(pieces[-1])
        assert trace.missing == 2
        assert 60 < len(trace.rows) < 100
        assert trace.cut == 0

    def test_a_piece_that_is_there_twice_is_read_once(self, pieces: list[Path]) -> None:
        """As gzip --keep leaves it."""
        pieces[1].with_name(f"{pieces[1].name}.gz").write_bytes(gzip.compress(pieces[1].read_bytes()))
        assert seqs(pieces[-1]) == list(range(100))

    def test_files_that_are_none_are_passed_over(self, path: Path, pieces: list[Path]) -> None:
        """Beside a trace lie whatever files, folders and pipes have such a name."""
        path.with_name("trace.jsonl.70").write_bytes(b'{"kind": "adaptk-trace", "run": 5}\n')
        path.with_name("trace.jsonl.71").write_bytes(b"\x1f\x8bno gzip")
        path.with_name("trace.jsonl.72").mkdir()
        os.mkfifo(path.with_name("trace.jsonl.73"))
        path.with_name("trace.jsonl.74").symlink_to("nowhere")
        path.with_name("trace.jsonl.75").write_bytes(b"[" * 100_000)
        assert seqs(path) == list(range(100))

    def test_pieces_that_are_moved_aside_while_they_are_read(self, path: Path) -> None:
        """The report of a running engine: it reads what was there when it began, and each row once."""
        writer = TraceWriter(path)
        for seq in range(40):
            writer.write(*row(seq))
        writer._drain()
        reader = Reader(path, False)
        rows: Iterator[Any] = iter(reader)
        found = [next(rows).decision.seq for _ in range(3)]
        for seq in range(40, 120):
            writer.write(*row(seq))
        writer.close(30.0)
        found += [each.decision.seq for each in rows]
        assert found == list(range(len(found)))
        assert len(found) >= 30

    def test_the_report_and_the_replay_say_what_is_missing(self, path: Path, pieces: list[Path]) -> None:
        """And read the rest, in constant memory or as one world."""
        pieces[2].unlink()
        whole = path.read_bytes()
        path.write_bytes(whole[:-10])
        told = ["trace.jsonl: 1 row is cut off at the end of a file, and left out.",
                "trace.jsonl: 1 earlier piece is not there: removed, or elsewhere."]  # fmt: skip
        findings = analyse([path], simulate=False)
        assert set(told) <= set(findings.notes)
        rows = read_rows(path)
        assert findings.overview.steps == len(rows.steps)
        assert "1 row is cut off at the end of a file, and left out" in rows.notes
        assert "1 earlier piece of the trace is not there: removed, or elsewhere" in rows.notes
        lost = 100 - len(rows.steps) - 1  # the last row is no gap: nothing stands behind it
        assert f"{lost} steps are missing from the trace, with what was emitted in them" in rows.notes
        assert {each.what: each.number for each in findings.dropped}["the step before is not in the file"] == 2

    def test_a_gap_joins_no_neighbours(self, path: Path, pieces: list[Path]) -> None:
        """A controller that reads along hears of it: the drafts behind it were not asked for by the step before."""
        pieces[2].unlink()
        gaps: list[int] = []
        from adaptk.controller import Controller

        real = Controller.note_engine_restarted
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Controller, "note_engine_restarted", lambda self: (gaps.append(1), real(self))[1])
            analyse([path], simulate=False)
        assert gaps == [1]

    def test_all_pieces_named_are_one_trace_for_every_command(
        self, path: Path, pieces: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """As a shell's pattern names them."""
        assert analyse(pieces, simulate=False).overview.steps == 100
        assert main(["report", *map(str, pieces), "--json", "--no-simulation"]) == 0
        assert '"steps":100' in capsys.readouterr().out.replace(" ", "")
        assert table_from_traces(pieces).table.meta["provenance"]["steps"] == 100


def _two(path: Path, former: Path) -> list[Path]:
    """The latest and the former run's last piece, in the order of the folder."""
    return [each for each in path.parent.iterdir() if each in (path, former)]


def _seqs_of_file(path: Path) -> list[int]:
    lines = [line for line in path.read_bytes().splitlines() if line.startswith(b'{"step"')]
    return [int(line.partition(b'"seq":')[2].partition(b",")[0]) for line in lines if line.endswith(b"}")]


def _refuse() -> Any:
    raise PermissionError(13, "Permission denied")


def test_two_engines_with_one_path(path: Path) -> None:
    """Each keeps all its rows, in pieces of its own: the later one moves the file of the earlier aside."""
    first = TraceWriter(path, {"arms": [0, 1, 3]})
    second = TraceWriter(path, {"arms": [0, 1, 3]})
    for seq in range(100):
        first.write(*row(seq))
        second.write(*row(1000 + seq))
    threads = [threading.Thread(target=writer.close, args=(30.0,)) for writer in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (first.dropped, second.dropped) == (0, 0)
    runs = [seqs(each) for each in whole_runs(path.parent.iterdir())]
    assert sorted(runs) == [list(range(100)), list(range(1000, 1100))]
