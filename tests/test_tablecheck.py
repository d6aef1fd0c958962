from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from adaptk.table import GoodputTable
from tests.strategies import rows_of, tables


class TestCheck:
    def test_a_public_row_with_a_collapse(self) -> None:
        """Step times that a user posted: K=7 falls off the captured graphs."""
        posted_ms = {0: 8.53, 1: 10.44, 3: 13.16, 4: 15.7, 5: 17.54, 7: 120.57}
        table = GoodputTable.from_rows(rows_of({64: posted_ms}), [0.7] * 7)
        assert table.check() == ["batch 64, k 7: 120.57 ms is 6.9 times the 17.54 ms of its neighbour batch 64, k 5"]

    @pytest.mark.parametrize(
        ("rows", "acceptance", "expected"),
        [
            (rows_of({1: {0: 5.0, 3: 7.0}, 8: {0: 6.0}}), [0.5] * 3, "batch 8: no row for k 3"),
            (rows_of({1: {0: 9.0, 3: 6.0}}), [0.5] * 3, "batch 1, k 3: 6 ms is less than the 9 ms of batch 1, k 0"),
            (rows_of({1: {0: 9.0}, 8: {0: 6.0}}), [0.5], "batch 8, k 0: 6 ms is less than"),
            (rows_of({1: {0: 99.0}, 8: {0: 9.0}}), [0.5], "batch 1, k 0: 99 ms is 11.0 times"),
            (rows_of({1: {0: 9.0}}, n=4), [0.5], "batch 1, k 0: only 4 samples"),
            (rows_of({1: {0: 9.0}}), [0.5, 0.6], "acceptance rises from 0.5 at position 1 to 0.6 at position 2"),
            (rows_of({1: {3: 9.0}}), [0.5], "acceptance has 1 positions and k goes up to 3"),
            (rows_of({1: {0: 9.0}}), None, "acceptance is unknown"),
            (rows_of({1: {0: 9.0}, 8: {0: 6.0}}, context=100), [0.5], "(context 100)"),
        ],
    )
    def test_suspicions(self, rows: list[dict[str, Any]], acceptance: list[float] | None, expected: str) -> None:
        found = GoodputTable.from_rows(rows, acceptance).check()
        assert len(found) == 1
        assert expected in found[0]

    def test_growth_with_the_tokens_is_no_jump(self) -> None:
        assert GoodputTable.from_rows(rows_of({1: {0: 5.0}, 256: {0: 50.0}}), [0.5]).check() == []

    def test_long_lists_are_cut(self) -> None:
        found = GoodputTable.from_rows(rows_of({b: {0: 5.0} for b in range(1, 100)}, n=1), [0.5]).check()
        assert len(found) == 21
        assert found[-1] == "... and 79 more of this kind"

    @given(tables)
    def test_never_fails(self, table: GoodputTable) -> None:
        assert all(isinstance(line, str) and line for line in table.check())
