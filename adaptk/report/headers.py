"""The header of a trace, read with distrust: it may be of an older version, or written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from adaptk.schedule import read_schedule
from adaptk.table import GoodputTable
from adaptk.tablerows import MAX_K, TableError

_LONGEST = 300  # signs of a text that are kept
_TABLE_FIELDS = ("acceptance", "meta", "acceptance_counts", "supply")


class Header(NamedTuple):
    """What a header says, each part empty or ``None`` where it is absent or makes no sense; ``notes`` say which."""

    mode: str | None
    arms: tuple[int, ...]
    schedule: list[list[int]] | None  # the operator's own
    table: str | None
    key: dict[str, Any]
    adaptk: str | None
    vllm: str | None
    k_max: int | None  # most drafts that the engine can make
    rank: int | None  # of data parallelism
    seed_table: GoodputTable | None
    trusted: bool
    notes: list[str]


def read_header(fields: Mapping[str, Any]) -> Header:
    """Take what can be used.

    Examples
    --------
    >>> header = read_header({"mode": "shadow", "arms": [0, 1, 3], "schedule": [[1, 64, 3]]})
    >>> header.mode, header.arms, header.schedule, header.k_max
    ('shadow', (0, 1, 3), [[1, 64, 3]], None)
    >>> read_header({"arms": "many"}).notes
    ['the header has arms that are none: left out']
    """
    notes: list[str] = []
    arms = fields.get("arms")
    if arms is not None and not (isinstance(arms, list) and all(_is_k(k) for k in arms)):
        notes.append("the header has arms that are none: left out")
        arms = None
    key = fields.get("key")
    return Header(
        mode=mode if (mode := fields.get("mode")) in ("on", "shadow", "off") else None,
        arms=tuple(sorted(set(arms or ()))),
        schedule=_schedule(fields.get("schedule"), notes),
        table=_text(fields.get("table")),
        key={_text(name) or "": value for name, value in key.items()} if isinstance(key, dict) else {},
        adaptk=_text(fields.get("adaptk")),
        vllm=_text(fields.get("vllm")),
        k_max=k_max if _is_k(k_max := fields.get("k_max")) else None,
        rank=rank if type(rank := fields.get("rank")) is int else None,
        seed_table=_table(fields.get("seed_table"), notes),
        trusted=fields.get("trusted") is not False,
        notes=notes,
    )


def _is_k(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_K


def _text(value: Any) -> str | None:
    return value[:_LONGEST] if isinstance(value, str) and value else None


def _schedule(value: Any, notes: list[str]) -> list[list[int]] | None:
    if value is None:
        return None
    try:
        return [list(entry) for entry in read_schedule(value)]
    except TableError as error:
        notes.append(f"the header's schedule is left out: {error}")
        return None


def _table(value: Any, notes: list[str]) -> GoodputTable | None:
    if not isinstance(value, dict):
        return None
    try:
        shared = {name: value.get(name) for name in _TABLE_FIELDS}
        if value.get("rows"):
            return GoodputTable.from_rows(value["rows"], **shared)
        return None  # a schedule: the header has it anyway
    except (TableError, TypeError) as error:
        notes.append(f"the header's table is left out: {error}")
        return None
