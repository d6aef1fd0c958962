"""Processes fork, end and die under a trace."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from adaptk.trace import read_trace
from tests.faults.disks import ENVIRONMENT, run

WRITING = """
    import sys, time
    from adaptk import trace, tracedisk
    from tests.faults.disks import row
    trace._POLL_S, trace._CHUNK_BYTES = 0.001, 2000
    tracedisk.TraceDisk.__init__.__defaults__ = (None, 30_000)
    writer = trace.TraceWriter(sys.argv[1])
    print("begun", flush=True)
    seq = 0
    while True:
        writer.write(*row(seq))
        seq += 1
        time.sleep(0.0001)
"""


def seqs(path: Path) -> list[int]:
    return [row.decision.seq for row in read_trace(path).rows if row.decision is not None]


def writing(path: Path) -> subprocess.Popen[str]:
    """A process that writes steps without end, in small pieces."""
    command = [sys.executable, "-c", textwrap.dedent(WRITING), str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_killed(tmp_path: Path, number: int) -> None:
    """At five random moments, between rows, in a row, or while a piece is begun: all up to there is readable."""
    chance = random.Random(number)
    for turn in range(5):
        path = tmp_path / f"{turn}.jsonl"
        with writing(path) as process:
            time.sleep(chance.uniform(0.02, 0.3))
            process.send_signal(number)
            process.communicate(timeout=30)
        found = seqs(path)
        assert found == list(range(len(found)))
        assert read_trace(path).missing == 0
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) > 50_000  # something was written in them


def test_what_a_kill_costs(tmp_path: Path) -> None:
    """Of nine tenths of a second no more than a half; a fifth of a second's rows where the machine is not busy."""
    code = """
        import os, signal, sys, time
        from adaptk import trace
        from tests.faults.disks import row
        writer = trace.TraceWriter(sys.argv[1])
        for seq in range(225):
            writer.write(*row(seq))
            time.sleep(0.004)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert run(code, tmp_path / "t.jsonl").returncode == -signal.SIGKILL
    found = seqs(tmp_path / "t.jsonl")
    assert found == list(range(len(found)))
    assert len(found) > 112


def test_a_process_that_is_interrupted_writes_what_waits(tmp_path: Path) -> None:
    """SIGINT, as Ctrl-C sends it: the queue goes out at the end of the process."""
    code = """
        import os, signal, sys
        from adaptk import trace
        from tests.faults.disks import row
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are told to ignore it
        trace._POLL_S = 30.0
        writer = trace.TraceWriter(sys.argv[1])
        for seq in range(5000):
            writer.write(*row(seq))
        os.kill(os.getpid(), signal.SIGINT)
    """
    done = run(code, tmp_path / "t.jsonl")
    assert done.returncode != 0
    assert "KeyboardInterrupt" in done.stderr
    assert seqs(tmp_path / "t.jsonl") == list(range(5000))


def test_the_end_of_the_process_with_a_full_queue(tmp_path: Path) -> None:
    """It is written, and what did not fit into it is told."""
    code = """
        import sys
        from adaptk import trace
        from tests.faults.disks import row
        trace._POLL_S = 30.0
        writer = trace.TraceWriter(sys.argv[1])
        for seq in range(9000):
            writer.write(*row(seq))
    """
    done = run(code, tmp_path / "t.jsonl")
    assert done.returncode == 0
    assert seqs(tmp_path / "t.jsonl") == list(range(8192))
    assert "808 rows did not reach it" in done.stderr


def test_the_end_of_the_process_on_a_disk_that_hangs(tmp_path: Path) -> None:
    """Is not held up for more than some two seconds."""
    code = """
        import os, sys, time
        from adaptk import trace
        from tests.faults.disks import row
        writer = trace.TraceWriter(sys.argv[1])
        os.write = lambda fd, data: time.sleep(60)
        for seq in range(10):
            writer.write(*row(seq))
    """
    began = time.monotonic()
    done = run(code, tmp_path / "t.jsonl", timeout=40)
    assert done.returncode == 0
    assert time.monotonic() - began < 20
    assert "rows are unwritten after 2 s" in done.stderr


def test_children_forked_while_it_writes(tmp_path: Path) -> None:
    """Twenty children, by fork and by multiprocessing, each of which writes into its copy and ends as it likes: the
    parent's rows are all there once, and no piece is touched."""
    code = """
        import multiprocessing, os, sys, time
        from adaptk import trace, tracedisk
        from tests.faults.disks import row
        trace._POLL_S, trace._CHUNK_BYTES = 0.001, 2000
        tracedisk.TraceDisk.__init__.__defaults__ = (None, 30_000)
        writer = trace.TraceWriter(sys.argv[1], max_pending=100_000)
        seq = 0
        def some():
            global seq
            for _ in range(200):
                writer.write(*row(seq))
                seq += 1
        def child():
            before = writer.dropped
            for _ in range(50):
                writer.write(*row(10**6))
            writer.close()
            return 0 if writer.dropped == before + 50 else 1
        children = []
        for turn in range(10):
            some()
            pid = os.fork()
            if pid == 0:
                (os._exit if turn % 2 else sys.exit)(child())
            children.append(pid)
            some()
            process = multiprocessing.get_context("fork").Process(target=lambda: sys.exit(child()))
            process.start()
            process.join()
            assert process.exitcode == 0
        for pid in children:
            assert os.waitpid(pid, 0)[1] == 0
        some()
        writer.close(30.0)
        print(seq, writer.dropped)
    """
    done = run(code, tmp_path / "t.jsonl")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["4200", "0"]
    assert seqs(tmp_path / "t.jsonl") == list(range(4200))


