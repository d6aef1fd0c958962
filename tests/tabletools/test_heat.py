"""The map in the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from adaptk.spans import plain
from adaptk.table import GoodputTable
from adaptk.tabletools.heat import MOST_ROWS, heat_map
from adaptk.tabletools.survey import survey
from tests.strategies import rows_of, timed_tables
from tests.tabletools.measured import public_table


def drawn(table: GoodputTable, blocks: bool = True) -> list[str]:
    return [plain(line) for line in heat_map(survey(table), blocks)]


class TestHeatMap:
    def test_the_public_profile(self) -> None:
        """Each cell has its shade and its percentage, the best a star."""
        lines = drawn(public_table())
        assert lines[0] == "  batch     K=0     K=1     K=3     K=5"
        assert lines[4] == "     64 ░░  73  ██ 100* ▓▓  96  ░░  82"
        assert lines[5] == "    256 ██ 100* ▒▒  89  ░░  78      61"

    def test_in_ascii(self) -> None:
        """Where the reader's encoding has no blocks every sign has another one."""
        text = "\n".join(drawn(public_table(), blocks=False))
        assert text.isascii()
        assert "64 ..  73  ## 100* ++  96  ..  82" in text

    def test_cells_without_a_row_are_marked(self) -> None:
        """A hole is not passed off as a measurement."""
        lines = drawn(GoodputTable.from_rows(rows_of({1: {0: 5.0, 3: 6.0}, 8: {0: 6.0}}), [0.5] * 3))
        assert "~" in lines[2]
        assert "~ no row: taken from other rows" in lines

    @pytest.mark.parametrize("ks", [9, 10, 23, 40])
    def test_wide_and_long_tables_fit(self, ks: int) -> None:
        """Columns and lines are thinned to a screen, and it is said; the best K stays."""
        rows = rows_of({b: {k: 5.0 + 0.01 * b * (k + 1) for k in range(ks)} for b in range(1, 200, 2)})
        lines = drawn(GoodputTable.from_rows(rows, [0.9] * ks))
        assert max(map(len, lines)) <= 80
        body = [line for line in lines if line[:7].strip().isdigit()]
        assert len(body) <= MOST_ROWS
        assert all("*" in line for line in body)
        assert "batch sizes left out here" in lines[-1]

    @settings(max_examples=40)
    @given(timed_tables())
    def test_any_table_fits(self, table: GoodputTable) -> None:
        """80 columns."""
        assert max(map(len, drawn(table))) <= 80
