from __future__ import annotations

import math

import pytest

from adaptk.acceptance import AcceptancePosterior
from adaptk.corrected import corrected_table
from adaptk.grid import NODES
from adaptk.latency import LatencyPosterior
from adaptk.prior import StepTimePrior
from adaptk.table import GoodputTable
from tests.strategies import rows_of

ARMS = (0, 1, 3)
TABLE = GoodputTable.from_rows(
    rows_of({b: {k: 8.0 + 0.02 * b * (k + 1) for k in ARMS} for b in (1, 48, 256)}), [0.7, 0.5, 0.4], {"key": "model a"}
)


def latency_of(table: GoodputTable | None) -> LatencyPosterior:
    return LatencyPosterior(StepTimePrior(table, ARMS, 3))


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
    for _ in range(200):
        acceptance.observe([3, 0], [3, 0], asked=3, decodes=2)
    table = corrected_table(TABLE, acceptance, latency_of(TABLE), None)
    assert table.acceptance is not None
    assert table.acceptance[0] == pytest.approx(0.5, abs=0.03)
    assert table.acceptance_length(3) == pytest.approx(acceptance.lengths((3,))[0])


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
    latency = LatencyPosterior(StepTimePrior(None, (0,), 0))
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
