"""Do the 90 % intervals of ``Controller.belief`` hold the truth 90 % of the time?

Random engines and drafters of the replay at a constant batch size, 3 % noise, tables right, off by up to a quarter, off
by up to twofold, and absent, in turns. Asked in calm (step 400) and 200 steps after a change, of acceptance (drawn
anew) or of time (level and draft cost each times 0.6 to 1.67). *Played* are arms that were played in at least 8 of the
last 100 steps; for the acceptance length a deeper arm counts, too, since it shows all positions above its own.

The arms of one world hang together, so that coverage is averaged per world first, and its error is that of a mean of
worlds. A bound is broken where the coverage is beyond it by more than 3.7 standard errors: 1 in 10,000 for a core that
is exactly at the bound. The seeds are fixed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pytest

from adaptk import Controller
from adaptk.belief import ArmBelief
from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.noise import Drift, Noise
from adaptk.replay.scenarios import script
from adaptk.replay.simulator import World, simulate
from tests.randomworlds import ARMS, between, random_acceptance, random_surface, table_off_by

CALM, AFTER, LATELY, OFTEN = 400, 200, 100, 8
BATCHES = (1, 8, 64, 256)
TABLE_ERRORS = (1.0, 1.25, 2.0, None)  # None: no table
WORLDS = 80  # per batch size and condition
BEYOND = 3.7  # standard errors
CONDITIONS = ("calm", "acceptance", "time")


class Asked(NamedTuple):
    """A belief about one arm, the truth, and whether the arm, or one at least as deep, was played lately."""

    belief: ArmBelief
    length: float
    itl_ms: float
    played: bool
    shown: bool


class Key(NamedTuple):
    """What coverage is counted by: al or itl, in calm or after which change, played arms or all, the batch size."""

    quantity: str
    condition: str
    arms: str
    batch: int


def ask(seed: int, batch: int, condition: str) -> list[Asked]:
    """What is believed at the end of a world."""
    rng = np.random.default_rng([seed, batch, 5])
    surface, _ = random_surface(rng)
    before, after = random_acceptance(rng), random_acceptance(rng)
    level, k_factor = between(rng, 0.6, 1.67), between(rng, 0.6, 1.67)
    error = TABLE_ERRORS[seed % len(TABLE_ERRORS)]
    table = None if error is None else table_off_by(error, surface, before, rng)[0]
    steps = CALM if condition == "calm" else CALM + AFTER
    load = script(steps, batch, kind=lambda step: int(condition == "acceptance" and step >= CALM))
    drift = Drift((0, CALM), (1.0, level), (1.0, k_factor)) if condition == "time" else Drift()
    drafter = Drafter(profiles(before, after, k_max=ARMS[-1]))
    world = World(surface, drafter, load, steps, noise=Noise(sigma=0.03), drift=drift, seed=seed)
    controller = Controller(table, arms=ARMS, seed=seed)
    run = simulate(world, controller)
    lately = run.k[-LATELY:]
    return [
        Asked(
            belief,
            float(run.length[-1, belief.k]),
            float(run.itl[-1, belief.k]),
            int(np.sum(lately == belief.k)) >= OFTEN,
            int(np.sum(lately >= belief.k)) >= OFTEN,
        )
        for belief in controller.belief(batch)
    ]


def inside(low: float, value: float, high: float) -> tuple[bool, float]:
    """Whether an interval holds a value, and how far from its middle that lies, in half widths."""
    return low <= value <= high, abs(2.0 * value - low - high) / max(high - low, 1e-12)


def held(asked: list[Asked]) -> dict[tuple[str, str], list[tuple[bool, float]]]:
    """Whether each interval holds the truth, and its distance in half widths, by quantity and by which arms."""
    found: dict[tuple[str, str], list[tuple[bool, float]]] = defaultdict(list)
    for belief, length, itl_ms, played, shown in asked:
        assert belief.itl_low is not None
        assert belief.itl_high is not None
        timed = inside(*np.log([belief.itl_low, itl_ms, belief.itl_high]).tolist())
        found["itl", "all"].append(timed)
        if played:
            found["itl", "played"].append(timed)
        if belief.k > 0:  # the length of K=0 is 1 and no guess
            accepted = inside(belief.al_low, length, belief.al_high)
            found["al", "all"].append(accepted)
            if shown:
                found["al", "played"].append(accepted)
    return found


class Counted(NamedTuple):
    """One entry per world: the share of its intervals that hold the truth, and the mean square distance."""

    coverage: list[float]
    square: list[float]


@pytest.fixture(scope="module")
def counted() -> Mapping[Key, Counted]:
    """All worlds, by what they are counted by."""
    counted: dict[Key, Counted] = defaultdict(lambda: Counted([], []))
    for condition in CONDITIONS:
        for batch in BATCHES:
            for seed in range(WORLDS):
                for (quantity, arms), found in held(ask(seed, batch, condition)).items():
                    entry = counted[Key(quantity, condition, arms, batch)]
                    entry.coverage.append(float(np.mean([holds for holds, _ in found])))
                    entry.square.append(float(np.mean([distance**2 for _, distance in found])))
    return counted


WANTED = 0.85  # the other side, 0.95, is left to the sharpness: see below


def check_coverage(worlds: list[float], least: float) -> None:
    """The mean over worlds is at least ``least``, but for ``BEYOND`` standard errors."""
    coverage, error = float(np.mean(worlds)), float(np.std(worlds, ddof=1)) / np.sqrt(len(worlds))
    assert coverage >= least - BEYOND * error, f"{coverage:.3f} +- {error:.3f} of {len(worlds)} worlds"


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("arms", ["played", "all"])
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("quantity", ["al", "itl"])
def test_the_intervals_hold_the_truth(
    counted: Mapping[Key, Counted], quantity: str, condition: str, arms: str, batch: int
) -> None:
    worlds = counted[Key(quantity, condition, arms, batch)].coverage
    assert len(worlds) >= WORLDS // 3
    check_coverage(worlds, WANTED)


@pytest.mark.parametrize("arms", ["played", "all"])
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("quantity", ["al", "itl"])
def test_the_intervals_hold_the_truth_over_all_batch_sizes(
    counted: Mapping[Key, Counted], quantity: str, condition: str, arms: str
) -> None:
    """Four times as many worlds, so half the error."""
    worlds = [share for batch in BATCHES for share in counted[Key(quantity, condition, arms, batch)].coverage]
    check_coverage(worlds, WANTED)


# Least root mean square of (truth - middle) / half width, of played arms in calm: 1 / 1.645 = 0.61 for a Gaussian
# belief that is exactly as sure as it may be, 0.43 for discounted counts, which are as wide as their memory is long but
# scatter like twice as many.
SHARP = {"al": 0.35, "itl": 0.30}


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("quantity", SHARP)
def test_the_intervals_are_not_far_too_wide(counted: Mapping[Key, Counted], quantity: str, batch: int) -> None:
    """What was played in calm is known as well as it is believed to be, within a factor of two."""
    squares = np.array(counted[Key(quantity, "calm", "played", batch)].square)
    error = float(squares.std(ddof=1)) / np.sqrt(len(squares))
    assert float(squares.mean()) + BEYOND * error >= SHARP[quantity] ** 2, f"{np.sqrt(squares.mean()):.3f}"
