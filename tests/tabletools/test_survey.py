"""What a table decides and what that gains."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptk.table import GoodputTable, TableError
from adaptk.tabletools.survey import survey
from tests.strategies import timed_tables
from tests.tabletools.measured import of_levels, public_rows, public_table, with_intervals


class TestSurvey:
    def test_the_public_profile(self) -> None:
        """Fixed K=3 is the best fixed one and 27 % slower than K=0 at batch 256."""
        seen = survey(public_table())
        assert [(run.first, run.last, run.k) for run in seen.runs] == [(1, 50, 3), (51, 169, 1), (170, 256, 0)]
        best = seen.fixed[0]
        assert (best.k, best.most_at) == (3, 256)
        assert best.most == pytest.approx(public_table().goodput(256, 0) / public_table().goodput(256, 3) - 1)  # type: ignore[operator]

    def test_goodput_and_gain_are_the_tables_own(self) -> None:
        """At both ends of a run."""
        table = public_table()
        run = survey(table).runs[0]
        assert run.goodput_first == pytest.approx(table.goodput(1, 3))
        assert run.goodput_last == pytest.approx(table.goodput(50, 3))
        assert run.over_k0_last == pytest.approx(table.goodput(50, 3) / table.goodput(50, 0) - 1)  # type: ignore[operator]

    def test_a_table_without_k0_names_no_gain_over_it(self) -> None:
        """An extrapolated K=0 is no measurement."""
        table = GoodputTable.from_rows([row for row in public_rows() if row["k"] > 0], [0.7] * 5)
        assert all(run.over_k0_first is None and run.over_k0_last is None for run in survey(table).runs)

    def test_intervals_of_goodput_are_those_of_the_times(self) -> None:
        """The long end of the time is the low end of the goodput."""
        cell = survey(with_intervals(0.1)).cells[0]
        assert cell.low == pytest.approx(cell.goodput / 1.1)
        assert cell.high == pytest.approx(cell.goodput / 0.9)

    def test_between_levels_nothing_was_measured(self) -> None:
        """All cells between two levels are interpolated; beyond them the last level's rows answer."""
        table = of_levels(512, 4096)
        assert not any(cell.measured for cell in survey(table, 2000).cells)
        assert all(cell.measured for cell in survey(table, 4096).cells)
        assert all(cell.measured for cell in survey(table, 9999).cells)

    def test_batches_above_the_rows_are_looked_at_and_said(self) -> None:
        """The largest is asked for, so it is among the cells."""
        seen = survey(public_table(), max_batch=600)
        assert (seen.beyond, seen.batches[-1]) == (256, 600)
        assert survey(public_table(), max_batch=2).batches == (1,)
        assert survey(GoodputTable.from_rows([{"batch": 8, "k": 0, "itl_ms": 5.0}]), max_batch=2).batches == (2,)

    def test_a_schedule_has_no_times(self) -> None:
        """It is refused, not answered with guesses."""
        with pytest.raises(TableError, match="no step times"):
            survey(GoodputTable.from_schedule([[1, 8, 3]]))

    @settings(max_examples=40)
    @given(timed_tables(), st.none() | st.integers(1, 700))
    def test_any_table(self, table: GoodputTable, max_batch: int | None) -> None:
        """Runs cover every batch size once with the table's best K; a best cell stands in every line."""
        seen = survey(table, max_batch=max_batch)
        dense = [run.k for run in seen.runs for _ in range(run.first, run.last + 1)]
        assert len(dense) == seen.max_batch
        assert all(table.best_k(batch) == dense[batch - 1] for batch in {1, seen.max_batch, (1 + seen.max_batch) // 2})
        for batch in seen.batches:
            assert max(cell.relative for cell in seen.cells if cell.batch == batch) == 1.0
        assert all(fixed.gain >= -1e-12 for fixed in seen.fixed)
