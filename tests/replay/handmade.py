"""Small worlds whose step times and tokens can be worked out by hand, and a policy that plays a given list of K."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.noise import Noise
from adaptk.replay.policies.base import Rival, Setup
from adaptk.replay.simulator import Engine, Run, World, simulate
from adaptk.replay.surface import CostSurface
from adaptk.replay.workload import Requests, Script
from adaptk.step import StepRecord

QUIET = Noise(0.0)
NEVER, ALWAYS = Drafter(profiles([0.0])), Drafter(profiles([1.0]))


def verify_ms(batch: int, k: float) -> float:
    return 10.0 + batch + 2.0 * batch * k


def draft_ms(batch: int, k: int) -> float:
    return 0.5 + 0.25 * k + 0.125 * batch * k


def surface(max_batch: int = 8, k_max: int = 7, **changes: Any) -> CostSurface:
    """``verify_ms`` and ``draft_ms`` as a grid; 2 ms for a step with prompt tokens and 0.5 ms for each of them."""
    sizes, ks = range(max_batch + 1), range(k_max + 1)
    verify = np.array([[[verify_ms(b, k) for k in ks] for b in sizes]])
    draft = np.array([[draft_ms(b, k) for k in ks] for b in sizes])
    fields: dict[str, Any] = {"prefill_ms": 0.5, "mixed_ms": 2.0, **changes}
    return CostSurface("by hand", np.array([0.0]), verify, draft, **fields)


def setup(arms: tuple[int, ...] = (0, 1, 3, 7), seed: int = 0, table: bool = True) -> Setup:
    startup = surface(k_max=arms[-1]).to_table(arms, [0.7, 0.6, 0.5])
    return Setup(startup if table else None, startup, arms, seed)


class Plays(Rival):
    """Plays ``ks`` in turn, then the last of them; keeps what it was asked and told."""

    def __init__(self, *ks: int, k_max: int = 7) -> None:
        super().__init__(tuple(range(k_max + 1)))
        self.ks = ks
        self.asked: list[tuple[int, int | None, int | None]] = []
        self.seen: list[StepRecord] = []
        self.told: list[int] = []  # how many records had come before each choice

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        self.asked.append((batch_size, context_tokens, decodes))
        self.told.append(len(self.seen))
        return self.ks[min(len(self.asked), len(self.ks)) - 1]

    def observe(self, record: StepRecord) -> None:
        self.seen.append(record)


def requests(prompt: Sequence[int], output: Sequence[int], **more: Any) -> Requests:
    """Requests of kind 0 that have all arrived, unless ``more`` says otherwise."""
    entries = len(prompt)
    fields = {"arrival_ms": np.zeros(entries), "kind": np.zeros(entries, dtype=np.int64)}
    fields |= {name: np.asarray(values) for name, values in more.items()}
    return Requests(prompt=np.array(prompt), output=np.array(output), **fields)


def world(load: Requests | Script, drafter: Drafter = NEVER, steps: int | None = None, **more: Any) -> World:
    """A world without noise; ``engine`` may be a mapping of what differs from 8 requests at once."""
    if steps is None:
        steps = len(load) if isinstance(load, Script) else 10_000
    engine = Engine(8)._replace(**more.pop("engine", {}))
    fields: dict[str, Any] = {"surface": surface(), "noise": QUIET, **more}
    return World(drafter=drafter, load=load, steps=steps, engine=engine, **fields)


def played(at: World, *ks: int, **more: Any) -> tuple[Run, list[StepRecord]]:
    """The run of a list of K in a world, and the records of its steps."""
    policy = Plays(*ks, **more)
    return simulate(at, policy), policy.seen
