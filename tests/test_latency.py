from __future__ import annotations

import json
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from adaptk.grid import LEVEL, NODES, between, covariance, node
from adaptk.latency import FLOOR, LatencyPosterior
from adaptk.prior import StepTimePrior
from adaptk.table import GoodputTable
from tests.strategies import rows_of

ARMS = (0, 1, 3)
BATCHES = (1, 4, 16, 64, 256, 1024)
TABLE = GoodputTable.from_rows(rows_of({b: {k: 8.0 + 0.02 * b * (k + 1) for k in ARMS} for b in BATCHES}))
FULL = [float(k) for k in ARMS]


def fresh(arms: tuple[int, ...] = ARMS, table: GoodputTable | None = TABLE) -> LatencyPosterior:
    return LatencyPosterior(StepTimePrior(table, arms))


def table_ms(batch: int, k: int) -> float:
    ms = TABLE.itl_ms(batch, k)
    assert ms is not None
    return ms


def deviations(posterior: LatencyPosterior, batch: int) -> NDArray[np.float64]:
    """Believed log step time over the table's, shape (arms,)."""
    return np.subtract(posterior.log_times(batch, FULL, None), posterior.prior.row(batch, None))


def feed(posterior: LatencyPosterior, arm: int, batch: int, factors: list[float], width: float | None = None) -> int:
    """Steps that take ``factors`` times the table's time; how many changes were detected."""
    k = ARMS[arm]
    changes = 0
    for factor in factors:
        changes += posterior.add(arm, batch, float(k) if width is None else width, factor * table_ms(batch, k), None)
    return changes


def noisy(rng: np.random.Generator, factor: float, n: int, noise: float = 0.03) -> list[float]:
    return [factor * math.exp(noise * z) for z in rng.standard_normal(n).tolist()]


class TestConditioning:
    def test_bookings_equal_the_closed_form(self) -> None:
        """Four observations at nodes and between them, at arms and between them, against one Gaussian conditioning."""
        posterior, prior = fresh((0, 1, 3)), StepTimePrior(TABLE, ARMS)
        cov = covariance(prior, LEVEL)
        design, noise, seen = [], [], []
        for batch, arm, width, y in ((16, 2, 3.0, 0.05), (16, 0, 0.0, -0.02), (100, 1, 0.6, 0.03), (5, 2, 2.2, 0.04)):
            row = prior.row(batch, None)
            low, share = between(ARMS, width)
            upper = row[min(low + 1, 2)]
            for _ in range(3):
                posterior.add(arm, batch, width, math.exp((1 - share) * row[low] + share * upper + y), None)
            left, right = node(math.log(batch))
            h = np.zeros((NODES, 3))
            for place, by_batch in ((left, 1.0 - right), (left + 1, right)):
                h[place, low] += by_batch * (1.0 - share)
                h[place, min(low + 1, 2)] += by_batch * share
            design.append(h.ravel())
            noise.append(posterior.noise**2 / 3.0 + FLOOR**2)
            seen.append(y)
        big_h = np.array(design)
        gain = cov @ big_h.T @ np.linalg.inv(big_h @ cov @ big_h.T + np.diag(noise))
        mean, after = (gain @ seen).reshape(NODES, 3), (cov - gain @ big_h @ cov).reshape(NODES, 3, NODES, 3)
        for i in range(NODES):
            assert deviations(posterior, 2**i) == pytest.approx(mean[i], abs=1e-9)
            assert posterior.covariance(2**i, FULL) == pytest.approx(after[i, :, i, :], abs=1e-9)
        assert posterior.alarms == 0

    def test_one_observation_moves_its_neighbours_the_nearer_the_more(self) -> None:
        posterior = fresh()
        feed(posterior, 2, 64, [1.1] * 3)
        at_k3 = [float(deviations(posterior, b)[2]) for b in (64, 32, 16, 4, 1)]
        assert at_k3 == sorted(at_k3, reverse=True)
        assert at_k3[0] == pytest.approx(math.log(1.1), rel=0.1)
        at_64 = deviations(posterior, 64)
        assert 0.0 < at_64[0] < at_64[1] < at_64[2]

    def test_an_observation_makes_itself_and_its_neighbours_surer(self) -> None:
        posterior = fresh()
        before = [np.sqrt(np.diag(posterior.covariance(b, FULL))) for b in (64, 16)]
        feed(posterior, 2, 64, [1.0] * 3)
        after = [np.sqrt(np.diag(posterior.covariance(b, FULL))) for b in (64, 16)]
        assert after[0][2] < 0.1 * before[0][2]
        assert np.all(after[0] < before[0])
        assert np.all(after[1] < before[1])

    def test_without_times_the_first_group_sets_the_scale_of_all_cells(self) -> None:
        posterior = fresh((0, 1, 3), None)
        row = posterior.prior.row(16, None)
        for _ in range(3):
            posterior.add(0, 16, 0.0, 20.0, None)
        assert posterior.level_known
        assert posterior.log_times(16, FULL, None)[0] == pytest.approx(math.log(20.0), abs=0.01)
        expected = [math.log(20.0) + r - row[0] for r in row]
        assert posterior.log_times(16, FULL, None) == pytest.approx(expected, abs=0.05)


