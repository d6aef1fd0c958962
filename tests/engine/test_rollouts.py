"""Rollouts of reinforcement learning: the batch drains from hundreds to one, then new weights and the next round."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.engine.core import EngineCore

from adaptk import Controller
from adaptk.replay.costs.p32374 import ACCEPTANCE, KS, public_surface
from adaptk.vllm_plugin import adaptive, weights
from tests.engine.clockwork import Loop
from tests.engine.driver import Policy, Worker, build_config, build_scheduler, make_request

BATCH, MEAN_TOKENS, LONGEST = 256, 100, 1000
ACCEPTED = (0.75, 0.6, 0.48)  # of any draft, per rollout: the trained target leaves its drafter behind
BUCKETS = 40


def best_k(batch: int, accepted: float) -> int:
    """What a policy that knows everything plays."""
    surface = public_surface()
    return max(KS, key=lambda k: sum(accepted**j for j in range(k + 1)) / surface.itl_ms(batch, k))


class Training:
    """A trainer around an in-process engine that decodes ``BATCH`` answers per rollout and has its weights replaced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, config: Any, controller: Any) -> None:
        self.scheduler = build_scheduler(
            adaptive(AsyncScheduler, controller=controller), config, num_blocks=30_000, v2=False
        )
        self.worker = Worker(self.scheduler, 1, asynchronous=True)
        self.noise = random.Random(2)
        self.loop = Loop(monkeypatch, self.worker, 2, self.step_s)
        self.engine = object.__new__(EngineCore)
        self.engine.scheduler, self.engine.model_executor = self.scheduler, self
        self.ks: list[list[int]] = []

    def step_s(self, output: Any, drafted: int) -> float:
        """The public profile, drafting in the step that decides it, 3 % noise."""
        batch = len(output.num_scheduled_tokens)
        verified = max(map(len, output.scheduled_spec_decode_tokens.values()), default=0)
        surface, k = public_surface(), output.num_spec_tokens_to_schedule
        self.ks[-1].append(k)
        ms = surface.verify_ms[0, batch, verified] + surface.draft_ms[batch, k]
        return float(ms) * self.noise.lognormvariate(0.0, 0.03) / 1000.0

    def collective_rpc(self, *_: Any) -> None:
        """The workers take their time over each bucket of weights."""
        self.loop.wait(0.05)

    def rollout(self, index: int) -> None:
        self.worker.accept = ACCEPTED[index]
        self.ks.append([])
        lengths = random.Random(index)
        for i in range(BATCH):
            tokens = 1 + min(LONGEST, int(lengths.expovariate(1.0 / MEAN_TOKENS)))
            self.scheduler.add_request(make_request(f"{index}-{i}", 4, tokens))
        while self.scheduler.has_unfinished_requests():
            self.loop.turn()
        self.loop.drain()

    def train(self) -> None:
        """All rollouts, new weights before each but the first, in buckets."""
        for index in range(len(ACCEPTED)):
            if index:
                self.update()
            self.rollout(index)
            assert self.scheduler.adaptk.faults == 0

    def update(self) -> None:
        for _ in range(BUCKETS):
            self.engine.collective_rpc("update_weights", None, (b"bucket",))
        self.engine.reset_prefix_cache()


def test_draining_rollouts_under_new_weights(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    """Three rollouts cost at most 5 % more device time than with every K the best one.

    At each jump back to the full batch K is the best one there within 5 steps, each update is noted once, and the
    changes of acceptance that it announces bring no storm of alarms.
    """
    sizes: dict[str, Any] = {"max_num_seqs": BATCH, "max_model_len": 2048, "max_num_batched_tokens": 8192}
    config = build_config(model, k_max=5, asynchronous=True, **sizes)
    weights.watch()
    try:
        table = public_surface().to_table(KS, ACCEPTANCE)
        controller = Controller(table, arms=KS, seed=1)
        ours = Training(monkeypatch, config, controller)
        ours.train()
        known = Policy(lambda batch: best_k(batch, ACCEPTED[len(best.ks) - 1]))
        best = Training(monkeypatch, config, known)
        best.train()
    finally:
        weights.unwatch()
    assert ours.loop.busy_s <= 1.05 * best.loop.busy_s
    for index, ks in enumerate(ours.ks):
        right = best_k(BATCH, ACCEPTED[index])
        assert right in ks[:5]
        assert ks[5:20].count(right) >= 10
    assert controller.counters["weights_changed"] == len(ACCEPTED) - 1
    assert controller.counters["acceptance_alarms"] + controller.counters["time_alarms"] <= 6
