"""Rows and notes of a table: what is allowed in them, and errors that say what is not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from adaptk.quoted import plain, said, shown

MAX_ROWS = 50_000
MAX_BATCH = 1_000_000
MAX_K = 1024
MIN_ITL_MS, MAX_ITL_MS = 1e-6, 1e9

_WHOLE = (int, np.integer)
_REAL = (*_WHOLE, float, np.floating)


class TableError(ValueError):
    """A table, or a question put to one, is refused; the message names the field, the value and the remedy."""


class TableRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One measured cell of a table.

    Parameters
    ----------
    batch
        Requests that decode in the step, 1 to 1,000,000.
    k
        Drafts per request, 0 to 1024.
    itl_ms
        Wall time of the whole step, milliseconds, 1e-6 to 1e9.
    context
        Mean tokens per request in the KV cache, ``>= 0``; ``None`` where it was not recorded.
    n
        Samples behind ``itl_ms``, ``>= 1``; ``None`` where it was not recorded.
    spread_ms, p10_ms, p90_ms
        Standard deviation, 10th and 90th percentile of the samples, milliseconds; carried, not used for ``best_k``.
    low_ms, high_ms
        Ends of the 95 % interval of ``itl_ms``, milliseconds; carried, not used for ``best_k``.
    graph_mode
        How the step was launched, as ``"FULL"``, ``"PIECEWISE"`` or ``"NONE"``; ``None`` where it was not recorded.
    """

    batch: int
    k: int
    itl_ms: float
    context: float | None = None
    n: int | None = None
    spread_ms: float | None = None
    p10_ms: float | None = None
    p90_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    graph_mode: str | None = None


_CARRIED = (
    ("context", 1e12),
    *((name, MAX_ITL_MS) for name in ("spread_ms", "p10_ms", "p90_ms", "low_ms", "high_ms")),
)


def count(name: str, value: Any, low: int, high: int) -> int:
    """``value`` as int if it is a whole number from ``low`` to ``high``; booleans and floats are refused."""
    if isinstance(value, bool) or not isinstance(value, _WHOLE) or not low <= value <= high:
        raise TableError(f"{name} is {shown(value)}: give a whole number from {low} to {high}")
    return int(value)


def number(name: str, value: Any, low: float, high: float) -> float:
    """``value`` as float if it is a finite number from ``low`` to ``high``; booleans are refused."""
    if isinstance(value, bool) or not isinstance(value, _REAL) or not low <= value <= high:
        raise TableError(f"{name} is {shown(value)}: give a number from {low:g} to {high:g}")
    return float(value)


def read_rows(rows: Iterable[TableRow | Mapping[str, Any]]) -> tuple[TableRow, ...]:
    """Check rows and sort them by context, batch and K.

    Raises
    ------
    TableError
        If there are none or too many, one has an unknown, missing or impossible field, or two describe the same cell.
    """
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise TableError(f"rows is {shown(rows)}: give a list of rows with batch, k and itl_ms")
    if isinstance(rows, Sequence) and len(rows) > MAX_ROWS:
        raise TableError(f"rows has {len(rows)} entries: give at most {MAX_ROWS}")
    cells: dict[tuple[int, int, float | None], TableRow] = {}
    for i, raw in enumerate(rows):
        row = _read_row(f"rows[{i}]", raw)
        cell = (row.batch, row.k, row.context)
        if cell in cells:
            raise TableError(
                f"rows[{i}] repeats batch {row.batch}, k {row.k}, context {row.context}: keep one row for each cell"
            )
        if i >= MAX_ROWS:
            raise TableError(f"rows has more than {MAX_ROWS} entries: give fewer")
        cells[cell] = row
    if not cells:
        raise TableError("rows is empty: give at least one row, or a schedule")
    return tuple(sorted(cells.values(), key=lambda r: (-1.0 if r.context is None else r.context, r.batch, r.k)))


def _read_row(where: str, raw: TableRow | Mapping[str, Any]) -> TableRow:
    row = msgspec.structs.asdict(raw) if isinstance(raw, TableRow) else raw
    if not isinstance(row, Mapping):
        raise TableError(f"{where} is {shown(raw)}: give an object with batch, k and itl_ms")
    unknown = sorted(map(str, row.keys() - set(TableRow.__struct_fields__)))
    if unknown:
        raise TableError(
            f"{where} has the unknown field {shown(unknown[0])}: known are {', '.join(TableRow.__struct_fields__)}"
        )
    for field in ("batch", "k", "itl_ms"):
        if field not in row:
            raise TableError(f"{where} has no {field}: give batch, k and itl_ms in every row")
    fields: dict[str, Any] = {
        "batch": count(f"{where}.batch", row["batch"], 1, MAX_BATCH),
        "k": count(f"{where}.k", row["k"], 0, MAX_K),
        "itl_ms": number(f"{where}.itl_ms", row["itl_ms"], MIN_ITL_MS, MAX_ITL_MS),
    }
    if row.get("n") is not None:
        fields["n"] = count(f"{where}.n", row["n"], 1, 2**53)
    for field, high in _CARRIED:
        if row.get(field) is not None:
            fields[field] = number(f"{where}.{field}", row[field], 0.0, high)
    if fields.get("low_ms", 0.0) > fields.get("high_ms", MAX_ITL_MS):
        raise TableError(
            f"{where}.low_ms is {fields['low_ms']}, above high_ms {fields['high_ms']}: give the smaller one first"
        )
    mode = row.get("graph_mode")
    if mode is not None:
        if not isinstance(mode, str) or not 1 <= len(mode) <= 40:
            raise TableError(f"{where}.graph_mode is {shown(mode)}: give a short text, or leave it out")
        fields["graph_mode"] = mode
    return TableRow(**fields)


def read_meta(meta: Mapping[str, Any] | None) -> dict[str, Any]:
    """A private plain-JSON copy of ``meta``.

    Raises
    ------
    TableError
        If it is no mapping, cannot be written as JSON, or its ``staircase`` is not a boolean.
    """
    if meta is None:
        return {}
    if not isinstance(meta, Mapping):
        raise TableError(f"meta is {shown(meta)}: give an object, or leave it out")
    fault = _non_finite(meta, 0)
    if fault is not None:
        raise TableError(f"{plain('meta' + ''.join(reversed(fault.way)))} {fault.what}")
    try:
        copy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(dict(meta)), type=dict[str, Any])
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TableError(f"meta is {shown(meta)}, not plain JSON ({said(error)}): use text, numbers, lists") from None
    if not isinstance(copy.get("staircase", False), bool):
        raise TableError(f"meta.staircase is {shown(copy['staircase'])}: give true or false")
    return copy


class _Fault(NamedTuple):
    """What is wrong with a value, and the way to it, the last step first."""

    what: str
    way: list[str]


def _non_finite(value: Any, depth: int) -> _Fault | None:
    """NaN and infinity would come back from a file as null; deep nesting would overflow the stack of the reader.

    The way is put together on the way back alone: written out for each entry, long names would be copied for ever.
    """
    if depth > 64:
        return _Fault("is nested deeper than 64 levels: use a flatter object", [])
    if isinstance(value, float) and not math.isfinite(value):
        return _Fault(f"is {value!r}: give a finite number or null", [])
    if isinstance(value, Mapping):
        for key, part in value.items():
            if (fault := _non_finite(part, depth + 1)) is not None:
                fault.way.append(f".{plain(str(key))}")
                return fault
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            if (fault := _non_finite(part, depth + 1)) is not None:
                fault.way.append(f"[{i}]")
                return fault
    return None
