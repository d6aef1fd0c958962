"""Arms that cannot be told apart."""

from __future__ import annotations

import pytest

from adaptk.table import GoodputTable
from adaptk.tabletools.apart import _length_doubt
from adaptk.tabletools.survey import survey
from tests.tabletools.measured import COUNTS, public_table, with_intervals


class TestTies:
    def test_narrow_intervals_tell_all_apart(self) -> None:
        """At the rows of the public profile the second best K is 3 % behind and more."""
        assert survey(with_intervals(0.005)).ties == ()

    def test_wide_intervals_do_not(self) -> None:
        """At batch 64 K=1 leads K=3 by 3.5 %: within times that are known to 4 %."""
        ties = survey(with_intervals(0.04)).ties
        assert (64, 1, 3) in [(tie.batch, tie.k, tie.other) for tie in ties]
        assert all(tie.lead <= tie.within for tie in ties)

    def test_without_intervals_nothing_is_said(self) -> None:
        """No interval is not a wide one."""
        seen = survey(public_table())
        assert (seen.ties, seen.with_intervals) == ((), False)

    def test_few_trials_of_acceptance_widen_it(self) -> None:
        """Times known to a tenth of a percent do not help where 20 drafts were tried."""
        few = [[max(accepted // 50, 0), max(tried // 50, 1)] for accepted, tried in COUNTS]
        assert survey(with_intervals(0.001, COUNTS)).ties == ()
        assert (64, 1, 3) in [(tie.batch, tie.k, tie.other) for tie in survey(with_intervals(0.001, few)).ties]

    def test_a_row_with_an_interval_from_zero_is_not_judged(self) -> None:
        """Its goodput has no upper end."""
        rows = [{"batch": 1, "k": k, "itl_ms": 5.0, "low_ms": 0.0, "high_ms": 9.0} for k in (0, 1)]
        assert survey(GoodputTable.from_rows(rows, [0.5])).ties == ()


class TestLengthDoubt:
    def test_by_hand(self) -> None:
        """log(AL(1) / AL(0)) = log(1 + a): its deviation is that of a over 1 + a."""
        table = GoodputTable.from_rows([{"batch": 1, "k": 1, "itl_ms": 5.0}], [0.6], acceptance_counts=[[60, 99]])
        assert _length_doubt(table, 1, 0) == pytest.approx((0.6 * 0.4 / 100) ** 0.5 / 1.6)

    def test_by_differences(self) -> None:
        """Two positions: the slopes are those of finite differences."""
        shares, trials = [0.7, 0.4], [[70, 99], [28, 69]]

        def log_ratio(one: float, other: float) -> float:
            import math

            return math.log((1 + one + one * other) / (1 + one))

        table = GoodputTable.from_rows([{"batch": 1, "k": 2, "itl_ms": 5.0}], shares, acceptance_counts=trials)
        step = 1e-6
        slopes = [
            (log_ratio(shares[0] + step, shares[1]) - log_ratio(*shares)) / step,
            (log_ratio(shares[0], shares[1] + step) - log_ratio(*shares)) / step,
        ]
        variances = [a * (1 - a) / (tried + 1) for a, (_, tried) in zip(shares, trials, strict=True)]
        expected = sum(slope**2 * variance for slope, variance in zip(slopes, variances, strict=True)) ** 0.5
        assert _length_doubt(table, 2, 1) == pytest.approx(expected, rel=1e-4)
