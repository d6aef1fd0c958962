from __future__ import annotations

import math

import numpy as np
import pytest

from adaptk.acceptance import AcceptancePosterior
from adaptk.belief import CALIBRATED, ArmBelief, arm_beliefs
from adaptk.latency import KNOWN, LatencyPosterior
from adaptk.prior import StepTimePrior
from adaptk.table import GoodputTable
from tests.strategies import rows_of

ARMS = (0, 1, 3)
TABLE = GoodputTable.from_rows(rows_of({b: {k: 8.0 + 0.02 * b * (k + 1) for k in ARMS} for b in (1, 64, 256)}), [0.7])
SCHEDULE = GoodputTable.from_schedule([[1, 64, 3], [65, 256, 0]])


def watched(seed: int, table: GoodputTable, factor: float, a: float, steps: int) -> list[ArmBelief]:
    """Beliefs at batch 16 after ``steps`` steps of K=3 there: ``factor`` of the table's time, acceptance ``a``."""
    acceptance = AcceptancePosterior(3, table.acceptance)
    latency = LatencyPosterior(StepTimePrior(table, ARMS))
    rng, ms = np.random.default_rng(seed), 8.0 + 0.02 * 16 * 4
    for _ in range(steps):
        accepted = np.cumprod(rng.random((16, 3)) < a, axis=1).sum(axis=1).tolist()
        acceptance.observe([3] * 16, accepted, asked=3, decodes=16)
        latency.add(2, 16, 3.0, ms * factor * float(np.exp(0.03 * rng.standard_normal())), None)
    latency.flush()
    acceptance.settle()
    return arm_beliefs(acceptance, latency, table, 16, None, [0, 1, 2])


def test_the_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """90 % of them in theory; in 40 worlds at least 32 of the acceptance lengths and of the step times do."""
    a, factor = 0.6, 1.1
    length, ms = 1.0 + a + a**2 + a**3, 1.1 * (8.0 + 0.02 * 16 * 4)
    lengths_held = times_held = 0
    for seed in range(40):
        belief = watched(seed, TABLE, factor, a, 30)[2]
        assert belief.itl_low is not None
        assert belief.itl_high is not None
        lengths_held += belief.al_low <= length <= belief.al_high
        times_held += belief.itl_low <= ms <= belief.itl_high
    assert lengths_held >= 32
    assert times_held >= 32


def test_they_hold_the_believed_value_and_shrink_with_evidence() -> None:
    few, many = watched(0, TABLE, 1.0, 0.6, 0), watched(0, TABLE, 1.0, 0.6, 60)
    for before, after in zip(few, many, strict=True):
        assert before.itl_low is not None
        assert before.itl_high is not None
        assert after.itl_low is not None
        assert after.itl_high is not None
        assert after.itl_ms is not None
        assert after.itl_low < after.itl_ms < after.itl_high
        assert after.itl_high - after.itl_low < before.itl_high - before.itl_low
        assert after.al_low <= after.al <= after.al_high
    assert many[2].al_high - many[2].al_low < 0.5 * (few[2].al_high - few[2].al_low)


def test_an_interval_of_a_step_time_holds_ninety_percent_of_a_log_normal() -> None:
    """From 1.645 standard deviations below to as many above, calibrated where much was seen."""
    acceptance, latency = AcceptancePosterior(3, [0.9]), LatencyPosterior(StepTimePrior(TABLE, ARMS))
    deviation = np.sqrt(np.diag(latency.covariance(16, acceptance.widths(ARMS))))
    for i, b in enumerate(arm_beliefs(acceptance, latency, TABLE, 16, None, [0, 1, 2])):
        assert b.itl_low is not None
        assert b.itl_high is not None
        assert np.log(b.itl_high / b.itl_low) == pytest.approx(2 * 1.645 * deviation[i], rel=5e-3)
    for _ in range(3000):
        latency.add(2, 16, 3.0, 9.0, None)
    seen = math.sqrt(latency.covariance(16, acceptance.widths(ARMS))[2, 2])
    known = 1.0 / (1.0 + seen**2 / (KNOWN * latency.noise**2))
    assert known > 0.5
    belief = arm_beliefs(acceptance, latency, TABLE, 16, None, [0, 1, 2])[2]
    assert belief.itl_high is not None
    assert belief.itl_ms is not None
    width = math.log(belief.itl_high / belief.itl_ms)
    assert width == pytest.approx(1.645 * seen * (1.0 - (1.0 - CALIBRATED) * known), rel=1e-3)


def test_the_figures_belong_together() -> None:
    """Goodput is tokens over seconds, drift belief over table, and one arm is the best."""
    beliefs = watched(0, TABLE, 1.1, 0.6, 30)
    assert [b.k for b in beliefs] == [0, 1, 3]
    assert sum(b.p_best for b in beliefs) == pytest.approx(1.0)
    for b in beliefs:
        assert b.itl_ms is not None
        assert b.goodput == pytest.approx(1000.0 * b.al / b.itl_ms)
        assert b.table_itl_ms == pytest.approx(8.0 + 0.02 * 16 * (b.k + 1))
        assert b.drift == pytest.approx(b.itl_ms / (8.0 + 0.02 * 16 * (b.k + 1)))
    assert beliefs[2].drift == pytest.approx(1.1, rel=0.03)


def test_barred_arms_are_never_best() -> None:
    acceptance, latency = AcceptancePosterior(3, [0.9]), LatencyPosterior(StepTimePrior(TABLE, ARMS))
    beliefs = arm_beliefs(acceptance, latency, TABLE, 16, None, [0, 1])
    assert beliefs[2].p_best == 0.0
    assert beliefs[0].p_best + beliefs[1].p_best == pytest.approx(1.0)


def test_without_any_time_there_is_no_step_time_to_tell() -> None:
    """A schedule has none; the best arm can be told all the same, as a schedule says which it is."""
    beliefs = watched(0, SCHEDULE, 1.0, 0.7, 0)
    for b in beliefs:
        assert (b.itl_ms, b.itl_low, b.itl_high, b.goodput, b.table_itl_ms, b.drift) == (None,) * 6
    assert max(beliefs, key=lambda b: b.p_best).k == 3


def test_after_the_first_times_a_schedule_has_them_too() -> None:
    belief = watched(0, SCHEDULE, 1.0, 0.7, 6)[2]
    assert belief.itl_ms == pytest.approx(8.0 + 0.02 * 16 * 4, rel=0.03)
    assert belief.table_itl_ms is None
    assert belief.drift is None


def test_looking_changes_nothing() -> None:
    acceptance, latency = AcceptancePosterior(3, [0.7]), LatencyPosterior(StepTimePrior(TABLE, ARMS))
    before = acceptance.snapshot(), latency.snapshot()
    first = arm_beliefs(acceptance, latency, TABLE, 16, None, [0, 1, 2])
    assert arm_beliefs(acceptance, latency, TABLE, 16, None, [0, 1, 2]) == first
    assert (acceptance.snapshot(), latency.snapshot()) == before
