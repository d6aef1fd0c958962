"""In vLLM's process: what entering, starting and stepping leave as it was, and what a fork does to all that is open."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from adaptk import Settings
from adaptk.trace import read_trace
from adaptk.vllm_plugin import adaptive
from tests.engine.conftest import Lines
from tests.engine.driver import Worker, build_config, build_scheduler, make_request
from tests.engine.metricspages import free_port, scraped

ROOT = Path(__file__).parents[2]
ENTERED = """
import multiprocessing.util
import vllm.v1.engine.core
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.config import SchedulerConfig
from tests.bounded.footprint import footprint, moved
before = footprint()
from adaptk.vllm_plugin.plugin import register
register()
print("patched", hasattr(SchedulerConfig.get_scheduler_cls, "__adaptk_original__"))
print("moved", moved(before))
"""


@pytest.mark.parametrize(("mode", "patched"), [(None, False), ("off", False), ("on", True), ("shadow", True)])
def test_entering_vllm_moves_nothing_that_is_shared(mode: str | None, patched: bool) -> None:
    """Unset, off, on or in shadow: no thread, file, handler, filter, hook, seed or setting is another than before."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ADAPTK")}
    done = subprocess.run(
        [sys.executable, "-c", ENTERED],
        env={**env, "PYTHONPATH": str(ROOT), **({} if mode is None else {"ADAPTK": mode})},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stdout.splitlines()[-2:] == [f"patched {patched}", "moved {}"]


class Everything:
    """A scheduler with all that adaptk can open."""

    def __init__(self, model: Path, folder: Path, **more: Any) -> None:
        self.trace, self.state = folder / "trace.jsonl", folder / "state.json"
        settings = Settings(
            mode="on",
            trace=str(self.trace),
            state=str(self.state),
            control=str(folder / "mode"),
            metrics_port=free_port(),
            **more,
        )
        self.scheduler = build_scheduler(adaptive(Scheduler, settings=settings), build_config(model))
        self.worker = Worker(self.scheduler, 0, asynchronous=False)
        self.steering = self.scheduler.adaptk
        self.steps = 0

    def run(self, steps: int) -> list[int]:
        """K of so many steps."""
        played = []
        for _ in range(steps):
            if self.steps % 20 == 0:
                self.scheduler.add_request(make_request(str(self.steps), 5 + self.steps % 30, 100))
            played.append(self.worker.schedule().num_spec_tokens_to_schedule)
            self.worker.update()
            self.steps += 1
        return played


def test_errors_and_warnings_are_the_users_to_set(model: Path, tmp_path: Path, log: Lines) -> None:
    """Who has numpy raise and turns warnings into errors in the engine's process still gets every step decided."""
    with np.errstate(all="raise"), warnings.catch_warnings():
        engine = Everything(model, tmp_path)  # vLLM itself warns while it makes a configuration
        warnings.simplefilter("error")
        engine.run(200)
        scraped(engine.steering.metrics.url)
        engine.steering.note_weights_changed()
        engine.run(50)
        controller = engine.steering.controller
        controller.corrected_table()
        controller.belief(8)
        engine.scheduler.shutdown()
    assert (engine.steering.faults, engine.steering.active) == (0, True)
    assert len(read_trace(engine.trace).rows) == 250
    assert json.loads(engine.state.read_text())["kind"] == "adaptk-state"
    assert log.having("ERROR") == []


def test_a_fork_takes_nothing_along(model: Path, tmp_path: Path) -> None:
    """Children forked before the first step and between others decide on, and end; all files stay the parent's."""
    engine = Everything(model, tmp_path)
    children = []
    for _ in range(10):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                engine.run(30)
                ours = engine.steering
                status = 0 if ours.active and ours.faults == 0 else 2
                engine.scheduler.shutdown()
            finally:
                os._exit(status)
        children.append(child)
        engine.run(20)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)
    assert scraped(engine.steering.metrics.url).startswith("# HELP")
    counted = engine.steering.controller.counters["steps"]
    engine.scheduler.shutdown()
    rows = read_trace(engine.trace).rows
    assert len(rows) == engine.steps == 200
    assert [row.decision.seq for row in rows if row.decision is not None] == list(range(len(rows)))
    assert json.loads(engine.state.read_text())["snapshot"]["counters"]["steps"] in (counted, counted + 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.json", "state.json.lock", "trace.jsonl"]
