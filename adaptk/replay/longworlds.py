"""What long worlds are made of: their length, noise and checks, scripted loads, and the scenario around a world."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from adaptk.replay.costs.p32374 import ACCEPTANCE, public_surface
from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.noise import Noise
from adaptk.replay.scenarios import Check, Scenario, script
from adaptk.replay.simulator import World
from adaptk.replay.surface import CostSurface
from adaptk.replay.workload import Script

STEPS = 12_000
USUAL = Noise(0.03, correlation=0.3, stalls=0.002, stall_factor=5.0)
ARMS = (0, 1, 3, 5)
DEEP = (0, 1, 3, 7)
SHORT_CONTEXT = 512.0

CLOSE = Check("0.985 of the oracle", lambda judged: judged.of_oracle() >= 0.985)
NEAR = Check("0.97 of the oracle", lambda judged: judged.of_oracle() >= 0.97)
SAFE = Check("0.99 of the static table", lambda judged: judged.of_table() >= 0.99)
SAFE_K0 = Check("0.99 of in-engine K=0", lambda judged: judged.of_fixed(0) >= 0.99)


Load = Callable[[np.random.Generator], Script]


def long_world(
    name: str,
    about: str,
    world: Callable[[int], World],
    truth: CostSurface,
    acceptance: Sequence[float],
    arms: tuple[int, ...] = ARMS,
    **known: Any,
) -> Scenario:
    """A world with what may be known of it, by default a right table, in the core; ``known`` is of ``Scenario``."""
    startup = truth.to_table(arms, acceptance, context=SHORT_CONTEXT)
    near = NEAR if known.get("group") == "apart" else CLOSE
    usual = {"table": startup, "checks": (near, SAFE), "group": "core"}
    return Scenario(name, about, world, startup=startup, arms=arms, **{**usual, **known})


def dense(
    name: str,
    about: str,
    load: Load,
    truth: CostSurface | None = None,
    drafter: Sequence[float] | Drafter = ACCEPTANCE,
    acceptance: Sequence[float] | None = None,
    known: Mapping[str, Any] | None = None,
    **more: Any,
) -> Scenario:
    """A scripted world on the public profile or one made of it.

    ``drafter`` may be given by its acceptance alone; ``acceptance`` is what is known of it. ``known`` is of
    ``Scenario``, ``more`` of ``World``.
    """
    surface = public_surface() if truth is None else truth
    if isinstance(drafter, Drafter):
        text, told = drafter, ACCEPTANCE if acceptance is None else acceptance
    else:
        text, told = Drafter(profiles(drafter, k_max=ARMS[-1])), drafter if acceptance is None else acceptance
    return long_world(name, about, scripted(surface, text, load, **more), surface, told, **(known or {}))


def scripted(surface: CostSurface, drafter: Drafter, load: Load, **more: Any) -> Callable[[int], World]:
    """Worlds of a scripted load with the usual noise; ``more`` is of ``World``."""

    def world(seed: int) -> World:
        made = load(np.random.default_rng([seed, 2]))
        return World(surface, drafter, made, len(made), seed=seed, **{"noise": USUAL, **more})

    return world


def wave(low: int, high: int, period: int) -> Load:
    """Batch sizes that rise and fall between two values, evenly in their logarithm, with jitter."""
    return lambda rng: script(STEPS, wave_sizes(low, high, period, rng))


def wave_sizes(low: int, high: int, period: int, rng: np.random.Generator) -> list[int]:
    """The batch sizes of :func:`wave`, one a step."""
    phase = np.abs(2.0 * ((np.arange(STEPS) / period) % 1.0) - 1.0)
    size = np.exp(math.log(low) + phase * math.log(high / low) + 0.05 * rng.standard_normal(STEPS))
    return [int(each) for each in np.clip(np.rint(size), 1, high)]
