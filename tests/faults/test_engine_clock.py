"""The clock that steps are timed with goes wrong under vLLM's own schedulers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from adaptk import Controller, StepRecord
from adaptk.evidence import step_time
from adaptk.vllm_plugin import adaptive
from tests.engine.clockwork import Loop
from tests.engine.driver import Worker, build_config, build_scheduler, make_request

STEPS, REQUESTS, K_MAX = 400, 8, 3
HOUR_S = 3600.0


class Watched(Controller):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__(None, arms=(0, 1, 3), seed=0)
        self.records: list[StepRecord] = []

    def observe(self, record: StepRecord) -> Any:
        self.records.append(record)
        return super().observe(record)


class Served:
    """An engine in made-up time, in which a step with K drafts takes 10 + K ms."""

    def __init__(self, model: Path, monkeypatch: pytest.MonkeyPatch, asynchronous: bool) -> None:
        self.controller, self.turn = Watched(), 0
        config = build_config(model, k_max=K_MAX, asynchronous=asynchronous)
        cls = adaptive(AsyncScheduler if asynchronous else Scheduler, controller=self.controller)
        self.scheduler = build_scheduler(cls, config, num_blocks=2000, v2=False)
        worker = Worker(self.scheduler, 1, asynchronous=asynchronous, accept=0.8)
        self.loop = Loop(
            monkeypatch, worker, 2 if asynchronous else 1, lambda output, _: 0.010 + 0.001 * self.width(output)
        )

    def width(self, output: Any) -> int:
        return max(map(len, output.scheduled_spec_decode_tokens.values()), default=0)

    def serve(self, wrong: Callable[[int], None]) -> None:
        """``wrong`` is told of each step, between its schedule and its update."""
        taken = self.loop.update

        def update() -> None:
            wrong(self.turn)
            taken()

        self.loop.update = update  # type: ignore[method-assign]
        added = 0
        for self.turn in range(STEPS):
            while len(self.scheduler.requests) < REQUESTS:
                self.scheduler.add_request(make_request(str(added), 5, 60))
                added += 1
            self.loop.turn()
        self.loop.drain()
        steering = self.scheduler.adaptk
        assert (steering.faults, steering.unmatched) == (0, 0)
        assert len(self.controller.records) > 0.9 * STEPS  # an asynchronous engine has empty ones

    def believed(self) -> list[float]:
        """Times that the controller took for such, milliseconds."""
        times = [step_time(record)[0] for record in self.controller.records if not record.prefill_tokens]
        return [time for time in times if time is not None]


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def served(request: pytest.FixtureRequest, model: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    return Served(model, monkeypatch, request.param)


def late_ks(served: Served) -> list[int]:
    return [record.k for record in served.controller.records[-100:]]


def test_it_steps_backwards(served: Served) -> None:
    """By ten seconds, every 40 steps: such steps have no time, are counted, and no other time is a wrong one."""

    jumps: list[int] = []

    def back(step: int) -> None:
        if step % 40 == 39:
            jumps.append(step)
            served.loop.clock.now -= 10.0
            served.loop._ready = [ready - 10.0 for ready in served.loop._ready]
            served.loop._free -= 10.0

    served.serve(back)
    assert served.controller.counters["times_refused"] == len(jumps) >= STEPS // 40
    assert 9.0 < min(served.believed()) <= max(served.believed()) < 16.0
    assert served.controller.counters["time_alarms"] == 0


def test_it_stands_still(served: Served) -> None:
    """Of steps that took no time nothing is believed; each is counted, and the engine is served."""
    served.loop.clock.perf_counter = lambda: 100.0  # type: ignore[method-assign]
    served.serve(lambda _: None)
    assert served.believed() == []
    assert served.controller.counters["times_refused"] > STEPS / 2
    assert set(late_ks(served)) == {0}  # without a table nothing says that a draft would pay


@pytest.mark.parametrize("between", [True, False], ids=["between two steps", "while a model runs"])
def test_the_machine_sleeps_for_an_hour(served: Served, between: bool) -> None:
    """At most the one step that ran has a long time, no visit and no plan goes wrong over it, nothing is lost."""

    def sleep(step: int) -> None:
        if step == STEPS // 2 and not between:
            served.loop.clock.now += HOUR_S

    if between:
        schedule = served.loop.schedule
        steps = iter(range(10 * STEPS))

        def asleep() -> Any:
            if next(steps) == STEPS // 2:
                served.loop.clock.now += HOUR_S
            return schedule()

        served.loop.schedule = asleep  # type: ignore[method-assign]
    served.serve(sleep)
    long = [time for time in served.believed() if time > 16.0]
    assert len(long) <= (0 if between else 1)
    assert served.controller.counters["time_alarms"] == 0
    assert served.controller.ledger["allowed_ms"] < 0.01 * 20.0 * STEPS  # an hour of sleep pays for no visit
    assert max(set(late_ks(served)), key=late_ks(served).count) == 3  # the best of these arms
