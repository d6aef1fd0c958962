"""What a replay gives to programs: rows as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import get_type_hints

import msgspec

from adaptk._version import __version__
from adaptk.replay.evaluate import Row

SCHEMA_VERSION = 2
KIND = "adaptk-replay"


def document(
    rows: Sequence[Row],
    command: Sequence[str],
    skipped: int,
    cut_short: bool,
    notes: Sequence[str] = (),
    measured_tokens_per_s: float | None = None,
) -> bytes:
    """The rows of a replay as JSON.

    Numbers that are not finite become null. ``skipped`` counts lines of the input that a lenient reader passed over,
    ``notes`` are what is said above the figures, ``measured_tokens_per_s`` is of the trace that was replayed.
    """
    fields = {
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
    return msgspec.json.format(msgspec.json.encode(fields), indent=1) + b"\n"


def read_rows(paths: Sequence[Path]) -> list[Row]:
    """The rows of files that hold a :func:`document`, one file after the other.

    Raises
    ------
    ValueError
        If a file cannot be read, is something else or of another version, or two rows are of the same run.
    """
    rows: dict[tuple[str, str, int], Row] = {}
    for path in paths:
        try:
            if path.exists() and not path.is_file():  # a device may have no end
                raise OSError("it is no regular file")
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
