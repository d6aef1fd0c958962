"""What an object holds: its whole state as plain values, and the sizes of all containers, to see which one grows."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np


def container_sizes(owner: Any) -> Counter[str]:
    """Entries per container, by the class of adaptk's that holds it and the attribute; those of one name are added up.

    Not by the way to it: an object that is held twice may be met in the one way now and in the other one later.
    """
    sizes: Counter[str] = Counter()
    for name, value in _containers(owner):
        sizes[name] += value.size if isinstance(value, np.ndarray) else len(value)
    return sizes


def empty_caches(owner: Any) -> None:
    """Empty all dictionaries whose name is in ``CACHES``."""
    for name, value in list(_containers(owner)):
        if isinstance(value, dict) and name.split(".")[-1] in CACHES:
            value.clear()


def _containers(owner: Any) -> Iterator[tuple[str, Any]]:
    """Every container that can be reached, once."""
    seen: set[int] = set()
    waiting = [(type(owner).__name__, owner)]
    while waiting:
        name, value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, dict | list | tuple | set | frozenset | deque):
            yield name, value
            entries = value.values() if isinstance(value, dict) else value
            waiting += [(f"{name}[]", entry) for entry in entries if not isinstance(entry, int | float | str)]
        elif isinstance(value, np.ndarray):
            yield name, value
        elif type(value).__module__.startswith("adaptk."):
            waiting += [(f"{type(value).__name__}.{attribute}", entry) for attribute, entry in _attributes(value)]


def plain_state(owner: Any, left_out: Collection[str] = ()) -> dict[str, Any]:
    """All that can be reached from an object, as plain values by the way to it.

    Keys are ``Class.attribute`` of the object that holds the value, behind the way to that object. Objects of
    adaptk are entered once; where one is met again, the value is the way to it. ``left_out`` are ``Class.attribute``.
    """
    state: dict[str, Any] = {}
    met: dict[int, str] = {}
    waiting = [("", owner)]
    while waiting:
        way, value = waiting.pop()
        met[id(value)] = way or "the owner"
        for attribute, entry in sorted(_attributes(value)):
            key = f"{type(value).__name__}.{attribute}"
            if key in left_out:
                continue
            at = f"{way} {key}".strip()
            for inner, part in _parts(at, entry):
                if id(part) in met:
                    state[inner] = met[id(part)]
                elif type(part).__module__.startswith("adaptk.") and any(True for _ in _attributes(part)):
                    waiting.append((inner, part))
                    met[id(part)] = inner
                else:
                    state[inner] = _plain(part)
    return state


def _parts(at: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The entries of a mapping or sequence that holds objects of adaptk, each by the way to it; else the value."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | deque) else ()
    own = [(f"{at}[{key}]", entry) for key, entry in entries if type(entry).__module__.startswith("adaptk.")]
    yield from own or [(at, value)]


def _plain(value: Any) -> Any:
    """A value that can be compared; the size of what is empty or holds other things than numbers stays visible."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, list | deque):
        return [_plain(entry) for entry in value]
    if isinstance(value, tuple):
        return tuple(_plain(entry) for entry in value)
    return {key: _plain(entry) for key, entry in value.items()} if isinstance(value, dict) else value


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for cls in type(value).__mro__:
        for attribute in getattr(cls, "__slots__", ()):
            if hasattr(value, attribute):
                yield attribute, getattr(value, attribute)


# Emptied when full, at so many entries at most; an entry may hold a few numbers itself.
CACHES, FULL = {"_plan", "_rows", "_index", "_views", "_places", "_prepared"}, 4096


class HighWater:
    """The largest size of each container seen so far."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}

    def look(self, owner: Any) -> None:
        self._raise(container_sizes(owner))

    def join(self, other: HighWater) -> None:
        """Take over what is larger elsewhere."""
        self._raise(other.sizes)

    def _raise(self, sizes: Mapping[str, int]) -> None:
        for name, size in sizes.items():
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
