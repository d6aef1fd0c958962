"""A fault of ours costs the engine nothing; a fault of vLLM's is none of our business."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from adaptk import Settings
from adaptk.vllm_plugin import adaptive, capture
from adaptk.vllm_plugin.log import logger
from adaptk.vllm_plugin.steering import Steering
from tests.engine.conftest import Lines
from tests.engine.driver import Policy, Worker, build_config, build_scheduler, cycling, make_request
from tests.engine.injection import InjectedError


def fail(*_: Any, **__: Any) -> Any:
    raise InjectedError("injected")


def break_controller_choose(scheduler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler.adaptk.controller, "choose", fail)


def break_controller_observe(scheduler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler.adaptk.controller, "observe", fail)


def break_answer(scheduler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler.adaptk.controller, "choose", lambda *_: None)


def break_reading(scheduler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler.adaptk.collector, "schedule", fail)


def break_counting(scheduler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler.adaptk.collector, "count", fail)


def break_record(scheduler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler.adaptk.collector, "record", fail)


BREAKS = [
    break_controller_choose,
    break_controller_observe,
    break_answer,
    break_reading,
    break_counting,
    break_record,
]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("break_it", BREAKS)
@pytest.mark.parametrize("schedule", [None, "operator", "capture"])
def test_a_fault_gives_vllms_k_for_good(
    model: Path, monkeypatch: pytest.MonkeyPatch, log: Lines, asynchronous: bool, break_it: Any, schedule: str | None
) -> None:
    """From the faulty step on vLLM's own K is used, every token still arrives, and one log line says so."""
    ranges = [[1, 1, 5], [2, 16, 2]] if schedule == "operator" else None
    config = build_config(model, schedule=ranges, asynchronous=asynchronous)
    if schedule == "capture":
        config.speculative_config.num_speculative_tokens_per_batch_size = capture.capture_schedule((0, 1, 3, 7), 16)
    base = AsyncScheduler if asynchronous else Scheduler
    cls = adaptive(base, controller=cycling((1,)))
    scheduler = build_scheduler(cls, config, v2=False if asynchronous else None)
    worker = Worker(scheduler, 0, asynchronous=asynchronous)
    scheduler.add_request(make_request("a", 5, 60))
    for _ in range(3):
        assert worker.schedule().num_spec_tokens_to_schedule == 1
        worker.update()
    break_it(scheduler, monkeypatch)
    expected = 5 if schedule == "operator" else 7
    worker.schedule()
    worker.update()
    while scheduler.requests:
        output = worker.schedule()
        assert output.num_spec_tokens_to_schedule == expected
        worker.update()
    assert worker.delivered == 60
    assert scheduler.adaptk.faults == 1
    assert not scheduler.adaptk.active
    assert len(log.having("stands down")) == 1


