"""The form of a snapshot: plain data that can be refused, brought up to date, and told from another one's."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import msgspec
import numpy as np

from adaptk.quoted import plain, shown
from adaptk.table import GoodputTable, TableRow

SCHEMA_VERSION = 3
_OLDEST = 1
START = "start without the snapshot"
_WITH_REASONS = ("snapshot.open[", "snapshot.planner.plan[")  # the parts of no fixed shape in which there is text
_LARGEST = sys.float_info.max
Identity = Mapping[str, str | int | float | bool | None]
# What of a row the digest is made of, written as ever: fields that rows have learnt since leave older digests valid.
_DIGESTED = ("batch", "k", "itl_ms", "context", "n", "spread_ms", "p10_ms", "p90_ms")


def fingerprint(table: GoodputTable | None) -> str | None:
    """What tells a table from another one: a digest of its cells, acceptance and schedule, not of its name."""
    if table is None:
        return None
    rows = ", ".join(map(_written, table.rows)) + "," * (len(table.rows) == 1)
    parts = (table.acceptance, table.schedule, table.meta.get("staircase", False))
    text = f"(({rows}), {repr(parts)[1:]}" + ("" if table.supply is None else repr(table.supply))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _written(row: TableRow) -> str:
    return f"TableRow({', '.join(f'{name}={getattr(row, name)!r}' for name in _DIGESTED)})"


def random_state(rng: np.random.Generator) -> list[Any]:
    """The state of a PCG64 generator; its 128-bit integers as text, which every JSON reader bears."""
    state = rng.bit_generator.state
    inner = state["state"]
    return [
        state["bit_generator"],
        str(inner["state"]),
        str(inner["inc"]),
        state["has_uint32"],
        state["uinteger"],
    ]


def set_random_state(rng: np.random.Generator, data: Sequence[Any]) -> None:
    """Take over what ``random_state`` gave."""
    name, state, inc, has_uint32, uinteger = data
    try:
        rng.bit_generator.state = {
            "bit_generator": name,
            "state": {"state": int(state), "inc": int(inc)},
            "has_uint32": has_uint32,
            "uinteger": uinteger,
        }
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"snapshot.random is {shown(data)}, no state of a PCG64: {START}") from None


def read_identity(identity: Identity | None, name: str = "identity") -> dict[str, Any]:
    """What model, drafter, device and the like a controller is for; a part that is ``None`` is unknown and left out.

    Raises
    ------
    ValueError
        If it is no mapping from text to text, finite numbers and truth values.
    """
    if identity is None:
        return {}
    if not isinstance(identity, Mapping):
        raise ValueError(
            f'{name} is {shown(identity)}: give a mapping, as {{"model": ..., "drafter": ..., "device": ...}}'
        )
    for part, value in identity.items():
        if not isinstance(part, str):
            raise ValueError(f"{name} has a part {shown(part)}: name its parts by text")
        if not (value is None or isinstance(value, str | bool) or _is_number(value)):
            raise ValueError(
                f"{name}[{shown(part)}] is {shown(value)}: give text, a finite number, a truth value or None"
            )
    return {part: value for part, value in identity.items() if value is not None}


def differing(taken: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The parts of two identities that both know and that differ, in words; empty where none does."""
    parts = [part for part in taken if part in now and taken[part] != now[part]]
    return ", ".join(f"{plain(part)} {shown(taken[part])} is now {shown(now[part])}" for part in parts)


def seal(data: Mapping[str, Any]) -> dict[str, Any]:
    """The snapshot with a digest of itself, so that a value changed on the way is noticed."""
    return {**data, "digest": _digest(data)}


def check_seal(snapshot: Mapping[str, Any]) -> None:
    """Refuse a snapshot that is not as it was when ``seal`` was put on it."""
    if _digest({key: value for key, value in snapshot.items() if key != "digest"}) != snapshot["digest"]:
        raise ValueError(f"snapshot does not agree with its digest, it was changed since it was taken: {START}")


def version_of(snapshot: Any) -> int:
    """The schema version of a snapshot.

    Raises
    ------
    ValueError
        If it is no snapshot, or of a version that cannot be read.
    """
    if not isinstance(snapshot, Mapping):
        raise ValueError(f"snapshot is a {type(snapshot).__name__}: give the mapping, from JSON by json.loads")
    version = snapshot.get("schema_version")
    if type(version) is not int or not _OLDEST <= version <= SCHEMA_VERSION:
        raise ValueError(
            f"snapshot schema_version is {shown(version)}, this adaptk reads {_OLDEST} to {SCHEMA_VERSION}: {START}"
        )
    return version


