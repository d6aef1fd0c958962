"""A pipeline of several stages: its requests come back late, so that a step's drafts were decided several steps ago."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler

from adaptk import Controller
from adaptk.vllm_plugin import adaptive, refusals
from adaptk.vllm_plugin.collect import Step
from adaptk.vllm_plugin.pipeline import Pipeline, stages
from tests.engine.driver import Policy, Worker, build_config, build_scheduler, make_request


def placed(pipeline: Pipeline, k: int, *rids: str, decoding: tuple[str, ...] | None = None) -> Step:
    output = SimpleNamespace(num_scheduled_tokens=dict.fromkeys(rids, 1))
    step = Step(output, 0.0, [])
    step.k, step.decoding = k, decoding
    pipeline.place(step)
    return step


class TestPipeline:
    """Which decision a step's drafts go back to, and when its time is one K's."""

    def test_each_batch_looks_back_to_its_own_last_step(self) -> None:
        """Two batches take turns: what one verifies was decided two steps ago."""
        pipeline = Pipeline(2)
        steps = [placed(pipeline, k, rid) for k, rid in ((3, "a"), (1, "b"), (7, "a"), (0, "b"), (7, "a"))]
        assert [step.asked for step in steps] == [None, None, 3, 1, 7]

    def test_a_time_needs_one_k_all_around(self) -> None:
        """After a change no step is timed until all that share its interval, and their makers, have the new K."""
        pipeline = Pipeline(2)
        steps = [placed(pipeline, k, "ab"[i % 2]) for i, k in enumerate([3] * 6 + [1] * 6)]
        assert [step.timed for step in steps] == [True] * 6 + [False] * 4 + [True] * 2

    def test_batches_that_merge_have_two_makers(self) -> None:
        """The larger K was asked for, and the time is neither's."""
        pipeline = Pipeline(2)
        placed(pipeline, 3, "a")
        placed(pipeline, 1, "b")
        merged = placed(pipeline, 3, "a", "b")
        assert (merged.asked, merged.timed) == (3, False)

    def test_prompts_have_no_maker(self) -> None:
        """A prompt in its second chunk was in a step before, and drafts nothing."""
        pipeline = Pipeline(2)
        placed(pipeline, 7, "prompt")
        placed(pipeline, 1, "a")
        assert placed(pipeline, 1, "prompt", "a", decoding=("a",)).asked == 1
        assert placed(pipeline, 1, "prompt", decoding=()).asked is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 1),
        ({"parallel_config": SimpleNamespace(pipeline_parallel_size=4), "decode_stagger": 1}, 4),
        ({"pp_size": 3}, 3),
        ({"use_pp": True}, 2),
    ],
)
def test_stages_are_read_off_the_scheduler(fields: dict[str, Any], expected: int) -> None:
    assert stages(SimpleNamespace(**fields)) == expected


class Stages:
    """An engine whose clock is that of a pipeline: a step of K drafts holds each stage for ``cost(K asked)``."""

    def __init__(self, scheduler: Any, clock: list[float], n: int, cost: Callable[[int], float]) -> None:
        self.scheduler, self.clock, self.cost = scheduler, clock, cost
        self.free = [0.0] * n  # when each stage is
        self.worker = Worker(scheduler, 0, asynchronous=True, accept=0.8)
        self.done: deque[float] = deque()

    def schedule(self) -> None:
        output = self.worker.schedule()
        widths = [len(drafts) for drafts in output.scheduled_spec_decode_tokens.values()]
        at = self.clock[0]
        if output.total_num_scheduled_tokens:
            for stage, free in enumerate(self.free):
                at = self.free[stage] = max(at, free) + self.cost(max(widths, default=0))
        self.done.append(at)

    def update(self) -> None:
        self.clock[0] = max(self.clock[0], self.done.popleft())
        self.worker.update()


