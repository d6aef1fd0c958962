"""The files that a trace is written to: pieces of bounded size, on a disk that may fail at any time."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from adaptk.tracepieces import TraceError, header_line
from adaptk.traceplace import Ident, begins, created, holds_trace, ident, ident_at, moved_aside, whereabouts

PIECE_BYTES = 256 * 2**20
_MOST_OF_CAP = 4  # pieces that fit into what all may take
_FLOOR_BYTES, _FLOOR_SHARE = 256 * 2**20, 0.01  # of a disk, the smaller of which is left to others
# Troubles that may pass: the writing begins when they have. All others are mistakes in the path.
_PASSING = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT)
)


class HaltedError(Exception):
    """The disk took only the first ``rows`` of what was to be written; ``cause`` says why."""

    def __init__(self, rows: int, cause: OSError) -> None:
        super().__init__(str(cause))
        self.rows = rows
        self.cause = cause


class _Done(NamedTuple):
    """An earlier piece, under the name that it had when the next one was begun."""

    path: Path
    ident: Ident
    part: int
    size: int
    rows: int


class TraceDisk:
    """The pieces of one run. One thread uses it.

    What is not this run's is left as it is: a name that is taken is never used, and before a piece is moved or removed
    it is looked at whether the file is still the one that was made here.

    Parameters
    ----------
    path
        Where the running piece is; a trace that is there is moved aside.
    fields
        The header of each piece.
    max_bytes
        What the run's pieces may take together, the oldest are removed; ``None``: no end.
    piece_bytes
        Size at which another piece is begun.

    ``trouble`` is what the disk refused without a row being lost by it: the beginning, if that may pass, or another
    piece. ``beside`` is the piece that was begun beside ``path`` last, as something else is there.

    Raises
    ------
    TraceError
        If ``path`` cannot be a trace's.
    """

    def __init__(
        self, path: Path, fields: Mapping[str, Any], max_bytes: int | None = None, piece_bytes: int = PIECE_BYTES
    ) -> None:
        self.path = path
        self.rows = self.written = self.removed_rows = self.removed_pieces = 0
        self.trouble: OSError | None = None
        self.beside: Path | None = None
        self._run, self._part = os.urandom(8).hex(), -1
        self._fields = dict(fields)
        header_line(fields, self._run)
        self._max_bytes = max_bytes
        self._piece_bytes = piece_bytes if max_bytes is None else min(piece_bytes, max_bytes // _MOST_OF_CAP)
        self._fd = -1
        self._at = path  # the running piece's name
        self._ident = Ident(-1, -1)
        self._size = self._piece_rows = 0
        self._turn_at = self._piece_bytes  # size of the running piece at which another is begun
        self._torn = False  # whether it may end within a row
        self._earlier: deque[_Done] = deque()
        try:
            holds_trace(path)
            self._next()
        except (OSError, ValueError) as error:
            if isinstance(error, TraceError):
                raise
            if not isinstance(error, OSError) or error.errno not in _PASSING:
                said = f"{str(path)!r}: cannot be created ({error}): check the folder and its permissions"
                raise TraceError(said) from None
            self.trouble = error

    def append(self, lines: Sequence[bytes]) -> None:
        """Add whole rows.

        Raises
        ------
        HaltedError
            If not all of them are in the file now. It ends with a whole row all the same, or is left for another piece.
        """
        data = memoryview(b"".join(lines))
        done = 0
        try:
            self._ready(len(data))
            while done < len(data):
                done += os.write(self._fd, data[done:])
        except OSError as error:
            raise HaltedError(self._keep_whole(lines, done), error) from None
        self._took(len(data), len(lines))

    def close(self) -> None:
        """Let go of the running piece; there is nothing more to write."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _took(self, size: int, rows: int) -> None:
        self._size += size
        self._piece_rows += rows
        self.written += size
        self.rows += rows

    def _keep_whole(self, lines: Sequence[bytes], done: int) -> int:
        """Cut the part of a row off again; how many whole ones there are of ``done`` bytes."""
        rows = whole = 0
        while rows < len(lines) and whole + len(lines[rows]) <= done:
            whole += len(lines[rows])
            rows += 1
        if done > whole:
            try:
                if os.fstat(self._fd).st_size != self._size + done:
                    raise OSError("somebody else wrote there, too")
                os.ftruncate(self._fd, self._size + whole)
            except OSError:
                self._torn, whole = True, done
        self._took(whole, rows)
        return rows

    def _ready(self, size: int) -> None:
        """See to it that the running piece is ours, whole, has room and lies on a disk that has."""
        self._look()
        if self._torn or (self._piece_rows and self._size + size > self._turn_at):
            self._turn()
        _check_room(self._fd, size)

    def _look(self) -> None:
        """Begin another piece where the running one was taken away from under us."""
        here = self._status()
        if here is None or ident(here) != self._ident:  # closed by somebody: the number may be another file's by now
            self._fd = -1
            self._next()
        elif here.st_nlink == 0 or self._missing():
            self._next()
        elif here.st_size < self._size:
            self._size, self._torn = here.st_size, here.st_size > 0
            if not self._torn:  # emptied by who copied it: it needs a header again
                self._size, self._piece_rows = self._write_header(self._fd), 0

    def _status(self) -> os.stat_result | None:
        """What is known of the running piece; ``None`` where it is open no more."""
        try:
            return None if self._fd < 0 else os.fstat(self._fd)
        except OSError as error:
            if error.errno == errno.ESTALE:  # removed at the server of the files; the number is ours still
                self.close()
            elif error.errno != errno.EBADF:
                raise
            return None

    def _missing(self) -> bool:
        """Whether nothing has the running piece's name; it is written to as long as that cannot be found out."""
        with suppress(OSError):
            return ident_at(self._at) is None
        return False

    def _turn(self) -> None:
        """Go on in another piece, or where that cannot be and nothing forbids it, for a while in the same."""
        try:
            self._remove_oldest()
            self._next()
        except OSError as error:
            if self._torn or self._max_bytes is not None:
                raise
            self.trouble = error
            self._turn_at = self._size + self._piece_bytes // 8

    def _next(self) -> None:
        """Move the running piece aside and begin another."""
        if self._part < 0:
            with suppress(TraceError):  # something came there since the start, and stays
                if holds_trace(self.path):
                    moved_aside(self.path)
        elif self._at == self.path and ident_at(self.path) == self._ident:
            self._at = moved_aside(self.path)
        self._begin()

    def _remove_oldest(self) -> None:
        """Make room for one more piece under what all may take."""
        while self._max_bytes is not None and self._earlier:
            sizes = self._size + sum(done.size for done in self._earlier)
            if sizes + self._piece_bytes <= self._max_bytes:
                return
            oldest = self._earlier[0]
            lies = whereabouts(self.path, oldest.path, oldest.ident)
            if lies is not None and begins(lies, self._run, oldest.part):
                lies.unlink(missing_ok=True)
                self.removed_rows += oldest.rows
                self.removed_pieces += 1
            self._earlier.popleft()

    def _begin(self) -> None:
        """Make another piece the running one."""
        lies = whereabouts(self.path, self._at, self._ident) if self._part >= 0 else None
        part, made = self._part, None
        fd, at = created(self.path)
        try:
            made = ident(os.fstat(fd))
            size = self._write_header(fd)
        except OSError:
            os.close(fd)
            with suppress(OSError):
                if ident_at(at) == made:
                    at.unlink()
            raise
        if lies is not None:
            self._earlier.append(_Done(lies, self._ident, part, self._size, self._piece_rows))
        # In this order: a forked child closes whatever number it finds.
        old, self._fd = self._fd, fd
        self._at, self._ident, self._size, self._piece_rows = at, made, size, 0
        self._torn, self._turn_at = False, self._piece_bytes
        self.beside = None if at == self.path else at
        if old >= 0:
            os.close(old)

    def _write_header(self, fd: int) -> int:
        line = memoryview(header_line(self._fields, self._run, self._part + 1))
        done = 0
        while done < len(line):
            done += os.write(fd, line[done:])
        self._part += 1
        self.written += done
        return done


def _check_room(fd: int, size: int) -> None:
    disk = os.fstatvfs(fd)
    floor = min(_FLOOR_BYTES, _FLOOR_SHARE * disk.f_blocks * disk.f_frsize)
    if disk.f_blocks and disk.f_bavail * disk.f_frsize - size < floor:
        raise OSError(errno.ENOSPC, f"the disk's last {floor / 2**20:.3g} MiB are left to others")
