"""Small real file systems, and rows to fill them with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from adaptk.decision import Decision, Reason
from adaptk.step import StepRecord

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def row(seq: int, batch: int = 8) -> tuple[StepRecord, Decision]:
    """A step that says which one it is."""
    record = StepRecord(
        batch_size=batch, elapsed_ms=9.5, k=3, drafted=[3] * batch, accepted=[2] * batch, t_ms=float(seq)
    )
    return record, Decision(seq=seq, k=3, propensity=0.9, reason=Reason.EXPLOIT, arms=(0, 1, 3))


def wait_for(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether it comes true in time."""
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    return holds()


def run(code: str, *args: object, timeout: float = 60.0, **options: Any) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, env=ENVIRONMENT, check=False, **options
    )


@cache
def may_mount() -> bool:
    """Whether this process may make file systems of its own."""
    tool = shutil.which("unshare")
    if tool is None:
        return False
    tried = [tool, "-m", "mount", "-t", "tmpfs", "-o", "size=1m", "none", "/mnt"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


needs_mount = pytest.mark.skipif(not may_mount(), reason="a file system of one's own cannot be mounted here")


def run_on_tmpfs(code: str, folder: Path, options: str) -> Any:
    """Python in a process of its own, for which ``folder`` is a small file system; what it printed as JSON.

    ``sys.argv[1]`` is the folder; ``row`` and ``wait_for`` are there.
    """
    script = f"from tests.faults.disks import row, wait_for\n{textwrap.dedent(code)}"
    mount = 'mount -t tmpfs -o "$1" none "$2" && exec "$3" -c "$4" "$2"'
    command = ["unshare", "-m", "sh", "-c", mount, "sh", options, str(folder), sys.executable, script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "log": done.stderr}
