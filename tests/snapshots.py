"""Snapshots to try the controller's continuity on, and ways to damage them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from adaptk import Controller, Settings
from adaptk.replay.simulator import simulate
from tests.publicengine import PUBLIC, world

HERE = {"model": "llama", "drafter": "eagle", "device": "H100", "ranks": 2}
OLD = Path(__file__).parent / "data" / "snapshot-version-1.json"

# What the code of version 1 said about its own snapshot: per batch and K, acceptance length and milliseconds.
OLD_BELIEFS = {
    16: {0: (1.0, 6.91175301360276), 3: (1.5588378207463052, 10.45841387239204)},
    64: {0: (1.0, 7.801012993744531), 3: (1.5588378207463052, 14.56678957383684)},
}


def through_json(snapshot: dict[str, Any]) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(snapshot, allow_nan=False))
    return data


@cache
def _used() -> str:
    controller = Controller(PUBLIC, settings=Settings(budget=0.1), seed=0, identity=HERE)
    simulate(world(300, 16, 0.8, level=1.3), controller)
    controller.choose(16)
    return json.dumps(controller.snapshot(), allow_nan=False)


def used_snapshot() -> dict[str, Any]:
    """A snapshot, through JSON, of a controller that has seen something and has a decision open."""
    data: dict[str, Any] = json.loads(_used())
    return data


def old_snapshot() -> dict[str, Any]:
    """Written by the code that wrote version 1, in the middle of a visit, with a decision open and after alarms.

    Table: the public one; arms 0 and 3; 455 steps at batch 16 with 0.85, then 0.37 of the drafts accepted.
    """
    data: dict[str, Any] = json.loads(OLD.read_text())
    assert data["schema_version"] == 1
    assert data["open"]
    assert data["planner"]["_visit_left"] > 0
    return data


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to all entries of nested mappings and lists."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield (*path, key)
        yield from paths(entry, (*path, key))


def entry(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


def damaged(snapshot: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy with another value at one place; ``...`` removes it."""
    broken = copy.deepcopy(snapshot)
    place = entry(broken, path[:-1])
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return broken
