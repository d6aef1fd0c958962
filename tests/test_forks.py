"""What a process has open stays its own when it forks."""

from __future__ import annotations

import gc
import os

from adaptk import forks


class Thing:
    """Notes in which process it was abandoned."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.abandoned_by = 0

    def abandon(self) -> None:
        self.abandoned_by = os.getpid()
        if self.fails:
            raise RuntimeError("no good")


class Other(Thing):
    """Of another kind."""


def test_a_child_abandons_all_that_is_open_and_the_parent_nothing() -> None:
    """Of every kind, also behind one that fails; what was closed or dropped before is left alone."""
    things, others = forks.open_here(Thing), forks.open_here(Other)
    try:
        kept = [Thing(fails=number % 2 == 0) for number in range(6)]
        closed, dropped, other = Thing(), Thing(), Other()
        for thing in (*kept, closed, dropped):
            things.add(thing)
        others.add(other)
        things.discard(closed)
        del dropped, thing
        gc.collect()
        assert len(things) == len(kept)
        child = os.fork()
        if child == 0:
            left = all(each.abandoned_by == os.getpid() for each in (*kept, other))
            os._exit(left and not closed.abandoned_by and not things and not others)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        assert [each.abandoned_by for each in (*kept, other)] == [0] * 7
        assert (len(things), len(others)) == (6, 1)
    finally:
        forks._kinds[:] = [kind for kind in forks._kinds if kind is not things and kind is not others]
