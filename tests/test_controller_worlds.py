"""The controller in small worlds; cases that users reported are scenarios of the replay.

Unless a test says otherwise: the public H100 profile as table and truth, runner V1, feedback without delay, 3 % noise.
"""

from __future__ import annotations

import numpy as np
import pytest

from adaptk import Controller, GoodputTable
from tests.worlds import PUBLIC_MARGINAL, World, from_table, public_table, simulate

TABLE = public_table()
TRUTH = from_table(TABLE)
PUBLIC = [m / p for m, p in zip(PUBLIC_MARGINAL, (1.0, *PUBLIC_MARGINAL[:-1]), strict=True)]
SEEDS = pytest.mark.parametrize("seed", [0, 1, 2])


def constant(a: float, positions: int = 7) -> list[float]:
    return [a] * positions


@pytest.mark.parametrize(("batch", "best"), [(1, 3), (4, 3), (16, 3), (64, 1), (256, 0)])
def test_right_table_is_kept(batch: int, best: int) -> None:
    run = simulate(Controller(TABLE, seed=1), World(lambda s: batch, lambda s: PUBLIC, TRUTH), 1000)
    assert run.share(best) > 0.85
    assert run.efficiency() > 0.99


@SEEDS
@pytest.mark.parametrize("factor", [0.5, 1 / 1.5, 1.5, 2.0])
@pytest.mark.parametrize("batch", [1, 16, 64, 256])
def test_table_wrong_in_its_dependence_on_k(factor: float, batch: int, seed: int) -> None:
    """What drafts cost beyond K=0 is off by a factor: the best K is found within 500 steps."""
    world = World(lambda s: batch, lambda s: PUBLIC, from_table(TABLE, factor))
    run = simulate(Controller(TABLE, seed=seed), world, 1200, seed=50 + seed)
    assert run.efficiency(500) > 0.98


@SEEDS
@pytest.mark.parametrize("delay", [0, 2])
def test_acceptance_jumps_down_and_back(seed: int, delay: int) -> None:
    """0.85 to 0.2 and back every 500 steps: near the best again within 150 steps."""
    world = World(lambda s: 16, lambda s: constant(0.85 if (s // 500) % 2 == 0 else 0.2), TRUTH, delay=delay)
    controller = Controller(TABLE, seed=seed)
    run = simulate(controller, world, 2000, seed=70 + seed)
    assert controller.counters["acceptance_alarms"] >= 3
    for start in (500, 1000, 1500):
        assert run.efficiency(start + 150, start + 500) > 0.97


@SEEDS
@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_no_table(seed: int, factor: float) -> None:
    """Without a table it starts on the cheapest arm and finds the best, and a steep first draft costs little."""
    controller = Controller(None, seed=seed, k_max=5)
    run = simulate(controller, World(lambda s: 16, lambda s: PUBLIC, from_table(TABLE, factor)), 1500, seed=seed)
    assert run.k[:3].tolist() == [0, 0, 0]
    assert run.efficiency(300) > 0.98
    assert run.against(0, 0, 1500) > 0.98


@SEEDS
def test_every_step_mixed_with_prefill(seed: int) -> None:
    """Drafts cost three times what the table says and no step is free of prompt tokens: it still learns."""
    world = World(lambda s: 64, lambda s: PUBLIC, from_table(TABLE, 3.0), prefill=lambda s: (1, 256 + 64 * (s % 5)))
    run = simulate(Controller(TABLE, seed=seed), world, 1500, seed=seed)
    assert run.efficiency(300) > 0.96


@SEEDS
def test_a_fifth_of_the_steps_is_contaminated(seed: int) -> None:
    world = World(
        lambda s: 64,
        lambda s: PUBLIC,
        TRUTH,
        contaminate=lambda s, rng: 2.5 if rng.random() < 0.2 else 1.0,
    )
    run = simulate(Controller(TABLE, seed=seed), world, 1500, seed=seed)
    assert run.efficiency() > 0.98


@SEEDS
def test_whole_engine_slows_down(seed: int) -> None:
    world = World(lambda s: 16, lambda s: PUBLIC, lambda s, b, k: TRUTH(s, b, k) * (1.5 if s > 500 else 1.0))
    run = simulate(Controller(TABLE, seed=seed), world, 1200, seed=seed)
    assert run.efficiency() > 0.98


@SEEDS
def test_exploring_stays_within_its_budget(seed: int) -> None:
    """What the ledger books as spent stays within 1 % of the time, and one visit's surprise."""
    controller = Controller(TABLE, seed=seed)
    run = simulate(controller, World(lambda s: 16, lambda s: PUBLIC, from_table(TABLE, 1.5)), 1500, seed=seed)
    ledger = controller.ledger
    assert ledger["allowed_ms"] <= 0.0101 * run.time_ms.sum()
    assert ledger["spent_ms"] <= ledger["allowed_ms"] + 5 * float(np.median(run.time_ms))


def test_short_outputs_do_not_flatter_a_large_k() -> None:
    """Drafts accepted beyond a stop are worth nothing: with outputs of about 3 tokens a large K loses its lead."""
    from adaptk import StepRecord

    rows = [{"batch": 4, "k": k, "itl_ms": 10 + 1.2 * k} for k in (0, 1, 3, 7)]
    table = GoodputTable.from_rows(rows, acceptance=constant(0.95))

    def play(short: bool) -> int:
        controller = Controller(table, seed=0)
        rng = np.random.default_rng(3)
        previous = 0
        ks = []
        for _ in range(800):
            k = controller.choose(4)
            hits = rng.random((4, previous)) < 0.95
            accepted = np.cumprod(hits, axis=1).sum(axis=1).astype(int).tolist() if previous else [0] * 4
            left = rng.geometric(0.33, 4) if short else [99] * 4
            emitted = [min(a + 1, int(n)) for a, n in zip(accepted, left, strict=True)]
            controller.observe(
                StepRecord(
                    batch_size=4,
                    elapsed_ms=10 + 1.2 * previous,
                    k=k,
                    drafted=[previous] * 4,
                    accepted=accepted,
                    emitted=emitted,
                )
            )
            previous = k
            ks.append(k)
        return int(np.median(ks[300:]))

    assert play(short=False) == 7
    assert play(short=True) <= 3