def test_a_forked_child_holds_no_piece_open(tmp_path: Path) -> None:
    """Or the room of one that is removed would not be free until the child has ended."""
    code = """
        import os, sys
        from adaptk import trace
        from tests.faults.disks import row, wait_for
        writer = trace.TraceWriter(sys.argv[1])
        writer.write(*row(0))
        assert wait_for(lambda: writer.rows == 1)
        pid = os.fork()
        held = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        if pid == 0:
            os._exit(sys.argv[1] in held)
        print(os.waitpid(pid, 0)[1], sys.argv[1] in held)
    """
    assert run(code, tmp_path / "t.jsonl").stdout.split() == ["0", "True"]


def test_threads_that_cannot_be_started(tmp_path: Path) -> None:
    """The process has as many threads as it may: rows are dropped with one line and a count, and the steps go on."""
    code = """
        import sys, threading
        from adaptk import trace
        from tests.faults.disks import row
        def none(self):
            raise RuntimeError("can't start new thread")
        threading.Thread.start = none
        writer = trace.TraceWriter(sys.argv[1])
        for seq in range(100):
            writer.write(*row(seq))
        writer.close()
        print(writer.dropped, writer.failed)
    """
    done = run(code, tmp_path / "t.jsonl")
    assert done.stdout.split() == ["100", "1"]
    assert done.stderr.count("can't start new thread") == 1


def test_a_process_without_descriptors(tmp_path: Path) -> None:
    """All are in use when a piece is to be begun: the running one grows on, and the next try begins another."""
    code = """
        import os, sys
        from adaptk import trace, tracedisk
        from tests.faults.disks import row, wait_for
        trace._POLL_S, trace._CHUNK_BYTES = 0.01, 500
        tracedisk.TraceDisk.__init__.__defaults__ = (None, 4000)
        import resource
        writer = trace.TraceWriter(sys.argv[1])
        writer.write(*row(0))
        assert wait_for(lambda: writer.rows == 1)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        held = []
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        for seq in range(1, 60):
            writer.write(*row(seq))
        assert wait_for(lambda: writer.rows == 60)
        turned = os.path.exists(sys.argv[1] + ".1")
        for fd in held:
            os.close(fd)
        for seq in range(60, 100):
            writer.write(*row(seq))
        writer.close(10.0)
        print(turned, os.path.exists(sys.argv[1] + ".1"), writer.dropped)
    """
    done = run(code, tmp_path / "t.jsonl")
    assert done.stdout.split() == ["False", "True", "0"], done.stderr
    assert done.stderr.count("Too many open files") == 1
    assert seqs(tmp_path / "t.jsonl") == list(range(100))


def test_memory_is_bounded_whatever_the_batch(tmp_path: Path) -> None:
    """With a disk that takes nothing, 9,000 steps of 1 to 4096 requests cost less than 100 MiB, where all of them would
    cost 300; a step with a million requests is dropped."""
    code = """
        import os, resource, sys, time
        from adaptk import trace
        from adaptk.step import StepRecord
        from tests.faults.disks import row
        writer = trace.TraceWriter(sys.argv[1])
        os.write = lambda fd, data: time.sleep(60)
        decision = row(0)[1]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for seq in range(9000):
            n = (1, 256, 4096)[seq % 3]
            fresh = StepRecord(batch_size=n, elapsed_ms=9.5, k=3, drafted=[3] * n, accepted=[2] * n, emitted=[3] * n)
            writer.write(fresh, decision)
        dropped = writer.dropped
        writer.write(row(0, 10**6)[0])
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
        print(grown, writer.dropped - dropped, flush=True)
        os._exit(0)
    """
    done = run(code, tmp_path / "t.jsonl")
    grown, dropped = map(int, done.stdout.split())
    assert grown < 100
    assert dropped == 1
