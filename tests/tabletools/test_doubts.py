"""What looks wrong in a table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from adaptk.replay.costs.p32374 import ACCEPTANCE
from adaptk.table import GoodputTable
from adaptk.tabletools.doubts import doubts
from tests.strategies import rows_of, tables
from tests.tabletools.measured import COUNTS, of_levels, public_rows, with_intervals


def public(acceptance: Any = ACCEPTANCE, counts: Any = None, supply: Any = None, **changed: float) -> GoodputTable:
    rows = [row | {"itl_ms": changed.get(f"b{row['batch']}k{row['k']}", row["itl_ms"])} for row in public_rows()]
    return GoodputTable.from_rows(rows, acceptance, acceptance_counts=counts, supply=supply)


class TestDoubts:
    def test_good_tables_raise_none(self) -> None:
        """The public profile, with intervals and counts, and at several contexts."""
        assert doubts(public()) == []
        assert doubts(with_intervals(0.02, COUNTS)) == []
        assert doubts(of_levels(512, 4096)) == []
        assert doubts(GoodputTable.from_schedule([[1, 8, 3]])) == []

    def test_a_cell_of_a_public_profile_that_fell_off_its_graph(self) -> None:
        """One cell reads 120 where its neighbour reads 17 and nothing comes after."""
        posted_ms = {
            1: {0: 6.87, 1: 7.97, 3: 9.41, 4: 9.91, 5: 10.8, 7: 12.29},
            16: {0: 7.3, 1: 8.39, 3: 9.95, 4: 10.8, 5: 11.59, 7: 13.11},
            32: {0: 7.64, 1: 8.97, 3: 10.78, 4: 11.79, 5: 12.81, 7: 14.86},
            64: {0: 8.53, 1: 10.44, 3: 13.16, 4: 15.7, 5: 17.54, 7: 120.57},
        }
        found = doubts(GoodputTable.from_rows(rows_of(posted_ms), [0.68, 0.57, 0.51, 0.5, 0.5, 0.5, 0.5]))
        assert found
        assert all("batch 64, k 7" in line for line in found)

    @pytest.mark.parametrize(
        ("table", "expected"),
        [
            (public(b16k3=24.0), "batch 16, k 3: 24 ms is 2.5 times what the cells beside it would make it"),
            (public(b16k3=4.0), "batch 16, k 3: 4 ms is 0.42 times what"),
            (public(b256k5=130.0), "batch 256, k 5: 130 ms is 2.5 times"),
            (GoodputTable.from_rows(rows_of({1: {0: 5.0, 1: 6.0}, 2: {0: 5.0, 1: 6.0}}), [0.5]), "the very times"),
            (public([1.0, 0.5, 0.5, 0.5, 0.5]), "acceptance is 1 at position 1"),
            (public([0.0] * 5), "the drafter is broken"),
            (public(counts=[[681, 1000], [500, 900], *COUNTS[2:]]), "position 2 was tried 900 times"),
            (public(None, counts=COUNTS), "acceptance_counts stand without acceptance"),
            (public(supply=[0.6, 0.6, 0.3, 0.1, 0.1]), "position 1 is reached and accepted in 0.681 of the steps"),
            (GoodputTable.from_rows(public_rows(spread_ms=50.0), ACCEPTANCE), "its samples scatter by 50 ms"),
            (GoodputTable.from_rows(public_rows(p10_ms=9.0, p90_ms=8.0), ACCEPTANCE), "p10 9 ms is above p90 8 ms"),
            (GoodputTable.from_rows(public_rows(p90_ms=6.7), ACCEPTANCE), "lies outside its samples' p10 to p90"),
        ],
    )
    def test_each_kind(self, table: GoodputTable, expected: str) -> None:
        """Named with the cell or position that it is about."""
        assert any(expected in line for line in doubts(table)), doubts(table)

    def test_only_the_worst_of_neighbours_is_named(self) -> None:
        """A wrong cell makes the ones beside it look wrong too."""
        unlike = [line for line in doubts(public(b16k3=24.0)) if "beside it" in line]
        assert len(unlike) == 1
        assert "batch 16, k 3" in unlike[0]

    def test_a_best_k_that_goes_up_and_down_again_and_again(self) -> None:
        """One hill is what a mixture of experts has; more is noise."""
        times = {b: {0: 5.0, 1: 8.0 + 0.5 * (-1) ** i} for i, b in enumerate((1, 2, 4, 8, 16))}
        assert any("goes up and down" in line for line in doubts(GoodputTable.from_rows(rows_of(times), [0.6])))
        hill = {b: {0: 5.0, 1: 7.6 if b == 4 else 8.4} for b in (1, 4, 16)}
        assert not any("goes up and down" in line for line in doubts(GoodputTable.from_rows(rows_of(hill), [0.6])))

    @settings(max_examples=40)
    @given(tables)
    def test_never_fails(self, table: GoodputTable) -> None:
        """Whatever is legal can be doubted."""
        assert all(isinstance(line, str) and line for line in doubts(table))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (rows_of({1: {1: 5.0, 3: 6.0}}), "K=0 has no rows"),
        (rows_of({1: {0: 5.0}}), "K=0 is its only K"),
        (rows_of({1: {0: 5.0, 1: 5.5}, 256: {0: 9.0, 1: 10.0}}), "between batch 1 and 256 there are no rows"),
    ],
)
def test_what_a_table_says_nothing_of(rows: list[dict[str, Any]], expected: str) -> None:
    """So that it decides less than it seems to."""
    assert any(expected in line for line in doubts(GoodputTable.from_rows(rows, [0.5, 0.4, 0.3])))