class TestWidths:
    def test_times_between_arms_are_linear_in_the_drafts_verified(self) -> None:
        posterior = fresh()
        feed(posterior, 2, 64, [1.1] * 3)
        full = posterior.log_times(64, FULL, None)
        assert posterior.log_times(64, [0.0, 0.25, 2.0], None) == pytest.approx(
            [full[0], 0.75 * full[0] + 0.25 * full[1], 0.5 * full[1] + 0.5 * full[2]]
        )

    def test_the_covariance_is_that_of_these_sums(self) -> None:
        posterior = fresh()
        feed(posterior, 2, 64, [1.1] * 3)
        weights = np.array([[1.0, 0.0, 0.0], [0.75, 0.25, 0.0], [0.0, 0.5, 0.5]])
        expected = weights @ posterior.covariance(48, FULL) @ weights.T
        assert posterior.covariance(48, [0.0, 0.25, 2.0]) == pytest.approx(expected)

    def test_steps_with_fewer_drafts_are_booked_where_they_were(self) -> None:
        """K=3 was asked for and one draft came: that is what the arm K=1 costs."""
        posterior = fresh()
        for _ in range(3):
            posterior.add(2, 64, 1.0, 1.1 * table_ms(64, 1), None)
        assert deviations(posterior, 64)[1] == pytest.approx(math.log(1.1), rel=0.1)

    def test_a_lone_arm_bears_fewer_drafts_than_it_asked_for(self) -> None:
        posterior = fresh((3,))
        for _ in range(3):
            posterior.add(0, 64, 1.5, 20.0, None)
        assert posterior.log_times(64, [1.5], None) == posterior.log_times(64, [3.0], None)
        assert posterior.covariance(64, [1.5]) == posterior.covariance(64, [3.0])


class TestStalls:
    def test_the_first_two_steps_of_a_cell_may_take_a_hundred_times_as_long(self) -> None:
        """Compilation: the steps after it are believed, within 2 %."""
        posterior = fresh()
        changes = feed(posterior, 2, 64, [100.0, 100.0] + [1.0] * 7)
        assert changes == 0
        assert np.abs(deviations(posterior, 64)).max() < 0.02

    def test_a_visit_that_saw_only_stalls_moves_nothing(self) -> None:
        posterior = fresh()
        feed(posterior, 2, 64, [100.0] * 2)
        posterior.flush()
        assert np.abs(deviations(posterior, 64)).max() == 0.0

    def test_single_stalls_among_sound_steps_are_not_seen(self) -> None:
        rng, posterior = np.random.default_rng(0), fresh()
        changes = 0
        for _ in range(60):
            changes += feed(posterior, 1, 16, [*noisy(rng, 1.0, 4), 20.0])
        assert changes == 0
        assert abs(deviations(posterior, 16)[1]) < 0.03

    @pytest.mark.parametrize("share", [0.1, 0.3])
    def test_contamination_by_other_work_is_left_out(self, share: float) -> None:
        """A share of the steps is 1.3 to 3 times as long; the time of the others is right to within 4 %."""
        for seed in range(3):
            rng, posterior = np.random.default_rng(seed), fresh()
            for factor in noisy(rng, 1.0, 400):
                slow = rng.uniform(1.3, 3.0) if rng.random() < share else 1.0
                feed(posterior, 2, 64, [factor * slow])
            assert abs(deviations(posterior, 64)[2]) < 0.04


