"""Tables from a CSV with a row per cell, whatever its columns are called."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from adaptk.quoted import listed, said, shown
from adaptk.table import GoodputTable
from adaptk.tablerows import MAX_ROWS, TableError, read_rows
from adaptk.tabletools.imported import Imported, read_text, unknown_acceptance

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "batch": ("batch", "batch_size", "bs", "max_concurrency", "concurrency", "num_reqs", "num_requests", "decodes"),
    "k": ("k", "num_speculative_tokens", "num_spec_tokens", "speculative_tokens", "spec_tokens", "num_draft_tokens",
          "draft_tokens", "speculative_config.num_speculative_tokens"),
    "itl_ms": ("itl_ms", "median_itl_ms", "itl", "median_itl", "p50_itl_ms", "step_ms", "step_time_ms", "mean_itl_ms",
               "mean_itl"),
    "context": ("context", "context_tokens", "context_len", "context_length", "mean_context"),
    "n": ("n", "samples", "num_samples", "count", "steps"),
    "spread_ms": ("spread_ms", "std_ms", "std_itl_ms"),
    "p10_ms": ("p10_ms", "p10_itl_ms"),
    "p90_ms": ("p90_ms", "p90_itl_ms"),
    "low_ms": ("low_ms",),
    "high_ms": ("high_ms",),
    "graph_mode": ("graph_mode", "cudagraph_mode"),
}  # fmt: skip
"""Names that a column of a table's field may have, the ones that count first where several are there."""

_WHOLE = ("batch", "k", "n")
_MOST_FIELD = 1_000_000
_MOST_LINES = 2 * MAX_ROWS  # cells may be there more than once


def read_csv(path: Path, acceptance: Sequence[float] | None = None) -> Imported:
    """A table with step times from a CSV with a header; its delimiter is a comma, a semicolon or a tab.

    Cells that occur more than once get the median of their times. Empty fields are unknown.

    Raises
    ------
    TableError
        If a column is missing, or a value is impossible; its line is named.
    """
    text = read_text(path)
    head = text.partition("\n")[0]
    delimiter = max(";\t,", key=head.count)
    csv.field_size_limit(_MOST_FIELD)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        lines = [(reader.line_num, fields) for fields in islice(reader, _MOST_LINES + 1)]
    except csv.Error as error:
        raise TableError(f"{path}: is no CSV ({said(error)}): save it again") from None
    if len(lines) > _MOST_LINES:
        raise TableError(f"{path}: has more than {_MOST_LINES} lines: give one for each cell")
    header = [name.strip() for name in lines[0][1]]
    places, ignored = _places(path, header)
    rows = [
        _row(f"{path}, line {number}", places, fields, decimal_comma=delimiter != ",")
        for number, fields in lines[1:]
        if any(field.strip() for field in fields)
    ]
    if not rows:
        raise TableError(f"{path}: has a header and no rows below it")
    kept, repeated = _one_a_cell(rows)
    notes = [f"times are taken from the column {header[places['itl_ms']]!r}, in milliseconds"]
    if ignored:
        notes.append(f"columns that are not used: {listed(ignored, 8)}")
    if repeated:
        notes.append(f"{repeated} cells occur more than once: the median of their times is taken")
    meta = {"name": path.stem, "provenance": {"imported_from": path.name, "kind": "CSV"}}
    try:
        table = GoodputTable.from_rows(kept, acceptance, meta)
    except TableError as error:
        raise TableError(f"{path}: {error}") from None
    return Imported(table, [*notes, *unknown_acceptance(acceptance)])


def _places(path: Path, header: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    """Which column holds which field, and the columns that hold none."""
    names = [name.lower().replace("-", "_").replace(" ", "_") for name in header]
    places = {}
    for field, aliases in COLUMNS.items():
        found = next((names.index(alias) for alias in aliases if alias in names), None)
        if found is not None:
            places[field] = found
    for field in ("batch", "k", "itl_ms"):
        if field not in places:
            tpot = any("tpot" in name for name in names) and field == "itl_ms"
            why = ("; TPOT is a step's time over the tokens that it gave, under speculation no step time"
                   if tpot else "")  # fmt: skip
            raise TableError(f"{path}: no column for {field} among {shown(list(header))}: name one "
                             f"{' or '.join(COLUMNS[field][:3])}{why}")  # fmt: skip
    return places, [name for i, name in enumerate(header) if i not in places.values() and name]


def _row(where: str, places: Mapping[str, int], fields: Sequence[str], decimal_comma: bool) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, place in places.items():
        text = fields[place].strip() if place < len(fields) else ""
        if not text:
            if name in ("batch", "k", "itl_ms"):
                raise TableError(f"{where}: {name} is empty: fill it in or leave the line out")
            continue
        row[name] = text if name == "graph_mode" else _number(f"{where}: {name}", name, text, decimal_comma)
    try:
        read_rows([row])
    except TableError as error:
        raise TableError(str(error).replace("rows[0].", f"{where}: ")) from None
    return row


def _number(where: str, name: str, text: str, decimal_comma: bool) -> float | int:
    try:
        value = float(text.replace(",", ".") if decimal_comma else text)
    except ValueError:
        raise TableError(f"{where} is {shown(text)}: give a number") from None
    if name not in _WHOLE:
        return value
    if not value.is_integer():  # infinity and NaN are none either
        raise TableError(f"{where} is {shown(text)}: give a whole number")
    return int(value)


def _one_a_cell(rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """One row per cell, and how many cells had more; what belongs to a single measurement is dropped there."""
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["batch"], row["k"], row.get("context")), []).append(row)
    kept = []
    for (batch, k, context), same in cells.items():
        if len(same) == 1:
            kept.append(same[0])
            continue
        merged = {"batch": batch, "k": k, "context": context, "itl_ms": median(row["itl_ms"] for row in same)}
        if all("n" in row for row in same):
            merged["n"] = sum(row["n"] for row in same)
        kept.append(merged)
    return kept, sum(len(same) > 1 for same in cells.values())
