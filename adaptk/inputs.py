"""Files that are read in one go: never more of one than it may hold, and never waiting for one that has no end."""

from __future__ import annotations

import os
import stat


class InputError(ValueError):
    """What is there is nothing to read; the message says why, without the name and a remedy, which callers know."""


def read_whole(path: str | os.PathLike[str], most: int) -> bytes:
    """The bytes of a regular file.

    Parameters
    ----------
    path
        Of the file, or of a symbolic link to it.
    most
        Bytes that it may have; of a larger one nothing is read.

    Raises
    ------
    InputError
        If it is missing, a folder, a pipe or a device, too large, or cannot be read.
    """
    try:
        # Without waiting: a pipe that nobody writes to would hold up whoever opens it.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise InputError("there is no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise InputError(f"cannot be read ({_why(error)})") from None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise InputError("is no regular file")
        with open(file, "rb", closefd=False) as opened:
            data = opened.read(most + 1) if status.st_size <= most else b""  # one that grows meanwhile ends there, too
    except OSError as error:
        raise InputError(f"cannot be read ({_why(error)})") from None
    finally:
        os.close(file)
    if max(status.st_size, len(data)) > most:
        raise InputError(f"has {max(status.st_size, len(data))} bytes, more than {most}")
    return data


def name_of(path: str | os.PathLike[str]) -> str:
    """A path for a message, quoted where it holds signs that cannot be seen."""
    name = os.fsdecode(path)
    return name if name.isprintable() else repr(name)


def _why(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
