"""Random engines and loads of the replay: the population that guarantees and calibration are stated over."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from adaptk import GoodputTable
from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.noise import Noise
from adaptk.replay.presets import preset
from adaptk.replay.scenarios import script
from adaptk.replay.simulator import World
from adaptk.replay.surface import CostSurface

ENGINES = ("p32374", "h100-8b", "h200-70b", "h100-moe", "dense-100b-calibrated", "moe-calibrated")
ARMS = (0, 1, 3, 5)
MOST = 256  # requests in a step


@dataclass(frozen=True)
class RandomWorld:
    """A world, the table that a controller is seeded with (``None``: none) and what it is, in words."""

    world: World
    table: GoodputTable | None
    about: str


@cache
def engine(name: str) -> CostSurface:
    """A preset's cost surface."""
    return preset(name).surface


def between(rng: np.random.Generator, low: float, high: float) -> float:
    """A factor between two positive numbers, uniform in its logarithm."""
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))


def random_acceptance(rng: np.random.Generator) -> list[float]:
    """Conditional acceptance per position: the first 0.2 to 0.95, each later one 0.7 to 1 times the one before."""
    first, fall = rng.uniform(0.2, 0.95), rng.uniform(0.7, 1.0)
    return [float(first * fall**j) for j in range(ARMS[-1])]


def random_surface(rng: np.random.Generator) -> tuple[CostSurface, str]:
    """A published or modelled engine, its draft costs stretched, its first draft made dear, its steps padded."""
    name = str(rng.choice(ENGINES))
    k_factor, level, steep = between(rng, 0.5, 2.0), between(rng, 0.5, 2.0), 1.0
    surface = engine(name).stretched(k_factor, level)
    if rng.random() < 0.3:
        steep = between(rng, 1.0, 4.0)
        surface = surface.steep_first(steep)
    padded = rng.random() < 0.2
    if padded:
        surface = surface.padded()
    about = f"{name} drafts x{k_factor:.2f} level x{level:.2f} first x{steep:.2f}{' padded' if padded else ''}"
    return surface, about


def random_load(rng: np.random.Generator, steps: int) -> tuple[Callable[[int], int], str]:
    """Batch size by step: constant, a wave over up to four octaves, or jumps of any size."""
    pattern = str(rng.choice(["constant", "wave", "jumps"]))
    middle = between(rng, 1.0, MOST)
    if pattern == "constant":
        return lambda step: round(middle), f"batch {middle:.0f}"
    if pattern == "wave":
        period, swing = rng.uniform(80.0, steps), between(rng, 1.2, 4.0)

        def wave(step: int) -> int:
            return min(MOST, max(1, round(middle * swing ** math.sin(2.0 * math.pi * step / period))))

        return wave, f"batch {middle:.0f} in waves of {period:.0f} steps, x{swing:.1f} either way"
    stay = int(rng.integers(20, 200))
    levels = [round(between(rng, 1.0, MOST)) for _ in range(1 + steps // stay)]
    return lambda step: levels[step // stay], f"batches {levels} for {stay} steps each"


def table_off_by(
    most: float, surface: CostSurface, acceptance: list[float], rng: np.random.Generator
) -> tuple[GoodputTable, str]:
    """Drafts, whole steps and log acceptance are off by a factor each, at most ``most`` either way."""
    k_factor, level, power = (between(rng, 1.0 / most, most) for _ in range(3))
    table = surface.stretched(k_factor, level).to_table(ARMS, [a**power for a in acceptance])
    return table, f"table: drafts x{k_factor:.2f} level x{level:.2f} acceptance ^{power:.2f}"


def random_world(seed: int, steps: int, kind: str, **more: Any) -> RandomWorld:
    """A world of ``steps`` steps; ``kind`` is that of its table: right, wrong or absent; ``more`` is of ``World``."""
    rng = np.random.default_rng([seed, 77])
    surface, about = random_surface(rng)
    acceptance = random_acceptance(rng)
    batch, load = random_load(rng, steps)
    noise = Noise(sigma=float(rng.uniform(0.005, 0.05)), stalls=float(rng.choice([0.0, 0.005])))
    table: GoodputTable | None = None
    said = "no table"
    if kind == "right":
        table, said = surface.to_table(ARMS, acceptance), "table right"
    elif kind == "wrong":
        table, said = table_off_by(2.0, surface, acceptance, rng)
    drafter = Drafter(profiles(acceptance, k_max=ARMS[-1]))
    world = World(surface, drafter, script(steps, batch), steps, noise=noise, seed=seed, **more)
    accepted = "/".join(f"{a:.2f}" for a in acceptance)
    words = f"{about}; accepts {accepted}; {load}; noise {noise.sigma:.3f} stalls {noise.stalls}; {said}"
    return RandomWorld(world, table, words)
