"""Steps that missed their CUDA graph, where vLLM reports its graphs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.compilation.cuda_graph import CUDAGraphStat
from vllm.config import CUDAGraphMode
from vllm.v1.core.sched.scheduler import Scheduler

from adaptk.vllm_plugin import adaptive
from adaptk.vllm_plugin.graphmisses import GraphMisses, mode_of
from tests.engine.driver import Policy, Worker, build_config, build_scheduler, make_request

FULL, PIECEWISE, NONE = "FULL", "PIECEWISE", "NONE"


def told(modes: list[str], batch: int = 8, drafts: int = 3) -> list[bool]:
    """Which of the steps of one shape are exceptions."""
    misses = GraphMisses()
    return [misses.exceptional(batch, drafts, mode) for mode in modes]


class TestRule:
    def test_a_rare_miss_is_an_exception(self) -> None:
        """One in thirty."""
        modes = ([FULL] * 29 + [PIECEWISE]) * 3
        assert [i for i, missed in enumerate(told(modes)) if missed] == [29, 59, 89]

    def test_a_shape_that_lost_its_graph_is_none(self) -> None:
        """From the fourth miss in a row on, its time is what the arm costs."""
        assert told([FULL] * 50 + [NONE] * 6) == [False] * 50 + [True] * 3 + [False] * 3

    @pytest.mark.parametrize("modes", [[PIECEWISE] * 40, [NONE] * 40, [FULL, PIECEWISE] * 20])
    def test_what_misses_as_a_rule_is_none(self, modes: list[str]) -> None:
        """Or else an arm would be believed as cheap as its rare good steps."""
        assert sum(told(modes)) <= 3
        assert not any(told(modes)[10:])

    def test_a_better_mode_comes_up(self) -> None:
        """The mode that a shape usually has need not be the first one seen, nor FULL."""
        assert told([NONE, PIECEWISE, PIECEWISE, NONE]) == [False, False, False, True]

    def test_shapes_are_apart(self) -> None:
        """Another batch size, and another number of drafts, have graphs of their own or none."""
        misses = GraphMisses()
        for _ in range(20):
            misses.exceptional(8, 3, FULL)
        assert not misses.exceptional(9, 3, NONE)
        assert not misses.exceptional(8, 1, NONE)
        assert misses.exceptional(8, 3, NONE)
        assert misses.count == 1

    def test_memory_is_bounded(self) -> None:
        """However many shapes there are."""
        misses = GraphMisses()
        for batch in range(10_000):
            misses.exceptional(batch, 0, FULL)
        assert len(misses._shapes) <= 4096

    def test_an_unknown_mode(self) -> None:
        """Of a later vLLM: counts as none."""
        assert told([FULL, "NEW"]) == [False, True]


def test_vllms_own_reports_are_read() -> None:
    """The names are those of vLLM's modes; without ``--cudagraph-metrics`` there is no report."""
    for mode in (CUDAGraphMode.FULL, CUDAGraphMode.PIECEWISE, CUDAGraphMode.NONE):
        stat = CUDAGraphStat(num_unpadded_tokens=3, num_padded_tokens=4, num_paddings=1, runtime_mode=str(mode))
        assert mode_of(SimpleNamespace(cudagraph_stats=stat)) == mode.name
    assert mode_of(SimpleNamespace(cudagraph_stats=None)) is None
    assert mode_of(SimpleNamespace()) is None


class Reporting(Worker):
    """A worker that reports its graphs: FULL ones for decodes, but not in the steps named."""

    missing: tuple[int, ...] = ()
    steps = 0

    def execute(self, output: Any) -> Any:
        step = super().execute(output)
        tokens = output.total_num_scheduled_tokens
        mode = PIECEWISE if self.steps in self.missing or output.scheduled_new_reqs else FULL
        step.result.cudagraph_stats = CUDAGraphStat(tokens, tokens, 0, mode)
        self.steps += 1
        return step


def test_a_missed_step_teaches_no_time(model: Path) -> None:
    """Its acceptance counts as ever, and steps with prompt tokens, which never have a FULL graph, keep their times."""
    policy = Policy(lambda _: 2)
    scheduler = build_scheduler(adaptive(Scheduler, controller=policy), build_config(model))
    worker = Reporting(scheduler, 1, asynchronous=False)
    worker.missing = (10, 15)
    for name in "abc":
        scheduler.add_request(make_request(name, 6, 200))
    for _ in range(20):
        worker.schedule()
        worker.update()
    untimed = [i for i, record in enumerate(policy.records) if record.elapsed_ms is None]
    assert untimed == [10, 15]
    assert policy.records[10].drafted == [2, 2, 2]
    assert policy.records[0].prefill_tokens == 18
    assert scheduler.adaptk.collector.misses.count == 2
