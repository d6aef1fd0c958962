from __future__ import annotations

import gzip
import math
import os
import subprocess
import sys
import textwrap
import threading
import time
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adaptk.trace
from adaptk.decision import Decision, Reason
from adaptk.step import StepRecord
from adaptk.trace import TraceError, TraceRow, TraceWriter, iter_trace, read_trace
from tests.strategies import decisions, step_records, without_infinities

ROOT = Path(__file__).parents[1]
DECISION = Decision(seq=4, k=3, propensity=0.9, reason=Reason.EXPLOIT, arms=(0, 1, 3))


def step(k: int = 3, **changes: Any) -> StepRecord:
    return StepRecord(**{"batch_size": 2, "elapsed_ms": 9.5, "k": k, "drafted": [3, 1], "accepted": [2, 1], **changes})


def wait_for(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    return holds()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


@pytest.fixture(autouse=True)
def _no_writer_is_left_open() -> Iterator[None]:
    yield
    assert not list(adaptk.trace._open_writers)


class TestRoundTrip:
    def test_rows_and_header(self, path: Path) -> None:
        writer = TraceWriter(path, {"arms": [0, 1, 3], "model": "x"})
        writer.write(step(), DECISION)
        writer.write(step(k=0), None)
        writer.close()
        trace = read_trace(path)
        run = trace.header.pop("run")
        assert len(run) == 16
        assert trace.header == {"schema_version": 1, "kind": "adaptk-trace", "part": 0, "arms": [0, 1, 3], "model": "x"}
        assert trace.rows == [TraceRow(step(), DECISION), TraceRow(step(k=0), None)]
        assert list(iter_trace(path)) == trace.rows
        assert (trace.skipped, writer.dropped, writer.failed) == (0, 0, 0)

    def test_lines_are_plain_json(self, path: Path) -> None:
        writer = TraceWriter(path)
        writer.write(step(), DECISION)
        writer.close()
        lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
        assert lines[1]["step"]["drafted"] == [3, 1]
        assert lines[1]["decision"]["reason"] == "exploit"

    @given(rows=st.lists(st.tuples(step_records(), st.none() | decisions()), max_size=5))
    def test_any_rows(self, tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[StepRecord, Decision]]) -> None:
        """Everything comes back, numbers that are not finite as unknown."""
        path = tmp_path_factory.getbasetemp() / "any.jsonl"
        path.unlink(missing_ok=True)
        writer = TraceWriter(path)
        for record, decision in rows:
            writer.write(record, decision)
        writer.close()
        assert writer.dropped == 0
        # By repr, as a propensity may be NaN, which equals nothing.
        expected = [TraceRow(without_infinities(record), decision) for record, decision in rows]
        assert repr(read_trace(path).rows) == repr(expected)

    def test_numbers_of_numpy(self, path: Path) -> None:
        writer = TraceWriter(path)
        writer.write(step(drafted=np.array([3, 1]), accepted=[np.int64(2), 0], elapsed_ms=np.float32(2.5)))
        writer.close()
        [row] = read_trace(path).rows
        assert (row.step.drafted, row.step.accepted, row.step.elapsed_ms) == ([3, 1], [2, 0], 2.5)

    def test_a_propensity_that_is_not_finite(self, path: Path) -> None:
        writer = TraceWriter(path)
        writer.write(step(elapsed_ms=math.inf), msgspec.structs.replace(DECISION, propensity=math.nan))
        writer.close()
        [row] = read_trace(path).rows
        assert row.step.elapsed_ms is None
        assert row.decision is not None
        assert math.isnan(row.decision.propensity)


