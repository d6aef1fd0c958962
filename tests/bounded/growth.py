"""What a process holds, looked at again and again over a long run, and whether any of it grows."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tests.containers import HighWater, empty_caches

# Until here caches fill and every kind of load comes about once.
WARM = 0.2
# What the second half of a run may hold above the first, whatever its length: a leak grows with the steps, not this.
# Buffers of a fixed size that are in use in some states only make up these: 128 groups of ten numbers, in 300,000 steps
# perhaps met for the first time in the second half. A leak of one object in 40 steps is found then, in a run of
# 10,000,000 of one in 1,300.
MORE_OBJECTS = 3_000  # the medians
MORE_ENTRIES = 2_000  # in any one container, the highest marks
MORE_KIB = 4 * 1024  # the highest marks: memory is seldom given back
# Of files the medians: a disk's or a port's thread may have one more open just then.
_PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


class Look(NamedTuple):
    """One look at the process; ``entries`` are those of all containers together."""

    steps: int
    objects: int  # of Python's allocator
    rss_kib: int
    entries: int
    threads: int
    files: int


_SLACK: dict[str, tuple[Callable[[list[int]], float], int]] = {
    "objects": (median, MORE_OBJECTS),
    "rss_kib": (max, MORE_KIB),
    "threads": (max, 0),
    "files": (median, 0),
}


class Growth:
    """Looks at the process and at ``owners``, the objects whose containers are counted one by one.

    Parameters
    ----------
    owners
        Gives the objects as they are now, of each one's containers those with one name are added up: a controller may
        have been exchanged.
    steps
        Length of the whole run.
    """

    def __init__(self, owners: Callable[[], list[Any]], steps: int) -> None:
        self.looks: list[Look] = []
        self._owners = owners
        self._steps = steps
        self._early, self._late = HighWater(), HighWater()

    def look(self, steps: int) -> None:
        """Take down what is held after so many steps."""
        held = HighWater()
        for owner in self._owners():
            held.look(owner)
            empty_caches(owner)  # how full they happen to be is not what is looked for; their limits are checked above
        gc.collect()
        if steps > WARM * self._steps:
            (self._early if steps <= self._halfway else self._late).join(held)
        self.looks.append(
            Look(
                steps,
                sys.getallocatedblocks(),
                int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_KIB,
                sum(held.sizes.values()),
                threading.active_count(),
                len(os.listdir("/proc/self/fd")),  # noqa: PTH208  # a path would open one more
            )
        )

    def grown(self) -> list[str]:
        """What the second half of the run holds that the first did not; empty where nothing grows."""
        early, late = self._halves()
        found = [
            f"{name}: {before} entries at most in the first half, {now} in the second"
            for name, (before, now) in sorted(self._late.grown(self._early, MORE_ENTRIES).items())
        ]
        for name, (typical, slack) in _SLACK.items():
            before, now = (typical([getattr(look, name) for look in half]) for half in (early, late))
            if now > before + slack:
                found.append(f"{name}: {before:,.0f} in the first half, {now:,.0f} in the second; {slack} are allowed")
        return found

    def lines(self, count: int = 10) -> list[str]:
        """A table: the highest values between evenly spread checkpoints."""
        heads = ("steps", "objects", "RSS KiB", "entries", "threads", "files")
        shown = ["".join(f"{head:>12}" for head in heads)]
        for part in range(count):
            lowest, highest = (self._steps * at // count for at in (part, part + 1))
            looks = [look for look in self.looks if lowest < look.steps <= highest]
            if looks:
                most = [max(values) for values in zip(*looks, strict=True)]
                shown.append("".join(f"{value:>12,}" for value in most))
        return shown

    @property
    def _halfway(self) -> float:
        return self._steps * (1.0 + WARM) / 2.0

    def _halves(self) -> tuple[list[Look], list[Look]]:
        warm = [look for look in self.looks if look.steps > WARM * self._steps]
        return [k for k in warm if k.steps <= self._halfway], [k for k in warm if k.steps > self._halfway]