class TestChange:
    def test_shorter_times_are_believed_at_once(self) -> None:
        posterior = fresh()
        feed(posterior, 2, 64, [1.0] * 30)
        assert feed(posterior, 2, 64, [0.5] * 3) == 1
        assert deviations(posterior, 64)[2] == pytest.approx(math.log(0.5), rel=0.1)
        assert posterior.alarms == 1

    def test_longer_times_are_believed_when_enough_samples_agree(self) -> None:
        """Not after three of them, mostly after six; what is left open keeps the cell unsure."""
        posterior = fresh()
        feed(posterior, 2, 64, [1.0] * 30)
        assert feed(posterior, 2, 64, [2.0] * 3) == 0
        assert abs(deviations(posterior, 64)[2]) < 0.01
        assert feed(posterior, 2, 64, [2.0] * 3) == 1
        assert deviations(posterior, 64)[2] == pytest.approx(math.log(2.0), rel=0.25)
        assert math.sqrt(posterior.covariance(64, FULL)[2, 2]) > 0.05
        feed(posterior, 2, 64, [2.0] * 12)
        assert deviations(posterior, 64)[2] == pytest.approx(math.log(2.0), rel=0.03)

    def test_slow_samples_that_do_not_agree_are_not_put_together(self) -> None:
        posterior = fresh()
        feed(posterior, 2, 64, [1.0] * 30)
        assert feed(posterior, 2, 64, [2.0] * 3 + [4.5] * 3 + [2.0] * 3) == 0
        assert abs(deviations(posterior, 64)[2]) < 0.01

    def test_a_sound_sample_between_slow_ones_ends_the_suspicion(self) -> None:
        posterior = fresh()
        feed(posterior, 2, 64, [1.0] * 30)
        assert feed(posterior, 2, 64, [2.0] * 3 + [1.0] * 3 + [2.0] * 3) == 0

    def test_noise_alone_seldom_raises_an_alarm_and_leads_nowhere(self) -> None:
        """At 3 % noise at most ten in 7,500 steps, and the time believed stays within 2 %."""
        alarms = 0
        for seed in range(5):
            posterior = fresh()
            alarms += feed(posterior, 2, 64, noisy(np.random.default_rng(seed), 1.0, 1500))
            assert abs(deviations(posterior, 64)[2]) < 0.02
        assert alarms <= 10

    @pytest.mark.parametrize("noise", [0.01, 0.03, 0.1])
    def test_the_noise_is_learnt(self, noise: float) -> None:
        """To within a third: the median of distances bears stalls, which are 5 % of the steps here."""
        rng, posterior = np.random.default_rng(2), fresh()
        for factor in noisy(rng, 1.0, 1500, noise):
            feed(posterior, 1, 16, [factor * (30.0 if rng.random() < 0.05 else 1.0)])
        assert posterior.noise == pytest.approx(noise, rel=1 / 3)


class TestTime:
    def test_variances_come_back_to_the_prior(self) -> None:
        posterior = fresh()
        prior = np.diag(posterior.covariance(64, FULL))
        feed(posterior, 2, 64, [1.0] * 30)
        seen = np.diag(posterior.covariance(64, FULL))
        posterior.tick(1000)
        later = np.diag(posterior.covariance(64, FULL))
        assert np.all((seen < later) & (later < prior))
        posterior.tick(100_000)
        assert np.diag(posterior.covariance(64, FULL)) == pytest.approx(prior, rel=1e-3)

    def test_many_short_waits_are_one_long_one(self) -> None:
        often, once = fresh(), fresh()
        for posterior in (often, once):
            feed(posterior, 2, 64, [1.0] * 3)
        for _ in range(50):
            often.tick(32)
        once.tick(1600)
        assert often.covariance(64, FULL) == pytest.approx(once.covariance(64, FULL))

    @pytest.mark.parametrize("table", [TABLE, None], ids=["timed", "untimed"])
    def test_the_covariance_stays_symmetric_and_positive(self, table: GoodputTable | None) -> None:
        """Through 2,000 steps of jumping loads, stalls, halvings and waits."""
        rng, posterior = np.random.default_rng(3), fresh(ARMS, table)
        for _ in range(400):
            arm, batch = int(rng.integers(3)), int(rng.integers(1, 1500))
            factor = float(rng.choice([1.0, 1.0, 1.0, 0.5, 2.0, 100.0]))
            feed(posterior, arm, batch, noisy(rng, factor, 5), width=float(rng.uniform(0.0, ARMS[arm])))
            posterior.tick(int(rng.integers(0, 40)))
        cov = np.array(posterior.snapshot()["cov"])
        assert np.abs(cov - cov.T).max() < 1e-12
        assert np.linalg.eigvalsh(cov)[0] > 0.0


def test_it_survives_json_in_the_middle_of_a_suspicion() -> None:
    """Slow samples wait for others that agree and a group is half full: both go on alike through the alarm."""
    posterior, other = fresh(), fresh()
    feed(posterior, 2, 64, [1.0, 1.01, 0.99] * 10 + [2.0] * 4)
    other.load(json.loads(json.dumps(posterior.snapshot())))
    for one in (posterior, other):
        assert feed(one, 2, 64, [2.0]) == 0
        assert feed(one, 2, 64, [2.02]) == 1
        one.tick(32)
    assert other.snapshot() == posterior.snapshot()
    assert other.log_times(48, [0.0, 0.5, 2.5], None) == posterior.log_times(48, [0.0, 0.5, 2.5], None)
