"""One ride through everything of the plugin: from the entry point to the shutdown, with a worker of known text."""

from __future__ import annotations

import logging
import shutil
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler

from adaptk import GoodputTable
from adaptk.vllm_plugin import control, plugin, state, steering, weights
from adaptk.vllm_plugin import scheduler as scheduling
from adaptk.vllm_plugin.metrics import beliefs, page, server
from tests.engine.driver import Step, Worker, build_config, build_scheduler, make_request
from tests.engine.metricspages import free_port, scraped

K_MAX = 7
REQUESTS, TOKENS = 15, 40
LATER = 40  # the step from which on the engine counts as in flight
WEIGHTS = 50  # the step before which they are replaced
COPY = 45  # the step before which a copy of the state is wanted
SCRAPE = 60  # the step before which somebody asks for the metrics
MODES = {24: "off", 28: "shadow", 32: "on", 64: "off", 66: "on"}
SCHEDULE = [[1, 2, 5], [3, 16, 2]]


def write_table(path: Path) -> Path:
    """A table with contexts, acceptance and times near those of a scheduler that is driven by hand."""
    rows = [
        {"batch": b, "k": k, "context": c, "itl_ms": 0.3 + 0.01 * b + 0.02 * k + 1e-4 * c, "n": 50}
        for b in (1, 8, 16)
        for k in (0, 1, 2, 3, 5, 7)
        for c in (16.0, 128.0)
    ]
    GoodputTable.from_rows(rows, acceptance=[0.8] * K_MAX).save(path)
    return path


class KnownText(Worker):
    """A worker whose n-th token of a request is always the same, whatever was drafted and accepted."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.made: Counter[str] = Counter()

    def execute(self, output: Any) -> Step:
        step = super().execute(output)
        for rid, tokens in zip(step.result.req_ids, step.result.sampled_token_ids, strict=True):
            for i in range(len(tokens)):
                tokens[i] = known_token(rid, self.made[rid] + i)
            self.made[rid] += len(tokens)
        return step


def known_token(rid: str, place: int) -> int:
    return 100 + (int(rid) * 31 + place * 7) % 300


def asked(server: Any) -> str:
    """The page of a ``MetricsServer``, or why there is none."""
    with suppress(OSError):
        return scraped(f"http://{server.host}:{server.port}/metrics")
    return "none"


class Log(logging.Handler):
    """Lines of adaptk that somebody should read."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Once:
    """Stands in for the event that ends a thread: set after one look."""

    def __init__(self) -> None:
        self.looks = 0

    def wait(self, _: float) -> bool:
        self.looks += 1
        return self.looks > 1


