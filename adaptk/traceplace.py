"""What lies at the path of a trace and beside it, and the names that its pieces get there."""

from __future__ import annotations

import errno
import os
import stat
import zlib
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from adaptk.tracepieces import PACKED, TraceError, has_header, header_line, is_trace, numbers_beside

_LOOK = 2**16  # bytes at the beginning of a file
_OF_GZIP = 31  # zlib's number for its format
_NAMES = 1000  # tried for a piece before it is given up
# Whoever reads how many drafts of each request were accepted may guess what it was about: the owner's alone.
_MODE = 0o600
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_APPEND | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Ident(NamedTuple):
    """What a file is known by, whatever its name, as long as it is there."""

    device: int
    inode: int


def ident(status: os.stat_result) -> Ident:
    """Which file that is."""
    return Ident(status.st_dev, status.st_ino)


def ident_at(path: Path) -> Ident | None:
    """Which file is at a path, ``None`` where there is none.

    Raises
    ------
    OSError
        If that cannot be found out for now.
    """
    try:
        return ident(os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def whereabouts(path: Path, named: Path, piece: Ident) -> Path | None:
    """Where a piece lies that was called ``named``: rotators, and other engines with this path, renumber it.

    ``None`` where it was removed, or is not beside ``path`` any more.

    Raises
    ------
    OSError
        If that cannot be found out for now.
    """
    if ident_at(named) == piece:
        return named
    names = (path.with_name(f"{path.name}.{number}") for number in numbers_beside(path))
    return next((name for name in names if ident_at(name) == piece), None)


def begins(path: Path, run: str, part: int) -> bool:
    """Whether a file begins as that piece does: the inode of one that was removed may be another file's by now.

    Raises
    ------
    OSError
        If it cannot be looked at for now.
    """
    line = header_line({}, run, part).rstrip(b"}\n")
    try:
        with _opened(path) as file:
            return file.read(len(line)) == line
    except PermissionError:  # somebody took it over
        return False


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
    with _opened(path) as file:
        ours = _began_as_trace(file)
    if not ours:
        raise TraceError(f"{path}: holds something that is no trace: give another path, or remove it")
    return True


def moved_aside(path: Path) -> Path:
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


def created(path: Path) -> tuple[int, Path]:
    """A new file at ``path``, or beside it where something else is there; its descriptor and its name."""
    try:
        return os.open(path, _NEW, _MODE), path
    except FileExistsError:
        return _numbered(path)


def _began_as_trace(file: BinaryIO) -> bool:
    """Whether it begins with a header, or is what a crash leaves of one: nothing, or a few zeros of a power cut.

    Of what is compressed a header is asked: nobody compresses what has none.
    """
    start = file.read(_LOOK)
    if start.startswith(PACKED):
        try:
            return has_header(zlib.decompressobj(wbits=_OF_GZIP).decompress(start, _LOOK))
        except zlib.error:
            return False
    zeros = not start.strip(b"\0")
    return not file.read(1) if zeros else is_trace(start)


def _opened(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, _OLD), "rb")


def _numbered(path: Path) -> tuple[int, Path]:
    first = max(numbers_beside(path), default=0) + 1
    for number in range(first, first + _NAMES):
        name = path.with_name(f"{path.name}.{number}")
        with suppress(FileExistsError):
            return os.open(name, _NEW, _MODE), name
    raise FileExistsError(errno.EEXIST, f"{_NAMES} names from {path}.{first} on are taken")
