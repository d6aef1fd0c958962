"""An engine with a known truth, and a clock of its own: noise, stalls, drift, and drafters that return little."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from adaptk.profile.allocate import Visit
from adaptk.profile.estimate import Block, Group


class SimulatedEngine:
    """Step time ``fixed + per_request * B + per_token * B * (1 + width) + per_draft * k``, milliseconds.

    A request gets its ``k`` drafts with probability ``supply`` and none otherwise. ``noise`` is the log's standard
    deviation between steps, ``stalls`` the share of steps that take up to ten times as long, ``drift`` the standard
    deviation of a slow wander that is forgotten after some ``memory_s`` seconds; ``slow`` stretches the time of cells
    ``(batch, k)``.
    """

    def __init__(
        self,
        seed: int,
        *,
        noise: float = 0.03,
        stalls: float = 0.05,
        drift: float = 0.05,
        memory_s: float = 60.0,
        supply: float = 1.0,
        fixed: float = 6.0,
        per_token: float = 0.05,
        per_draft: float = 0.4,
        prefill_s: float = 0.002,
        slow: Mapping[tuple[int, int], float] | None = None,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.noise, self.stalls, self.drift, self.memory_s, self.supply = noise, stalls, drift, memory_s, supply
        self.fixed, self.per_token, self.per_draft, self.prefill_s = fixed, per_token, per_draft, prefill_s
        self.slow = slow or {}
        self.wander, self.wandered_s = self.rng.standard_normal(), 0.0
        self.now_s = self.level_s = 0.0

    def width(self, k: int) -> float:
        """Mean drafts per request when ``k`` are asked for."""
        return self.supply * k

    def truth(self, batch: int, k: int, width: float | None = None) -> float:
        """Time of a step without noise, stalls and drift, milliseconds; by default at the mean width."""
        width = self.width(k) if width is None else width
        ms = self.fixed + self.per_token * batch * (1.0 + width) + self.per_draft * k
        return ms * self.slow.get((batch, k), 1.0)

    def steps(self, batch: int, k: int, number: int) -> tuple[list[float], list[float]]:
        """Times and widths of ``number`` steps; the clock goes on."""
        times, widths = [], []
        for _ in range(number):
            width = k * self.rng.binomial(batch, self.supply) / batch
            level = 1.0 + self.drift * self._wander()
            noise = math.exp(self.noise * self.rng.standard_normal() - self.noise**2 / 2.0)
            ms = self.truth(batch, k, width) * level * noise
            if self.rng.random() < self.stalls:
                ms *= self.rng.uniform(1.5, 10.0)
            times.append(ms)
            widths.append(width)
            self.now_s += ms / 1000.0
        return times, widths

    def wait(self, seconds: float) -> None:
        """Let the clock go on, in steps that the drift is followed through."""
        for _ in range(math.ceil(seconds)):
            self.now_s += seconds / math.ceil(seconds)
            self._wander()

    @property
    def level(self) -> float:
        """What drift made of the truth on average over the session so far."""
        return self.level_s / self.wandered_s

    def _wander(self) -> float:
        passed = self.now_s - self.wandered_s
        self.level_s += passed * (1.0 + self.drift * self.wander)
        kept = math.exp(-passed / self.memory_s)
        self.wander = kept * self.wander + math.sqrt(1.0 - kept**2) * self.rng.standard_normal()
        self.wandered_s = self.now_s
        return self.wander

    def play(self, visit: Visit) -> tuple[list[Block], float]:
        """The blocks of a visit and the seconds that it took, prompts and a step of transition per block included."""
        start = self.now_s
        self.wait(self.prefill_s * visit.group.batch)
        blocks = []
        for k in visit.order:
            self.steps(visit.group.batch, k, 1)
            blocks.append(self.block(visit.number, visit.group, k, visit.steps))
        return blocks, self.now_s - start

    def block(self, number: int, group: Group, k: int, steps: int) -> Block:
        """One block without its transition."""
        at_s = self.now_s
        ms, widths = self.steps(group.batch, k, steps)
        return Block(group.batch, k, group.context, group.context, number, at_s, tuple(ms), tuple(widths))


def even_session(
    engine: SimulatedEngine, groups: Sequence[Group], arms: Sequence[int], visits: int, gap_s: float, steps: int = 8
) -> list[Block]:
    """Every group ``visits`` times in turn, ``gap_s`` seconds between the rounds."""
    blocks, number = [], 0
    for _ in range(visits):
        for group in groups:
            order = (*arms, *reversed(arms))
            blocks.extend(engine.play(Visit(number, group, order, steps, "again"))[0])
            number += 1
        engine.wait(gap_s)
    return blocks
