from __future__ import annotations

import math

import numpy as np
import pytest

from adaptk import Controller, StepRecord
from adaptk.acceptance import AcceptancePosterior
from adaptk.corrected import corrected_table
from adaptk.grid import NODES
from adaptk.latency import LatencyPosterior
from adaptk.prior import StepTimePrior
from adaptk.replay.casechecks import public_table
from adaptk.replay.costs.p32374 import public_surface
from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.scenarios import script
from adaptk.replay.simulator import World, simulate
from adaptk.table import GoodputTable
from tests.strategies import rows_of

ARMS = (0, 1, 3)
TABLE = GoodputTable.from_rows(
    rows_of({b: {k: 8.0 + 0.02 * b * (k + 1) for k in ARMS} for b in (1, 48, 256)}), [0.7, 0.5, 0.4], {"key": "model a"}
)


def latency_of(table: GoodputTable | None) -> LatencyPosterior:
    return LatencyPosterior(StepTimePrior(table, ARMS))


def test_with_nothing_observed_it_is_the_seed() -> None:
    table = corrected_table(TABLE, AcceptancePosterior(3, TABLE.acceptance), latency_of(TABLE), None)
    assert [(r.batch, r.k) for r in table.rows] == [(r.batch, r.k) for r in TABLE.rows]
    assert [r.itl_ms for r in table.rows] == pytest.approx([r.itl_ms for r in TABLE.rows])
    assert table.acceptance == pytest.approx(TABLE.acceptance, rel=0.01)
    assert table.meta == {"key": "model a", "corrected": True}


def test_it_holds_what_is_believed() -> None:
    """An engine whose drafts are far dearer than in its table: the best K of the corrected table follows."""
    latency, acceptance = latency_of(TABLE), AcceptancePosterior(3, TABLE.acceptance)
    for arm, k in enumerate(ARMS):
        for _ in range(30):
            latency.add(arm, 48, float(k), 9.0 + 7.0 * k, None)
    table = corrected_table(TABLE, acceptance, latency, None)
    believed = latency.log_times(48, [0.0, 1.0, 3.0], None)
    assert [table.itl_ms(48, k) for k in ARMS] == pytest.approx([math.exp(t) for t in believed])
    assert [table.itl_ms(48, k) for k in ARMS] == pytest.approx([9.0, 16.0, 30.0], rel=0.1)
    assert TABLE.best_k(48) == 3
    assert table.best_k(48) == 0


def test_a_drafter_that_often_returns_nothing_lowers_its_acceptance() -> None:
    acceptance = AcceptancePosterior(3, TABLE.acceptance)
    for _ in range(2000):
        acceptance.observe([3, 0], [3, 0], asked=3, decodes=2)
    table = corrected_table(TABLE, acceptance, latency_of(TABLE), None)
    assert table.acceptance is not None
    assert table.acceptance[0] == pytest.approx(0.5, abs=0.03)
    assert table.acceptance_length(3) == pytest.approx(acceptance.lengths((3,))[0], rel=0.01)


def test_a_schedule_gets_times_with_the_first_ones_seen() -> None:
    seed = GoodputTable.from_schedule([[1, 64, 3], [65, 512, 0]])
    latency, acceptance = latency_of(seed), AcceptancePosterior(3)
    assert corrected_table(seed, acceptance, latency, None) is seed
    for _ in range(6):
        latency.add(2, 16, 3.0, 12.0, None)
    table = corrected_table(seed, acceptance, latency, None)
    assert table.batches == tuple(2**i for i in range(NODES))
    assert table.itl_ms(16, 3) == pytest.approx(12.0, rel=0.02)
    assert (table.best_k(16), table.best_k(256)) == (3, 0)


def test_with_neither_table_nor_times_there_is_none() -> None:
    with pytest.raises(ValueError, match="no step time was observed yet"):
        corrected_table(None, AcceptancePosterior(3), latency_of(None), None)


def test_an_engine_without_drafts_has_a_table_too() -> None:
    latency = LatencyPosterior(StepTimePrior(None, (0,)))
    for _ in range(6):
        latency.add(0, 16, 0.0, 12.0, None)
    table = corrected_table(None, AcceptancePosterior(0), latency, None)
    assert table.ks == (0,)
    assert table.acceptance is None


def test_it_can_be_saved_and_loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    table = corrected_table(TABLE, AcceptancePosterior(3, TABLE.acceptance), latency_of(TABLE), None)
    path = tmp_path_factory.mktemp("tables") / "corrected.json"
    table.save(path)
    assert GoodputTable.load(path) == table


def test_one_dry_step_leaves_the_table_as_it_was() -> None:
    """A single step for which the drafter had nothing moves neither the choice nor the acceptance by much."""
    controller = Controller(public_table(), seed=0)
    simulate(World(public_surface(), Drafter(profiles([0.7])), script(600, 64), 600), controller)
    before = controller.corrected_table()
    controller.choose(64)
    controller.observe(StepRecord(batch_size=64, elapsed_ms=8.0, k=1, drafted=[0] * 64, accepted=[0] * 64))
    after = controller.corrected_table()
    assert before.acceptance is not None
    assert after.acceptance is not None
    assert after.acceptance[0] == pytest.approx(before.acceptance[0], rel=0.06)
    assert after.best_k(64) == before.best_k(64)


def test_half_the_requests_without_drafts() -> None:
    """Goodput of the corrected table is what the engine gives: times and acceptance hold the same missing drafts."""
    rng = np.random.default_rng(0)
    rows = [{"batch": b, "k": k, "itl_ms": 7 + 0.02 * b * (k + 1)} for b in (1, 64) for k in (0, 1, 3)]
    controller = Controller(GoodputTable.from_rows(rows, acceptance=[0.8] * 3), seed=0)
    previous = 0
    for _ in range(1500):
        k = controller.choose(16)
        drafted = [previous * int(x) for x in rng.integers(0, 2, 16)]
        accepted = [int(np.cumprod(rng.random(d) < 0.8).sum()) for d in drafted]
        elapsed = 7 + 0.02 * (16 + sum(drafted)) + 0.001 * rng.standard_normal()
        controller.observe(StepRecord(batch_size=16, elapsed_ms=elapsed, k=k, drafted=drafted, accepted=accepted))
        previous = k
    table = controller.corrected_table()
    played = max(controller.arms, key=lambda k: controller.belief(16)[controller.arms.index(k)].goodput or 0.0)
    length = 1 + 0.5 * sum(0.8**j for j in range(1, played + 1))
    truth = 1000 * length / (7 + 0.02 * 16 * (1 + 0.5 * played))
    assert table.goodput(16, played) == pytest.approx(truth, rel=0.03)
