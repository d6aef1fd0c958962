"""The files that a trace is written to: pieces of bounded size, on a disk that may fail at any time."""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from adaptk.tracepieces import DAMAGED, Bytes, TraceError, header_line, is_trace, numbers_beside, unpacked

PIECE_BYTES = 256 * 2**20
_MOST_OF_CAP = 4  # pieces that fit into what all may take
_FLOOR_BYTES, _FLOOR_SHARE = 256 * 2**20, 0.01  # of a disk, the smaller of which is left to others
_LOOK = 2**16  # bytes at the beginning of a file
_NAMES = 1000  # tried for a piece before it is given up
# Whoever reads how many drafts of each request were accepted may guess what it was about: the owner's alone.
_MODE = 0o600
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_APPEND | os.O_CLOEXEC
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


class _Ident(NamedTuple):
    device: int
    inode: int


class _Done(NamedTuple):
    """An earlier piece, under the name that it was given."""

    path: Path
    ident: _Ident
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
    piece.

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
        self._run, self._part = os.urandom(8).hex(), -1
        self._fields = dict(fields)
        header_line(fields, self._run)
        self._max_bytes = max_bytes
        self._piece_bytes = piece_bytes if max_bytes is None else min(piece_bytes, max_bytes // _MOST_OF_CAP)
        self._fd = -1
        self._at = path  # the running piece's name
        self._ident = _Ident(-1, -1)
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
        here = _status(self._fd)
        if here is None or _ident(here) != self._ident:  # closed by somebody: the number may be another file's by now
            self._fd = -1
            self._next()
        elif here.st_nlink == 0 or self._missing():
            self._next()
        elif here.st_size < self._size:
            self._size, self._torn = here.st_size, here.st_size > 0
            if not self._torn:  # emptied by who copied it: it needs a header again
                self._size, self._piece_rows = self._write_header(self._fd), 0

    def _missing(self) -> bool:
        try:
            os.lstat(self._at)
        except FileNotFoundError:
            return True
        except OSError:
            pass
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
                    _moved_aside(self.path)
        elif self._at == self.path and self._is_at(self.path, self._ident):
            self._at = _moved_aside(self.path)
        self._begin()

    def _remove_oldest(self) -> None:
        """Make room for one more piece under what all may take."""
        while self._max_bytes is not None and self._earlier:
            sizes = self._size + sum(done.size for done in self._earlier)
            if sizes + self._piece_bytes <= self._max_bytes:
                return
            oldest = self._earlier[0]
            if self._is_at(oldest.path, oldest.ident):  # else somebody has it elsewhere
                oldest.path.unlink(missing_ok=True)
                self.removed_rows += oldest.rows
                self.removed_pieces += 1
            self._earlier.popleft()

    def _is_at(self, path: Path, ident: _Ident) -> bool:
        try:
            return _ident(os.lstat(path)) == ident
        except OSError:
            return False

    def _begin(self) -> None:
        """Make another piece the running one."""
        fd, at = _created(self.path)
        ident = _ident(os.fstat(fd))
        try:
            size = self._write_header(fd)
        except OSError:
            os.close(fd)
            if self._is_at(at, ident):
                with suppress(OSError):
                    at.unlink()
            raise
        lies = self._whereabouts()
        if lies is not None:  # else somebody has it elsewhere, or removed it
            self._earlier.append(_Done(lies, self._ident, self._size, self._piece_rows))
        # In this order: a forked child closes whatever number it finds.
        old, self._fd = self._fd, fd
        self._at, self._ident, self._size, self._piece_rows = at, ident, size, 0
        self._torn, self._turn_at = False, self._piece_bytes
        if old >= 0:
            os.close(old)

    def _whereabouts(self) -> Path | None:
        """Where the running piece lies by now: another engine with this path has moved it aside as an older trace."""
        numbers = numbers_beside(self.path) if self._fd >= 0 else ()  # open: no other file has its number
        names = (self.path.with_name(f"{self.path.name}.{number}") for number in numbers)
        return next((name for name in (self._at, *names) if self._is_at(name, self._ident)), None)

    def _write_header(self, fd: int) -> int:
        line = memoryview(header_line(self._fields, self._run, self._part + 1))
        done = 0
        while done < len(line):
            done += os.write(fd, line[done:])
        self._part += 1
        self.written += done
        return done


def holds_trace(path: Path) -> bool:
    """Whether an older trace is at ``path``, which is to be moved aside.

    Raises
    ------
    TraceError
        If something else is there.
    OSError
        If it cannot be looked at.
    """
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return False
    if stat.S_ISLNK(there.st_mode):
        raise TraceError(f"{path}: is a symbolic link: give the path that it leads to")
    if not stat.S_ISREG(there.st_mode):
        raise TraceError(f"{path}: is not a regular file: give a path that adaptk may create")
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as raw:
        ours = _began_as_trace(unpacked(raw))
    if not ours:
        raise TraceError(f"{path}: holds something that is no trace: give another path, or remove it")
    return True


def _began_as_trace(file: Bytes) -> bool:
    """Whether it begins with a header, or is what a crash leaves of one: nothing, or a few zeros of a power cut."""
    try:
        start = file.read(_LOOK)
        zeros = not start.strip(b"\0")
        return not file.read(1) if zeros else is_trace(start)
    except DAMAGED:
        return False


def _moved_aside(path: Path) -> Path:
    """Rename to the number after all that are there, so that their order is that of time; the new name."""
    fd, aside = _numbered(path)  # takes the name, which no other process will then use
    os.close(fd)
    try:
        path.rename(aside)
    except OSError:
        with suppress(OSError):
            aside.unlink()
        raise
    return aside


def _created(path: Path) -> tuple[int, Path]:
    """A new file at ``path``, or beside it where something else is there; its descriptor and its name."""
    try:
        return os.open(path, _NEW, _MODE), path
    except FileExistsError:
        return _numbered(path)


def _numbered(path: Path) -> tuple[int, Path]:
    first = max(numbers_beside(path), default=0) + 1
    for number in range(first, first + _NAMES):
        name = path.with_name(f"{path.name}.{number}")
        with suppress(FileExistsError):
            return os.open(name, _NEW, _MODE), name
    raise FileExistsError(errno.EEXIST, f"{_NAMES} names from {path}.{first} on are taken")


def _check_room(fd: int, size: int) -> None:
    disk = os.fstatvfs(fd)
    floor = min(_FLOOR_BYTES, _FLOOR_SHARE * disk.f_blocks * disk.f_frsize)
    if disk.f_blocks and disk.f_bavail * disk.f_frsize - size < floor:
        raise OSError(errno.ENOSPC, f"the disk's last {floor / 2**20:.3g} MiB are left to others")


def _status(fd: int) -> os.stat_result | None:
    try:
        return None if fd < 0 else os.fstat(fd)
    except OSError:
        return None


def _ident(status: os.stat_result) -> _Ident:
    return _Ident(status.st_dev, status.st_ino)
