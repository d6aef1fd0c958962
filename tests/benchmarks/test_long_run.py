"""A million steps: the controller holds at the end what it held after the first tenth. Run by ``make bench``."""

from __future__ import annotations

import resource
import time

import pytest

from adaptk import Controller
from tests.containers import HighWater
from tests.publicengine import PUBLIC
from tests.restless import Restless

pytestmark = pytest.mark.benchmark

STEPS = 1_000_000


def test_a_million_steps_leave_nothing_behind(capsys: pytest.CaptureFixture[str]) -> None:
    """Restless load: no container is larger than in the first 100,000 steps, caches apart, the process by 8 MiB."""
    engine = Restless(Controller(PUBLIC, seed=0))
    early, late = HighWater(), HighWater()
    held, started = 0, time.perf_counter()
    for tenth in range(10):
        for _ in range(50):
            engine.run(STEPS // 500)
            (late if tenth else early).look(engine.controller)
        held = held or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = (time.perf_counter() - started) / STEPS * 1e6
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held
    with capsys.disabled():
        print(f"\n{STEPS} steps, {took:.0f} us each, the engine's part included; {more} KiB more at the end", end="")
    assert late.grown(early, slack=64) == {}
    assert more <= 8 * 1024
