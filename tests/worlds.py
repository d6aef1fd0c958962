"""A small engine to try the controller on: batch, acceptance and true step times as functions of the step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from adaptk import GoodputTable, StepRecord

# The profile printed in vLLM's pull request 32374 (H100, Llama-3.1-8B with EAGLE): ms per batch size and K.
PUBLIC_ITL = {
    1: {0: 6.521, 1: 7.368, 3: 8.841, 5: 10.326},
    4: {0: 6.602, 1: 7.473, 3: 8.981, 5: 10.400},
    16: {0: 6.899, 1: 7.852, 3: 9.518, 5: 11.196},
    64: {0: 7.774, 1: 9.656, 3: 13.498, 5: 16.831},
    256: {0: 14.491, 1: 27.138, 3: 41.848, 5: 57.404},
}
PUBLIC_MARGINAL = (0.6812, 0.3914, 0.2035, 0.1014, 0.0514)


def public_table(**changes: Any) -> GoodputTable:
    """The public profile as a table, acceptance made conditional."""
    rows = [{"batch": b, "k": k, "itl_ms": t} for b, row in PUBLIC_ITL.items() for k, t in row.items()]
    conditional = [m / p for m, p in zip(PUBLIC_MARGINAL, (1.0, *PUBLIC_MARGINAL[:-1]), strict=True)]
    return GoodputTable.from_rows(rows, acceptance=changes.get("acceptance", conditional))


@dataclass
class World:
    """What the engine does at each step.

    ``batch`` and ``acceptance`` (conditional, per position) are functions of the step, ``itl`` of (step, batch, K), in
    milliseconds; ``draft_share`` is the part of what drafts cost that is paid when they are made, not when verified.
    """

    batch: Callable[[int], int]
    acceptance: Callable[[int], Sequence[float]]
    itl: Callable[[int, int, int], float]
    noise: float = 0.03
    draft_share: float = 0.2
    prefill: Callable[[int], tuple[int, int]] = field(default=lambda step: (0, 0))  # requests, tokens
    prefill_ms: float = 0.044
    context: Callable[[int], int | None] = field(default=lambda step: None)
    delay: int = 0  # further steps until a result is known, as in async scheduling
    contaminate: Callable[[int, np.random.Generator], float] = field(default=lambda step, rng: 1.0)


@dataclass
class Run:
    """What happened: K chosen, time and tokens per step, and the same for the best arm and for fixed ones."""

    k: np.ndarray
    time_ms: np.ndarray
    tokens: np.ndarray
    rates: np.ndarray  # true goodput (steps, arms)
    arms: tuple[int, ...]
    decisions: list[Any]

    def share(self, k: int, start: int = 0, end: int | None = None) -> float:
        """Share of the steps at arm ``k``."""
        return float(np.mean(self.k[start:end] == k))

    def efficiency(self, start: int = 0, end: int | None = None) -> float:
        """Expected goodput of what was chosen over that of the best arm, time-weighted."""
        index = np.searchsorted(self.arms, self.k[start:end])
        rates = self.rates[start:end]
        chosen = rates[np.arange(len(index)), index]
        return float(1.0 / np.mean(rates.max(axis=1) / chosen))

    def against(self, k: int, start: int = 0, end: int | None = None) -> float:
        """The same over a fixed arm."""
        index = np.searchsorted(self.arms, self.k[start:end])
        rates = self.rates[start:end]
        return float(1.0 / np.mean(rates[:, self.arms.index(k)] / rates[np.arange(len(index)), index]))

    def switches(self, start: int = 0, end: int | None = None) -> int:
        """Changes of K."""
        return int(np.sum(np.diff(self.k[start:end]) != 0))

    def lasting_switches(self, start: int = 0, end: int | None = None, visit: int = 8) -> int:
        """Changes of K, leaving out excursions of at most ``visit`` steps that return."""
        ks = self.k[start:end]
        edges = [0, *(np.flatnonzero(np.diff(ks)) + 1).tolist(), len(ks)]
        runs = [(int(ks[a]), b - a) for a, b in pairwise(edges)]
        kept: list[int] = []
        for i, (k, length) in enumerate(runs):
            returns = kept and i + 1 < len(runs) and runs[i + 1][0] == kept[-1]
            if length <= visit and returns:
                continue
            if not kept or kept[-1] != k:
                kept.append(k)
        return len(kept) - 1

    def first(self, k: Sequence[int], start: int, hold: int = 10) -> int:
        """Steps after ``start`` until one of ``k`` is played for ``hold`` steps in a row, else a large number."""
        good = np.isin(self.k[start:], list(k))
        for i in range(len(good) - hold):
            if good[i : i + hold].all():
                return i
        return 10**6


def simulate(controller: Any, world: World, steps: int, seed: int = 0) -> Run:
    """Drive a controller (anything with choose, observe and arms) through a world, runner V1's attribution."""
    rng = np.random.default_rng(seed)
    arms = controller.arms
    ks, times, tokens, rates, decisions = [], [], [], [], []
    waiting: list[StepRecord] = []
    previous = 0
    for step in range(steps):
        decodes = world.batch(step)
        joining, prompt = world.prefill(step)
        context = world.context(step)
        total = None if context is None else context * (decodes + joining)
        k = controller.choose(decodes + joining, total)
        accept = np.asarray(world.acceptance(step), dtype=float)
        if accept.ndim == 1:
            accept = np.broadcast_to(accept, (decodes, len(accept)))
        hits = rng.random((decodes, previous)) < accept[:, :previous] if previous else np.zeros((decodes, 0), bool)
        accepted = np.cumprod(hits, axis=1).sum(axis=1).astype(int).tolist()
        idle = world.itl(step, decodes, 0)
        draft = {arm: world.draft_share * (world.itl(step, decodes, arm) - idle) for arm in arms}
        mean = world.itl(step, decodes, previous) - draft[previous] + draft[k] + world.prefill_ms * prompt
        elapsed = mean * float(np.exp(world.noise * rng.standard_normal())) * world.contaminate(step, rng)
        waiting.append(
            StepRecord(
                batch_size=decodes + joining,
                elapsed_ms=elapsed,
                k=k,
                drafted=[previous] * decodes + [0] * joining,
                accepted=accepted + [0] * joining,
                context_tokens=total,
                prefill_tokens=prompt,
                decodes=decodes,
            )
        )
        if len(waiting) > world.delay:
            decisions.append(controller.observe(waiting.pop(0)))
        chain = np.cumprod(accept.mean(axis=0) if len(accept) else np.ones(1))
        lengths = np.concatenate(([1.0], 1.0 + np.cumsum(chain)))
        rates.append([lengths[arm] / world.itl(step, decodes, arm) for arm in arms])
        ks.append(k)
        times.append(elapsed)
        tokens.append(sum(accepted) + decodes)
        previous = k
    return Run(np.array(ks), np.array(times), np.array(tokens), np.array(rates), tuple(arms), decisions)


def from_table(table: GoodputTable, k_factor: float = 1.0) -> Callable[[int, int, int], float]:
    """True times as in a table, what they have beyond K=0 stretched by ``k_factor``."""

    def itl(step: int, batch: int, k: int) -> float:
        idle, full = table.itl_ms(batch, 0), table.itl_ms(batch, k)
        assert idle is not None
        assert full is not None
        return idle + k_factor * (full - idle)

    return itl
