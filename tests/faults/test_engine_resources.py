"""Memory, threads, descriptors and the log give out while an engine runs under adaptk."""

from __future__ import annotations

import logging
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from adaptk import Settings
from adaptk.vllm_plugin import adaptive, control
from adaptk.vllm_plugin.log import logger
from tests.engine.conftest import Lines
from tests.engine.driver import build_config, build_scheduler
from tests.engine.metricspages import free_port, parsed, scraped
from tests.faults.driven import K_MAX, Engine

ALL = {"trace": "trace.jsonl", "state": "state.json", "control": "mode"}


def everything(folder: Path) -> Settings:
    """Settings under which adaptk opens all that it can."""
    paths = {name: str(folder / path) for name, path in ALL.items()}
    return Settings(mode="on", metrics_port=free_port(), **paths)


@pytest.mark.parametrize(
    "place",
    ["choose", "observe", "_acceptance.observe", "_latency.add", "_planner.next", "_latency.log_times", "_load.update"],
)
def test_there_is_no_memory_in_a_step(
    model: Path, log: Lines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    """Wherever it gives out within a decision: vLLM's own K from that step on, told once, counted, nobody lost."""
    engine = Engine(model, settings=everything(tmp_path))
    engine.add(8)
    engine.serve(5)
    owner: Any = engine.steering.controller
    *way, name = place.split(".")
    for part in way:
        owner = getattr(owner, part)

    def fail(*_: Any, **__: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        engine.serve(60)
    before = len(engine.ks)
    engine.add(4)
    engine.serve()
    engine.check()
    assert set(engine.ks[before:]) == {K_MAX}
    assert len(log.having("stands down")) == 1
    assert parsed(scraped(engine.steering.metrics.url)).value("adaptk_faults_total") == 1
    engine.scheduler.shutdown()


def test_there_are_no_more_threads_at_the_start(
    model: Path, log: Lines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Trace, state, metrics and control are each told of once and done without; K is chosen all the same."""

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    trace_log = Lines()
    logging.getLogger("adaptk").addHandler(trace_log)
    (tmp_path / "mode").write_text("shadow")
    try:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", fail)
            engine = Engine(model, settings=everything(tmp_path))
            assert engine.steering.active
            assert engine.steering.mode == "shadow"  # it was read once
            engine.steering.mode = "on"
            engine.add(8)
            engine.serve()
    finally:
        logging.getLogger("adaptk").removeHandler(trace_log)
    engine.check()
    assert engine.steering.faults == 0
    assert engine.steering.controller.counters["steps"] == len(engine.ks)
    said = log.having("can't start new thread") + trace_log.having("can't start new thread")
    for part in ("takes its mode", "no metrics", "no state", "trace.jsonl"):
        assert len([line for line in said if part in line]) == 1, said
    assert engine.steering.writer.dropped == len(engine.ks)
    engine.scheduler.shutdown()


@contextmanager
def no_files() -> Iterator[None]:
    """The process may open no further one."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.dup(0) for _ in range(100)]  # gaps between those that are open would count as free
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 1, before[1]))
    with suppress(OSError):
        while True:
            held.append(os.dup(0))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for number in held:
            os.close(number)


def test_there_are_no_more_descriptors_at_the_start(model: Path, log: Lines, tmp_path: Path) -> None:
    """State and metrics are told of once and done without, the trace comes later; K is chosen all the same."""
    (tmp_path / "first").mkdir()
    first = Engine(model, settings=everything(tmp_path / "first"))  # what is imported only now needs files
    first.scheduler.shutdown()
    config = build_config(model, k_max=K_MAX)
    cls = adaptive(Scheduler, settings=everything(tmp_path))
    with no_files():
        engine = Engine(model, build_scheduler(cls, config))
        engine.add(8)
        engine.serve()
    engine.check()
    assert engine.steering.active
    assert engine.steering.faults == 0
    assert not log.having("inactive")
    for said in ("it starts afresh", "serves no metrics"):
        assert len(log.having(said)) == 1, "\n".join(log.lines)
    writer = engine.steering.writer
    engine.scheduler.shutdown()
    assert len((tmp_path / "trace.jsonl").read_bytes().splitlines()) - 1 + writer.dropped == len(engine.ks)


def test_descriptors_run_out_and_come_back(
    model: Path, log: Lines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Steps go on; the mode stays while its file cannot be read, and is followed again; the trace has every step."""
    monkeypatch.setattr(control, "PERIOD_S", 0.02)
    engine = Engine(model, settings=everything(tmp_path))
    with no_files():
        for _ in range(10):
            engine.add(8)
            engine.serve()
            threading.Event().wait(0.02)
    assert engine.steering.mode == "on"
    (tmp_path / "mode").write_text("off")
    waited = 0
    while engine.steering.mode != "off":
        threading.Event().wait(0.02)
        waited += 1
        assert waited < 500
    (tmp_path / "mode").write_text("on")
    while engine.steering.mode != "on":
        threading.Event().wait(0.02)
        waited += 1
        assert waited < 1000
    engine.add(4)
    engine.serve()
    engine.check()
    assert len(log.having("leaves the mode as it is")) <= 1
    steps = engine.steering.controller.counters["steps"]
    engine.scheduler.shutdown()
    assert len((tmp_path / "trace.jsonl").read_bytes().splitlines()) == 1 + steps


class Blocking(logging.Handler):
    """Takes its time over each line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        threading.Event().wait(0.05)


def test_a_log_that_is_slow_hears_little(model: Path, tmp_path: Path) -> None:
    """With all going wrong at once, for 300 steps and more: a line or two for each thing, not one for each step."""
    blocking = Blocking()
    (tmp_path / "mode").write_text("perhaps")
    nowhere = str(tmp_path / "no" / "folder" / "file")
    loggers = [logger, logging.getLogger("adaptk")]
    for each in loggers:
        each.addHandler(blocking)
    try:
        settings = Settings(mode="on", trace=nowhere, state=f"{nowhere}.json", control=str(tmp_path / "mode"))
        engine = Engine(model, settings=settings)
        choose = engine.steering.controller.choose
        engine.steering.controller.choose = lambda *given, **named: choose(*given, **named) + 100
        while len(engine.ks) < 300:
            engine.add(8)
            engine.serve(5)
            engine.schedule()  # of which no output comes
            engine.worker.in_flight.clear()
            engine.abort(list(engine.scheduler.requests))
        engine.scheduler.shutdown()
    finally:
        for each in loggers:
            each.removeHandler(blocking)
    assert engine.steering.clamped > 200
    assert engine.steering.lost > 5
    assert engine.steering.active
    assert len(blocking.lines) < 10, blocking.lines


def test_no_log_at_all(model: Path, tmp_path: Path) -> None:
    """Logging is switched off: served, and steered."""
    logging.disable(logging.CRITICAL)
    try:
        engine = Engine(model, settings=everything(tmp_path))
        engine.add(8)
        engine.serve()
        engine.check()
        engine.scheduler.shutdown()
    finally:
        logging.disable(logging.NOTSET)
    assert engine.steering.controller.counters["steps"] == len(engine.ks)
