"""When each step of an engine ended, noted alike with adaptk and without: a scheduler class, and reading what it noted.

A server is given the class by ``--scheduler-cls``; adaptk puts itself in front of whatever class is configured. Noted
is the end of vLLM's own ``update_from_output``, so that the time from one note to the next holds everything that the
engine's loop did in between, adaptk's part included. The notes are in shared memory of a file: no step writes to a
disk, and no note is lost with the process.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FILE = "SOAK_CLOCK"  # the environment variable that names it
CAPACITY = 1_000_000  # steps
_ROW = struct.Struct("=dqqqq")
_NOW, _WHOLE, _REQUESTS, _SCHEDULED, _EMITTED = range(5)


class Clock:
    """Notes steps in the file ``path``, which is made anew."""

    def __init__(self, path: Path) -> None:
        with path.open("w+b") as file:
            file.truncate(CAPACITY * _ROW.size)
            self._rows = mmap.mmap(file.fileno(), 0)
        self._next = 0
        self._whole = False

    def note(self, requests: int, scheduled: int, emitted: int, goes_on: bool) -> None:
        """A step has ended; ``goes_on`` says whether the engine has more to do at once."""
        if self._next < CAPACITY:
            row = (time.perf_counter(), self._whole, requests, scheduled, emitted)
            _ROW.pack_into(self._rows, self._next * _ROW.size, *row)
            self._next += 1
        self._whole = goes_on

    def interrupt(self) -> None:
        """The engine may have nothing to do until the next step."""
        self._whole = False


def timed(base: type) -> type:
    """The subclass of a scheduler class of vLLM's that notes its steps in the file of ``SOAK_CLOCK``."""

    class Timed(base):  # type: ignore[misc]
        """Notes the end of every step."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.soak_clock = Clock(Path(os.environ[FILE]))

        def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
            found = super().update_from_output(scheduler_output, model_runner_output)
            self.soak_clock.note(
                len(scheduler_output.num_scheduled_tokens),
                scheduler_output.total_num_scheduled_tokens,
                sum(len(one.new_token_ids) for outputs in found.values() for one in outputs.outputs),
                self.has_unfinished_requests(),
            )
            return found

        def finish_requests(self, *args: Any, **kwargs: Any) -> Any:
            found = super().finish_requests(*args, **kwargs)
            if not self.has_unfinished_requests():
                self.soak_clock.interrupt()
            return found

    return Timed


def __getattr__(name: str) -> type:
    """``Timed``, over the class that vLLM takes for drafters that keep it from scheduling ahead."""
    if name != "Timed":
        raise AttributeError(name)
    from vllm.v1.core.sched.scheduler import Scheduler

    made = timed(Scheduler)
    globals()[name] = made
    return made


class Steps(NamedTuple):
    """Steps that computed something, in order, an entry each.

    ``ended`` is the clock's reading in seconds (``time.perf_counter``, the same in all processes of a machine), ``ms``
    the time since the step before, NaN where the engine had nothing to do in between.
    """

    ended: np.ndarray
    ms: np.ndarray
    requests: np.ndarray
    scheduled: np.ndarray
    emitted: np.ndarray

    def between(self, begun: float, ended: float) -> Steps:
        """Those that ended in a span of time."""
        inside = (self.ended >= begun) & (self.ended <= ended)
        return Steps(*(values[inside] for values in self))

    def timed(self) -> np.ndarray:
        """The known times, milliseconds."""
        return self.ms[~np.isnan(self.ms)]


def read(path: Path) -> Steps:
    """All that was noted so far."""
    kinds = [("now", "f8"), ("whole", "i8"), ("requests", "i8"), ("scheduled", "i8"), ("emitted", "i8")]
    rows = np.fromfile(path, dtype=kinds)
    rows = rows[: int(np.argmax(rows["now"] == 0.0))] if (rows["now"] == 0.0).any() else rows
    ms = np.full(len(rows), np.nan)
    ms[1:] = 1e3 * np.diff(rows["now"])
    ms[rows["whole"] == 0] = np.nan
    computed = rows["scheduled"] > 0
    return Steps(
        *(values[computed] for values in (rows["now"], ms, rows["requests"], rows["scheduled"], rows["emitted"]))
    )
