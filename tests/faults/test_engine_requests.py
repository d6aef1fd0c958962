"""Requests that come and go in thousands, and calls of vLLM's that fail or go astray: no request is lost for adaptk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from adaptk.vllm_plugin import adaptive
from tests.containers import container_sizes
from tests.engine.conftest import Lines
from tests.engine.driver import build_config, build_scheduler, cycling, runner_output
from tests.engine.injection import InjectedError
from tests.faults.driven import K_MAX, Engine

BOTH = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
ARMS = (0, 1, 3, 7)


def tallied(engine: Engine) -> None:
    """Each K that was chosen came back with its own record, of a step as it was played."""
    policy = engine.steering.controller
    assert [record.k for record in policy.records] == policy.chosen
    assert [record.batch_size for record in policy.records] == [asked[0] for asked in policy.asked]


@BOTH
def test_ten_thousand_requests_are_aborted(model: Path, asynchronous: bool) -> None:
    """While they wait, between two steps and in mid-step: what stays gets its text, and nothing of the others is kept.

    Every step has its record, and outputs of requests that are gone are counted.
    """
    engine = Engine(model, controller=cycling(ARMS), asynchronous=asynchronous, seqs=128)
    engine.steering.collector.numbered = True  # as for a trace
    ahead = engine.depth - 1
    for _ in range(100):
        names = engine.add(100)
        staying, waiting, between, within = names[:1], names[1:20], names[20:60], names[60:]
        engine.abort(waiting)
        engine.turn()
        engine.abort(between)
        engine.schedule()
        engine.abort(within)
        while len(engine.worker.in_flight) > ahead:
            engine.update()
        assert staying[0] in engine.scheduler.requests
    engine.serve()
    engine.check()
    assert len(engine.tokens) == 10_000
    assert len(engine.gone) == 9_900
    assert engine.steering.faults == engine.steering.unmatched == 0
    assert engine.steering.collector.ignored > 1000
    tallied(engine)
    held = container_sizes(engine.steering.collector)
    assert sum(held.values()) < 300, held


class Failing(Scheduler):
    """Fails where it is told to, once."""

    fails: str = ""

    def _fail_in(self, place: str) -> None:
        if self.fails == place:
            self.fails = ""
            raise InjectedError(place)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        self._fail_in("before scheduling")
        output = super().schedule(*args, **kwargs)
        self._fail_in("after scheduling")
        return output

    def _update_after_schedule(self, scheduler_output: Any) -> None:
        self._fail_in("before the step is counted")
        super()._update_after_schedule(scheduler_output)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        self._fail_in("before the output is taken in")
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        self._fail_in("after the output was taken in")
        return outputs


@pytest.mark.parametrize(
    ("place", "lost"),
    [
        ("before scheduling", 0),
        ("before the step is counted", 1),
        ("after scheduling", 1),
        ("before the output is taken in", 1),
        ("after the output was taken in", 1),
    ],
)
def test_vllm_itself_fails_in_a_step(model: Path, log: Lines, place: str, lost: int) -> None:
    """Its exception passes as it was; where its caller goes on, adaptk does, and each record stays its step's."""
    scheduler = build_scheduler(adaptive(Failing, controller=cycling(ARMS)), build_config(model, k_max=K_MAX))
    engine = Engine(model, scheduler)
    engine.add(4)
    engine.serve(10)
    scheduler.fails = place
    with pytest.raises(InjectedError, match=place):
        engine.turn()
    engine.worker.in_flight.clear()
    engine.abort(list(scheduler.requests))  # as far as vLLM is concerned, their step still runs
    engine.add(4)
    engine.serve()
    engine.check()
    assert scheduler.adaptk.active
    assert scheduler.adaptk.faults == 0
    assert scheduler.adaptk.lost == lost
    assert len(log.having("never came")) + len(log.having("vLLM failed while it took a step")) == lost
    tallied(engine)


@BOTH
def test_outputs_never_come_or_come_twice(model: Path, log: Lines, asynchronous: bool) -> None:
    """Each is counted, the first is told, and records and decisions still belong together."""
    engine = Engine(model, controller=cycling(ARMS), asynchronous=asynchronous)
    engine.add(4, tokens=60)
    engine.serve(10)
    output = engine.schedule()
    while engine.worker.in_flight:
        engine.update()
    for _ in range(3):  # vLLM itself would take the tokens in again, so that there are none
        output.num_scheduled_tokens.clear()
        engine.scheduler.update_from_output(output, runner_output([], []))
    assert engine.steering.unmatched == 3
    for _ in range(3):
        engine.schedule()
        engine.worker.in_flight.pop()
    engine.abort(list(engine.scheduler.requests))
    engine.add(4)
    engine.serve()
    engine.check()
    assert engine.steering.lost >= 1
    assert engine.steering.unmatched == 3 + engine.steering.lost
    assert engine.steering.active
    assert len(log.having("WARNING")) == 1
    tallied(engine)


@BOTH
def test_all_requests_are_aborted_while_their_step_runs(model: Path, asynchronous: bool) -> None:
    """Nothing stays in flight, and the next requests are served as the first were."""
    engine = Engine(model, controller=cycling(ARMS), asynchronous=asynchronous)
    names = engine.add(10)
    engine.serve(3)
    engine.schedule()
    engine.abort(names)
    while engine.worker.in_flight:
        engine.update()
    assert not engine.steering._flight
    engine.add(5)
    engine.serve()
    engine.check()
    tallied(engine)
