"""Symmetries of the whole controller, and that no sequence of records leaves its posteriors improper."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptk import Controller, GoodputTable, Settings, StepRecord
from adaptk.replay.simulator import simulate
from tests.publicengine import PUBLIC
from tests.randomworlds import ARMS, random_world
from tests.strategies import step_records

PARAMETERS = ("alpha", "beta")


def check_proper(controller: Controller, batch: int) -> None:
    """Betas with positive parameters, a covariance without negative variances, beliefs in order."""
    acceptance, latency = controller._acceptance, controller._latency
    for part in (acceptance, acceptance.supply):
        for name in PARAMETERS:
            assert all(0.0 < value < math.inf for value in getattr(part, name))
    cov = np.array(latency.snapshot()["cov"])
    values = np.linalg.eigvalsh(cov)
    assert np.abs(cov - cov.T).max() <= 1e-9 * values[-1]
    assert values[0] >= -1e-9 * values[-1]
    for belief in controller.belief(batch):
        assert 1.0 <= belief.al_low <= belief.al_high <= belief.k + 1.0
        assert 1.0 <= belief.al <= belief.k + 1.0
        assert 0.0 <= belief.p_best <= 1.0
        if belief.itl_ms is not None:
            assert belief.itl_low is not None
            assert belief.itl_high is not None
            assert 0.0 < belief.itl_low <= belief.itl_ms <= belief.itl_high < math.inf


@given(
    st.sampled_from([PUBLIC, None]),
    st.sampled_from([0, 1, 4]),
    st.lists(st.tuples(st.integers(1, 300), st.integers(0, 4), step_records()), min_size=1, max_size=25),
)
@settings(max_examples=60)
def test_any_records_between_any_chooses_leave_it_proper(
    table: GoodputTable | None, min_k: int, sequence: list[tuple[int, int, StepRecord]]
) -> None:
    """Several chooses before an observation, odd records after: K stays an arm of at least min_k, nothing raises."""
    config = Settings(min_k=min_k, budget=0.1)
    controller = Controller(table, settings=config, seed=1, k_max=5 if table is None else None)
    least = min(k for k in controller.arms if k >= min_k)
    for batch, chooses, record in sequence:
        for _ in range(chooses):
            assert controller.choose(batch) in controller.arms[controller.arms.index(least) :]
        controller.observe(record)
    check_proper(controller, sequence[-1][0])


@given(st.lists(st.tuples(step_records(), st.randoms(use_true_random=False)), min_size=1, max_size=8))
@settings(max_examples=40)
def test_the_order_of_requests_is_not_looked_at(steps: list[tuple[StepRecord, Any]]) -> None:
    """Drafted, accepted and emitted in another order, together: the same snapshot."""
    one, other = Controller(PUBLIC, seed=2), Controller(PUBLIC, seed=2)
    for record, random in steps:
        order = list(range(len(record.drafted)))
        random.shuffle(order)
        lists = {name: getattr(record, name) for name in ("drafted", "accepted", "emitted")}
        moved = {name: None if line is None else [line[i] for i in order] for name, line in lists.items()}
        for controller, told in ((one, record), (other, msgspec.structs.replace(record, **moved))):
            controller.choose(max(1, record.batch_size))
            controller.observe(told)
    assert one.snapshot() == other.snapshot()


class Stretched:
    """A controller whose clock runs ``factor`` times as fast as the world's."""

    def __init__(self, table: GoodputTable | None, factor: float, seed: int) -> None:
        rows = [] if table is None else [msgspec.structs.asdict(row) for row in table.rows]
        scaled = [row | {"itl_ms": row["itl_ms"] * factor} for row in rows]
        own = None if table is None else GoodputTable.from_rows(scaled, table.acceptance)
        self.controller, self.factor = Controller(own, arms=ARMS, seed=seed), factor
        self.arms = ARMS
        self.exploring = False

    def choose(self, *load: Any) -> int:
        return self.controller.choose(*load)

    def observe(self, record: StepRecord) -> None:
        assert record.elapsed_ms is not None
        self.controller.observe(msgspec.structs.replace(record, elapsed_ms=record.elapsed_ms * self.factor))


@pytest.mark.parametrize("seed", range(6))
def test_decisions_do_not_depend_on_the_unit_of_time(seed: int) -> None:
    """Table and steps in units of a quarter of a millisecond: the same K at every step, the same shares in belief.

    A goodput is a ratio, and the ledger compares times with times. Beliefs may differ by rounding, and without a table
    by what is left of the prior of the scale, four log units wide around one millisecond.
    """
    kind = ("right", "wrong", "absent")[seed % 3]
    case = random_world(200 + seed, 300, kind)
    plain, stretched = (Stretched(case.table, factor, seed) for factor in (1.0, 4.0))
    runs = [simulate(case.world, policy) for policy in (plain, stretched)]
    assert runs[0].k.tolist() == runs[1].k.tolist()
    batch, same = int(runs[0].decodes[-1]), 1e-6 if case.table is not None else 1e-3
    for a, b in zip(plain.controller.belief(batch), stretched.controller.belief(batch), strict=True):
        assert b.p_best == pytest.approx(a.p_best, abs=0.011)
        assert a.itl_ms is not None
        assert b.itl_ms == pytest.approx(4.0 * a.itl_ms, rel=same)
        assert b.al == pytest.approx(a.al, rel=1e-9)
    assert stretched.controller.ledger["spent_ms"] == pytest.approx(4.0 * plain.controller.ledger["spent_ms"], rel=same)


@pytest.mark.parametrize("seed", range(4))
def test_what_was_spent_on_exploring_never_exceeds_the_budget_by_more_than_a_visit(seed: int) -> None:
    """The ledger of the running controller, step by step, in worlds with a wrong table.

    A visit is priced before it begins, but what it really costs may be more: at most as much as its steps took.
    """
    case = random_world(300 + seed, 500, "wrong")
    controller = Controller(case.table, arms=ARMS, seed=seed)

    class Watched:
        arms = ARMS
        worst = 0.0
        longest = 0.0

        def choose(self, *load: Any) -> int:
            return controller.choose(*load)

        def observe(self, record: StepRecord) -> None:
            controller.observe(record)
            self.longest = max(self.longest, record.elapsed_ms or 0.0)
            self.worst = max(self.worst, controller.ledger["spent_ms"] - controller.ledger["allowed_ms"])

    watched = Watched()
    simulate(case.world, watched)
    assert controller.ledger["allowed_ms"] > 0.0
    assert watched.worst <= 6.0 * watched.longest
