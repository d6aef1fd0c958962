"""How many steps per second the simulator does, printed beside the targets at batch 32; no assertion on them.

CPU time of this process, not wall time: other work on the machine counts little, though shared caches and cores that
are two threads of one still show. Compiled code is loaded and warm before the first measured run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest

from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.policies.adaptive import Adaptive
from adaptk.replay.policies.base import Policy, Setup
from adaptk.replay.policies.static import StaticTable
from adaptk.replay.presets import preset
from adaptk.replay.scenarios import script
from adaptk.replay.simulator import World, simulate

pytestmark = pytest.mark.benchmark

BATCHES = (1, 32, 256)
STEPS, RUNS = 4_000, 7
ARMS = (0, 1, 3, 5)
TARGETS = {"static": 50_000, "adaptk": 20_000}
POLICIES: dict[str, Callable[[Setup], Policy]] = {"static": StaticTable, "adaptk": Adaptive}
ENGINE = preset("p32374")
SETUP = Setup(ENGINE.surface.to_table(ARMS, ENGINE.acceptance), ENGINE.surface.to_table(ARMS, ENGINE.acceptance), ARMS)


def world(batch: int) -> World:
    return World(ENGINE.surface, Drafter(profiles(ENGINE.acceptance, k_max=5)), script(STEPS, batch), STEPS)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("policy", POLICIES)
def test_steps_per_second(policy: str, batch: int, capsys: pytest.CaptureFixture[str]) -> None:
    at, make = world(batch), POLICIES[policy]
    simulate(at, make(SETUP))
    rates = []
    for _ in range(RUNS):
        start = time.process_time()
        run = simulate(at, make(SETUP))
        rates.append(STEPS / (time.process_time() - start))
        assert len(run.k) == STEPS
    aim = f", target {TARGETS[policy]:,}" if batch == 32 else ""
    with capsys.disabled():
        best, median = max(rates), statistics.median(rates)
        print(f"\n{policy}, batch {batch}: best {best:,.0f}, median {median:,.0f} steps per CPU second{aim}")


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_thousand_steps(benchmark: Any, policy: str, batch: int) -> None:
    """The same by wall time, for comparison over versions."""
    at = World(**{**vars(world(batch)), "steps": 1_000})
    benchmark(lambda: simulate(at, POLICIES[policy](SETUP)))
