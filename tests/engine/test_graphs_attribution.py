"""Whose drafts a step's time pays for, on both model runners: a made-up engine's times, given back by a controller.

vLLM's own schedulers are driven by hand, and the clock that adaptk reads is the engine's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from adaptk import Controller, GoodputTable, Settings
from adaptk.vllm_plugin import adaptive, compat, drafters, steering
from tests.engine.driver import Worker, build_config, build_scheduler, make_request
from tests.engine.versions import since

ARMS = (0, 1, 3, 7)
BATCH = 8
DraftMs = Callable[[int], float]


def verify_ms(tokens: int, prompt: int) -> float:
    """The target's forward pass: some tokens for free, and prompt tokens dearer."""
    return 8.0 + 0.08 * tokens + 0.05 * prompt


def fewer_ms(k: int) -> float:
    """A drafter that makes as many drafts as it is asked for."""
    return 0.4 * k + (0.6 if k else 0.0)


def always_ms(_: int) -> float:
    """A drafter that makes the maximum whatever it is asked for."""
    return fewer_ms(ARMS[-1])


def block_ms(k: int) -> float:
    """A drafter that makes a block in one pass."""
    return 2.0 + 0.1 * k


@dataclass
class Playing:
    """A controller that learns, while the arms are played by a rule: each for ``stay`` steps, in turn."""

    controller: Controller
    stay: int
    records: list[Any] = field(default_factory=list)

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        self.controller.choose(batch_size, context_tokens, decodes)
        return ARMS[self.controller.counters["steps"] // self.stay % len(ARMS)]

    def observe(self, record: Any) -> Any:
        self.records.append(record)
        return self.controller.observe(record)


class Engine:
    """A scheduler with one device behind it, which works off what is queued; times in seconds."""

    def __init__(
        self, model: Path, monkeypatch: pytest.MonkeyPatch, *, v2: bool, depth: int, draft_ms: DraftMs, stay: int
    ) -> None:
        self.now = 1000.0
        clock = SimpleNamespace(perf_counter=lambda: self.now)
        monkeypatch.setattr(steering, "time", clock)
        monkeypatch.setattr(compat, "runner_v2", lambda _: v2)
        flat = [{"batch": b, "k": k, "itl_ms": 14.0} for b in (1, 2 * BATCH) for k in ARMS]
        self.playing = Playing(Controller(GoodputTable.from_rows(flat, [0.6] * 7), arms=ARMS, seed=0), stay)
        asynchronous = depth > 1
        cls = adaptive(
            AsyncScheduler if asynchronous else Scheduler, controller=self.playing, settings=Settings(mode="on")
        )
        config = build_config(model, max_num_seqs=BATCH, max_model_len=512, asynchronous=asynchronous)
        config.scheduler_config.async_scheduling = asynchronous  # on CPU vLLM turns it off
        self.scheduler = build_scheduler(cls, config, num_blocks=BATCH * 11)
        self.scheduler.use_v2_model_runner = v2
        del self.scheduler.__dict__["adaptk"]
        self.worker = Worker(self.scheduler, 3, asynchronous=asynchronous)
        self.v2, self.depth, self.draft_ms = v2, depth, draft_ms
        self.free = self.now  # when the device has done what was queued
        self.queued: list[float] = []
        self.names = self.preempted = 0

    def fill(self, prompt: int = 12, length: int = 180) -> None:
        """Requests come in until the batch is full."""
        while len(self.scheduler.requests) < BATCH:
            self.names += 1
            self.scheduler.add_request(make_request(f"r{self.names}", prompt, length))

    def run(self, steps: int, refill: bool = True) -> None:
        """Step on; without ``refill`` at most until nothing is left to do."""
        for _ in range(steps):
            if refill:
                self.fill()
            if not self.scheduler.requests and not self.queued:
                return
            if self.scheduler.requests:
                self.worker.schedule()
                self.queued.append(self.now)
            while len(self.queued) >= self.depth or (self.queued and not self.scheduler.requests):
                self.update()
        while self.queued:
            self.update()

    def update(self) -> None:
        """The device works off the oldest step; V2 hands its output out before it drafts."""
        begun = max(self.free, self.queued.pop(0))
        output = self.worker.in_flight[0].output
        tokens = output.total_num_scheduled_tokens
        self.preempted += len(output.preempted_req_ids or ())
        drafts = sum(map(len, output.scheduled_spec_decode_tokens.values()))
        prompt = max(0, tokens - drafts - len(output.num_scheduled_tokens))
        verified = begun + verify_ms(tokens - prompt, prompt) / 1000.0 if tokens else begun
        drafted = verified + self.draft_ms(output.num_spec_tokens_to_schedule) / 1000.0 if tokens else begun
        self.free = drafted
        self.now = max(self.now, verified if self.v2 else drafted)
        self.worker.update()

    def errors(self) -> dict[int, float]:
        """How far each arm's believed step time is off the truth, as a share of it."""
        truth = {k: verify_ms(BATCH * (k + 1), 0) + self.draft_ms(k) for k in ARMS}
        believed = {arm.k: arm.itl_ms for arm in self.playing.controller.belief(BATCH)}
        return {k: abs((believed[k] or 0.0) / truth[k] - 1.0) for k in ARMS}


OBEDIENT = since(32, "runner V2 that obeys K without async scheduling")
CASES = [
    pytest.param(False, 1, fewer_ms, 3, id="V1"),
    pytest.param(False, 2, fewer_ms, 4, id="V1, async"),
    pytest.param(False, 2, block_ms, 4, id="V1, async, a block of K"),
    pytest.param(True, 1, fewer_ms, 1, id="V2", marks=OBEDIENT),
    pytest.param(True, 1, always_ms, 1, id="V2, drafts K_max", marks=OBEDIENT),
    pytest.param(True, 2, fewer_ms, 1, id="V2, async"),
    pytest.param(True, 2, always_ms, 1, id="V2, async, drafts K_max"),
]


@pytest.mark.parametrize(("v2", "depth", "draft_ms", "stay"), CASES)
def test_the_surface_comes_back(
    model: Path, monkeypatch: pytest.MonkeyPatch, v2: bool, depth: int, draft_ms: DraftMs, stay: int
) -> None:
    """Each arm's step time is believed within 3 %, from a flat table: with arrivals, idle spells and preemption.

    On V2 no step mixes two arms, so that it is learnt although K changes in every step.
    """
    engine = Engine(model, monkeypatch, v2=v2, depth=depth, draft_ms=draft_ms, stay=stay)
    assert max(engine.errors().values()) > 0.1
    for _ in range(4):
        engine.run(150)
        engine.run(400, refill=False)
        engine.now += 2.0  # the engine idles
    engine.run(60)
    assert engine.preempted
    assert max(engine.errors().values()) < 0.03, engine.errors()


def test_the_other_runners_attribution_is_wrong(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above can tell apart: V2's rule on V1 books steps that mix two arms."""
    monkeypatch.setattr(drafters, "draft_cost", lambda *_: "previous")
    engine = Engine(model, monkeypatch, v2=False, depth=1, draft_ms=fewer_ms, stay=1)
    engine.run(400)
    assert max(engine.errors().values()) > 0.05


@OBEDIENT
@pytest.mark.parametrize("draft_ms", [fewer_ms, always_ms])
def test_no_drafting_before_a_first_step(model: Path, monkeypatch: pytest.MonkeyPatch, draft_ms: DraftMs) -> None:
    """On V2 the drafts that the step before made are in no interval that began after an idle spell."""
    engine = Engine(model, monkeypatch, v2=True, depth=1, draft_ms=draft_ms, stay=10)
    engine.run(12)
    assert engine.playing.records[0].draft_k == 0
    assert engine.playing.records[-1].draft_k == engine.playing.records[-2].k == 1
    engine.now += 5.0
    engine.run(1)
    after = engine.playing.records[-1]
    assert after.draft_k == 0
    assert after.elapsed_ms == pytest.approx(verify_ms(2 * BATCH, 0))
