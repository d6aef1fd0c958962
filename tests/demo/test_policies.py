"""The policies that take turns."""

from __future__ import annotations

import pytest

from adaptk.controller import Controller
from adaptk.decision import Decision
from adaptk.demo.policies import (
    ADAPTK,
    ARMS,
    DISTORTED,
    DISTORTED_TABLE,
    POLICIES,
    FixedK,
    Played,
    Recorder,
    StaticTable,
    Sweep,
    distorted,
    steered,
)
from adaptk.step import StepRecord
from adaptk.table import GoodputTable

TABLE = GoodputTable.from_schedule([[1, 4, 7], [5, 16, 3], [17, 512, 0]])


def _record(k: int, batch: int = 1) -> StepRecord:
    return StepRecord(batch_size=batch, elapsed_ms=10.0, k=k, drafted=[0] * batch, accepted=[0] * batch)


def test_names_are_the_contract_of_the_json_rows() -> None:
    """The names that machines rely on; all but the first share one engine."""
    assert POLICIES == ("none", "k0", "k1", "k3", "k7", "table", "adaptk")
    assert set(steered(TABLE, 32)) == set(POLICIES) - {"none"}
    adaptive = steered(TABLE, 32)[ADAPTK]
    assert isinstance(adaptive, Controller)
    assert adaptive.arms == ARMS


def test_a_distorted_table_is_steeper_in_k() -> None:
    """By the factor at the largest K against K=0; two policies start from it beside those of the right table."""
    rows = [{"batch": 1, "k": k, "itl_ms": 10.0 + k, "context": 64} for k in ARMS]
    right = GoodputTable.from_rows(rows, [0.5], supply=[0.9])
    wrong = distorted(right, 2.0)
    assert [row.itl_ms / (10.0 + row.k) for row in wrong.rows] == pytest.approx([2 ** (k / 7) for k in ARMS])
    assert (wrong.acceptance, wrong.supply, wrong.contexts) == (right.acceptance, right.supply, right.contexts)
    assert set(steered(right, 8, 2.0)) == {*POLICIES, *DISTORTED} - {"none"}
    dear, cheap = (steered(right, 8, factor)[DISTORTED_TABLE] for factor in (50.0, 0.02))
    assert (dear.choose(1), cheap.choose(1)) == (0, 7)


def test_fixed_and_table_never_learn() -> None:
    """They answer the same after a record as before; the table's answer is its best K at the batch."""
    static = StaticTable(TABLE, ARMS, 32)
    for _ in range(2):
        assert [static.choose(batch) for batch in (1, 4, 5, 16, 17, 32, 99)] == [7, 7, 3, 3, 0, 0, 0]
        assert FixedK(3).choose(32) == 3
        assert static.observe(_record(0)) is None


def test_sweep_plays_blocks_in_turn() -> None:
    """Two arms in blocks of two, over and over."""
    sweep = Sweep((0, 7), block=2)
    assert [sweep.choose(1) for _ in range(9)] == [0, 0, 7, 7, 0, 0, 7, 7, 0]
    sweep.observe(_record(7))
    assert [record.k for record in sweep.records] == [7]


class _Writer:
    def __init__(self) -> None:
        self.rows: list[tuple[StepRecord, Decision | None]] = []

    def write(self, record: StepRecord, decision: Decision | None = None) -> None:
        self.rows.append((record, decision))


def test_recorder_passes_on_and_notes() -> None:
    """The controller behind it sees every call; its decision goes to the trace with the record."""
    controller = Controller(TABLE, arms=ARMS, seed=0)
    writer = _Writer()
    recorder = Recorder(controller, writer)  # type: ignore[arg-type]
    k = recorder.choose(2, 100, 2)
    decision = recorder.observe(_record(k, batch=2))
    assert decision is not None
    assert decision.k == k
    assert controller.counters["steps"] == 1
    assert writer.rows == [(_record(k, batch=2), decision)]
    assert recorder.take() == [Played(k, 2, 10.0)]
    assert recorder.take() == []
