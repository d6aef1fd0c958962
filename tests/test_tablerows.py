from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from adaptk.table import GoodputTable, TableError, TableRow
from tests.strategies import json_values, read_or_refused

GOOD = {"batch": 1, "k": 3, "itl_ms": 9.0}


class TestRefusals:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"batch": 0}, r"rows\[1\]\.batch is 0: give a whole number from 1"),
            ({"batch": True}, r"rows\[1\]\.batch is True"),
            ({"batch": 1.0}, r"rows\[1\]\.batch is 1\.0"),
            ({"batch": "1"}, r"rows\[1\]\.batch is '1'"),
            ({"k": -1}, r"rows\[1\]\.k is -1"),
            ({"k": 5000}, r"rows\[1\]\.k is 5000"),
            ({"itl_ms": 0.0}, r"rows\[1\]\.itl_ms is 0\.0"),
            ({"itl_ms": -3}, r"rows\[1\]\.itl_ms is -3"),
            ({"itl_ms": float("nan")}, r"rows\[1\]\.itl_ms is nan"),
            ({"itl_ms": float("inf")}, r"rows\[1\]\.itl_ms is inf"),
            ({"itl_ms": None}, r"rows\[1\]\.itl_ms is None"),
            ({"itl_ms": True}, r"rows\[1\]\.itl_ms is True"),
            ({"itl_ms": 10**400}, r"rows\[1\]\.itl_ms is 1000"),
            ({"n": 0}, r"rows\[1\]\.n is 0"),
            ({"n": 2.5}, r"rows\[1\]\.n is 2\.5"),
            ({"context": -1}, r"rows\[1\]\.context is -1"),
            ({"itl": 3}, r"rows\[1\] has the unknown field 'itl': known are batch, k, itl_ms"),
            ({}, r"rows\[1\] repeats batch 1, k 3, context None"),
        ],
    )
    def test_rows(self, change: dict[str, Any], message: str) -> None:
        with pytest.raises(TableError, match=message):
            GoodputTable.from_rows([GOOD, {**GOOD, **change}])

    @pytest.mark.parametrize("rows", [[], {}, "rows", 5, [5], [{"batch": 1, "k": 1}]])
    def test_shapes_of_rows(self, rows: Any) -> None:
        with pytest.raises(TableError, match="rows"):
            GoodputTable.from_rows(rows)

    @pytest.mark.parametrize(
        "acceptance", [[], [1.5], [-0.1], [float("nan")], [True], ["0.5"], 0.5, "0.5", [0.5] * 2000]
    )
    def test_acceptance(self, acceptance: Any) -> None:
        with pytest.raises(TableError, match="acceptance"):
            GoodputTable.from_rows([GOOD], acceptance)

    @pytest.mark.parametrize(
        "meta", ["x", {"staircase": 1}, {"a": object()}, {"a": float("nan")}, {"a": "\ud800"}, [("a", 1)]]
    )
    def test_meta(self, meta: Any) -> None:
        with pytest.raises(TableError, match="meta"):
            GoodputTable.from_rows([GOOD], meta=meta)

    def test_a_number_in_meta_that_is_none_is_found_by_its_way(self) -> None:
        with pytest.raises(TableError, match=r"meta\.key\.times\[1\]\.ms is nan: give a finite number or null"):
            GoodputTable.from_rows([GOOD], meta={"key": {"times": [{}, {"ms": float("nan")}]}})

    def test_meta_that_holds_itself(self) -> None:
        loop: dict[str, Any] = {}
        loop["a"] = loop
        with pytest.raises(TableError, match="nested"):
            GoodputTable.from_rows([GOOD], meta=loop)

    @pytest.mark.parametrize(
        "ask",
        [
            lambda t: t.itl_ms(0, 1),
            lambda t: t.itl_ms(float("nan"), 1),
            lambda t: t.itl_ms(1, -1),
            lambda t: t.itl_ms(1, 1, -5),
            lambda t: t.itl_ms(1, 1, float("nan")),
            lambda t: t.best_k(0),
            lambda t: t.best_k(1, arms=()),
            lambda t: t.best_k(1, arms=(0, True)),
            lambda t: t.to_schedule(0),
            lambda t: t.acceptance_length(-1),
        ],
    )
    def test_questions(self, ask: Any) -> None:
        with pytest.raises(TableError):
            ask(GoodputTable.from_rows([GOOD]))

    def test_numpy_numbers_are_welcome(self) -> None:
        table = GoodputTable.from_rows(
            [{"batch": np.int64(4), "k": np.int32(1), "itl_ms": np.float32(2.5), "n": np.uint8(9)}], np.array([0.5])
        )
        assert table.rows == (TableRow(batch=4, k=1, itl_ms=2.5, n=9),)

    def test_parts_cannot_be_changed_from_outside(self) -> None:
        meta = {"key": {"gpu": "x"}}
        table = GoodputTable.from_rows([GOOD], meta=meta)
        meta["key"]["gpu"] = "y"
        table.meta["key"]["gpu"] = "z"
        assert table.meta == {"key": {"gpu": "x"}}
        with pytest.raises(AttributeError):
            table.rows[0].itl_ms = 1.0  # type: ignore[misc]

    @given(rows=json_values, acceptance=json_values, meta=json_values)
    def test_any_arguments_are_taken_or_refused(self, rows: Any, acceptance: Any, meta: Any) -> None:
        for build in (GoodputTable.from_rows, GoodputTable.from_schedule):
            read_or_refused(lambda build=build: build(rows, acceptance, meta))
