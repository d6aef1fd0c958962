"""What an object holds: the sizes of all containers that can be reached from it, to see which one grows."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import numpy as np


def container_sizes(owner: Any) -> Counter[str]:
    """Entries per container, by the way to it; those that stand in one container are added up."""
    sizes: Counter[str] = Counter()
    seen: set[int] = set()
    waiting = [(type(owner).__name__, owner)]
    while waiting:
        name, value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, dict | list | tuple | set | frozenset | deque):
            sizes[name] += len(value)
            entries = value.values() if isinstance(value, dict) else value
            waiting += [(f"{name}[]", entry) for entry in entries if not isinstance(entry, int | float | str)]
        elif isinstance(value, np.ndarray):
            sizes[name] += value.size
        elif type(value).__module__.startswith("adaptk."):
            waiting += [(f"{name}.{attribute}", entry) for attribute, entry in _attributes(value)]
    return sizes


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for cls in type(value).__mro__:
        for attribute in getattr(cls, "__slots__", ()):
            if hasattr(value, attribute):
                yield attribute, getattr(value, attribute)


# Emptied when full, at so many entries at most; an entry may hold a few numbers itself.
CACHES, FULL = {"_plan", "_rows", "_index", "_designs", "_stairs"}, 4096


class HighWater:
    """The largest size of each container seen so far."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}

    def look(self, owner: Any) -> None:
        for name, size in container_sizes(owner).items():
            self.sizes[name] = max(size, self.sizes.get(name, 0))

    def grown(self, before: HighWater, slack: int) -> dict[str, tuple[int, int]]:
        """Containers that hold over ``slack`` entries more than ``before``, and caches that are above their limit."""
        grown = {}
        for name, size in self.sizes.items():
            old, attribute = before.sizes.get(name, 0), name.split(".")[-1]
            within_cache = attribute.endswith("[]") and attribute.rstrip("[]") in CACHES
            if not within_cache and size > (FULL if attribute in CACHES else old + slack):
                grown[name] = old, size
        return grown
