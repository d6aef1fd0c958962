"""Requests by the thousand, each with an id of its own, leave nothing of themselves in what steers an engine.

The long form is ``python -m tests.bounded.endurance steering``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.bounded.comings import Comings
from tests.containers import HighWater

BLOCKS, OFF = 8, 3


def look(marks: HighWater, way: Comings) -> None:
    """Of a steering all but its controllers, which are young here and have a test of their own."""
    steering = way.steering
    settled, met = steering.sums.carried._state
    marks.look(steering.collector)
    for name, size in {
        "flight": len(steering._flight._steps),
        "cells": len(steering.sums.cells),
        "decided": len(steering.sums.decided),
        "settled": len(settled),
        "met": len(met),
    }.items():
        marks.sizes[name] = max(marks.sizes.get(name, 0), size)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_requests_that_are_gone_are_forgotten(model: Path, tmp_path: Path, asynchronous: bool) -> None:
    """While 5,000 and more come, end, are aborted and preempted, no container grows; at the end none is named."""
    way: Any = Comings(tmp_path, model, asynchronous=asynchronous, seed=0)
    early, late = HighWater(), HighWater()
    for block in range(BLOCKS):
        way.steering.mode = "off" if block == OFF else "on"  # requests that end meanwhile are not seen to
        way.run()
        if block >= 2:
            look(early if block <= BLOCKS // 2 else late, way)
    assert way.steering.active, way.steering.reason
    assert way.requests > 5_000  # how many depends on K, and that on the clock
    assert way.preempted > 20
    assert late.grown(early, slack=40) == {}
    way.drain()
    collector = way.steering.collector
    assert (collector._numbers, collector._prefilling, collector._dummies, collector._foreign) == (
        {},
        set(),
        set(),
        set(),
    )
    assert not way.steering._flight
    way.end()
    assert way.steering.writer is None
