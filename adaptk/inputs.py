"""Files that are read in one go: never more of one than it may hold, and never waiting for one that has no end."""

from __future__ import annotations

import os
import stat
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO


class InputError(ValueError):
    """What is there is nothing to read; the message says why, without the name and a remedy, which callers know."""


class MissingError(InputError):
    """There is no such file."""


@contextmanager
def opened_regular(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A regular file, or what a symbolic link to one leads to, opened for reading.

    Raises
    ------
    InputError
        If it is a folder, a pipe or a device.
    OSError, ValueError
        As ``os.open`` raises them; ``ValueError`` for a null byte in the path.
    """
    # Without waiting: a pipe that nobody writes to would hold up whoever opens it.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise InputError("is no regular file")
        with os.fdopen(file, "rb", closefd=False) as opened:
            yield opened
    finally:
        os.close(file)


def read_whole(path: str | os.PathLike[str], most: int) -> bytes:
    """The bytes of a regular file, less the mark that some editors put before a text in UTF-8.

    Parameters
    ----------
    path
        Of the file, or of a symbolic link to it.
    most
        Bytes that it may have; of a larger one nothing is read.

    Raises
    ------
    MissingError
        If there is none.
    InputError
        If it is a folder, a pipe or a device, too large, or cannot be read.
    """
    try:
        with opened_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(most + 1) if size <= most else b""  # one that grows meanwhile ends there, too
    except FileNotFoundError:
        raise MissingError("there is no such file") from None
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read ({_why(error)})") from None
    if max(size, len(data)) > most:
        raise InputError(f"has {max(size, len(data))} bytes, more than {most}")
    return data.removeprefix(BOM_UTF8)


def name_of(path: str | os.PathLike[str]) -> str:
    """A path for a message, quoted where it holds signs that cannot be seen."""
    name = os.fsdecode(path)
    return name if name.isprintable() else repr(name)


def _why(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
