"""Requests that come and go without end at two of vLLM's own schedulers, with all of adaptk around them."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from adaptk import Controller, Settings
from adaptk.vllm_plugin import adaptive
from tests.bounded.growth import Growth
from tests.engine.driver import Worker, build_config, build_scheduler, make_request
from tests.engine.metricspages import free_port
from tests.engine.models import byte_llama

BLOCK = 500  # steps between two of the rarer events
MODES = ("on", "on", "on", "shadow", "off")
SEQS = 16
LOOKS = 200
TRACE_MB = 16
SETTLES_S = 10.0  # within which threads that write or answer have done what they were given


class Comings:
    """One scheduler and its requests, each with an id of its own.

    The number wanted at once swings between none and more than there is room for, so that some are preempted
    and the engine idles now and then. Some are aborted, some have a grammar. Every 500 steps there is one of these: the
    prefix cache reset with all that run, weights replaced, a pause, another controller for a while, another mode.
    """

    def __init__(self, folder: Path, model: Path, *, asynchronous: bool, seed: int) -> None:
        self.asynchronous = asynchronous
        settings = Settings(
            mode="on",
            trace=str(folder / "trace.jsonl"),
            trace_max_mb=TRACE_MB,
            state=str(folder / "state.json"),
            control=str(folder / "mode"),
            metrics_port=free_port(),
        )
        config = build_config(model, max_model_len=256, max_num_seqs=SEQS, asynchronous=asynchronous)
        cls = adaptive(AsyncScheduler if asynchronous else Scheduler, settings=settings)
        self.scheduler = build_scheduler(cls, config, num_blocks=40, v2=False if asynchronous else None)
        self.worker = Worker(self.scheduler, seed, asynchronous=asynchronous, none=0.1)
        self.steering = self.scheduler.adaptk
        self.steps = self.requests = self.preempted = 0
        self._own = self.steering.controller
        self._mode = folder / "mode"
        self._rng = np.random.default_rng(seed)

    def run(self) -> None:
        """``BLOCK`` steps, then one of the rarer events."""
        wanted = 0
        chances = self._rng.random((BLOCK, 3)).tolist()
        for chance, abort, grammar in chances:
            if self.steps % 50 == 0:
                wanted = int(self._rng.integers(-4, 2 * SEQS))
            while len(self.scheduler.requests) < wanted:
                self._add(grammar < 0.05)
            if abort < 0.05 and self.scheduler.requests:
                self.scheduler.finish_requests(next(iter(self.scheduler.requests)), RequestStatus.FINISHED_ABORTED)
            self.worker.accept = 0.9 if chance < 0.5 else 0.2
            self._step()
        self._event(self.steps // BLOCK)

    def drain(self) -> None:
        """Step until no request is left, and once more, as the engine does."""
        while self.scheduler.requests or self.worker.in_flight:
            self._step()
            if not self.scheduler.requests:
                self._update_all()
        self._step()
        self._update_all()

    def end(self) -> None:
        """Shut the scheduler down."""
        self._update_all()
        self.scheduler.shutdown()

    def settle(self) -> None:
        """Wait until what goes on beside the steps has come to rest."""
        self._update_all()
        writer = self.steering.writer
        _wait(lambda: writer is None or not writer._pending)

    def _add(self, grammar: bool) -> None:
        rid = f"{'a' if self.asynchronous else 's'}-{self.requests}"
        prompt, tokens = self._rng.integers((1, 1), (60, 12)).tolist()
        self.scheduler.add_request(make_request(rid, prompt, tokens, grammar=grammar and not self.asynchronous))
        self.requests += 1

    def _step(self) -> None:
        output = self.worker.schedule()
        self.preempted += len(output.preempted_req_ids or ())
        known = self.scheduler.requests
        if not any(known[rid].use_structured_output for rid in output.num_scheduled_tokens):  # their grammar is made up
            self.scheduler.get_grammar_bitmask(output)  # as the engine asks while a step runs
        self.steps += 1
        if len(self.worker.in_flight) > (1 if self.asynchronous else 0):
            self._update()

    def _update(self) -> None:
        self.worker.update()
        self.worker.engine_outputs.clear()

    def _update_all(self) -> None:
        while self.worker.in_flight:
            self._update()

    def _event(self, turn: int) -> None:
        kind = turn % 6
        if kind == 0:
            self._update_all()
            self.scheduler.reset_prefix_cache(reset_running_requests=True)
        elif kind == 1:
            self.steering.note_weights_changed()
        elif kind == 2:
            self.steering.held_up()
        elif kind == 3:
            other = Controller(None, arms=self._own.arms, k_max=self.steering.k_max, seed=turn)
            self.steering.controller = other
        elif kind == 4:
            self.steering.controller = self._own
        else:
            self._mode.write_text(MODES[turn // 6 % len(MODES)])


def steered(folder: Path, steps: int, looks: int = LOOKS, seed: int = 0) -> tuple[Growth, str]:
    """Both schedulers in turn, for so many steps together; what was looked at, and what was done."""
    model = byte_llama(folder / "model")
    ways: dict[str, Comings] = {}
    for name in ("synchronous", "asynchronous"):
        (folder / name).mkdir()
        ways[name] = Comings(folder / name, model, asynchronous=name == "asynchronous", seed=seed)
    growth = Growth(lambda: [way.steering for way in ways.values()], steps)
    every = max(1, steps // (2 * BLOCK) // looks)
    done = pages = 0
    while done < steps:
        for way in ways.values():
            with _scraping(way.steering.metrics.url) as page:
                for _ in range(every):
                    way.run()
            pages += b"adaptk_steps_total" in page
            done += every * BLOCK
        for way in ways.values():
            way.settle()
            assert way.steering.active, way.steering.reason
        growth.look(done)
    for way in ways.values():
        way.end()
    requests, preempted = (sum(getattr(way, name) for way in ways.values()) for name in ("requests", "preempted"))
    dropped = sum(way.steering.writer.dropped for way in ways.values() if way.steering.writer is not None)
    written = sum(file.stat().st_size for file in folder.glob("*/trace*")) / 2**20
    return growth, (
        f"{requests:,} requests, {preempted:,} preempted; {pages} pages of metrics; {written:.0f} MiB of traces at the "
        f"end, {dropped} rows dropped"
    )


@contextmanager
def _scraping(url: str) -> Iterator[bytearray]:
    """Ask for the page once while steps run."""
    page = bytearray()

    def ask() -> None:
        with urllib.request.urlopen(url, timeout=30) as response:
            page.extend(response.read())

    thread = threading.Thread(target=ask)
    thread.start()
    yield page
    thread.join()


def _wait(done: Callable[[], Any]) -> None:
    until = time.monotonic() + SETTLES_S
    while not done() and time.monotonic() < until:
        time.sleep(0.005)
