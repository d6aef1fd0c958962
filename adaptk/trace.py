"""Writing a trace off the step's path; reading it is re-exported here."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from adaptk.decision import Decision
from adaptk.forks import open_here
from adaptk.step import StepRecord
from adaptk.tracedisk import HaltedError, TraceDisk
from adaptk.tracefile import Trace, TraceError, TraceRow, iter_trace, read_trace
from adaptk.tracepieces import MAX_LINE

__all__ = ["Trace", "TraceError", "TraceRow", "TraceWriter", "iter_trace", "read_trace"]

_POLL_S = 0.2
_RETRY_S = 10.0  # between two tries of a disk that failed
_CHUNK_BYTES = 32 * 2**10  # between two writes; a write lets the engine's thread run
_MAX_ENTRIES = 2**19  # of all lists that wait: some 32 MiB
_BESIDE = "adaptk trace %s: something else is there, rows go to %s: move it away, or give another path"
_log = logging.getLogger(__name__)


class TraceWriter:
    """Writes steps to files from a thread of its own; :meth:`write` neither blocks nor raises.

    A trace that exists at ``path`` is never overwritten: it is renamed to ``path.1``, or to the number after all that
    are there. So is the file itself at 256 MiB, and another one begun, with the same ``run`` and the next ``part`` in
    its header. Files are made for their owner alone. Rows go out five times a second: a process that is killed loses
    those since, and a machine without power also what its disk has not got yet, as nothing is synced. While the disk
    takes nothing it is tried again every ten seconds; rows wait, and where too many wait, further ones are dropped and
    counted. A forked child writes nothing: each process needs a writer and a path of its own.

    Parameters
    ----------
    path
        File to write; its folder must exist.
    header
        Plain data for the first line, beside what the format sets.
    max_pending
        Rows that may wait in memory. Rows of large batches are fewer: together they take some 32 MiB at most.
    max_mb
        What the files of this run may take together, 10**6 bytes; the oldest are removed. ``None``: no end.

    Raises
    ------
    TraceError
        If the file cannot be made, or the header is not plain data.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        header: Mapping[str, Any] | None = None,
        *,
        max_pending: int = 8192,
        max_mb: int | None = None,
    ) -> None:
        for name, value in (("max_pending", max_pending), ("max_mb", max_mb)):
            if value is not None and value < 1:
                raise TraceError(f"{name} is {value!r}: give at least 1")
        self.path = Path(path).absolute()  # the program may go to another folder
        self._pending: deque[tuple[StepRecord, Decision | None, int]] = deque()
        self._max_pending, self._max_entries = max_pending, _MAX_ENTRIES
        # Counted by the caller's thread; `_taken`, `_lost` and `_failed` by the other: no lock is needed.
        self._given = self._refused = 0
        self._taken = self._lost = self._failed = 0
        self._accepting = True
        self._broken = False
        self._told: set[object] = set()
        self._lines: list[bytes] = []  # encoded and not yet written
        self._retry_at = 0.0  # 0: the disk takes what it is given
        self._stop = threading.Event()
        self._start_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._encode = msgspec.json.Encoder(enc_hook=_plain).encode
        self._disk = TraceDisk(self.path, header or {}, None if max_mb is None else max_mb * 10**6)
        self._hear_of_trouble()
        # Unlike atexit, this also runs at the end of a forked multiprocessing child that opened a writer itself.
        self._finalizer = Finalize(None, self.close, exitpriority=0)
        _open_writers.add(self)

    @property
    def dropped(self) -> int:
        """Rows that did not reach the file."""
        return self._refused + self._lost

    @property
    def failed(self) -> int:
        """Failures of encoding or writing; the first one of each kind is logged."""
        return self._failed

    @property
    def rows(self) -> int:
        """Rows that were written."""
        return self._disk.rows

    @property
    def written_bytes(self) -> int:
        """Bytes that were written, headers included."""
        return self._disk.written

    @property
    def removed_rows(self) -> int:
        """Rows that were written and removed again, so that the files do not take more than ``max_mb``."""
        return self._disk.removed_rows

    def write(self, record: StepRecord, decision: Decision | None = None) -> None:
        """Hand over one row; the record must not change afterwards."""
        try:
            entries = len(record.drafted)
        except Exception:  # no record at all: its row is lost when it is encoded
            entries = 0
        given = self._given + entries
        waiting = given - self._taken
        if not self._accepting or waiting > self._max_entries or len(self._pending) >= self._max_pending:
            self._refused += 1
            return
        self._given = given
        self._pending.append((record, decision, entries))
        if self._thread is None:
            self._start()

    def close(self, timeout_s: float = 2.0) -> None:
        """Write what is pending, for at most ``timeout_s`` seconds, and close the file; more calls do nothing."""
        if self not in _open_writers:
            return
        _open_writers.discard(self)
        self._accepting = False
        self._finalizer.cancel()
        if self._thread is None:
            self._finish()
            return
        # It may be this thread that collected what dropped the writer, in the middle of waiting for the event, whose
        # lock it holds then: it ends by itself.
        if self._thread is threading.current_thread():
            return
        self._stop.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            waiting = len(self._pending) + len(self._lines)
            _log.error("adaptk trace %s: %d rows are unwritten after %g s", self.path, waiting, timeout_s)

    def _start(self) -> None:
        with self._start_lock:
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="adaptk-trace", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # no more threads, or the interpreter is going down
                self._break(error)
                self._refused += len(self._pending)
                self._pending.clear()
                return
            self._thread = thread

    def _run(self) -> None:
        # Whatever fails here is told once and ends the writing: nobody waits for this thread to hear of it.
        for part in (self._write_on, self._finish):
            try:
                part()
            except Exception as error:
                self._break(error)

    def _write_on(self) -> None:
        while not self._stop.wait(_POLL_S) and self._accepting:
            if time.monotonic() >= self._retry_at:
                self._drain()
            self._hear_of_refused()
        self._drain()

    def _finish(self) -> None:
        self._lost += len(self._pending) + len(self._lines)
        self._pending.clear()
        self._lines.clear()
        self._disk.close()
        if self.dropped:
            _log.warning("adaptk trace %s: ended, %d rows did not reach it", self.path, self.dropped)

    def _drain(self) -> None:
        while not self._broken and (self._lines or self._pending):
            if not self._lines:
                self._encode_some()
            try:
                self._disk.append(self._lines)
            except HaltedError as halted:
                del self._lines[: halted.rows]
                self._retry_at = time.monotonic() + _RETRY_S
                self._report(halted.cause.errno, halted.cause)
                return
            self._lines.clear()
            self._hear_of_trouble()
            self._hear_of_recovery()

    def _encode_some(self) -> None:
        size = 0
        while self._pending and size < _CHUNK_BYTES:
            record, decision, entries = self._pending.popleft()
            self._taken += entries
            try:
                line = self._encode(TraceRow(record, decision)) + b"\n"
                if len(line) >= MAX_LINE:
                    raise ValueError(f"a row takes {len(line)} bytes, rows have less than {MAX_LINE}")
                self._lines.append(line)
                size += len(line)
            except Exception as error:  # whatever stands in the record, it costs its own row only
                self._lost += 1
                self._report("row", error)

    def _hear_of_trouble(self) -> None:
        trouble, self._disk.trouble = self._disk.trouble, None
        if trouble is not None:
            self._report(trouble.errno, trouble)
        if self._disk.beside is not None and "beside" not in self._told:
            self._told.add("beside")
            _log.warning(_BESIDE, self.path, self._disk.beside)

    def _hear_of_recovery(self) -> None:
        if self._retry_at and "again" not in self._told:
            self._told.add("again")
            _log.warning("adaptk trace %s: rows are written again, %d were dropped", self.path, self.dropped)
        self._retry_at = 0.0

    def _hear_of_refused(self) -> None:
        if self._refused and "refused" not in self._told:
            self._told.add("refused")
            said = "the disk fails, or is too slow: rows are being dropped and counted, the engine goes on"
            _log.error("adaptk trace %s: %s", self.path, said)

    def _break(self, error: Exception) -> None:
        self._accepting, self._broken = False, True
        self._report("broken", error)

    def _report(self, kind: object, error: Exception) -> None:
        self._failed += 1
        if kind in self._told:
            return
        self._told.add(kind)
        last = "it ends here" if self._broken else "this row is dropped" if kind == "row" else "it is tried again"
        _log.error("adaptk trace %s: %s, the engine goes on: %s", self.path, last, error)

    def abandon(self) -> None:
        """In a forked child: the file is the parent's, and the thread does not exist here."""
        self._accepting = False
        self._pending.clear()
        self._lines.clear()
        self._disk.close()


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no plain data")


_open_writers = open_here(TraceWriter)
