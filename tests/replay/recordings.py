"""Traces for tests: records in few words, and files of simulated runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from adaptk.decision import Decision, Reason
from adaptk.replay.policies.base import Policy, Rival, Setup
from adaptk.replay.presets import preset
from adaptk.replay.simulator import Run, World, simulate
from adaptk.replay.workload import Requests
from adaptk.step import StepRecord
from adaptk.trace import TraceWriter

ARMS = (0, 1, 2, 3)
PRESET = preset("p32374")
SETUP = Setup(None, PRESET.surface.to_table(ARMS, PRESET.acceptance), ARMS)


def step(drafted: Sequence[int], accepted: Sequence[int] | None = None, **more: Any) -> StepRecord:
    """A step of 10 ms at K=3 whose requests emit one token more than was accepted."""
    accepted = [0] * len(drafted) if accepted is None else accepted
    fields = {
        "batch_size": len(drafted),
        "elapsed_ms": 10.0,
        "k": 3,
        "drafted": list(drafted),
        "accepted": list(accepted),
        "emitted": [n + 1 for n in accepted],
    }
    return StepRecord(**{**fields, **more})


_seq = count()


def decision(k: int = 3, arms: tuple[int, ...] = ARMS, **more: Any) -> Decision:
    """A decision whose number follows on that of the decision made before."""
    fields = {"seq": next(_seq), "k": k, "propensity": 0.5, "reason": Reason.EXPLOIT, "arms": arms}
    return Decision(**{**fields, **more})


def write(path: Path, steps: Iterable[StepRecord | tuple[StepRecord, Decision | None]]) -> Path:
    """A trace of these steps, each with its decision or without one."""
    writer = TraceWriter(path, {"source": "test"}, max_pending=1 << 20)
    for row in steps:
        writer.write(*row) if isinstance(row, tuple) else writer.write(row)
    writer.close(60.0)
    assert writer.dropped == 0
    return path


def record(path: Path, world: World, policy: Policy) -> Run:
    """Run a policy on requests and write its trace, which says which request is which."""
    run = simulate(world, policy, record=True)
    assert isinstance(world.load, Requests)
    steps = [row.step for row in run.rows]
    numbers = requests_of(steps, world.load.output.tolist())
    write(path, [replace(step, requests=who) for step, who in zip(steps, numbers, strict=True)])
    return run


def requests_of(steps: Sequence[StepRecord], output: Sequence[int]) -> list[list[int]]:
    """The requests of each simulated step: they keep their order, and new ones join behind the others."""
    left, live, numbers, joined = list(output), [], [], 0
    for step in steps:
        fresh = step.batch_size - len(live)
        live += range(joined, joined + fresh)
        joined += fresh
        numbers.append(list(live))
        for request, tokens in zip(live, step.emitted or (), strict=True):
            left[request] -= tokens
        live = [request for request in live if left[request] > 0]
    return numbers


class InTurn(Rival):
    """Plays the arms in turn, ten steps each."""

    def __init__(self, arms: tuple[int, ...] = ARMS) -> None:
        super().__init__(arms)
        self._step = -1

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        self._step += 1
        return self.arms[self._step // 10 % len(self.arms)]

    def observe(self, record: StepRecord) -> None:
        pass
