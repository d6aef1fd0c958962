"""The mode of a running engine: off, shadow and on, at any time."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from adaptk.vllm_plugin import adaptive
from adaptk.vllm_plugin.steering import Steering
from tests.engine.driver import Policy, Worker, build_config, build_scheduler, cycling, make_request

K_MAX = 7


class Engine:
    """A driven scheduler whose mode is changed between its steps."""

    def __init__(
        self, model: Path, policy: Policy, *, asynchronous: bool = False, v2: bool = False, schedule: Any = None
    ) -> None:
        base = AsyncScheduler if asynchronous else Scheduler
        config = build_config(model, asynchronous=asynchronous, schedule=schedule)
        # The class is given V2 before its steering is made, which then pays for the drafts of the step before.
        cls = adaptive(type(base.__name__, (base,), {"use_v2_model_runner": v2}), controller=policy)
        self.scheduler = build_scheduler(cls, config, v2=v2 if asynchronous else None)
        self.depth = 2 if asynchronous else 1
        self.worker = Worker(self.scheduler, 0, asynchronous=asynchronous, accept=0.5)
        self.steering = self.scheduler.adaptk
        self.ks: list[int] = []

    def add(self, *names: str, prompt: int = 5, max_tokens: int = 200) -> None:
        for name in names:
            self.scheduler.add_request(make_request(name, prompt, max_tokens))

    def run(self, steps: int, mode: str | None = None) -> list[int]:
        """So many steps, in ``mode`` from the next one on; the K that vLLM was given in each."""
        if mode is not None:
            self.steering.mode = mode
        ks = []
        for _ in range(steps):
            ks.append(self.worker.schedule().num_spec_tokens_to_schedule)
            while len(self.worker.in_flight) >= self.depth:
                self.worker.update()
        assert self.steering.faults == 0, self.steering.reason
        return ks

    def drain(self) -> None:
        """Bring back what is in flight."""
        while self.worker.in_flight:
            self.worker.update()


BOTH = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


@BOTH
@pytest.mark.parametrize("schedule", [None, [[1, 1, 5], [2, 16, 2]]], ids=["fixed", "operators"])
def test_off_asks_and_tells_nothing(model: Path, asynchronous: bool, schedule: Any) -> None:
    """vLLM's own K from the next step on; what was chosen before still comes back, and each record to its choice."""
    policy = cycling((1, 3))
    engine = Engine(model, policy, asynchronous=asynchronous, schedule=schedule)
    engine.add("a", "b")
    assert engine.run(6) == policy.chosen == [1, 3, 1, 3, 1, 3]
    own = K_MAX if schedule is None else 2
    assert engine.run(8, "off") == [own] * 8
    assert len(policy.chosen) == len(policy.asked) == len(policy.records) == 6
    assert engine.run(6, "on") == [1, 3, 1, 3, 1, 3]
    engine.drain()
    assert [r.k for r in policy.records] == policy.chosen
    assert len(policy.chosen) == 12
    assert engine.steering.unmatched == 0


@BOTH
def test_the_first_step_after_a_gap_is_nobodys(model: Path, asynchronous: bool) -> None:
    """Its drafts were decided by vLLM: neither counted nor timed; from the next step on all is as before."""
    policy = cycling((3,))
    engine = Engine(model, policy, asynchronous=asynchronous)
    engine.add("a", "b")
    engine.run(6)
    engine.run(5, "off")
    engine.run(6, "on")
    engine.drain()
    first, *others = policy.records[6:]
    assert first.elapsed_ms is None
    assert (sum(first.drafted), first.decodes, first.verified) == (0, 0, 2 * K_MAX)
    for record in others:
        assert record.elapsed_ms is not None
        assert (record.drafted, record.decodes, record.verified) == ([3, 3], None, None)


def test_v2s_drafts_after_a_gap_are_no_arms(model: Path) -> None:
    """Where an interval pays for the drafts of the step before, that step was vLLM's too."""
    policy = cycling((3,))
    engine = Engine(model, policy, asynchronous=True, v2=True)
    engine.add("a", "b")
    engine.run(6)
    engine.run(5, "off")
    engine.run(6, "on")
    engine.drain()
    first, second, *_ = policy.records[6:]
    assert first.draft_k != 3
    assert first.elapsed_ms is None
    assert second.draft_k == 3


