"""The figure of a table."""

from __future__ import annotations

import pytest

from adaptk.table import GoodputTable
from adaptk.tabletools.figure import MOST_PANELS, contexts_drawn, draw
from tests.strategies import rows_of
from tests.tabletools.measured import of_levels, public_rows, public_table

PNG = b"\x89PNG\r\n\x1a\n"


def width(png: bytes) -> int:
    return int.from_bytes(png[16:20], "big")


class TestDraw:
    def test_a_panel_per_level(self) -> None:
        """Three levels are wider than one."""
        table = of_levels(512, 4096, 16_384)
        whole, one = draw(table, "levels"), draw(table, "levels", context=4096)
        assert whole.startswith(PNG)
        assert width(whole) > 2 * width(one)

    @pytest.mark.parametrize(
        "table",
        [
            GoodputTable.from_rows([{"batch": 8, "k": 0, "itl_ms": 5.0}]),
            GoodputTable.from_rows(rows_of({b: {k: 5.0 + k for k in range(20)} for b in range(1, 60)}), [0.9] * 20),
        ],
    )
    def test_small_and_large_tables(self, table: GoodputTable) -> None:
        """One cell, and too many for numbers and boxes."""
        assert draw(table, "").startswith(PNG)

    def test_names_that_are_no_formulas(self) -> None:
        """Dollar signs, and a script that the font has not; a warning would be an error here."""
        assert draw(public_table(), "$x_{$ 模型 \x07").startswith(PNG)


class TestContextsDrawn:
    def test_which_levels(self) -> None:
        """The one asked for; else rows without a context first, and six panels at most, the ends among them."""
        mixed = GoodputTable.from_rows([*public_rows(), *(row | {"context": 512} for row in public_rows())])
        assert contexts_drawn(mixed, None) == [None, 512.0]
        assert contexts_drawn(mixed, 700.0) == [700.0]
        many = contexts_drawn(of_levels(*(100.0 * i for i in range(1, 11))), None)
        assert len(many) == MOST_PANELS
        assert (many[0], many[-1]) == (100.0, 1000.0)
