"""The controller in small worlds that are none of the replay's cases; the table is the public profile's.

Each is run with three seeds. They are fixed, so that a test either always fails or never.
"""

from __future__ import annotations

import numpy as np
import pytest

from adaptk import Controller, GoodputTable
from adaptk.replay.casechecks import drafter
from adaptk.replay.measures import efficiency, rate_of
from adaptk.replay.noise import Drift, Noise
from adaptk.replay.scenarios import script
from adaptk.replay.simulator import Engine, World, simulate
from adaptk.replay.surface import CostSurface
from tests.publicengine import PUBLIC, of_best, world

SEEDS = pytest.mark.parametrize("seed", [0, 1, 2])


@SEEDS
@pytest.mark.parametrize("factor", [0.5, 1 / 1.5, 1.5, 2.0])
@pytest.mark.parametrize("batch", [1, 16, 64, 256])
def test_table_wrong_in_its_dependence_on_k(factor: float, batch: int, seed: int) -> None:
    """What drafts cost beyond K=0 is off by a factor: the best K is found within 500 steps."""
    run = simulate(world(1200, batch, k_factor=factor, seed=50 + seed), Controller(PUBLIC, seed=seed))
    assert of_best(run, 500) > 0.98


@SEEDS
def test_acceptance_jumps_down_and_back_while_results_come_two_steps_late(seed: int) -> None:
    """0.85 to 0.2 and back every 500 steps: near the best again within 150 steps."""
    turns = drafter([0.85], [0.2])
    at = world(2000, 16, turns, kind=lambda step: step // 500 % 2, engine=Engine(delay=2), seed=70 + seed)
    controller = Controller(PUBLIC, seed=seed)
    run = simulate(at, controller)
    assert controller.counters["acceptance_alarms"] >= 3
    for start in (500, 1000, 1500):
        assert of_best(run, start + 150, start + 500) > 0.97


@SEEDS
@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_no_table(seed: int, factor: float) -> None:
    """Without a table it starts on the cheapest arm and finds the best, and a steep first draft costs little."""
    run = simulate(world(1500, 16, k_factor=factor, seed=seed), Controller(None, seed=seed, k_max=5))
    assert run.k[:3].tolist() == [0, 0, 0]
    assert of_best(run, 300) > 0.98
    assert efficiency(run, rate_of(run, 0)) > 0.98


@SEEDS
def test_every_step_mixed_with_prefill(seed: int) -> None:
    """Drafts cost three times what the table says and no step is free of prompt tokens: it still learns."""
    at = world(1500, 64, k_factor=3.0, joining=lambda step: (1, 256 + 64 * (step % 5)), seed=seed)
    assert of_best(simulate(at, Controller(PUBLIC, seed=seed)), 300) > 0.96


@SEEDS
def test_a_fifth_of_the_steps_is_contaminated(seed: int) -> None:
    """They take 2.5 times as long on average, and nothing says which."""
    slowed = Noise(stalls=0.2, stall_factor=2.5)
    assert of_best(simulate(world(1500, 64, noise=slowed, seed=seed), Controller(PUBLIC, seed=seed))) > 0.98


@SEEDS
def test_whole_engine_slows_down(seed: int) -> None:
    """All steps take 1.5 times as long from step 500 on, which changes nothing about the best K."""
    slows = Drift((0, 500), (1.0, 1.5), (1.0, 1.0))
    assert of_best(simulate(world(1200, 16, drift=slows, seed=seed), Controller(PUBLIC, seed=seed))) > 0.98


@SEEDS
def test_short_outputs_do_not_flatter_a_large_k(seed: int) -> None:
    """Drafts accepted beyond a stop are worth nothing: with outputs of about 3 tokens a large K loses its lead."""
    rows = [{"batch": 4, "k": k, "itl_ms": 10 + 1.2 * k} for k in (0, 1, 3, 7)]
    table = GoodputTable.from_rows(rows, acceptance=[0.95])
    surface = CostSurface.from_table(table, 4, 7)
    usual = {}
    for output in (0.0, 3.0):  # 0: answers do not end
        at = World(surface, drafter([0.95]), script(800, 4, output=output), 800, seed=seed)
        usual[output] = np.median(simulate(at, Controller(table, seed=seed)).k[300:])
    assert usual[0.0] == 7
    assert usual[3.0] <= 3
