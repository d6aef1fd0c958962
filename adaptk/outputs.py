"""Files that are written in one move, and refused before the work where they cannot be."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


class OutputError(ValueError):
    """A file cannot be written; the message names it and says why."""


def check_outputs(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None]) -> None:
    """Refuse what cannot be written, or would replace a file that is read or also written; keys are for the message.

    Raises
    ------
    OutputError
        If an output is a folder or no regular file, lies in no folder that can be written to, cannot be replaced, or is
        one of the ``inputs`` or another output, under whatever name.
    """
    taken = {name: path for name, path in inputs.items() if path is not None}
    for name, path in outputs.items():
        if path is None:
            continue
        try:
            _check_output(f"{name} {path}", path)
        except OutputError:
            raise
        except (OSError, ValueError) as error:  # ValueError: a null byte in the path
            raise OutputError(f"{name} {str(path)!r}: cannot be written ({error}): give another path") from None
        for other, theirs in taken.items():
            if _same(path, theirs):
                raise OutputError(f"{name} {path}: is the file of {other} too: give another path")
        taken[name] = path


def check_new(name: str, path: Path, inputs: Mapping[str, Path | None]) -> None:
    """As :func:`check_outputs`, and refuse a file that is there already: what a command measured is not replaced.

    Raises
    ------
    OutputError
        If it is there, or cannot be written.
    """
    check_outputs({name: path}, inputs)
    if path.exists():
        raise OutputError(f"{name} {path}: exists already: remove it, or give another {name}")


def _check_output(name: str, path: Path) -> None:
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise OutputError(f"{name}: is a folder: give the path of a file")
    if target.exists() and not target.is_file():
        raise OutputError(f"{name}: is no regular file: give another path")
    if not target.parent.is_dir():
        raise OutputError(f"{name}: its folder does not exist; make it first")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise OutputError(f"{name}: its folder cannot be written to: check its permissions or give another path")


def _same(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file, be it by a link of any kind."""
    try:
        return os.path.realpath(one) == os.path.realpath(other) or one.samefile(other)
    except (OSError, ValueError):
        return False


def write_whole(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file so that a reader sees the old one or the whole new one, never a part, also after a power cut.

    Parameters
    ----------
    path
        Where it goes; of a symbolic link, where that leads.
    data
        All of it.
    mode
        Permissions that the new file has at most.

    Raises
    ------
    OutputError
        If the file cannot be written, or is there and no regular file.
    """
    target = Path(os.path.realpath(path))  # through a symbolic link, which a rename would replace
    scratch = target.with_name(f"{target.name}.{os.urandom(4).hex()}.tmp")
    try:
        if target.exists() and not target.is_file():
            raise OutputError(f"{path}: cannot be written (it is no regular file): give another path")
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(target)
    except OSError as error:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise OutputError(f"{path}: cannot be written ({error}): check the folder and its space") from None
    with suppress(OSError):  # the file is there; not every file system knows of such a thing
        _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk, too."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