@pytest.mark.parametrize("n", [2, 3])
def test_what_a_step_costs_is_learnt(model: Path, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    """In turns of batches, each K held for a while, the believed times are those of a stage."""
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    controller = Controller(None, arms=(0, 1, 3), k_max=7, seed=0)
    forced = Policy(lambda _: (0, 1, 3)[len(forced.chosen) // 40 % 3])

    class Both:
        """Plays the forced K and lets the controller observe it."""

        def choose(self, batch_size: int, context_tokens: int | None = None) -> int:
            controller.choose(batch_size, context_tokens)
            return forced.choose(batch_size)

        def observe(self, record: Any) -> Any:
            forced.observe(record)
            return controller.observe(record)

    config = build_config(model, asynchronous=True, max_num_seqs=2 * n, max_model_len=2048)
    scheduler = build_scheduler(adaptive(AsyncScheduler, controller=Both()), config, num_blocks=2000, v2=True)
    scheduler.use_pp, scheduler.pp_size, scheduler.decode_stagger = True, n, n
    engine = Stages(scheduler, clock, n, lambda k: 0.010 * (1 + 0.5 * k))
    for i in range(2 * n):  # two requests in each turn
        scheduler.add_request(make_request(f"r{i}", 5, 1500))
        if i % 2:
            engine.schedule()
    for _ in range(1200):
        engine.schedule()
        while len(engine.done) > n:
            engine.update()
    believed = [arm.itl_ms for arm in controller.belief(2)]
    assert believed == pytest.approx([10.0, 15.0, 25.0], rel=0.05)
    assert scheduler.adaptk.faults == 0
    timed = [record for record in forced.records if record.elapsed_ms is not None]
    assert len(timed) > 500
    assert all(record.asked == record.k for record in timed[n:])


class TestRefusals:
    """Where a pipeline and a K that changes go together."""

    def config(self, *, asynchronous: bool, v2: bool, role: str | None = None, size: int = 2) -> Any:
        return SimpleNamespace(
            parallel_config=SimpleNamespace(pipeline_parallel_size=size, data_parallel_size=1),
            scheduler_config=SimpleNamespace(async_scheduling=asynchronous),
            speculative_config=SimpleNamespace(method="eagle3", enable_adaptive_verification=False),
            kv_transfer_config=None if role is None else SimpleNamespace(kv_role=role),
            use_v2_model_runner=v2,
        )

    def test_drafts_that_stay_on_the_workers(self) -> None:
        """Asynchronous on V2 a pipeline is steered."""
        assert refusals.inert_reason(self.config(asynchronous=True, v2=True)) is None

    @pytest.mark.parametrize(("asynchronous", "v2"), [(False, False), (False, True), (True, False)])
    def test_drafts_that_come_too_early(self, asynchronous: bool, v2: bool) -> None:
        """Otherwise vLLM hears of drafts before the step they came from is over, and adaptk stands aside."""
        reason = refusals.inert_reason(self.config(asynchronous=asynchronous, v2=v2))
        assert reason is not None
        assert "pipeline_parallel_size" in reason

    def test_why_early_drafts_need_one_k(self, model: Path) -> None:
        """vLLM schedules a request in flight once more when drafts come before its step is over: delete with this."""
        from vllm.v1.core.sched.scheduler import Scheduler

        scheduler = build_scheduler(Scheduler, build_config(model))
        worker = Worker(scheduler, 0, asynchronous=False)
        scheduler.add_request(make_request("a", 5, 50))
        worker.draft(worker.schedule())
        assert worker.schedule().num_scheduled_tokens == {"a": 7}

    @pytest.mark.parametrize(("role", "inert"), [("kv_producer", True), ("kv_consumer", False), ("kv_both", False)])
    def test_engines_that_only_prefill(self, role: str, inert: bool) -> None:
        """A producer decodes nothing."""
        reason = refusals.inert_reason(self.config(asynchronous=True, v2=True, role=role, size=1))
        assert (reason is not None and "kv_producer" in reason) is inert
