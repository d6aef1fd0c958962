"""What a replay gives to programs: rows as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import get_type_hints

import msgspec

from adaptk._version import __version__
from adaptk.inputs import InputError, name_of, read_whole
from adaptk.quoted import plain, said, shown
from adaptk.replay.evaluate import Row

SCHEMA_VERSION = 2
KIND = "adaptk-replay"
MAX_BYTES = 256 * 2**20  # every world with every policy and 60 seeds takes 40


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
            document = msgspec.json.decode(read_whole(path, MAX_BYTES))
            if (document["kind"], document["schema_version"]) != (KIND, SCHEMA_VERSION):
                raise ValueError(f"kind {shown(document['kind'])}, version {shown(document['schema_version'])}")
            found = [msgspec.convert(_with_nan(row), Row) for row in document["rows"]]
        except InputError as error:
            raise ValueError(f"{name_of(path)}: {error}: give a file that --json wrote") from None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{path}: holds no rows of version {SCHEMA_VERSION} ({said(error)}): replay again with --json"
            ) from None
        for row in found:
            run = (row.scenario, row.policy, row.seed)
            if run in rows:
                raise ValueError(f"{path}: has {plain(row.policy)} in {plain(row.scenario)} with seed {row.seed}, "
                                 "which another file or row has too: give each run once")  # fmt: skip
            rows[run] = row
    return list(rows.values())


_NUMBERS = tuple(name for name, kind in get_type_hints(Row).items() if kind is float)


def _with_nan(row: dict[str, object]) -> dict[str, object]:
    """A row as it was before numbers that are not finite became null."""
    return {**row, **{name: math.nan for name in _NUMBERS if name in row and row[name] is None}}
