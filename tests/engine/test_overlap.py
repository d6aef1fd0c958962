"""Learning is put off until the next step's model runs, in engines that leave time for it; nothing is lost by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from adaptk.trace import TraceWriter, read_trace
from adaptk.vllm_plugin import adaptive
from tests.engine.conftest import Lines
from tests.engine.driver import Policy, Worker, build_config, build_scheduler, cycling, make_request


def build(model: Path, policy: Policy, *, asynchronous: bool = False) -> tuple[Any, Worker]:
    """A scheduler with two requests, and its worker."""
    config = build_config(model, asynchronous=asynchronous)
    base = AsyncScheduler if asynchronous else Scheduler
    scheduler = build_scheduler(adaptive(base, controller=policy), config, v2=False if asynchronous else None)
    for name in "ab":
        scheduler.add_request(make_request(name, 5, 40))
    return scheduler, Worker(scheduler, 0, asynchronous=asynchronous)


def begin(scheduler: Any, worker: Worker) -> None:
    """Schedule a step, start it, and ask for its grammars, as vLLM's loop does."""
    output = worker.schedule()
    if output.total_num_scheduled_tokens:
        assert scheduler.get_grammar_bitmask(output) is None


def test_a_step_is_learnt_from_while_the_next_one_runs(model: Path) -> None:
    """Not within the update, where the engine would wait for it, but at the next request for grammars."""
    policy = cycling((0, 1, 3, 7))
    scheduler, worker = build(model, policy)
    for done in range(4):
        begin(scheduler, worker)
        assert len(policy.records) == done
        worker.update()
        assert len(policy.records) == done
    assert [record.k for record in policy.records] == policy.chosen[:3]


@pytest.mark.parametrize(("asynchronous", "depth"), [(False, 1), (True, 2), (True, 3)])
def test_every_step_is_learnt_from_once_and_in_order(model: Path, asynchronous: bool, depth: int) -> None:
    """The last ones too, after which no step follows."""
    policy = cycling((0, 1, 3, 7))
    scheduler, worker = build(model, policy, asynchronous=asynchronous)
    while scheduler.requests or worker.in_flight:
        if scheduler.requests:
            begin(scheduler, worker)
        if len(worker.in_flight) >= depth or not scheduler.requests:
            worker.update()
    assert [record.k for record in policy.records] == policy.chosen
    assert sum(sum(record.emitted) for record in policy.records) == 80
    assert scheduler.adaptk.faults == 0


def test_an_engine_that_never_asks_is_learnt_from_at_once(model: Path) -> None:
    """Whoever drives a scheduler by hand finds the record after the update."""
    policy = cycling((1,))
    _, worker = build(model, policy)
    for done in range(1, 4):
        worker.schedule()
        worker.update()
        assert len(policy.records) == done


def test_an_engine_that_stops_asking_loses_nothing(model: Path) -> None:
    """The step that was put off comes before the one that is not."""
    policy = cycling((0, 1, 3))
    scheduler, worker = build(model, policy)
    begin(scheduler, worker)
    worker.update()
    worker.schedule()
    worker.update()
    assert [record.k for record in policy.records] == policy.chosen[:2]


def test_a_lost_step_does_not_overtake_one_that_was_put_off(model: Path, tmp_path: Path) -> None:
    """The n-th record belongs to the n-th choice, to the controller as in the trace."""
    policy = cycling((0, 1, 2, 3))
    scheduler, worker = build(model, policy, asynchronous=True)
    scheduler.adaptk.writer = TraceWriter(tmp_path / "trace")
    for _ in range(3):
        begin(scheduler, worker)
    worker.update()
    worker.in_flight.popleft()
    worker.update()
    scheduler.shutdown()
    assert [record.k for record in policy.records] == policy.chosen == [0, 1, 2]
    assert [row.step.k for row in read_trace(tmp_path / "trace").rows] == policy.chosen


@pytest.mark.parametrize("how", ["weights", "close"])
def test_what_was_put_off_comes_before_a_change(model: Path, how: str) -> None:
    """A step under former weights comes before the controller hears of new ones, and the last step before the end."""
    told: list[int] = []
    policy = cycling((1,))
    scheduler, worker = build(model, policy)
    policy.note_weights_changed = lambda: told.append(len(policy.records))  # type: ignore[attr-defined]
    begin(scheduler, worker)
    worker.update()
    assert policy.records == []
    if how == "weights":
        scheduler.adaptk.note_weights_changed()
        assert told == [1]
    else:
        scheduler.shutdown()
    assert len(policy.records) == 1


def test_a_fault_while_the_model_runs_is_one_fault(model: Path, log: Lines) -> None:
    """The engine gets its grammars, vLLM's K from then on, and every token; nothing is learnt a second time."""

    def fail(_: Any) -> None:
        raise RuntimeError("injected")

    policy = cycling((1,))
    policy.observe = fail  # type: ignore[method-assign]
    scheduler, worker = build(model, policy)
    while scheduler.requests:
        begin(scheduler, worker)
        worker.update()
    scheduler.shutdown()
    assert scheduler.adaptk.faults == 1
    assert len(log.having("stands down after a fault while learning from the step")) == 1
    assert worker.delivered == 80
