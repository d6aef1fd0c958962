"""Controller cases made from what users of speculative decoding reported; the id before each is that of the report.

Unless a case says otherwise: the public H100 profile as table and truth, runner V1, feedback without delay, 3 % noise.
"""

from __future__ import annotations

from collections.abc import Sequence

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
def test_c01_batch_on_a_tier_edge_does_not_flap(seed: int) -> None:
    table = GoodputTable.from_schedule([[1, 64, 3], [65, 128, 1], [129, 512, 0]])
    run = simulate(Controller(table, seed=seed), World(lambda s: 64 + s % 2, lambda s: PUBLIC, TRUTH), 400, seed=seed)
    assert run.lasting_switches(50) <= 4
    assert run.against(1) >= 0.97


@SEEDS
def test_c02_a_joining_prefill_does_not_flip_the_tier(seed: int) -> None:
    table = GoodputTable.from_schedule([[1, 4, 2], [5, 512, 0]])
    world = World(lambda s: 4, lambda s: PUBLIC, TRUTH, prefill=lambda s: (1, 512) if s % 3 == 0 else (0, 0))
    run = simulate(Controller(table, seed=seed), world, 400, seed=seed)
    assert run.switches(50) <= 8
    assert run.efficiency() > 0.97


@SEEDS
def test_c03_prefill_time_is_not_booked_to_k(seed: int) -> None:
    world = World(lambda s: 32, lambda s: PUBLIC, TRUTH, prefill=lambda s: (1, 2048) if s % 7 == 0 else (0, 0))
    controller = Controller(TABLE, seed=seed)
    run = simulate(controller, world, 300, seed=seed)
    belief = {b.k: b for b in controller.belief(32)}[3]
    assert belief.itl_ms == pytest.approx(TRUTH(0, 32, 3), rel=0.1)
    assert run.share(3) >= 0.93


@SEEDS
def test_c04_compilation_at_boot_bars_no_arm(seed: int) -> None:
    world = World(lambda s: 8, lambda s: PUBLIC, TRUTH, contaminate=lambda s, rng: 150.0 if s < 12 else 1.0)
    run = simulate(Controller(TABLE, seed=seed), world, 300, seed=seed)
    assert run.efficiency(150) > 0.98


@SEEDS
def test_c04_first_steps_of_every_new_shape_are_slow(seed: int) -> None:
    controller = Controller(TABLE, seed=seed)
    seen: dict[int, int] = {}

    class Compiling(World):
        pass

    def slow(step: int, rng: np.random.Generator) -> float:
        arm = controller.choosing
        seen[arm] = seen.get(arm, 0) + 1
        return 130.0 if seen[arm] <= 2 else 1.0

    class Watched:
        arms = controller.arms
        observe = controller.observe

        def choose(self, batch: int, context: int | None) -> int:
            controller.choosing = controller.choose(batch, context)  # type: ignore[attr-defined]
            return int(controller.choosing)  # type: ignore[attr-defined]

    run = simulate(Watched(), World(lambda s: 8, lambda s: PUBLIC, TRUTH, contaminate=slow), 400, seed=seed)
    assert run.efficiency(150) > 0.98


@SEEDS
def test_c05_feedback_belongs_to_the_decision_before(seed: int) -> None:
    """K alternates 5, 0 in async order: five drafts of five are credited, K=0 steps add nothing."""
    from adaptk import StepRecord

    controller = Controller(TABLE, seed=seed)
    weights = []
    for step in range(40):
        controller.choose(1)
        drafted = 5 if step % 2 else 0
        controller.observe(
            StepRecord(batch_size=1, elapsed_ms=None, k=0 if step % 2 else 5, drafted=[drafted], accepted=[drafted])
        )
        weights.append(controller.belief(1)[-1].al)
    assert weights[-1] > 4.5


@SEEDS
def test_c08_k_zero_is_not_absorbing(seed: int) -> None:
    """300 steps at acceptance 0.05, then 0.85: back at K>=3 within 100 steps, probing cost 2 % at most."""
    world = World(lambda s: 8, lambda s: constant(0.05 if s < 300 else 0.85), TRUTH)
    table = public_table(acceptance=constant(0.05, 5))
    run = simulate(Controller(table, seed=seed), world, 600, seed=seed)
    assert run.first((3, 5), 300) <= 100
    assert run.against(0, 0, 300) >= 0.98


@SEEDS
def test_c10_right_censored_acceptance_climbs(seed: int) -> None:
    rows = [{"batch": b, "k": k, "itl_ms": 10 + 0.1 * k} for b in (1, 64) for k in (0, 1, 3, 7)]
    table = GoodputTable.from_rows(rows, acceptance=constant(0.2))
    run = simulate(Controller(table, seed=seed), World(lambda s: 8, lambda s: constant(0.95), from_table(table)), 400)
    assert run.first((7,), 0) <= 300