class Ride:
    """Drives one engine's scheduler, always in the same way until something fails.

    Parameters
    ----------
    model, folder
        A model, and where the table lies and the trace is written.
    asynchronous
        AsyncScheduler under the operator's schedule, two steps in flight; else Scheduler with a table and adaptk's own
        schedule.
    at
        Told the phase when it begins: ``entering``, ``configuring``, ``starting``, ``running``, ``in flight`` (the same
        from a later step on), ``ending``.
    """

    def __init__(
        self, model: Path, folder: Path, *, asynchronous: bool, at: Callable[[str], None] = lambda _: None
    ) -> None:
        self.model, self.folder, self.asynchronous, self.at = model, folder, asynchronous, at
        self.text: dict[str, list[int]] = {}
        self.wrong_ks: list[tuple[int, int, int]] = []  # step, K and vLLM's own, where adaptk was inactive
        self.steps = 0
        self.clock = 1000.0
        self.look = control.Look(folder / "mode", "on", None)
        self.watching = True  # as long as the control's thread would not have ended
        self.calls: list[str] = []  # that arrived at the engine
        self.rpc = weights._watched(lambda _, method: self.calls.append(method), weights._by_rpc)
        self.scheduler: Any = None
        self.metrics = ""  # what was answered

    @property
    def steering(self) -> Any:
        """What the scheduler holds as ``.adaptk``, without making it; ``None`` where it is vLLM's own class."""
        return self.scheduler.__dict__.get("adaptk")

    def run(self) -> None:
        """From the entry point to the shutdown; ``patches.remove()`` is left to the caller."""
        with self._surroundings():
            self.at("entering")
            with ThreadPoolExecutor(1) as pool:  # it looks through its callers, which are always the same there
                pool.submit(plugin.register).result()
            self.at("configuring")
            config = self._config()
            base = config.scheduler_config.get_scheduler_cls()
            self.at("starting")
            self.scheduler = build_scheduler(base, config, v2=False)
            self.at("running")
            self._serve()
            self.at("ending")
            self.scheduler.shutdown()

    @contextmanager
    def _surroundings(self) -> Iterator[None]:
        settings = {"": "on", "_ARMS": "0,1,2,3,5,7", "_BUDGET": "0.2"}
        settings |= {"_TRACE": str(self.folder / "trace-{rank}.jsonl"), "_CONTROL": str(self.folder / "mode")}
        settings |= {"_METRICS_PORT": str(free_port()), "_STATE": str(self._state())}
        if not self.asynchronous:
            settings["_TABLE"] = str(self.folder / "table.json")
        with pytest.MonkeyPatch.context() as patch:
            for name, value in settings.items():
                patch.setenv(f"ADAPTK{name}", value)
            patch.setattr(plugin, "_registered", False)
            patch.setattr(scheduling, "_made", {})
            patch.setattr(steering, "time", SimpleNamespace(perf_counter=lambda: self.clock))
            patch.setattr(control, "PERIOD_S", 60.0)  # it looks when it is told to
            patch.setattr(state, "QUIET_S", 60.0)  # it is saved at the end
            patch.setattr(page, "_PATIENCE_S", 0.0)  # who asks does so between two steps, and holds up the next one
            patch.setattr(server, "_SHARE", 1.0)  # and its thread has no rest that a short ride would end in
            for module in (page, beliefs):
                patch.setattr(module, "GIVE_WAY_S", 0.0)
            (self.folder / "mode").unlink(missing_ok=True)
            yield

    def _state(self) -> Path:
        """The state file, as the first of such rides left it."""
        path = self.folder / f"state-{'async' if self.asynchronous else 'sync'}.json"
        first = path.with_suffix(".first")
        if first.exists():
            shutil.copy(first, path)
        elif path.exists():
            path.rename(first)
            shutil.copy(first, path)
        return path

    def _config(self) -> Any:
        schedule = SCHEDULE if self.asynchronous else None
        config = build_config(self.model, k_max=K_MAX, schedule=schedule, asynchronous=self.asynchronous)
        # Not possible on the CPU platform, which has turned it off again.
        config.scheduler_config.async_scheduling = self.asynchronous
        return config

    def _serve(self) -> None:
        worker = KnownText(self.scheduler, 0, asynchronous=self.asynchronous, accept=0.9, none=0.1)
        assert isinstance(self.scheduler, AsyncScheduler) is self.asynchronous
        depth = 2 if self.asynchronous else 1
        while self.scheduler.requests or worker.in_flight or self.steps < LATER:
            if self.steps == LATER:
                self.at("in flight")
            if self.steps % 4 == 0 and self.steps < 4 * REQUESTS:
                rid = self.steps // 4
                self.scheduler.add_request(make_request(str(rid), 20 + 10 * rid, TOKENS))
            worker.accept = 0.9 if self.steps % 60 < 30 else 0.05
            self._between_steps()
            self._step(worker)
            while len(worker.in_flight) >= depth or (worker.in_flight and not self.scheduler.requests):
                self._keep(worker)
            self.steps += 1

    def _between_steps(self) -> None:
        """Somebody writes another mode, and the control's thread looks, or asks for metrics; weights are replaced."""
        if self.steps in MODES and self.steering is not None and self.watching:
            (self.folder / "mode").write_text(MODES[self.steps])
            once = Once()
            control._watch(weakref.ref(self.steering), self.look, once)
            self.watching = once.looks == 2
        if self.steps == SCRAPE and self.steering is not None and self.steering.metrics is not None:
            self.metrics = asked(self.steering.metrics)
        if self.steps == COPY and self.steering is not None and self.steering.state is not None:
            self.steering.state.wanted = True
        if self.steps == WEIGHTS:
            self.rpc(SimpleNamespace(scheduler=self.scheduler), "update_weights")

    def _step(self, worker: KnownText) -> None:
        output = worker.schedule()
        inactive = not (self.steering is not None and self.steering.active)
        if output.total_num_scheduled_tokens:
            assert self.scheduler.get_grammar_bitmask(output) is None  # as the engine asks while a step runs
        batch, k = len(output.num_scheduled_tokens), output.num_spec_tokens_to_schedule
        self.clock += 1e-3 * (0.3 + 0.01 * batch + 0.02 * k + 2e-3 * output.total_num_scheduled_tokens)
        if batch and inactive:
            own = next(k for low, high, k in SCHEDULE if low <= batch <= high) if self.asynchronous else K_MAX
            if k != own:
                self.wrong_ks.append((self.steps, k, own))

    def _keep(self, worker: KnownText) -> None:
        worker.update()
        for outputs in worker.engine_outputs.pop().values():
            for output in outputs.outputs:
                self.text.setdefault(output.request_id, []).extend(output.new_token_ids)

    def check(self) -> None:
        """Every request has its whole text, and vLLM's K was in force wherever adaptk was not."""
        assert self.text == {str(r): [known_token(str(r), i) for i in range(TOKENS)] for r in range(REQUESTS)}
        assert self.wrong_ks == []
        assert self.calls == ["update_weights"]
