"""Writing a trace off the step's path; reading it is re-exported here."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Mapping
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from adaptk.decision import Decision
from adaptk.step import StepRecord
from adaptk.tracefile import Trace, TraceError, TraceRow, header_line, iter_trace, read_trace

__all__ = ["Trace", "TraceError", "TraceRow", "TraceWriter", "iter_trace", "read_trace"]

_POLL_S = 0.2
_CHUNK = 128  # rows between two writes; a write lets the engine's thread run
_log = logging.getLogger(__name__)


class TraceWriter:
    """Writes steps to a file from a thread of its own; :meth:`write` neither blocks nor raises.

    A file that exists at ``path`` is never overwritten: it is renamed to ``path.1``, or to the first free number after
    that. Rows go out within a second. While ``max_pending`` rows wait, and after the first failed write, further rows
    are dropped and counted. A forked child writes nothing: each process needs a writer and a path of its own.

    Parameters
    ----------
    path
        File to write; its folder must exist.
    header
        Plain data for the first line, beside ``schema_version`` and ``kind``.
    max_pending
        Rows that may wait in memory.

    Raises
    ------
    TraceError
        If the file cannot be made, or the header is not plain data.
    """

    def __init__(
        self, path: str | os.PathLike[str], header: Mapping[str, Any] | None = None, *, max_pending: int = 8192
    ) -> None:
        if max_pending < 1:
            raise TraceError(f"max_pending is {max_pending!r}: give at least 1")
        self.path = Path(path)
        first_line = header_line(header or {})
        self._pending: deque[tuple[StepRecord, Decision | None]] = deque()
        self._max_pending = max_pending
        self._accepting = True
        self._broken = False
        self._refused = 0  # counted by the caller, the next two by the thread: no lock is needed
        self._lost = 0
        self._failed = 0
        self._stop = threading.Event()
        self._start_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._encode = msgspec.json.Encoder(enc_hook=_plain).encode
        # A bare descriptor: a buffered file would be flushed a second time by a forked child.
        self._fd = _create(self.path, first_line)
        # Unlike atexit, this also runs at the end of a forked multiprocessing child that opened a writer itself.
        self._finalizer = Finalize(None, self.close, exitpriority=0)
        _open_writers.add(self)

    @property
    def dropped(self) -> int:
        """Rows that did not reach the file."""
        return self._refused + self._lost

    @property
    def failed(self) -> int:
        """Failures of encoding or writing; the first one is logged."""
        return self._failed

    def write(self, record: StepRecord, decision: Decision | None = None) -> None:
        """Hand over one row; the record must not change afterwards."""
        if not self._accepting or len(self._pending) >= self._max_pending:
            self._refused += 1
            return
        self._pending.append((record, decision))
        if self._thread is None:
            self._start()

    def close(self, timeout_s: float = 2.0) -> None:
        """Write what is pending, for at most ``timeout_s`` seconds, and close the file; more calls do nothing."""
        if self not in _open_writers:
            return
        _open_writers.discard(self)
        self._accepting = False
        self._finalizer.cancel()
        self._stop.set()
        if self._thread is None:
            self._finish()
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            _log.error("adaptk trace %s: %d rows are unwritten after %g s", self.path, len(self._pending), timeout_s)

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
        while not self._stop.wait(_POLL_S):
            self._drain()
        self._drain()

    def _finish(self) -> None:
        self._lost += len(self._pending)
        self._pending.clear()
        os.close(self._fd)

    def _drain(self) -> None:
        while self._pending:
            lines = []
            for _ in range(min(len(self._pending), _CHUNK)):
                record, decision = self._pending.popleft()
                try:
                    lines.append(self._encode(TraceRow(record, decision)) + b"\n")
                except Exception as error:  # whatever stands in the record, it costs its own row only
                    self._lost += 1
                    self._report(error)
            self._put(b"".join(lines))

    def _put(self, data: bytes) -> None:
        done = 0
        try:
            if self._broken:
                raise OSError("an earlier write failed")
            if os.fstat(self._fd).st_nlink == 0:
                raise FileNotFoundError("the file or its folder was removed")
            while done < len(data):
                done += os.write(self._fd, data[done:])
        except OSError as error:
            self._lost += data.count(b"\n", done)
            self._break(error)

    def _break(self, error: Exception) -> None:
        self._accepting, self._broken = False, True
        self._report(error)

    def _report(self, error: Exception) -> None:
        self._failed += 1
        if self._failed == 1:
            _log.error("adaptk trace %s: rows are being dropped, the engine goes on: %s", self.path, error)

    def _abandon(self) -> None:
        """In a forked child: the file is the parent's, and the thread does not exist here."""
        self._accepting = False
        self._pending.clear()


def _create(path: Path, first_line: bytes) -> int:
    """Make a fresh file that holds the header, moving an older one aside; its descriptor."""
    try:
        if path.exists() and not path.is_file():
            raise TraceError(f"{path}: is not a regular file: give a path that adaptk may create")
        if path.is_file() and path.stat().st_size > 0:
            number = 1
            while (aside := path.with_name(f"{path.name}.{number}")).exists():
                number += 1
            path.rename(aside)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except (OSError, ValueError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"{str(path)!r}: cannot be created ({error}): check the folder and its permissions") from None
    try:
        os.write(fd, first_line)
    except OSError as error:
        os.close(fd)
        raise TraceError(f"{path}: cannot be written ({error}): check the disk's space") from None
    return fd


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no plain data")


def _after_fork() -> None:
    for writer in list(_open_writers):
        writer._abandon()
    _open_writers.clear()


_open_writers: weakref.WeakSet[TraceWriter] = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork)
