"""What a replay writes: rows as JSON, and files in one move."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from adaptk._version import __version__
from adaptk.replay.evaluate import Row

SCHEMA_VERSION = 1
KIND = "adaptk-replay"


class OutputError(ValueError):
    """A file cannot be written; the message names it and says why."""


def write_json(path: Path, rows: Sequence[Row], command: Sequence[str], skipped: int, cut_short: bool) -> None:
    """Write the rows of a replay.

    Numbers that are not finite become null. ``skipped`` counts lines of the input that a lenient reader passed over.

    Raises
    ------
    OutputError
        If the file cannot be written.
    """
    document = {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "adaptk": __version__,
        "command": list(command),
        "cut_short": cut_short,
        "skipped": skipped,
        "rows": rows,
    }
    write_whole(path, msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the whole new one, never a part.

    Raises
    ------
    OutputError
        If the file cannot be written.
    """
    target = Path(os.path.realpath(path))  # a rename would replace a symbolic link
    scratch = target.with_name(f"{target.name}.{os.urandom(4).hex()}.tmp")
    try:
        scratch.write_bytes(data)
        scratch.replace(target)
    except OSError as error:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise OutputError(f"{path}: cannot be written ({error}): check the folder and its space") from None
