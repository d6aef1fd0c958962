"""What a replay writes: rows as JSON, and files in one move."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import get_type_hints

import msgspec

from adaptk._version import __version__
from adaptk.replay.evaluate import Row

SCHEMA_VERSION = 2
KIND = "adaptk-replay"


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


def write_json(
    path: Path,
    rows: Sequence[Row],
    command: Sequence[str],
    skipped: int,
    cut_short: bool,
    notes: Sequence[str] = (),
    measured_tokens_per_s: float | None = None,
) -> None:
    """Write the rows of a replay.

    Numbers that are not finite become null. ``skipped`` counts lines of the input that a lenient reader passed over,
    ``notes`` are what is said above the figures, ``measured_tokens_per_s`` is of the trace that was replayed.

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
        "notes": list(notes),
        "measured_tokens_per_s": measured_tokens_per_s,
        "rows": rows,
    }
    write_whole(path, msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


def read_rows(paths: Sequence[Path]) -> list[Row]:
    """The rows of files that :func:`write_json` wrote, one file after the other.

    Raises
    ------
    ValueError
        If a file cannot be read, is something else or of another version, or two rows are of the same run.
    """
    rows: dict[tuple[str, str, int], Row] = {}
    for path in paths:
        try:
            document = msgspec.json.decode(path.read_bytes())
            if (document["kind"], document["schema_version"]) != (KIND, SCHEMA_VERSION):
                raise ValueError(f"kind {document['kind']!r}, version {document['schema_version']!r}")
            found = [msgspec.convert(_with_nan(row), Row) for row in document["rows"]]
        except OSError as error:
            raise ValueError(f"{path}: cannot be read ({error}): give a file that --json wrote") from None
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path}: holds no rows of version {SCHEMA_VERSION} ({error}): replay again with --json"
            ) from None
        for row in found:
            run = (row.scenario, row.policy, row.seed)
            if run in rows:
                raise ValueError(f"{path}: has {row.policy} in {row.scenario} with seed {row.seed}, which another file "
                                 "or row has too: give each run once")  # fmt: skip
            rows[run] = row
    return list(rows.values())


_NUMBERS = tuple(name for name, kind in get_type_hints(Row).items() if kind is float)


def _with_nan(row: dict[str, object]) -> dict[str, object]:
    """A row as it was before numbers that are not finite became null."""
    return {**row, **{name: math.nan for name in _NUMBERS if name in row and row[name] is None}}


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
