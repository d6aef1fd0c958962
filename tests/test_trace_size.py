"""What a trace takes, with a wide margin; ``tests.benchmarks.trace_million`` measures it with a million steps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from adaptk.trace import iter_trace
from tests.faults.disks import ENVIRONMENT

ROWS = 20_000


def part(name: str, path: Path) -> dict[str, Any]:
    """One part of the benchmark in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.trace_million", "--part", name, str(path), "8", str(ROWS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=ENVIRONMENT, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_twenty_thousand_steps_of_eight_requests(tmp_path: Path) -> None:
    """0.4 kB and some 4 microseconds a step, no row lost, and no more memory after 20,000 rows than after 2,000."""
    written = part("write", tmp_path / "t.jsonl")
    assert (written["rows"], written["dropped"]) == (ROWS, 0)
    assert written["bytes"] / ROWS < 500
    assert written["writer_us"] < 100
    assert written["grown_mib"] < 8  # the rows that may wait are there from the start
    assert [row.decision.seq for row in iter_trace(tmp_path / "t.jsonl") if row.decision] == list(range(ROWS))
    read = part("read", tmp_path / "t.jsonl")
    assert read["rows"] == ROWS
    assert read["grown_mib"] < 8
