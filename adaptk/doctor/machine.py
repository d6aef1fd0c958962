"""The machine: its processor, how much of it this process may use, and how finely it tells the time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from adaptk.doctor.finding import Finding
from adaptk.processor import processor_name

_COARSE_S = 1e-4  # a step may take two milliseconds, and is to be told from one 5 % longer
_SAMPLES = 2000
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def findings() -> Iterator[Finding]:
    """Processor, cores, clock."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    text = f"{processor_name()}, {cores} core{'s' if cores > 1 else ''} for this process"
    quota = cpu_quota(_QUOTA)
    if quota is not None and quota < cores:
        yield Finding(
            "machine.processor",
            "warn",
            f"{text}, and a limit of {quota:g} on their time",
            "a process that uses up its share stands still until the next tenth of a second: such steps teach nothing",
            "raise the container's limit of CPUs above what the engine's threads use",
        )
    else:
        yield Finding("machine.processor", "ok", text)
    resolution = clock_resolution_s()
    shown = f"the clock that times steps resolves {1e6 * resolution:.2g} µs"
    if resolution > _COARSE_S:
        yield Finding("machine.clock", "warn", shown, "times of short steps will be rough")
    else:
        yield Finding("machine.clock", "ok", shown)


def cpu_quota(path: Path) -> float | None:
    """Cores' worth of time that a container grants; ``None`` where it does not say or grants all."""
    try:
        quota, period = path.read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # "max" is no number
        return None


def clock_resolution_s() -> float:
    """Least difference seen between two readings of the clock that steps are timed by, seconds."""
    readings = [time.perf_counter() for _ in range(_SAMPLES)]
    steps = [after - before for before, after in pairwise(readings) if after > before]
    return min(steps, default=time.get_clock_info("perf_counter").resolution)
