"""A controller in a simulated world whose steps are not reported as they were; its twin is told the truth."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from adaptk import Controller, Decision, StepRecord
from adaptk.replay.measures import best_rate, efficiency
from adaptk.replay.simulator import Run, simulate
from tests.publicengine import PUBLIC, world

Meddle = Callable[[int, StepRecord], StepRecord]
STEPS, BATCH = 2500, 16
BEGIN, END = 500, 700  # of a fault that lasts a while


class Meddled:
    """Stands between an engine and ``controller``: the record of step ``n`` arrives as ``meddle(n, record)``."""

    def __init__(self, controller: Controller, meddle: Meddle) -> None:
        self.controller, self.meddle = controller, meddle
        self.arms = controller.arms
        self._step = 0

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        return self.controller.choose(batch_size, context_tokens, decodes)

    def observe(self, record: StepRecord) -> Decision | None:
        record = self.meddle(self._step, record)
        self._step += 1
        return self.controller.observe(record)


def run(meddle: Meddle, *, table: bool, seed: int, batch: int = BATCH) -> tuple[Run, Controller]:
    """A run of a world whose drafts cost twice what the table says; 3 % noise, nothing else goes wrong."""
    controller = Controller(PUBLIC, seed=seed) if table else Controller(None, seed=seed, k_max=5)
    policy = Meddled(controller, meddle)
    return simulate(world(STEPS, batch, k_factor=2.0, seed=seed), policy), controller


@cache
def twins_share(table: bool, seed: int, start: int, batch: int = BATCH) -> float:
    """What the twin has of the best arm's goodput from step ``start`` on."""
    return share(run(lambda _, record: record, table=table, seed=seed, batch=batch)[0], start)


def share(of: Run, start: int) -> float:
    """The share of the best arm's goodput from step ``start`` on."""
    return efficiency(of, best_rate(of), start)


def while_it_lasts(wrong: Callable[[StepRecord], StepRecord], end: int = END) -> Meddle:
    """A fault from step ``BEGIN`` to ``end``."""
    return lambda step, record: wrong(record) if BEGIN <= step < end else record
