"""Time that the engine spent on something else is no step's: idling, sleeping, pausing, calls between steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine.core import EngineCore

from adaptk.vllm_plugin import adaptive, weights
from tests.engine.clockwork import Loop
from tests.engine.driver import Policy, Worker, build_config, build_scheduler, make_request

STEP_MS = 12.0
DEPTHS = [1, 2, 3]


@pytest.fixture(scope="module")
def configs(model: Path) -> dict[bool, Any]:
    return {asynchronous: build_config(model, k_max=3, asynchronous=asynchronous) for asynchronous in (False, True)}


class Served:
    """Two requests in an engine with ``depth`` steps in flight."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, configs: dict[bool, Any], depth: int) -> None:
        self.policy = Policy(lambda _: 1)
        base = AsyncScheduler if depth > 1 else Scheduler
        self.scheduler = build_scheduler(adaptive(base, controller=self.policy), configs[depth > 1], v2=False)
        self.loop = Loop(monkeypatch, Worker(self.scheduler, 1, asynchronous=depth > 1), depth)
        self.engine = object.__new__(EngineCore)
        self.engine.scheduler = self.scheduler
        for name in "ab":
            self.scheduler.add_request(make_request(name, 5, 200))

    def turns(self, n: int) -> None:
        for _ in range(n):
            self.loop.turn()

    def times(self, skip: int = 0) -> list[float | None]:
        return [record.elapsed_ms for record in self.policy.records[skip:]]


def sound(times: list[float | None]) -> bool:
    """Whether all times are a step's, give or take what the host adds, or unknown; most are known."""
    known = [time for time in times if time is not None]
    return len(known) > len(times) / 2 and all(0.95 * STEP_MS < time < 1.1 * STEP_MS for time in known)


@pytest.fixture(params=DEPTHS)
def served(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, configs: dict[bool, Any]) -> Served:
    return Served(monkeypatch, configs, request.param)


def test_the_made_up_engine_is_timed_right(served: Served) -> None:
    """Each step takes what the device takes; the test's own instrument."""
    served.turns(12)
    served.loop.drain()
    assert None not in served.times()
    assert sound(served.times())


@pytest.mark.parametrize("seconds", [0.0004, 0.006, 30.0])
def test_idle_time_is_no_steps(served: Served, seconds: float) -> None:
    """With nothing in flight, from what is hardly longer than the loop itself takes to half a minute."""
    served.turns(6)
    served.loop.drain()
    served.loop.wait(seconds)
    served.turns(6)
    served.loop.drain()
    assert sound(served.times())


@pytest.mark.parametrize("seconds", [0.03, 2.0])
def test_a_call_between_steps_is_no_steps(served: Served, seconds: float) -> None:
    """A collective_rpc while steps are in flight: these have no time, and the first ones after it a step's own."""
    weights.watch()
    try:

        class Executor:
            def collective_rpc(self, *_: Any) -> None:
                served.loop.wait(seconds)

        served.engine.model_executor = Executor()
        for _ in range(3):
            served.turns(8)
            served.engine.collective_rpc("execute_something")
        served.turns(8)
        served.loop.drain()
    finally:
        weights.unwatch()
    assert sound(served.times())


def test_a_stall_of_the_loop_is_no_steps(served: Served) -> None:
    """Something between two steps of which nobody tells."""
    served.turns(8)
    served.loop.wait(0.2)
    served.turns(8)
    served.loop.drain()
    assert sound(served.times())


def test_a_stall_before_an_empty_step_is_no_steps(served: Served) -> None:
    """The engine comes back to schedule, has nothing to, and takes the steps in flight back."""
    served.turns(8)
    served.loop.wait(0.2)
    served.scheduler.set_pause_state(PauseState.PAUSED_ALL)
    served.turns(served.loop.depth)
    served.scheduler.set_pause_state(PauseState.UNPAUSED)
    served.turns(8)
    served.loop.drain()
    assert sound(served.times())


def test_a_slow_host_does_not_hide_the_steps(served: Served) -> None:
    """A loop with 8 ms of its own in each turn is still timed: what is in flight lasts longer than that."""
    for _ in range(20):
        served.loop.turn()
        served.loop.wait(0.008)
    served.loop.drain()
    times = served.times(2)
    assert None not in times
    assert all(STEP_MS * 0.95 < time < STEP_MS + 9.0 for time in times)


@pytest.mark.parametrize("state", [PauseState.PAUSED_ALL, PauseState.PAUSED_NEW])
def test_a_pause_is_no_steps(served: Served, state: PauseState) -> None:
    """Requests stay in flight; steps without tokens in the meantime count for nothing."""
    served.turns(6)
    served.scheduler.set_pause_state(state)
    if state == PauseState.PAUSED_ALL:
        for _ in range(4):
            served.loop.drain()
            served.loop.schedule()
            served.loop.update()
            served.loop.wait(0.001)
    served.loop.drain()
    served.loop.wait(5.0)
    served.scheduler.set_pause_state(PauseState.UNPAUSED)
    before = len(served.policy.records)
    served.turns(6)
    served.loop.drain()
    assert sound(served.times())
    assert len(served.policy.records) >= before + 6
    assert len(served.policy.chosen) == len(served.policy.records)


def test_steps_without_tokens_between_others(served: Served) -> None:
    """All requests wait for something else for a while: an engine that spins idles."""
    served.turns(4)
    served.loop.drain()
    served.scheduler.set_pause_state(PauseState.PAUSED_ALL)
    for _ in range(50):
        served.loop.schedule()
        served.loop.update()
        served.loop.wait(0.001)
    served.scheduler.set_pause_state(PauseState.UNPAUSED)
    served.turns(4)
    served.loop.drain()
    assert sound(served.times())


@pytest.fixture(autouse=True)
def _unwatched() -> Iterator[None]:
    yield
    weights.unwatch()