def brought_up_to_date(own: Any, given: Any) -> Any:
    """A snapshot of an older version in the shape of a fresh one's, ``own``.

    What did not exist then gets the value that a fresh controller has, also behind the end of a list that was shorter;
    what exists no more, or in another form, is dropped. Lists that grow hold what was under way, and start empty.
    """
    if isinstance(own, dict):
        if not isinstance(given, Mapping):
            return own
        return {key: brought_up_to_date(value, given[key]) if key in given else value for key, value in own.items()}
    if isinstance(own, list):
        if not isinstance(given, list | tuple) or len(given) > len(own):
            return own
        both = zip(own, given, strict=False)
        return [brought_up_to_date(value, entry) for value, entry in both] + own[len(given) :]
    return own if isinstance(given, Mapping | list | tuple) else given


def copied(value: Any) -> Any:
    """Mappings and sequences as dict and list of their own, so that nothing is shared and nothing is a tuple."""
    if isinstance(value, list | tuple):
        return [entry if type(entry) is float else copied(entry) for entry in value]
    return {key: copied(entry) for key, entry in value.items()} if isinstance(value, Mapping) else value


def check_fields(name: str, own: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse a mapping that has not the same fields as a fresh one."""
    for key in (*own, *given):
        if key not in given or key not in own:
            raise ValueError(f"{name}.{plain(str(key))} is {'unknown' if key in given else 'missing'}: {START}")


def check_shape(name: str, own: Any, given: Any) -> None:
    """Refuse a snapshot whose fields or fixed lengths differ from a fresh one's, or whose numbers are none."""
    if isinstance(own, dict):
        if not isinstance(given, Mapping):
            raise ValueError(f"{name} is {shown(given)}, no mapping: {START}")
        check_fields(name, own, given)
        for key, value in own.items():
            check_shape(f"{name}.{key}", value, given[key])
    elif isinstance(own, list):
        if not isinstance(given, list | tuple) or (own and len(own) != len(given)):  # empty ones grow
            length = f"list of {len(own)}" if own else "list"
            raise ValueError(f"{name} is {shown(given)}, no {length}: {START}")
        for i, value in enumerate(given):
            if type(value) is float and own and type(own[i]) is float and isfinite(value):
                continue  # nearly all there is
            if own:
                check_shape(f"{name}[{i}]", own[i], value)
            else:
                _check_plain(f"{name}[{i}]", value)
    elif isinstance(own, bool | str):
        if not isinstance(given, type(own)):
            raise ValueError(f"{name} is {shown(given)}, no {type(own).__name__}: {START}")
    elif own is None:
        _check_plain(name, given)
    elif not _is_number(given):
        raise ValueError(f"{name} is {shown(given)}, no number: {START}")


def _check_plain(name: str, given: Any) -> None:
    """Refuse what JSON has not, and numbers that are none, in a part whose shape is not fixed."""
    odd = _odd(given, isinstance(given, list) and name.startswith(_WITH_REASONS))
    if odd is not None:
        value, way = odd
        raise ValueError(f"{name}{plain(''.join(reversed(way)))} is {shown(value)}, no number: {START}")


def _odd(given: Any, texts: bool) -> tuple[Any, list[str]] | None:
    """What JSON has not, and the way to it, the last step first: put together for one value, and not for each."""
    entries = given.items() if isinstance(given, Mapping) else enumerate(given) if isinstance(given, list) else None
    if entries is None:
        fits = given is None or isinstance(given, bool) or _is_number(given) or (texts and isinstance(given, str))
        return None if fits else (given, [])
    for key, value in entries:
        if type(value) is not float or not isfinite(value):
            odd = _odd(value, texts)
            if odd is not None:
                odd[1].append(f"[{key}]" if isinstance(given, list) else f".{plain(str(key))}")
                return odd
    return None


def _is_number(value: Any) -> bool:
    """Whether a float can hold it, and it is one."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST


def _digest(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(_canonical(data), order="deterministic")).hexdigest()[:16]


def _canonical(value: Any) -> Any:
    """The same for 1 and 1.0, lists and tuples, which not every store keeps apart."""
    kind = type(value)
    if kind is list or kind is tuple:
        # Nearly all that a snapshot holds are floats: let through here, where it is quick.
        return [entry if type(entry) is float else _canonical(entry) for entry in value]
    if kind is int:
        return float(value)
    return {key: _canonical(entry) for key, entry in value.items()} if isinstance(value, Mapping) else value
