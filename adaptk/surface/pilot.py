"""A first look at what layers cost, by which the budget is shared out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from adaptk.surface.architecture import Architecture
from adaptk.surface.blocks import Block
from adaptk.surface.caches import Caches
from adaptk.surface.machine import Machine
from adaptk.surface.model import passed
from adaptk.surface.plan import Place
from adaptk.surface.weights import Weights


class CostLine(NamedTuple):
    """Time of one layer, seconds, as a line through two numbers of tokens."""

    few: int
    few_s: float
    slope_s: float

    def round_s(self, place: Place, ks: Sequence[int]) -> float:
        """Seconds that one pass costs for every K of ``place``, together."""
        tokens = (place.batch * (k + 1) for k in ks)
        return sum(self.few_s + max(0.0, self.slope_s) * (each - self.few) for each in tokens)


def cost_of_layers(
    target: Architecture,
    ks: Sequence[int],
    machine: Machine,
    weights: Weights,
    caches: Caches,
    places: Sequence[Place],
) -> list[CostLine]:
    """What one layer of each kind costs, timed at the fewest and the most tokens, shape ``(kinds,)``."""
    ends = [(min(places), min(ks)), (max(places), max(ks))]
    few, many = (place.batch * (k + 1) for place, k in ends)
    lines = []
    for kind in target.kinds:
        block = Block(target, kind, weights)
        timer = machine.timer()
        times = []
        for place, k in ends:
            x = weights.filled((place.batch * (k + 1), target.hidden))
            sample = timer.prepare(partial(passed, [block], x, place, caches.of(target, place, 1)))
            times.append(min(sample(), sample()) / 1000.0)
        timer.close()
        lines.append(CostLine(few, times[0], (times[1] - times[0]) / max(1, many - few)))
    return lines
