from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.grid import (
    ARM,
    CONTEXT,
    CONTEXT_ARM,
    CONTEXT_SCALE,
    CONTEXT_SLOPE,
    LEVEL,
    NODE,
    NODES,
    between,
    context_covariate,
    covariance,
    interpolate,
    node,
)
from adaptk.prior import StepTimePrior
from adaptk.table import GoodputTable
from tests.strategies import rows_of

ARMS = (0, 1, 3, 7)
TABLE = GoodputTable.from_rows(rows_of({b: {k: 5.0 + 0.01 * b * (k + 1) for k in (0, 1, 3)} for b in (1, 64, 512)}))
arm_sets = st.lists(st.integers(0, 12), min_size=1, max_size=6, unique=True).map(sorted)


def correlations(level: float = LEVEL) -> np.ndarray:
    """Of the deviations at the nodes, shape (NODES, arms, NODES, arms)."""
    cov = covariance(StepTimePrior(TABLE, (0, 1, 3)), level)[: NODES * 3, : NODES * 3]
    deviation = np.sqrt(np.diag(cov))
    return (cov / np.outer(deviation, deviation)).reshape(NODES, 3, NODES, 3)


@given(st.integers(1, 2 ** (NODES - 1)))
def test_the_place_between_the_nodes_is_the_binary_logarithm(batch: int) -> None:
    left, share = node(math.log(batch))
    assert 0 <= left <= NODES - 2
    assert 0.0 <= share <= 1.0
    assert left + share == pytest.approx(math.log2(batch))


@pytest.mark.parametrize("batch", [1025, 10**6])
def test_batches_beyond_the_last_node_are_taken_for_it(batch: int) -> None:
    assert node(math.log(batch)) == (NODES - 2, 1.0)


@given(arm_sets, st.floats(0.0, 15.0))
def test_the_place_between_arms_gives_the_width_back(arms: list[int], width: float) -> None:
    """Widths outside the arms are taken for the nearest one."""
    low, share = between(arms, width)
    assert 0.0 <= share < 1.0
    above = arms[low + 1] if share else arms[low]
    assert arms[low] * (1.0 - share) + above * share == pytest.approx(min(max(width, arms[0]), arms[-1]))


def test_a_single_arm_is_at_any_width_itself() -> None:
    assert between((3,), 1.5) == between((3,), 3.0) == between((3,), 4.0) == (0, 0.0)


@pytest.mark.parametrize("table", [TABLE, None], ids=["timed", "untimed"])
def test_the_covariance_is_symmetric_and_positive_definite(table: GoodputTable | None) -> None:
    cov = covariance(StepTimePrior(table, ARMS), LEVEL)
    assert cov.shape == ((NODES + 1) * 4, (NODES + 1) * 4)
    assert np.array_equal(cov, cov.T)
    assert np.linalg.eigvalsh(cov)[0] >= 0.99 * min(NODE, CONTEXT_ARM) ** 2


def test_nearer_batches_and_arms_hang_together_more() -> None:
    rho = correlations()
    along_batch = rho[5, 2, 5:, 2]
    assert np.all(np.diff(along_batch) < 0)
    assert rho[5, 2, 5, 1] > rho[5, 2, 5, 0]


def test_a_larger_level_adds_the_same_to_all_nodes_and_nothing_to_context() -> None:
    prior = StepTimePrior(TABLE, (0, 1, 3))
    more = covariance(prior, 0.5) - covariance(prior, 0.3)
    assert more[: NODES * 3, : NODES * 3] == pytest.approx(0.5**2 - 0.3**2)
    assert not more[NODES * 3 :].any()


def test_a_table_with_contexts_is_trusted_twice_as_far() -> None:
    """Coefficients of K=0, which has no steepness, and of K=3, the largest arm, by hand; half the deviation if told."""
    rows = rows_of({8: {0: 10.0, 3: 12.0}}, context=100) + rows_of({8: {0: 20.0, 3: 24.0}}, context=10_000)
    told = covariance(StepTimePrior(GoodputTable.from_rows(rows), (0, 3)), LEVEL)[-2:, -2:]
    plain = covariance(StepTimePrior(TABLE, (0, 3)), LEVEL)[-2:, -2:]
    own = CONTEXT**2 + CONTEXT_ARM**2
    assert plain == pytest.approx(np.array([[own, CONTEXT**2], [CONTEXT**2, own + CONTEXT_SLOPE**2]]))
    assert told == pytest.approx(plain / 4.0)


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e6))
def test_the_covariate_of_context_is_a_distance(context: float, reference: float) -> None:
    """Zero at the reference, the other way round from the other side."""
    assert context_covariate(context, context) == 0.0
    there, back = context_covariate(context, reference), context_covariate(reference, context)
    assert there == pytest.approx(-back, abs=1e-12)


def test_the_covariate_of_context_is_linear_for_short_and_logarithmic_for_long_ones() -> None:
    short = [context_covariate(c, 0.0) for c in (10.0, 20.0)]
    assert short[1] == pytest.approx(2.0 * short[0], rel=0.01)
    doubled = context_covariate(200 * CONTEXT_SCALE, 0.0) - context_covariate(100 * CONTEXT_SCALE, 0.0)
    assert doubled == pytest.approx(math.log(2.0), rel=0.01)


@given(arm_sets, st.floats(0.0, 15.0))
def test_the_arms_themselves_interpolate_to_the_width(arms: list[int], width: float) -> None:
    assert interpolate(arms, *between(arms, width)) == pytest.approx(min(max(width, arms[0]), arms[-1]))


def test_an_arm_that_the_table_lacks_is_less_sure() -> None:
    lacking = covariance(StepTimePrior(TABLE, (0, 1, 3, 7)), LEVEL)
    rows = rows_of({b: {k: 5.0 + k for k in ARMS} for b in (1, 512)})
    full = covariance(StepTimePrior(GoodputTable.from_rows(rows), ARMS), LEVEL)
    wider = (np.diag(lacking) - np.diag(full)).reshape(NODES + 1, 4)
    assert wider[:, :3] == pytest.approx(0.0)
    assert np.all(wider[:NODES, 3] > 0.01)


def test_another_engines_table_is_believed_more_than_a_roofline_and_less_than_ones_own() -> None:
    """Half a roofline's variance along K and batch; what a table says of context is not believed of another engine."""
    timed, shaped, bare = (
        covariance(StepTimePrior(table, (0, 1, 3), trusted=trusted), LEVEL)
        for table, trusted in ((TABLE, True), (TABLE, False), (None, True))
    )
    nodes = NODES * 3
    spread = [np.diag(cov)[:nodes] - LEVEL**2 - NODE**2 for cov in (timed, shaped, bare)]
    alone = ARM**2  # which all three have
    assert spread[1] - alone == pytest.approx((spread[2] - alone) / 2.0)
    assert np.all(spread[0] < spread[1])
    rows = rows_of({8: {0: 10.0, 3: 12.0}}, context=100) + rows_of({8: {0: 20.0, 3: 24.0}}, context=10_000)
    with_contexts = GoodputTable.from_rows(rows)
    theirs = covariance(StepTimePrior(with_contexts, (0, 1, 3), trusted=False), LEVEL)
    assert theirs[nodes:, nodes:] == pytest.approx(bare[nodes:, nodes:])
