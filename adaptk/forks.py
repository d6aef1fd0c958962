"""What a process has open and a child that it forks must leave to it: files, ports, and the threads behind them."""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from typing import Protocol, TypeVar


class Abandoned(Protocol):
    """What can be left to the parent."""

    def abandon(self) -> None:
        """In a forked child: close its copies of what is the parent's, and do nothing any more."""
        ...


_T = TypeVar("_T", bound=Abandoned)
_kinds: list[weakref.WeakSet[Abandoned]] = []


def open_here(kind: type[_T]) -> weakref.WeakSet[_T]:
    """An empty set of things of one kind that are open; in a forked child each is abandoned and the set is empty."""
    things: weakref.WeakSet[_T] = weakref.WeakSet()
    _kinds.append(things)  # type: ignore[arg-type]
    return things


def _after_fork() -> None:
    for things in _kinds:
        for thing in list(things):
            with suppress(Exception):  # in a child there is nobody to hear of it, and the others are to be left, too
                thing.abandon()
        things.clear()


os.register_at_fork(after_in_child=_after_fork)
