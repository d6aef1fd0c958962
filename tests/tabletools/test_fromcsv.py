"""Tables from CSV files."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptk.table import GoodputTable, TableError
from adaptk.tabletools.imported import Imported, read_source


def imported(tmp_path: Path, text: str) -> Imported:
    path = tmp_path / "cells.csv"
    path.write_text(text, encoding="utf-8")
    return read_source(path, "csv", [0.7])


class TestReadCsv:
    @pytest.mark.parametrize(
        "text",
        [
            "batch,k,itl_ms\n1,0,6.5\n1,3,8.8\n",
            "Batch Size;num-speculative-tokens;ITL\n1;0;6,5\n1;3;8,8\n",
            "\ufeffmax_concurrency\tnum_speculative_tokens\tmedian_itl_ms\r\n1\t0\t6.5\r\n\r\n1\t3\t8.8\r\n",
            '"k","batch","mean_itl_ms","median_itl_ms"\n"3","1","9","8.8"\n0.0,1,9,6.5\n',
        ],
    )
    def test_any_header_and_delimiter(self, text: str, tmp_path: Path) -> None:
        """Also decimal commas, a byte order mark, empty lines and quotes; the median is preferred to the mean."""
        table = imported(tmp_path, text).table
        assert [(row.batch, row.k, row.itl_ms) for row in table.rows] == [(1, 0, 6.5), (1, 3, 8.8)]

    def test_other_columns(self, tmp_path: Path) -> None:
        """Those of a row are taken, others are named; an empty field is unknown."""
        text = "batch,k,itl_ms,context,n,low_ms,high_ms,graph_mode,colour\n1,0,6.5,512,80,6,7,FULL,red\n2,0,6.6,,,,,,\n"
        made = imported(tmp_path, text)
        plain, row = made.table.rows
        assert (row.context, row.n, row.low_ms, row.high_ms, row.graph_mode) == (512.0, 80, 6.0, 7.0, "FULL")
        assert (plain.context, plain.n, plain.graph_mode) == (None, None, None)
        assert any("not used: colour" in note for note in made.notes)

    def test_repeated_cells_get_the_median(self, tmp_path: Path) -> None:
        """And their samples are added, if all say how many."""
        made = imported(tmp_path, "batch,k,itl_ms,n,p90_ms\n1,0,6,10,7\n1,0,9,10,9\n1,0,7,20,8\n2,0,8,5,9\n")
        assert [(row.itl_ms, row.n, row.p90_ms) for row in made.table.rows] == [(7.0, 40, None), (8.0, 5, 9.0)]
        assert any("1 cells occur more than once" in note for note in made.notes)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("batch,k,itl_ms\n", "no rows below"),
            ("batch,k\n1,0\n", "no column for itl_ms"),
            ("batch,k,median_tpot_ms\n1,0,5\n", "under speculation no step time"),
            ("batch,itl_ms\n1,5\n", "no column for k"),
            ("batch,k,itl_ms\n1,0,5\n1,3\n", "line 3: itl_ms is empty"),
            ("batch,k,itl_ms\n1,0,5\n\n1,0.5,5\n", "line 4: k is '0.5'"),
            ("batch,k,itl_ms\n1,0,nan\n", "line 2: itl_ms is nan"),
            ("batch,k,itl_ms\n1,inf,3\n", "line 2: k is 'inf'"),
            ("batch,k,itl_ms\n0,0,5\n", "line 2: batch is 0"),
            ("batch,k,itl_ms\n1,0,-5\n", "line 2: itl_ms is -5.0"),
            ("batch,k,itl_ms\n1,0,fast\n", "line 2: itl_ms is 'fast'"),
            ('batch,k,itl_ms\n1,0,"5\n6"\n2,0,7\n', "line 3: itl_ms is"),
        ],
    )
    def test_what_is_refused(self, text: str, expected: str, tmp_path: Path) -> None:
        """The line and the column are named."""
        with pytest.raises(TableError, match=expected) as error:
            imported(tmp_path, text)
        assert "cells.csv" in str(error.value)

    def test_a_saved_import_loads(self, tmp_path: Path) -> None:
        """What was made is a table like any other."""
        made = imported(tmp_path, "batch,k,itl_ms\n1,0,6.5\n")
        made.table.save(tmp_path / "table.json")
        assert GoodputTable.load(tmp_path / "table.json") == made.table
