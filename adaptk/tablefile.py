"""Tables as JSON files: one row per line, so that two of them can be compared with ``diff``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from adaptk.inputs import InputError, name_of, read_whole
from adaptk.outputs import OutputError, write_whole
from adaptk.quoted import said, shown
from adaptk.tablerows import TableError, TableRow

SCHEMA_VERSION = 1
MAX_BYTES = 8 * 2**20  # some 40,000 rows with all their fields: 512 batch sizes, 8 K and 10 contexts
_FIELDS = ("schema_version", "meta", "acceptance", "acceptance_counts", "supply", "schedule", "rows")
_PROFILE = "make one with adaptk profile or adaptk table import"


def read_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields of a table file, unchecked but for version and names.

    Raises
    ------
    TableError
        If the file is missing, too large, truncated, no JSON object, of another version or has unknown fields.
    """
    name = name_of(path)
    try:
        data = read_whole(path, MAX_BYTES)
    except InputError as error:
        raise TableError(f"{name}: {error}: give the path of a table, or {_PROFILE}") from None
    content = _decode_object(name, data)
    if "schema_version" not in content:
        raise TableError(f"{name}: schema_version is missing, so this is no table of adaptk: {_PROFILE}")
    version = content["schema_version"]
    if version != SCHEMA_VERSION or isinstance(version, (bool, float)):
        raise TableError(
            f"{name}: schema_version is {shown(version)}, this adaptk reads {SCHEMA_VERSION}: "
            f"use the adaptk that wrote it, or {_PROFILE}"
        )
    for field in content:
        if field not in _FIELDS:
            raise TableError(f"{name}: {shown(field)} is not a field of a table: known are {', '.join(_FIELDS)}")
    return {field: value for field, value in content.items() if field != "schema_version"}


def _decode_object(name: str, data: bytes) -> dict[str, Any]:
    """Decode a JSON object, saying whether the file was cut off or is something else."""
    if not data.strip():
        raise TableError(f"{name}: is empty: copy it again, or {_PROFILE}")
    try:
        content = msgspec.json.decode(data)
    except RecursionError:
        raise TableError(f"{name}: is nested too deeply, so this is no table of adaptk: {_PROFILE}") from None
    except (msgspec.DecodeError, ValueError) as error:
        what = "is truncated" if "truncated" in str(error) else f"is not JSON ({said(error)})"
        raise TableError(f"{name}: {what}: copy it again, or {_PROFILE}") from None
    if not isinstance(content, dict):
        raise TableError(f"{name}: holds {shown(content)} where an object is expected: {_PROFILE}")
    return content


def write_file(
    path: str | os.PathLike[str],
    meta: Mapping[str, Any],
    drafts: Mapping[str, Sequence[Any] | None],
    schedule: Iterable[Sequence[int]] | None,
    rows: Sequence[TableRow],
) -> None:
    """Write a table so that a reader sees the old file or the whole new one, never a part.

    ``drafts`` holds what is known of the drafts, by the name of the field; those that are ``None`` are left out.

    Raises
    ------
    TableError
        If the file cannot be written.
    """
    parts = [f'"schema_version": {SCHEMA_VERSION}', f'"meta": {_pretty(meta)}']
    parts += [f'"{name}": {_one_line(values)}' for name, values in drafts.items() if values is not None]
    if schedule is not None:
        parts.append(f'"schedule": {_lines(schedule)}')
    if rows:
        parts.append(f'"rows": {_lines(rows)}')
    data = ("{\n  " + ",\n  ".join(parts) + "\n}\n").encode()
    name = os.fsdecode(path)
    if len(data) > MAX_BYTES:
        raise TableError(f"{name}: would have more than {MAX_BYTES} bytes: keep fewer rows or notes")
    try:
        write_whole(Path(name), data)
    except OutputError as error:
        raise TableError(str(error)) from None


def _pretty(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2).decode().replace("\n", "\n  ")


def _lines(items: Iterable[Any]) -> str:
    return "[\n    " + ",\n    ".join(_one_line(item) for item in items) + "\n  ]"


def _one_line(item: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(item), indent=0).decode()