class TestWriter:
    def test_rows_appear_within_a_second_without_close(self, path: Path) -> None:
        writer = TraceWriter(path)
        writer.write(step(), None)
        start = time.monotonic()
        assert wait_for(lambda: len(path.read_bytes().splitlines()) == 2)
        assert time.monotonic() - start < 1.5
        writer.close()

    def test_the_thread_starts_with_the_first_row_and_ends_with_close(self, path: Path) -> None:
        def threads() -> list[str]:
            return [thread.name for thread in threading.enumerate() if thread.name == "adaptk-trace"]

        writer = TraceWriter(path)
        assert threads() == []
        writer.write(step())
        assert threads() == ["adaptk-trace"]
        writer.close()
        writer.close()
        assert threads() == []

    def test_after_close_rows_are_dropped_and_counted(self, path: Path) -> None:
        writer = TraceWriter(path)
        writer.close()
        writer.write(step())
        assert writer.dropped == 1
        assert read_trace(path).rows == []

    def test_the_thread_itself_may_collect_what_held_the_writer(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Garbage is collected anywhere, also while it waits and holds the lock of what it waits for."""
        writer = TraceWriter(path)
        real = writer._stop._cond.wait  # type: ignore[attr-defined]

        def collecting(timeout: float | None = None) -> bool:
            if threading.current_thread() is writer._thread:
                writer.close()
            return bool(real(timeout))

        monkeypatch.setattr(writer._stop._cond, "wait", collecting)  # type: ignore[attr-defined]
        writer.write(step())
        assert writer._thread is not None
        writer._thread.join(10.0)
        assert not writer._thread.is_alive()
        assert len(read_trace(path).rows) == 1

    def test_a_full_queue_drops_and_counts(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(adaptk.trace, "_POLL_S", 30.0)  # nothing leaves the queue before close
        writer = TraceWriter(path, max_pending=5)
        for k in range(8):
            writer.write(step(k=k))
        assert writer.dropped == 3
        writer.close()
        assert [row.step.k for row in read_trace(path).rows] == [0, 1, 2, 3, 4]
        assert (writer.dropped, writer.failed) == (3, 0)

    def test_many_rows_in_order(self, path: Path) -> None:
        writer = TraceWriter(path, max_pending=5000)
        for k in range(5000):
            writer.write(step(k=k))
        writer.close(timeout_s=30.0)
        assert [row.step.k for row in iter_trace(path)] == list(range(5000))

    def test_a_row_that_cannot_be_encoded_costs_itself_only(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        writer = TraceWriter(path)
        writer.write(object())  # type: ignore[arg-type]
        writer.write(object())  # type: ignore[arg-type]
        writer.write(step())
        writer.close()
        assert len(read_trace(path).rows) == 1
        assert (writer.dropped, writer.failed) == (2, 2)
        assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
            "this row is dropped, the engine goes on: object is no plain data",
            "ended, 2 rows did not reach it",
        ]

    def test_an_old_trace_is_moved_aside(self, path: Path) -> None:
        for k in range(3):
            writer = TraceWriter(path)
            writer.write(step(k=k))
            writer.close()
        found = [read_trace(path.with_name(path.name + end)).rows[0].step.k for end in (".1", ".2", "")]
        assert found == [0, 1, 2]

    def test_a_close_that_takes_too_long_gives_up(
        self, path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writer = TraceWriter(path)
        release = threading.Event()
        write = os.write

        def slow(fd: int, data: bytes) -> int:
            release.wait(30.0)
            return write(fd, data)

        monkeypatch.setattr(os, "write", slow)
        writer.write(step())
        start = time.monotonic()
        writer.close(timeout_s=0.3)
        assert time.monotonic() - start < 5.0
        assert "unwritten after 0.3 s" in caplog.text
        release.set()
        assert wait_for(lambda: len(path.read_bytes().splitlines()) == 2)

    @pytest.mark.parametrize("part", ["_drain", "_encode_some", "_finish"])
    def test_whatever_fails_in_the_thread_is_told_once(
        self, path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, part: str
    ) -> None:
        """Nobody waits for it to hear of an exception; rows must not heap up behind it."""

        def failing(*_: Any) -> None:
            raise RuntimeError("broken")

        monkeypatch.setattr(TraceWriter, part, failing)
        writer = TraceWriter(path)
        writer.write(step())
        writer.close()
        writer.write(step())
        assert not writer._pending or part == "_finish"
        assert caplog.text.count("broken") == 1

    @pytest.mark.parametrize(
        "header", [{"kind": "x"}, {"schema_version": 3}, {"run": "a"}, {"part": 0}, {"a": object()}, {"a": "x" * 2**22}]
    )
    def test_a_bad_header_is_refused(self, path: Path, header: dict[str, Any]) -> None:
        with pytest.raises(TraceError, match="header"):
            TraceWriter(path, header)
        assert not path.exists()

    def test_a_bad_path_is_refused(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path / "none" / "t.jsonl", tmp_path, tmp_path / "pipe"):
            with pytest.raises(TraceError, match=str(path)):
                TraceWriter(path)
        with pytest.raises(TraceError, match="null"):
            TraceWriter("a\0b")
        for name in ("max_pending", "max_mb"):
            with pytest.raises(TraceError, match=f"{name} is 0"):
                TraceWriter(tmp_path / "t.jsonl", **{name: 0})

    def test_write_is_cheap(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """About 0.2 µs on a quiet machine, 1 µs is promised; the wide limit allows for a busy one."""
        monkeypatch.setattr(adaptk.trace, "_POLL_S", 30.0)
        writer = TraceWriter(path, max_pending=10_000)
        record = step()
        best_s = min(timeit.repeat(lambda: writer.write(record, DECISION), number=1000, repeat=10)) / 1000
        writer._pending.clear()
        writer.close()
        assert best_s < 5e-6


class TestProcesses:
    def test_the_end_of_the_process_writes_what_is_pending(self, path: Path) -> None:
        run(WRITE_ONE, path)
        assert len(read_trace(path).rows) == 1

    def test_a_forked_child_neither_writes_nor_hangs(self, path: Path) -> None:
        code = """
            import os, sys
            from adaptk.step import StepRecord
            from adaptk.trace import TraceWriter
            record = StepRecord(batch_size=0, elapsed_ms=1.0, k=1, drafted=[], accepted=[])
            writer = TraceWriter(sys.argv[1])
            for _ in range(300):
                writer.write(record)
            child = os.fork()
            for _ in range(10):
                writer.write(record)
            if child == 0:
                writer.close()
                sys.exit(0 if writer.dropped == 10 else 1)
            assert os.waitpid(child, 0)[1] == 0, "the child failed"
            print(writer.dropped)
        """
        assert run(code, path) == "0"
        assert len(read_trace(path).rows) == 310

    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_a_worker_process_flushes_its_own_writer(self, path: Path, method: str) -> None:
        """multiprocessing ends forked children without atexit."""
        code = f"""
            import multiprocessing, sys
            from adaptk.step import StepRecord
            from adaptk.trace import TraceWriter
            def work(path):
                TraceWriter(path).write(StepRecord(batch_size=0, elapsed_ms=1.0, k=1, drafted=[], accepted=[]))
            if __name__ == "__main__":
                process = multiprocessing.get_context("{method}").Process(target=work, args=(sys.argv[1],))
                process.start()
                process.join()
                assert process.exitcode == 0
        """
        script = path.with_name("script.py")
        script.write_text(textwrap.dedent(code))
        subprocess.run([sys.executable, script, path], check=True, timeout=60, env=ENVIRONMENT)
        assert len(read_trace(path).rows) == 1


class TestReader:
    HEADER = '{"schema_version": 1, "kind": "adaptk-trace"}\n'
    ROW = '{"step": {"batch_size": 1, "elapsed_ms": 5, "k": 1, "drafted": [1], "accepted": [0]}}\n'

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "trace.jsonl: is empty: give a file that adaptk wrote"),
            ("x\n", "line 1: is no header"),
            ("[]\n", "line 1: is no header"),
            ("[" * 100_000, "line 1: is no header"),
            (ROW, "line 1: is no header"),
            ('{"schema_version": 1}\n', "line 1: is no header"),
            ('{"schema_version": 2, "kind": "adaptk-trace"}\n', "line 1: schema_version is 2, this adaptk reads 1"),
            ('{"kind": "adaptk-trace"}\n', "line 1: schema_version is None"),
        ],
    )
    @pytest.mark.parametrize("lenient", [False, True])
    def test_bad_headers(self, path: Path, text: str, message: str, lenient: bool) -> None:
        path.write_text(text)
        with pytest.raises(TraceError, match=message) as error:
            read_trace(path, lenient)
        assert str(error.value).startswith(str(path))

    @pytest.mark.parametrize(
        "line",
        [
            "x\n",
            "\n",
            "[]\n",
            "[" * 100_000 + "\n",
            '{"step": null}\n',
            ROW.replace('"k": 1', '"k": -1'),
            ROW.replace("[0]", "[2]"),
            ROW.replace("}}", '}, "decision": {"propensity": null}}'),
            ROW.replace("}}", '}, "extra": 1}'),
        ],
    )
    def test_a_bad_row_is_named_or_skipped(self, path: Path, line: str) -> None:
        path.write_text(self.HEADER + self.ROW + line + self.ROW)
        with pytest.raises(TraceError, match=r"line 3: is no row of a trace .*: remove the line, or read leniently"):
            read_trace(path)
        trace = read_trace(path, lenient=True)
        assert (len(trace.rows), trace.skipped, trace.lines) == (2, 1, [2, 4])

    @pytest.mark.parametrize("cut", [1, 20, len(ROW) - 3])
    def test_a_cut_off_last_line(self, path: Path, cut: int) -> None:
        """It is what a killed engine leaves, no damage."""
        path.write_text(self.HEADER + self.ROW + self.ROW[:cut])
        trace = read_trace(path)
        assert (len(trace.rows), trace.cut, trace.skipped) == (1, 1, 0)
        assert read_trace(path, lenient=True) == trace
        assert list(iter_trace(path)) == trace.rows

    def test_a_last_line_without_its_end_is_whole(self, path: Path) -> None:
        path.write_text((self.HEADER + self.ROW).rstrip())
        assert len(read_trace(path).rows) == 1

    @pytest.mark.parametrize("behind", [0, 1, 3000])
    def test_a_line_that_is_too_long_is_one_line(
        self, path: Path, behind: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """At the limit, just above it and many times as long; what follows keeps its line number."""
        monkeypatch.setattr("adaptk.tracefile.MAX_LINE", 1000)
        long = " " * (999 + behind) + "\n"
        path.write_text(self.HEADER + long + self.ROW + long.rstrip("\n") + " ")
        with pytest.raises(TraceError, match=r"line 2: is no row of a trace \(the line is too long, .*remove the line"):
            read_trace(path)
        trace = read_trace(path, lenient=True)
        assert (len(trace.rows), trace.skipped, trace.lines) == (1, 2, [3])

    def test_what_has_no_lines_is_given_up(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Behind a line that is longer than all reason nothing is looked for, be it without an end."""
        monkeypatch.setattr("adaptk.tracefile.MAX_LINE", 1000)
        path.write_text(self.HEADER + self.ROW + " " * 50_000 + "\n" + self.ROW)
        trace = read_trace(path, lenient=True)
        assert (len(trace.rows), trace.skipped) == (1, 1)

    def test_a_file_of_something_else_is_given_up(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Not skipped line by line to its end."""
        monkeypatch.setattr("adaptk.tracefile._HOPELESS", 100)
        path.write_text(self.HEADER + self.ROW + "\n" * 500)
        with pytest.raises(TraceError, match=r"line 103: most lines are no rows of a trace: give a file that adaptk"):
            read_trace(path, lenient=True)
        path.write_text(self.HEADER + self.ROW * 110 + "\n" * 110)
        assert read_trace(path, lenient=True).skipped == 110

    def test_gzip_is_unpacked(self, path: Path) -> None:
        path.write_bytes(gzip.compress((self.HEADER + self.ROW * 3).encode()))
        assert len(read_trace(path).rows) == len(list(iter_trace(path))) == 3

    def test_gzip_that_is_cut_off(self, path: Path) -> None:
        """What can be unpacked is read; the row in which it ends is cut off."""
        rows = [self.ROW.replace('"k": 1', f'"k": {k}') for k in np.random.default_rng(0).integers(0, 10**9, 4000)]
        packed = gzip.compress((self.HEADER + "".join(rows)).encode())
        path.write_bytes(packed[: len(packed) // 2])
        trace = read_trace(path)
        assert 1000 < len(trace.rows) < 3000
        assert (trace.cut, trace.skipped) == (1, 0)
        path.write_bytes(packed[:15])
        with pytest.raises(TraceError, match="damaged within its gzip data"):
            read_trace(path, lenient=True)

    def test_gzip_that_is_damaged(self, path: Path) -> None:
        """What lies behind counts as one row."""
        path.write_bytes(gzip.compress((self.HEADER + self.ROW * 3).encode()) + b"no gzip data")
        with pytest.raises(TraceError, match=r"line 5: is damaged within its gzip data .*copy"):
            read_trace(path)
        trace = read_trace(path, lenient=True)
        assert (len(trace.rows), trace.skipped) == (3, 1)

    def test_a_pipe_does_not_block(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(TraceError, match="is no regular file"):
            read_trace(tmp_path / "pipe")

    def test_missing_files(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match="no such file"):
            read_trace(tmp_path / "none")
        with pytest.raises(TraceError, match="cannot be read"):
            iter_trace(tmp_path)

    @given(st.binary(max_size=80))
    def test_any_bytes_are_read_or_refused(self, tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
        path = tmp_path_factory.getbasetemp() / "any.jsonl"
        path.write_bytes(self.HEADER.encode() + data)
        trace = read_trace(path, lenient=True)
        assert trace.rows == []
        if b"\n" in data:
            with pytest.raises(TraceError):
                read_trace(path)
        elif data:
            assert read_trace(path).cut == 1


WRITE_ONE = """
    import sys
    from adaptk.step import StepRecord
    from adaptk.trace import TraceWriter
    TraceWriter(sys.argv[1]).write(StepRecord(batch_size=0, elapsed_ms=1.0, k=1, drafted=[], accepted=[]))
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def run(code: str, *args: object) -> str:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