def test_the_faulty_step_itself_gets_vllms_k(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice that fails leaves the field of that very step as vLLM filled it."""
    scheduler = build_scheduler(adaptive(Scheduler, controller=cycling((1,))), build_config(model))
    break_controller_choose(scheduler, monkeypatch)
    scheduler.add_request(make_request("a", 5, 60))
    assert Worker(scheduler, 0, asynchronous=False).schedule().num_spec_tokens_to_schedule == 7


@pytest.mark.parametrize("answer", [np.int64(3), np.uint8(3), True])
def test_whole_numbers_of_any_kind_become_pythons(model: Path, answer: Any) -> None:
    """vLLM sends K to other processes: nothing but a plain int reaches it."""
    scheduler = build_scheduler(adaptive(Scheduler, controller=Policy(lambda _: answer)), build_config(model))
    scheduler.add_request(make_request("a", 5, 60))
    k = Worker(scheduler, 0, asynchronous=False).schedule().num_spec_tokens_to_schedule
    assert (k, type(k)) == (int(answer), int)


@pytest.mark.parametrize("answer", [3.0, 3.7, float("nan"), None, "3"])
def test_no_whole_number_is_a_fault(model: Path, answer: Any) -> None:
    """Nothing is rounded or guessed."""
    scheduler = build_scheduler(adaptive(Scheduler, controller=Policy(lambda _: answer)), build_config(model))
    scheduler.add_request(make_request("a", 5, 60))
    assert Worker(scheduler, 0, asynchronous=False).schedule().num_spec_tokens_to_schedule == 7
    assert "choosing K" in scheduler.adaptk.reason


class UnshowableError(Exception):
    def __repr__(self) -> str:
        raise InjectedError


@pytest.mark.parametrize("broken", ["error", "log"])
def test_a_fault_that_cannot_be_told_is_a_fault_all_the_same(
    model: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """Neither an error without a text nor a log that fails reaches the engine."""

    def raising(*_: Any, **__: Any) -> Any:
        raise UnshowableError if broken == "error" else InjectedError

    class Writer:
        close = staticmethod(fail)

    scheduler = build_scheduler(adaptive(Scheduler, controller=cycling((1,))), build_config(model))
    monkeypatch.setattr(scheduler.adaptk.controller, "choose", raising)
    if broken == "log":
        for name in ("error", "exception"):
            monkeypatch.setattr(logger, name, fail)
    scheduler.adaptk.writer = Writer()
    scheduler.add_request(make_request("a", 5, 60))
    assert Worker(scheduler, 0, asynchronous=False).schedule().num_spec_tokens_to_schedule == 7
    assert not scheduler.adaptk.active
    assert "choosing K" in scheduler.adaptk.reason


@pytest.mark.parametrize("method", ["_update_after_schedule", "update_from_output"])
def test_the_engines_own_exceptions_pass_and_are_no_fault_of_ours(model: Path, method: str) -> None:
    """vLLM's method is called once, and its exception arrives as it was."""
    calls: list[str] = []

    class Broken(Scheduler):
        def _update_after_schedule(self, scheduler_output: Any) -> None:
            super()._update_after_schedule(scheduler_output)
            self.fail_in("_update_after_schedule")

        def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
            self.fail_in("update_from_output")
            return super().update_from_output(scheduler_output, model_runner_output)

        def fail_in(self, name: str) -> None:
            if name == method:
                calls.append(name)
                raise InjectedError(name)

    scheduler = build_scheduler(adaptive(Broken, controller=cycling((1,))), build_config(model))
    worker = Worker(scheduler, 0, asynchronous=False)
    scheduler.add_request(make_request("a", 5, 60))

    def step() -> None:
        worker.schedule()
        worker.update()

    with pytest.raises(InjectedError, match=method):
        step()
    assert calls == [method]
    assert scheduler.adaptk.faults == 0


def test_the_base_is_called_once_where_adaptk_fails(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of ours neither skips nor repeats vLLM's own work."""
    calls: list[str] = []

    class Counting(Scheduler):
        def _update_after_schedule(self, scheduler_output: Any) -> None:
            calls.append("schedule")
            super()._update_after_schedule(scheduler_output)

        def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
            calls.append("update")
            return super().update_from_output(scheduler_output, model_runner_output)

    scheduler = build_scheduler(adaptive(Counting, controller=cycling((1,))), build_config(model))
    break_reading(scheduler, monkeypatch)
    worker = Worker(scheduler, 0, asynchronous=False)
    scheduler.add_request(make_request("a", 5, 60))
    worker.schedule()
    worker.update()
    assert calls == ["schedule", "update"]
    assert scheduler.adaptk.faults == 1


def test_a_trace_that_cannot_be_closed_is_only_logged(model: Path, log: Lines) -> None:
    """The engine's shutdown goes through."""

    class Writer:
        close = staticmethod(fail)

    scheduler = build_scheduler(adaptive(Scheduler, controller=cycling((1,))), build_config(model))
    scheduler.adaptk.writer = Writer()
    scheduler.shutdown()
    assert log.having("could not end what it had begun")


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("where", ["choose", "observe"])
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_process_passes(model: Path, where: str, interrupt: Any, asynchronous: bool) -> None:
    """An interrupt that happens to arrive in a step of adaptk's is the engine's, and no fault."""
    base = AsyncScheduler if asynchronous else Scheduler
    cls = adaptive(base, controller=cycling((1,)))
    scheduler = build_scheduler(cls, build_config(model, asynchronous=asynchronous), v2=False if asynchronous else None)
    worker = Worker(scheduler, 0, asynchronous=asynchronous)
    scheduler.add_request(make_request("a", 5, 60))

    def interrupted(*_: Any, **__: Any) -> Any:
        raise interrupt

    setattr(scheduler.adaptk.controller, where, interrupted)

    def step() -> None:
        worker.schedule()
        worker.update()

    with pytest.raises(interrupt):
        step()
    assert scheduler.adaptk.faults == 0
    assert scheduler.adaptk.active


@pytest.mark.parametrize("error", [MemoryError, RecursionError, StopIteration, AssertionError])
def test_any_exception_is_a_fault(model: Path, monkeypatch: pytest.MonkeyPatch, error: Any, log: Lines) -> None:
    """Also one that is seldom caught: vLLM goes on with its own K."""

    def raising(*_: Any, **__: Any) -> Any:
        raise error

    scheduler = build_scheduler(adaptive(Scheduler, controller=cycling((1,))), build_config(model))
    monkeypatch.setattr(scheduler.adaptk.controller, "choose", raising)
    scheduler.add_request(make_request("a", 5, 60))
    assert Worker(scheduler, 0, asynchronous=False).schedule().num_spec_tokens_to_schedule == 7
    assert scheduler.adaptk.faults == 1
    assert error.__name__ in scheduler.adaptk.reason
    assert len(log.having("stands down")) == 1


class Unlucky(logging.Handler):
    """A handler that fails."""

    def emit(self, record: logging.LogRecord) -> None:
        raise InjectedError

    def handle(self, record: logging.LogRecord) -> bool:
        raise InjectedError


def test_a_log_handler_that_fails_costs_nothing(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, at a fault and at the end."""
    handler = Unlucky()
    logger.addHandler(handler)
    try:
        scheduler = build_scheduler(adaptive(Scheduler, settings=Settings(mode="on")), build_config(model))
        scheduler.add_request(make_request("a", 5, 60))
        worker = Worker(scheduler, 0, asynchronous=False)
        serve(scheduler, worker)
        scheduler.shutdown()
    finally:
        logger.removeHandler(handler)
    assert worker.delivered == 60


@pytest.mark.parametrize("part", ["control", "writer"])
def test_what_cannot_be_ended_does_not_keep_the_rest_open(model: Path, part: str) -> None:
    """Control and trace are both ended at shutdown, though one of them fails."""
    ended: list[str] = []

    class Part:
        def __init__(self, name: str) -> None:
            self.name = name

        def close(self) -> None:
            ended.append(self.name)
            if self.name == part:
                raise InjectedError

        stop = close

    scheduler = build_scheduler(adaptive(Scheduler, controller=cycling((1,))), build_config(model))
    scheduler.adaptk.control, scheduler.adaptk.writer = Part("control"), Part("writer")
    scheduler.shutdown()
    assert sorted(ended) == ["control", "writer"]


@pytest.mark.parametrize("late", [False, True])
def test_a_steering_that_cannot_even_be_reached(
    model: Path, monkeypatch: pytest.MonkeyPatch, log: Lines, late: bool
) -> None:
    """An attribute that fails at every access is one fault, told once."""
    cls = adaptive(Scheduler, controller=cycling((1,)))
    if not late:
        monkeypatch.setattr(cls, "adaptk", property(fail), raising=False)
    scheduler = build_scheduler(cls, build_config(model))
    if late:
        monkeypatch.setattr(cls, "adaptk", property(fail), raising=False)
    scheduler.add_request(make_request("a", 5, 60))
    worker = Worker(scheduler, 0, asynchronous=False)
    ks = serve(scheduler, worker)
    assert worker.delivered == 60
    assert set(ks) == {7}
    assert scheduler.__dict__["adaptk"].faults == 1
    assert len(log.having("stands down")) == 1


def test_a_steering_that_cannot_be_made_is_an_inactive_one(
    model: Path, monkeypatch: pytest.MonkeyPatch, log: Lines
) -> None:
    """All that is asked of ``scheduler.adaptk`` can be asked of it."""
    monkeypatch.setattr(Steering, "__init__", fail)
    config = build_config(model)
    config.speculative_config.num_speculative_tokens_per_batch_size = capture.capture_schedule((0, 1, 3, 7), 16)
    scheduler = build_scheduler(adaptive(Scheduler, controller=cycling((1,))), config)
    steering = scheduler.adaptk
    assert (steering.active, steering.mode, steering.faults) == (False, "off", 1)
    assert (steering.controller, steering.collector, steering.writer) == (None, None, None)
    assert (steering.clamped, steering.unmatched) == (0, 0)
    assert "starting" in steering.reason
    scheduler.add_request(make_request("a", 5, 60))
    assert set(serve(scheduler, Worker(scheduler, 0, asynchronous=False))) == {7}
    assert len(log.having("stands down")) == 1


def test_a_fault_before_the_lookup_was_given_back_gives_it_back(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adaptk's own schedule, meant for capture only, never steers, wherever the start failed."""
    monkeypatch.setattr("adaptk.vllm_plugin.scheduler.start", fail)
    config = build_config(model)
    config.speculative_config.num_speculative_tokens_per_batch_size = capture.capture_schedule((0, 1, 3, 7), 16)
    scheduler = build_scheduler(adaptive(Scheduler, controller=cycling((1,))), config)
    for name in "abcde":
        scheduler.add_request(make_request(name, 5, 60))
    assert set(serve(scheduler, Worker(scheduler, 0, asynchronous=False))) == {7}


def test_a_fault_is_one_engines_own(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two engines in one process, made of the same class, the other goes on being steered."""
    cls = adaptive(Scheduler, settings=Settings(mode="on"))
    first, second = (build_scheduler(cls, build_config(model)) for _ in range(2))
    assert type(first) is type(second)
    monkeypatch.setattr(first.adaptk.controller, "choose", fail)
    for scheduler in (first, second):
        scheduler.add_request(make_request("a", 5, 60))
        worker = Worker(scheduler, 0, asynchronous=False)
        serve(scheduler, worker)
        assert worker.delivered == 60
    assert (first.adaptk.active, second.adaptk.active) == (False, True)
    assert second.adaptk.controller.counters["steps"] > 0


def serve(scheduler: Any, worker: Worker) -> list[int]:
    """Run until all requests are answered; the K of every step."""
    ks = []
    while scheduler.requests:
        ks.append(worker.schedule().num_spec_tokens_to_schedule)
        worker.update()
    return ks