BY_CONTEXT = {400: (2711.7, 2139.8), 900: (1987.1, 1838.9), 1900: (1815.2, 1822.4), 4000: (1535.9, 1692.8)}
LENGTH = 1 + 0.7 + 0.7**2 + 0.7**3


def context_ms(context: int, k: int) -> float:
    """Milliseconds at batch 100 from the reported tokens per second."""
    return 100_000 * (LENGTH if k else 1.0) / BY_CONTEXT[context][k > 0]


@SEEDS
@pytest.mark.parametrize("contexts", [tuple(BY_CONTEXT), (400,)])
def test_c12_context_grows(seed: int, contexts: Sequence[int]) -> None:
    """Context 400 to 8000 at step 500 turns the best K from 0 to 3, with and without a context axis in the table."""
    rows = [
        {"batch": 100, "k": k, "itl_ms": context_ms(c, k), "context": c if len(contexts) > 1 else None}
        for c in contexts
        for k in (0, 3)
    ]
    table = GoodputTable.from_rows(rows, acceptance=[0.7] * 3)
    world = World(
        lambda s: 100,
        lambda s: constant(0.7, 3),
        lambda s, b, k: context_ms(400 if s < 500 else 4000, k),
        context=lambda s: 400 if s < 500 else 8000,
    )
    run = simulate(Controller(table, arms=(0, 3), seed=seed), world, 1000, seed=seed)
    assert run.share(0, 0, 500) >= 0.95
    assert run.first((3,), 500) <= 150
    assert run.lasting_switches() <= 3
    assert run.switches() <= 14


@SEEDS
def test_c13_rollout_drains_and_refills(seed: int) -> None:
    """Batch 256 drains to 1 twice, accepting less the second time; K falls to 0 within 5 steps of the refill."""
    rng = np.random.default_rng(seed)
    lives = rng.geometric(0.004, 256)
    sizes = [int((lives > s).sum()) for s in range(int(lives.max()))]
    batches = sizes + sizes
    start = len(sizes)
    world = World(lambda s: batches[s], lambda s: constant(0.75 if s < start else 0.6), TRUTH)
    run = simulate(Controller(TABLE, seed=seed), world, len(batches), seed=seed)
    assert run.efficiency() >= 1 / 1.05
    assert run.first((0,), start, hold=3) <= 5


@SEEDS
def test_c14_acceptance_alternates(seed: int) -> None:
    world = World(lambda s: 8, lambda s: constant(0.35 if (s // 300) % 2 == 0 else 0.9), TRUTH)
    run = simulate(Controller(TABLE, seed=seed), world, 1800, seed=seed)
    assert run.efficiency() >= 0.95
    assert run.lasting_switches() <= 12


@SEEDS
def test_c15_stationary_deep_arm_is_not_lost(seed: int) -> None:
    goodput = {0: 1.0, 1: 1.7, 3: 2.4, 7: 2.8}
    rows = [{"batch": 4, "k": k, "itl_ms": sum(0.8**j for j in range(k + 1)) / g} for k, g in goodput.items()]
    table = GoodputTable.from_rows(rows, acceptance=constant(0.8))
    run = simulate(Controller(table, seed=seed), World(lambda s: 4, lambda s: constant(0.8), from_table(table)), 3000)
    assert run.against(7) >= 0.98


@SEEDS
def test_c26_dead_drafter(seed: int) -> None:
    """Acceptance 0.8 to 0 at step 500: K=0 within 30 steps, probing under 1 %, said once."""
    world = World(lambda s: 8, lambda s: constant(0.8 if s < 500 else 0.0), TRUTH)
    controller = Controller(TABLE, seed=seed)
    run = simulate(controller, world, 1500, seed=seed)
    assert run.first((0,), 500, hold=3) <= 30
    assert run.against(0, 550) > 0.99
    assert controller.counters["drafter_dead"] == 1


@SEEDS
@pytest.mark.parametrize("tenants", [1, 16])
def test_c29_one_tenant_accepts_nothing(seed: int, tenants: int) -> None:
    def acceptance(step: int) -> np.ndarray:
        each = np.full((32, 5), 0.8)
        if 200 <= step < 500:
            each[:tenants] = 0.0
        return each

    controller = Controller(TABLE, seed=seed)
    run = simulate(controller, World(lambda s: 32, acceptance, TRUTH), 800, seed=seed)  # type: ignore[arg-type]
    assert run.first((3, 5), 500) <= 50
    assert run.efficiency(550) > 0.97
    if tenants == 1:
        assert run.efficiency(200, 500) > 0.97


@SEEDS
@pytest.mark.parametrize("acceptance", [0.9, 0.65])
def test_c34_small_and_large_batches_take_turns(seed: int, acceptance: float) -> None:
    world = World(lambda s: 4 if (s // 300) % 2 == 0 else 256, lambda s: constant(acceptance), TRUTH)
    run = simulate(Controller(TABLE, seed=seed), world, 1200, seed=seed)
    assert run.efficiency() > 0.97
    assert run.efficiency(620, 900) > 0.98, "back at the small batch, what was learnt there is used"


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
