"""The compiled queue against an engine written anew, step by step, from what the engine is said to do."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from adaptk.replay.drafter import HIT, MISS
from adaptk.replay.simulator import Engine, simulate
from tests.replay.handmade import NEVER, Plays, draft_ms, requests, verify_ms, world

PREFILL_MS, MIXED_MS = 0.5, 2.0  # of handmade.surface


class Plain:
    """An engine of lists and dictionaries: no arrays, no hashing, no expectations."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case, self.engine = case, case["engine"]
        self.clock = self.drafts_before = 0.0
        self.running: list[dict[str, int]] = []
        self.preempted: list[dict[str, int]] = []
        self.arrived = 0

    def need(self, entry: dict[str, int]) -> int:
        return entry["context"] + entry["prompt"] + self.case["k_max"] + 1

    def schedule(self) -> list[dict[str, int]]:
        while len(self.running) > 1 and sum(map(self.need, self.running)) > self.engine.kv_tokens:
            self.preempted.append(self.running.pop())
        if not self.running and not self.preempted and self.arrived < len(self.case["prompt"]):
            self.clock = max(self.clock, self.case["arrival_ms"][self.arrived])
        room = self.engine.max_tokens - sum(1 + r["pending"] for r in self.running if r["prompt"] == 0)
        for entry in self.running:
            entry["chunk"] = max(0, min(entry["prompt"], room))
            room -= entry["chunk"]
        while room > 0 and len(self.running) < self.engine.max_requests and (entry := self.waiting()):
            full = sum(map(self.need, self.running)) + self.need(entry) > self.engine.kv_tokens
            if self.running and full:
                break
            if self.preempted:
                self.preempted.pop()
            else:
                self.arrived += 1
            entry["chunk"] = min(entry["prompt"], room)
            room -= entry["chunk"]
            self.running.append(entry)
        return [entry for entry in self.running if entry["prompt"] == 0 or entry["chunk"] > 0]

    def waiting(self) -> dict[str, int] | None:
        if self.preempted:
            number, done = self.preempted[-1]["number"], self.preempted[-1]["done"]
        elif self.arrived < len(self.case["prompt"]) and self.case["arrival_ms"][self.arrived] <= self.clock:
            number, done = self.arrived, 0
        else:
            return None
        prompt = self.case["prompt"][number] + done
        return {"number": number, "done": done, "context": 0, "prompt": prompt, "pending": 0, "chunk": 0}

    def run(self, entry: dict[str, int]) -> int:
        """Verify what is pending, or compute a piece of the prompt; the tokens emitted."""
        accepts, left = self.case["accepts"][entry["number"]], self.case["output"][entry["number"]] - entry["done"]
        accepted = 0
        while accepted < min(entry["pending"], left) and accepts[entry["done"] + accepted]:
            accepted += 1
        emitted = min(accepted + 1, left)
        if entry["prompt"]:
            emitted = 1 if entry["chunk"] == entry["prompt"] else 0
            entry["prompt"] -= entry["chunk"]
            entry["context"] += entry["chunk"]
        else:
            entry["context"] += emitted
        entry["done"] += emitted
        return emitted

    def step(self, k: int) -> tuple[Any, ...] | None:
        batch = self.schedule()
        if not batch:
            return None
        decodes = sum(entry["prompt"] == 0 for entry in batch)
        prompt = sum(entry["chunk"] for entry in batch)
        context = sum(entry["context"] for entry in batch)
        drafted = [entry["pending"] for entry in batch]
        emitted = [self.run(entry) for entry in batch]
        self.running = [r for r in self.running if r["done"] < self.case["output"][r["number"]]]
        drafting = [entry for entry in self.running if entry["prompt"] == 0]
        made = draft_ms(len(drafting), k)
        if self.engine.runner == 2:
            made, self.drafts_before = self.drafts_before, made
        time = verify_ms(decodes, sum(drafted) / decodes if decodes else 0.0) + made
        time += MIXED_MS + PREFILL_MS * prompt if prompt else 0.0
        self.clock += time
        for entry in self.running:
            entry["pending"] = k if entry["prompt"] == 0 else 0
        return len(batch), decodes, prompt, context, drafted, emitted, time, self.clock


def made_up(seed: int) -> dict[str, Any]:
    draw = random.Random(seed)
    entries, k_max = draw.randint(1, 9), draw.choice([1, 3, 7])
    output = [draw.randint(1, 30) for _ in range(entries)]
    longest = draw.choice([5, 40, 300])
    return {
        "prompt": [draw.randint(1, longest) for _ in range(entries)],
        "output": output,
        "arrival_ms": sorted(draw.choice([0.0, draw.uniform(0.0, 2000.0)]) for _ in range(entries)),
        "accepts": [[draw.random() < 0.7 for _ in range(tokens)] for tokens in output],
        "ks": [draw.randint(0, k_max) for _ in range(200)],
        "k_max": k_max,
        "engine": Engine(
            max_requests=draw.randint(1, 8),
            max_tokens=draw.choice([1, 3, 16, 64, 8192]),
            kv_tokens=draw.choice([10, 60, 400, 1 << 40]),
            runner=draw.choice([1, 2]),
        ),
    }


@pytest.mark.parametrize("seed", range(60))
def test_each_step_is_that_of_an_engine_written_anew(seed: int) -> None:
    case = made_up(seed)
    known = np.array([HIT if yes else MISS for line in case["accepts"] for yes in line], dtype=np.int8)
    load = requests(case["prompt"], case["output"], arrival_ms=case["arrival_ms"], known=known)
    policy = Plays(*case["ks"], k_max=case["k_max"])
    simulate(world(load, NEVER, engine=case["engine"]._asdict()), policy)
    plain, expected, ks = Plain(case), [], case["ks"]
    while (step := plain.step(ks[min(len(expected), len(ks) - 1)])) is not None:
        expected.append(step)
    assert len(policy.seen) == len(expected)
    for at, (record, step) in enumerate(zip(policy.seen, expected, strict=True)):
        assert (record.batch_size, record.decodes, record.prefill_tokens, record.context_tokens) == step[:4], at
        assert (record.drafted, record.emitted) == step[4:6], at
        assert (record.elapsed_ms, record.t_ms) == pytest.approx(step[6:]), at
    assert sum(sum(step[5]) for step in expected) == sum(case["output"])
