"""The file that keeps a controller's snapshot over a restart: its form, and how it is read.

It is one JSON object: ``kind`` first, by which a file is told to be one, ``schema_version``, who wrote it and when, the
key of the engine (see :mod:`adaptk.tablekey`), and the snapshot.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from adaptk.inputs import opened_regular
from adaptk.quoted import said, shown

KIND = "adaptk-state"
SCHEMA_VERSION = 1
MAX_BYTES = 16 * 2**20  # a controller of 65 arms takes 11 MB, one of four 0.1 MB
MODE = 0o600  # nobody else needs it, and who could open its lock could keep an engine from saving
_BEGINS = re.compile(rb'\s*\{\s*"kind"\s*:\s*"adaptk-state"')
_HEAD = b'{"kind":"adaptk-state"'
_LOOK = 256  # bytes that tell


class StateError(ValueError):
    """A state file holds nothing to go on from; the message names the file and says why."""


class ForeignError(StateError):
    """What stands there is no state of adaptk's, or cannot be told to be one: it is nothing to replace."""


class State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a file holds.

    Parameters
    ----------
    kind, schema_version
        Of the file; the snapshot has a version of its own.
    adaptk, vllm
        Versions that it was written by.
    saved
        When, unix time in seconds.
    key
        Of the engine, as :func:`adaptk.vllm_plugin.identity.table_key` gives it.
    snapshot
        What ``Controller.snapshot`` gave, not looked into here.
    """

    kind: str = KIND
    schema_version: int = SCHEMA_VERSION
    adaptk: str
    vllm: str
    saved: float
    key: dict[str, Any]
    snapshot: dict[str, Any]

    @property
    def when(self) -> str:
        """``saved`` in words, whatever number it is."""
        try:
            return datetime.fromtimestamp(self.saved, UTC).isoformat(sep=" ", timespec="seconds")
        except (OverflowError, OSError, ValueError):
            return "at no time that there is"


def state_bytes(state: State) -> bytes:
    """A state as it stands in its file.

    Raises
    ------
    StateError
        If it is longer than a state that would be read again.
    """
    data = msgspec.json.encode(state) + b"\n"
    if len(data) > MAX_BYTES:
        raise StateError(f"a state of {len(data)} bytes is too large, {MAX_BYTES} are read: choose fewer arms")
    return data


def read_state(path: str | os.PathLike[str]) -> State | None:
    """The state in a file; ``None`` where there is no file, or an empty one.

    Raises
    ------
    ForeignError
        If it is no state, no regular file, or cannot be read.
    StateError
        If it is one that was cut off or damaged, or that a newer adaptk wrote.
    """
    try:
        with opened_regular(path) as file:
            data = file.read(MAX_BYTES + 1)  # no more than shows that it is too large
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ForeignError(f"{os.fspath(path)!r} cannot be read ({why})") from None
    if not data:
        return None
    if not _BEGINS.match(data) and not _HEAD.startswith(data):
        raise ForeignError(f"{os.fspath(path)} is no state of adaptk's")
    if len(data) > MAX_BYTES:
        raise StateError(f"{os.fspath(path)} is larger than any state, {MAX_BYTES} bytes")
    try:
        return _read(data)
    except StateError as error:
        raise StateError(f"{os.fspath(path)} {error}") from None


def _read(data: bytes) -> State:
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise StateError(f"is cut off or damaged ({said(error)})") from None
    version = raw.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise StateError(f"has schema_version {shown(version)}, this adaptk reads {SCHEMA_VERSION}")
    try:
        state = msgspec.convert(raw, State)
    except (msgspec.ValidationError, RecursionError) as error:
        raise StateError(f"is damaged ({said(error)})") from None
    if state.kind != KIND:  # named twice
        raise StateError("is damaged (it is of two kinds)")
    return state


def scratch_of(path: Path) -> list[Path]:
    """What writers that were killed left beside ``path``, by the names that ``outputs.write_whole`` gives."""
    name = re.compile(re.escape(path.name) + r"\.[0-9a-f]{8}\.tmp")
    return [entry for entry in path.parent.iterdir() if name.fullmatch(entry.name)]


def asides_of(path: Path) -> list[Path]:
    """What lies beside ``path`` under the names of files that are moved aside, ``path.1`` and so on, the oldest first.

    Whatever it is: see :func:`is_state`.
    """
    name = re.compile(re.escape(path.name) + r"\.([1-9][0-9]*)")
    found = [(match, entry) for entry in path.parent.iterdir() if (match := name.fullmatch(entry.name))]
    return [entry for _, entry in sorted((int(match[1]), entry) for match, entry in found)]


def next_aside(path: Path) -> Path:
    """The name after all that are there, so that their order is that of time."""
    last = next((int(aside.suffix[1:]) for aside in reversed(asides_of(path))), 0)
    return path.with_name(f"{path.name}.{last + 1}")


def is_state(path: Path) -> bool:
    """Whether a file, and no link to one, begins as states do, whole or not; not where it cannot be read."""
    try:
        if path.is_symlink():
            return False
        with opened_regular(path) as file:
            return _BEGINS.match(file.read(_LOOK)) is not None
    except (OSError, ValueError):
        return False
