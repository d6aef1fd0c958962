"""Requests of several adapters or grammars in one batch: acceptance moves with the mix, and that is no change."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from adaptk import Controller
from adaptk.replay.costs.p32374 import KS, public_surface
from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.measures import regret_ms
from adaptk.replay.noise import Noise
from adaptk.replay.scenarios import script
from adaptk.replay.simulator import World, simulate

STEPS, SEEDS = 3000, 4
GOOD, POOR = 0.9, 0.4
SURFACE = public_surface()


def come_and_go(batch: int, lifetime: float, seed: int) -> list[int]:
    """Requests of the poor group in each step, where either group sends half of the requests."""
    rng = np.random.default_rng([seed, 7])
    poor = rng.random(batch) < 0.5
    counts = []
    for _ in range(STEPS):
        new = rng.random(batch) < 1.0 / lifetime
        poor = np.where(new, rng.random(batch) < 0.5, poor)
        counts.append(int(poor.sum()))
    return counts


def wander(batch: int, steps: float, seed: int) -> list[int]:
    """The same where demand itself wanders between the groups, from nearly all to nearly none within ``steps``."""
    rng = np.random.default_rng([seed, 8])
    level, counts = 0.0, []
    for _ in range(STEPS):
        level += math.sqrt(2.0 / steps) * rng.standard_normal() - level / steps
        counts.append(round(batch / (1.0 + math.exp(-1.5 * level))))
    return counts


def played(batch: int, poor: Sequence[int], seed: int) -> tuple[int, int, float]:
    """Alarms of acceptance, switches of K, and the share of the time lost against the best K for each step's mix."""
    load = script(STEPS, batch, others=lambda step: poor[step], other_kind=1)
    world = World(SURFACE, Drafter(profiles([GOOD], [POOR])), load, STEPS, noise=Noise(0.03), seed=seed)
    controller = Controller(SURFACE.to_table(KS, [(GOOD + POOR) / 2]), arms=KS, seed=seed)
    run = simulate(world, controller)
    lost = float(regret_ms(run).sum() / run.elapsed.sum())
    return controller.counters["acceptance_alarms"], controller.counters["switches"], lost


@pytest.mark.parametrize("batch", [8, 32, 128])
@pytest.mark.parametrize(
    ("mix", "speed", "alarms", "switches", "lost"),
    [
        pytest.param(come_and_go, 1.0, 1, 20, 0.006, id="a new mix in every step"),
        pytest.param(come_and_go, 100.0, 4, 30, 0.006, id="requests of 100 steps"),
        pytest.param(come_and_go, 1000.0, 3, 25, 0.006, id="requests of 1,000 steps"),
        pytest.param(wander, 1000.0, 6, 70, 0.010, id="demand that wanders"),
    ],
)
def test_a_moving_mix_is_no_change(
    batch: int, mix: Callable[[int, float, int], list[int]], speed: float, alarms: float, switches: float, lost: float
) -> None:
    """Two groups, nine of ten and four of ten drafts accepted; means of 3,000 steps over four seeds are bounded.

    Were steps independent, an alarm would be false once in about exp(9) = 8,100 steps. A mix makes neighbouring steps
    alike: while either group sends half of the requests, at most 4 alarms are borne; where one of them takes over the
    engine, acceptance does change, and an alarm then is right.
    """
    runs = np.array([played(batch, mix(batch, speed, seed), seed) for seed in range(SEEDS)])
    assert (runs.mean(axis=0) <= (alarms, switches, lost)).all()


def test_the_mix_does_not_hide_a_change() -> None:
    """With both groups there the drafter stops working for either: noticed within 30 steps."""
    poor = come_and_go(32, 100.0, 1)
    load = script(
        900, 32, kind=lambda step: 2 * (step >= 600), others=lambda step: poor[step] * (step < 600), other_kind=1
    )
    world = World(SURFACE, Drafter(profiles([GOOD], [POOR], [0.0])), load, 900, noise=Noise(0.03), seed=1)
    run = simulate(world, Controller(SURFACE.to_table(KS, [0.65]), arms=KS, seed=1))
    assert 0 in run.k[600:630]
    assert np.mean(run.k[630:] == 0) > 0.9
