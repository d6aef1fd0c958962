"""A drafter that dies, comes back, or gives other drafts than it was asked for, under vLLM's own scheduler."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vllm.v1.outputs import DraftTokenIds

from adaptk import Controller
from tests.engine.clockwork import Loop
from tests.engine.driver import Worker
from tests.faults.driven import Engine

ARMS, REQUESTS = (0, 1, 3, 7), 8


class Served:
    """Eight requests at a time, in made-up time: a step takes 10 ms and 0.4 ms for each draft of its widest request."""

    def __init__(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.controller = Controller(None, arms=ARMS, seed=0)
        self.engine = Engine(model, controller=self.controller)
        self.worker: Worker = self.engine.worker
        self.loop = Loop(monkeypatch, self.worker, 1, lambda output, _: 0.010 + 0.0004 * widest(output))
        self.worker.accept = 0.8

    def serve(self, steps: int) -> list[int]:
        """The K of so many steps."""
        ks = []
        for _ in range(steps):
            if len(self.engine.scheduler.requests) < REQUESTS:
                self.engine.add(REQUESTS - len(self.engine.scheduler.requests), tokens=60)
            ks.append(self.loop.schedule().num_spec_tokens_to_schedule)
            self.loop.update()
            self.keep()
        return ks

    def keep(self) -> None:
        for outputs in self.worker.engine_outputs.pop().values():
            for output in outputs.outputs:
                self.engine.text.setdefault(output.request_id, []).extend(output.new_token_ids)

    def finish(self) -> None:
        """Answer what is left, and look whether each request has its text."""
        while self.engine.scheduler.requests:
            self.loop.turn()
            self.keep()
        self.engine.check()
        steering = self.engine.steering
        assert (steering.faults, steering.unmatched) == (0, 0)


def widest(output: Any) -> int:
    return max(map(len, output.scheduled_spec_decode_tokens.values()), default=0)


@pytest.fixture
def served(model: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    return Served(model, monkeypatch)


def test_it_dies_and_comes_back(served: Served) -> None:
    """None accepted: K=0 in four of five steps within 300, counted once, cheap looks in the rest; back within 1,200."""
    assert served.serve(500)[-100:].count(7) > 80
    served.worker.accept = 0.0
    dead = served.serve(600)[300:]
    assert dead.count(0) > 0.8 * len(dead)
    assert max(dead) <= 1
    assert served.controller.drafter_dead
    assert served.controller.counters["drafter_dead"] == 1
    served.worker.accept = 0.8
    assert served.serve(1200)[-100:].count(7) > 80
    assert not served.controller.drafter_dead
    assert served.controller.counters["drafter_dead"] == 1
    served.finish()


def test_it_returns_nothing_for_a_while(served: Served) -> None:
    """For 300 steps no request has a draft; 800 steps later the best K is played again."""
    served.serve(500)
    served.worker.none = 1.0
    served.serve(300)
    served.worker.none = 0.0
    assert served.serve(800)[-100:].count(7) > 80
    served.finish()


LENGTHS: dict[str, Callable[[random.Random, int], int]] = {
    "fewer": lambda rng, k: rng.randint(0, k),
    "more": lambda rng, k: k + rng.randint(0, 5),
    "any number": lambda rng, k: rng.randint(0, 12),
    "one to one request": lambda rng, k: int(rng.random() < 1 / REQUESTS),
}


@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS)
def test_it_returns_other_lengths(
    served: Served, monkeypatch: pytest.MonkeyPatch, length: Callable[[random.Random, int], int]
) -> None:
    """For 500 steps, whatever was asked for: each request is answered, and 1,500 steps later the best K is played."""
    rng = random.Random(3)

    def draft(output: Any) -> None:
        ids = list(output.num_scheduled_tokens)
        k = output.num_spec_tokens_to_schedule
        served.engine.scheduler.update_draft_token_ids(DraftTokenIds(ids, [[50] * length(rng, k) for _ in ids]))

    served.serve(300)
    with monkeypatch.context() as patch:
        patch.setattr(served.worker, "draft", draft)
        served.serve(500)
    assert served.serve(1500)[-100:].count(7) > 80
    served.finish()