@BOTH
def test_requests_that_come_and_go_in_the_gap(model: Path, asynchronous: bool) -> None:
    """Prompts cut in chunks while off go on in on, are no decodes, and no request is met in a state of the past."""
    policy = cycling((1,))
    engine = Engine(model, policy, asynchronous=asynchronous)
    engine.add("a", "b", max_tokens=12)
    engine.run(4)
    engine.steering.mode = "off"
    for name in "cdef":
        engine.add(name, prompt=200, max_tokens=20)
    engine.run(2)
    engine.run(12, "on")
    engine.drain()
    back = policy.records[4:]
    chunked = [r for r in back if r.prefill_tokens]
    assert chunked
    assert all(r.decodes is not None and r.decodes < r.batch_size for r in chunked)
    assert all(max(r.drafted, default=0) <= 1 for r in back)
    assert sum(r.verified is not None for r in back) <= 2


def test_flapping_between_any_two_steps(model: Path) -> None:
    """Whatever the order of modes, n-th record and n-th choice belong together, and vLLM's K is in force outside on."""
    modes = ["on", "off", "shadow", "on", "off", "off", "on", "shadow", "off", "shadow", "on", "on", "off", "on"]
    policy = cycling((1, 3, 0))
    engine = Engine(model, policy, asynchronous=True)
    engine.add("a", "b", "c")
    for mode in modes * 3:
        asked = len(policy.chosen)
        (k,) = engine.run(1, mode)
        assert len(policy.chosen) == asked + (mode != "off")
        assert k == (policy.chosen[-1] if mode == "on" else K_MAX)
    engine.drain()
    assert len(policy.records) == len(policy.chosen) == 3 * sum(mode != "off" for mode in modes)
    assert engine.steering.unmatched == 0


def test_a_start_in_off(model: Path) -> None:
    """It can be switched on later."""
    policy = cycling((1,))
    engine = Engine(model, policy)
    engine.add("a")
    assert engine.run(4, "off") == [K_MAX] * 4
    assert policy.asked == []
    assert engine.run(3, "on") == [1, 1, 1]


@pytest.mark.parametrize("wrong", ["On", "", "stop", None, True, 1])
def test_other_modes_are_refused(model: Path, wrong: Any) -> None:
    """The mode stays as it was."""
    engine = Engine(model, cycling((1,)))
    with pytest.raises(ValueError, match="use on, shadow or off"):
        engine.steering.mode = wrong
    assert engine.steering.mode == "on"


def test_after_a_fault_there_is_no_way_back(model: Path) -> None:
    """The mode reads off, and to set it changes nothing."""
    policy = cycling((1,))
    engine = Engine(model, policy)
    engine.add("a")
    engine.run(2)
    policy.rule = lambda _: 1 // 0
    engine.worker.schedule()
    assert engine.steering.mode == "off"
    engine.steering.mode = "on"
    assert engine.steering.mode == "off"
    engine.worker.update()
    assert engine.worker.schedule().num_spec_tokens_to_schedule == K_MAX
    assert engine.steering.faults == 1


def test_an_inert_steering_is_off() -> None:
    """There is nobody who could be switched on."""
    steering = Steering(None, reason="no drafts")
    steering.mode = "on"
    assert steering.mode == "off"


def test_another_thread_may_set_it_at_any_time(model: Path) -> None:
    """While the engine runs, thousands of times: no step is asked for twice, lost or given a K of neither side."""
    policy = cycling((1, 3))
    engine = Engine(model, policy, asynchronous=True)
    engine.add("a", "b", max_tokens=240)
    ended = threading.Event()

    def flap() -> None:
        while not ended.is_set():
            for mode in ("off", "on", "shadow"):
                engine.steering.mode = mode  # type: ignore[assignment]

    thread = threading.Thread(target=flap)
    thread.start()
    try:
        while engine.scheduler.requests:
            (k,) = engine.run(1)
            assert k in (0, 1, 3, K_MAX)
    finally:
        ended.set()
        thread.join()
    engine.drain()
    assert len(policy.records) == len(policy.chosen)
    assert engine.steering.unmatched == 0
