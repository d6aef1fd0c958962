"""Traces of simulated engines, in shadow and steered, whose truth is known: what a schedule would have saved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.noise import Drift, Noise
from adaptk.replay.policies.adaptive import Adaptive
from adaptk.replay.policies.base import Setup
from adaptk.replay.policies.static import StaticTable
from adaptk.replay.presets import preset
from adaptk.replay.scenarios import script
from adaptk.replay.simulator import Run, World, simulate
from adaptk.replay.surface import CostSurface
from adaptk.schedule import scheduled_k
from adaptk.table import GoodputTable
from adaptk.trace import TraceWriter

ARMS = (0, 1, 3)
FIXED = [[1, 512, 3]]
_BATCHES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128)
_CALM = Drift()
_NOISE = Noise(sigma=0.04, correlation=0.3, stalls=0.01, stall_factor=4.0)


class Shadow(NamedTuple):
    """A recorded trace, the run behind it, and the table that is right there."""

    path: Path
    run: Run
    table: GoodputTable
    schedule: list[list[int]]

    def loss(self, schedule: Sequence[Sequence[int]], first: int = 1, last: int = 10**6, since: int = 0) -> float:
        """Share of the expected time that another schedule would have saved at these batch sizes, from a step on."""
        inside = (self.run.decodes > 0) & (self.run.batch >= first) & (self.run.batch <= last)
        steps = since + np.flatnonzero(inside[since:])
        length, itl = self.run.length[steps], self.run.itl[steps]
        rows, batches = np.arange(len(steps)), self.run.batch[steps].tolist()
        now, new = ([scheduled_k(tuple((a, b, k) for a, b, k in each), size) for size in batches]
                    for each in (self.schedule, schedule))  # fmt: skip
        taken = itl[rows, now]
        return 1.0 - float((itl[rows, new] * length[rows, now] / length[rows, new]).sum() / taken.sum())


def shadow(
    path: Path,
    seed: int = 0,
    *,
    engine: str = "p32374",
    schedule: Sequence[Sequence[int]] = FIXED,
    steps: int = 1500,
    low: int = 1,
    high: int = 128,
    header: bool = True,
    drift: Drift = _CALM,
    noise: Noise = _NOISE,
    other_text: float = 1.0,
    on: bool = False,
    seeded: bool = True,
) -> Shadow:
    """Record a load that wanders between two batch sizes while the operator's schedule is played.

    Every 100 to 400 steps the text changes to one whose drafts are accepted ``other_text`` times as often, and back.
    ``on``: adaptk's K are played instead, with the right table as its seed or, where not ``seeded``, without one.
    """
    made = preset(engine)
    rng = np.random.default_rng(seed)
    acceptance = [min(0.95, max(0.05, a * math.exp(rng.normal(0.0, 0.15)))) for a in made.acceptance]
    batches: list[int] = []
    place = rng.uniform(math.log(low), math.log(high))
    while len(batches) < steps:
        place = min(max(place + rng.normal(0.0, 0.5), math.log(low)), math.log(high))
        batches += [max(1, round(math.exp(place)))] * int(rng.integers(20, 80))
    kinds: list[int] = []
    while other_text != 1.0 and len(kinds) < steps:
        kinds += [1 - kinds[-1] if kinds else 0] * int(rng.integers(100, 400))
    texts = [acceptance] if other_text == 1.0 else [acceptance, [other_text * a for a in acceptance]]
    world = World(
        made.surface,
        Drafter(profiles(*texts, k_max=made.surface.k_max)),
        script(steps, lambda step: batches[step], kind=lambda step: kinds[step] if kinds else 0),
        steps,
        noise=noise,
        drift=drift,
        seed=seed,
    )
    table = made.surface.to_table(ARMS, acceptance, batches=_BATCHES)
    setup = Setup(table if seeded else None, table, ARMS, seed)
    own = StaticTable(setup, GoodputTable.from_schedule([list(each) for each in schedule]))
    run = simulate(world, Adaptive(setup) if on else own, record=True, arms=ARMS)
    fields = {"mode": "on" if on else "shadow", "arms": list(ARMS), "schedule": [list(each) for each in schedule]}
    _write(path, run, fields | {"k_max": ARMS[-1]} if header else {})
    return Shadow(path, run, table, [list(each) for each in schedule])


def wandering(
    path: Path, seed: int = 0, *, steps: int = 1200, low: int = 1, high: int = 16, spells: bool = False
) -> Path:
    """A steered trace of a machine with slow spells, on which no K is better than another.

    Each K takes as much longer as it yields more. Every 10 to 30 s (of steps of 100 ms) the machine becomes up to half
    as slow or quick again, and back. K=7 is the operator's. ``spells``: not adaptk plays, but each K in
    turn for a while.
    """
    rng = np.random.default_rng(seed)
    batches: list[int] = []
    while len(batches) < steps:
        batches += [int(rng.integers(low, high + 1))] * int(rng.integers(10, 60))
    length = np.array([1.0, 1.4, 1.56, 1.624, 1.65, 1.66, 1.664, 1.666])  # of drafts accepted in 0.4 of all cases
    verify = (60.0 + 3.0 * np.arange(high + 1))[:, None] * length
    surface = CostSurface("flat", np.array([0.0]), verify[None], np.zeros_like(verify))
    at, levels = [0], [1.0]
    while at[-1] < steps:
        at.append(at[-1] + int(rng.uniform(100, 300)))
        levels.append(math.exp(rng.uniform(-1.0, 1.0) * math.log(1.5)) if len(at) % 2 else 1.0)
    drift = Drift(at, levels, [1.0] * len(at))
    load = script(steps, lambda step: batches[step])
    noise = Noise(0.15, 0.5, 0.02, 3.0)
    world = World(surface, Drafter(profiles([0.4] * 7, k_max=7)), load, steps, noise=noise, drift=drift, seed=seed)
    arms = (0, 1, 3, 7)
    setup = Setup(None, surface.to_table(arms, [0.4]), arms, seed)
    run = simulate(world, _Spells(arms, seed) if spells else Adaptive(setup), record=True, arms=arms)
    return _write(path, run, {"mode": "on", "arms": list(arms), "k_max": 7})


class _Spells:
    """Each K for 20 to 200 steps, by chance."""

    exploring = False

    def __init__(self, arms: tuple[int, ...], seed: int) -> None:
        self.arms = arms
        self._rng = np.random.default_rng(seed)
        self._k, self._left = arms[-1], 0

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        if self._left == 0:
            self._k, self._left = int(self._rng.choice(self.arms)), int(self._rng.integers(20, 200))
        self._left -= 1
        return self._k

    def observe(self, record: Any) -> None:
        return None


def _write(path: Path, run: Run, fields: dict[str, Any]) -> Path:
    writer = TraceWriter(path, fields, max_pending=1 << 20)
    for row in run.rows:
        writer.write(row.step, row.decision)
    writer.close(60.0)
    assert writer.dropped == 0
    return path


def distorted(table: GoodputTable, level: float = 1.0, drafts: float = 1.0) -> GoodputTable:
    """The table with all times ``level`` times as long, and what drafts cost ``drafts`` times as much."""
    rows = []
    for row in table.rows:
        alone = table.itl_ms(row.batch, 0)
        assert alone is not None
        rows.append({"batch": row.batch, "k": row.k, "itl_ms": level * (alone + drafts * (row.itl_ms - alone))})
    return GoodputTable.from_rows(rows, table.acceptance)
