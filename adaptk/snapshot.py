"""Helpers to write a controller down as plain data, and to refuse what cannot have been written so."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adaptk.table import GoodputTable


def fingerprint(table: GoodputTable | None) -> str | None:
    """What tells a table from another one: a digest of its cells, acceptance and schedule, not of its name."""
    if table is None:
        return None
    parts = (table.rows, table.acceptance, table.schedule, table.meta.get("staircase", False))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


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
    rng.bit_generator.state = {
        "bit_generator": name,
        "state": {"state": int(state), "inc": int(inc)},
        "has_uint32": has_uint32,
        "uinteger": uinteger,
    }


def check_shape(name: str, own: Any, given: Any) -> None:
    """Refuse a snapshot whose fields or fixed lengths differ from a fresh one's, or whose numbers are none."""
    if isinstance(own, dict):
        if not isinstance(given, Mapping) or not own.keys() <= given.keys():
            raise ValueError(f"{name} has not all of the fields {sorted(own)}: start without the snapshot")
        for key, value in own.items():
            check_shape(f"{name}.{key}", value, given[key])
    elif isinstance(own, list):
        if not isinstance(given, list | tuple) or (own and len(own) != len(given)):  # empty ones grow
            raise ValueError(f"{name} has not {len(own)} entries: start without the snapshot")
        for i, value in enumerate(own):
            check_shape(f"{name}[{i}]", value, given[i])
    elif isinstance(own, int | float) and not (isinstance(given, int | float) and math.isfinite(given)):
        raise ValueError(f"{name} is {given!r}, no number: start without the snapshot")
