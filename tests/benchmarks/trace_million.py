"""A million steps through the writer of traces and back: disk, time, memory; and what its thread costs the steps.

Run it with ``python -m tests.benchmarks.trace_million``, on a quiet machine; it takes some 0.7 GB in ``--folder`` and
ten minutes. Each part is a process of its own. *write*: rows are given as fast as the writer takes them without
dropping one; its processor time is that of the process without that of the thread that makes them. *read*, *report*,
*replay*: the rows alone, and as ``adaptk report`` and ``adaptk replay`` read them. *felt*: a loop with 1 ms of Python
and 4 ms in which the interpreter is free, as an engine's has, in blocks that take turns with the trace on and off; the
ratios are of the Python's time, and of its 99th percentile.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from adaptk.trace import TraceWriter, iter_trace
from tests.benchmarks.pairs import machine, ratio
from tests.benchmarks.tracesteps import steps

SIZES = {8: 1_000_000, 256: 100_000}
_WAITING = 2000  # rows that may wait, or fewer of large batches
BLOCKS, BLOCK_STEPS = 40, 400


def write(path: Path, batch: int, rows: int) -> dict[str, Any]:
    """Write so many rows; what that took. No row is dropped."""
    made = steps(batch)
    writer = TraceWriter(path, {"arms": [0, 1, 3, 7], "k_max": 7})
    most = min(_WAITING, 200_000 // batch)
    first = rows // 10
    peak = 0
    for count in range(rows):
        if count == first:  # what follows must not grow
            peak = _peak_kib()
            process, own, began = time.process_time(), time.thread_time(), time.monotonic()
        writer.write(*next(made))
        while len(writer._pending) > most:
            time.sleep(0.01)
    writer.close(60.0)
    used = (time.process_time() - process) - (time.thread_time() - own)
    pieces = [each.stat().st_size for each in path.parent.iterdir() if each.name.startswith(path.name)]
    return {
        "rows": writer.rows,
        "dropped": writer.dropped,
        "bytes": sum(pieces),
        "pieces": len(pieces),
        "writer_us": 1e6 * used / (rows - first),
        "s": time.monotonic() - began,
        "grown_mib": (_peak_kib() - peak) / 1024,
    }


def read(path: Path) -> dict[str, Any]:
    """Read all rows, one after the other."""
    before, began, rows = _peak_kib(), time.process_time(), 0
    for _ in iter_trace(path):
        rows += 1
    return {"rows": rows, "s": time.process_time() - began, "grown_mib": (_peak_kib() - before) / 1024}


def report(path: Path) -> dict[str, Any]:
    """Read all rows as a report does: a controller reads along, and columns are kept."""
    from adaptk.report import reading

    before, began = _peak_kib(), time.process_time()
    rows = len(reading.read([path], None, False, lambda _: None).columns.k)
    return {"rows": rows, "s": time.process_time() - began, "grown_mib": (_peak_kib() - before) / 1024}


def kept(path: Path) -> dict[str, Any]:
    """Read all rows as a replay does, which keeps them."""
    from adaptk.replay.traces.tracerows import read_rows

    before, began = _peak_kib(), time.process_time()
    rows = len(read_rows(path).steps)
    return {"rows": rows, "s": time.process_time() - began, "grown_mib": (_peak_kib() - before) / 1024}


def felt(path: Path, batch: int, blocks: int = BLOCKS, block_steps: int = BLOCK_STEPS) -> dict[str, Any]:
    """What steps feel of the trace: pairs of blocks, with it and without."""
    writer, made = TraceWriter(path), steps(batch)
    spins = _spins(1e-3)
    means: dict[bool, list[float]] = {True: [], False: []}
    tails: dict[bool, list[float]] = {True: [], False: []}
    for block in range(2 * blocks):
        traced = block % 4 in (0, 3)
        times = []
        for _ in range(block_steps):
            step = next(made)
            time.sleep(0.004)
            began = time.perf_counter()
            for _ in range(spins):
                pass
            if traced:
                writer.write(*step)
            times.append(time.perf_counter() - began)
        if traced:
            time.sleep(0.5)  # the last rows are written before the block without it
        means[traced].append(fmean(sorted(times)[: int(0.99 * len(times))]))
        tails[traced].append(sorted(times)[int(0.99 * len(times))])
    writer.close(60.0)
    return {
        "mean": str(ratio(means[True], means[False])),
        "p99": str(ratio(tails[True], tails[False])),
        "more_us": 1e6 * (fmean(means[True]) - fmean(means[False])),
        "dropped": writer.dropped,
    }


def _spins(seconds: float) -> int:
    """Rounds of an empty loop that take so long."""
    took = min(timeit.repeat("for _ in range(10_000): pass", number=1, repeat=200))
    return int(10_000 * seconds / took)


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _alone(part: str, path: Path, batch: int, rows: int) -> dict[str, Any]:
    """One part in a process of its own, so that its peak of memory is its own."""
    command = [sys.executable, "-m", "tests.benchmarks.trace_million", "--part", part, str(path), str(batch), str(rows)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    print(
        f"batch {batch:>3} {part:<7} " + ", ".join(f"{name} {_short(value)}" for name, value in found.items()),
        flush=True,
    )
    return found


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a row was dropped or lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows, for trying it")
    parser.add_argument("--folder", type=Path, help="where the traces are written (default: the temporary folder)")
    parser.add_argument("--part", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.part is not None:
        part, path, batch, rows = arguments.part[0], Path(arguments.part[1]), *map(int, arguments.part[2:])
        parts = {"write": lambda: write(path, batch, rows), "read": lambda: read(path), "report": lambda: report(path),
                 "replay": lambda: kept(path), "felt": lambda: felt(path, batch)}  # fmt: skip
        print(json.dumps(parts[part]()))
        return 0
    print(machine(), flush=True)
    whole = True
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for batch, count in SIZES.items():
            rows, path = int(count * arguments.scale), Path(folder) / f"{batch}.jsonl"
            written = _alone("write", path, batch, rows)
            found = [_alone(part, path, batch, rows)["rows"] for part in ("read", "report", "replay")]
            whole &= written["dropped"] == 0 and found == [rows] * 3
            for each in path.parent.iterdir():
                each.unlink()
            _alone("felt", path.with_name("felt"), batch, rows)
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
