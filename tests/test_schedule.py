from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.table import GoodputTable, TableError
from tests.strategies import schedules


class TestSchedule:
    def test_reproduces_the_schedule_and_knows_no_times(self) -> None:
        table = GoodputTable.from_schedule([[1, 64, 3], [65, 128, 1], [129, 512, 0]])
        assert [table.best_k(b) for b in (1, 64, 65, 128, 129, 512, 513, 10**7)] == [3, 3, 1, 1, 0, 0, 0, 0]
        assert (table.itl_ms(1, 3), table.goodput(1, 3), table.has_times) == (None, None, False)
        assert (table.ks, table.batches, table.rows) == ((0, 1, 3), (), ())
        assert table.schedule == ((1, 64, 3), (65, 128, 1), (129, 512, 0))
        assert table.to_schedule(512) == [[1, 64, 3], [65, 128, 1], [129, 512, 0]]

    def test_gaps_carry_on_what_came_before(self) -> None:
        table = GoodputTable.from_schedule([[1, 16, 3], [32, 128, 2]])
        assert [table.best_k(b) for b in (16, 17, 31, 32, 500)] == [3, 3, 3, 2, 2]

    def test_order_of_entries_is_free_as_in_vllm(self) -> None:
        assert GoodputTable.from_schedule([[65, 128, 1], [1, 64, 3]]).best_k(1) == 3

    def test_arms_round_down(self) -> None:
        table = GoodputTable.from_schedule([[1, 8, 5], [9, 9, 0]])
        assert table.best_k(1, arms=(0, 1, 3, 7)) == 3
        assert table.best_k(9, arms=(1, 3)) == 1

    def test_a_grid_of_times_is_refused(self) -> None:
        with pytest.raises(TableError, match="has_times"):
            GoodputTable.from_schedule([[1, 1, 1]]).itl_grid([1], [1])

    @pytest.mark.parametrize(
        ("schedule", "message"),
        [
            ([], "schedule is empty"),
            (None, "schedule is None"),
            ("abc", "schedule is 'abc'"),
            ([[1, 2]], r"schedule\[0\] is \[1, 2\]"),
            ([[2, 8, 1]], "starts at batch 2"),
            ([[1, 8, 1], [8, 9, 0]], r"range 8\.\.9 overlaps the one up to 8"),
            ([[8, 1, 3]], r"schedule\[0\] runs from batch 8 down to 1"),
            ([[1, 64, 3.9]], r"schedule\[0\] K is 3\.9: give a whole number"),
            ([[1, 64, True]], r"schedule\[0\] K is True"),
            ([[1, 64, "3"]], r"schedule\[0\] K is '3'"),
            ([[1, 64, -1]], r"schedule\[0\] K is -1"),
            ([[0, 64, 1]], r"schedule\[0\] first batch is 0"),
            ([[1, 64, 1], [65, -1, 1]], r"schedule\[1\] last batch is -1"),
        ],
    )
    def test_refusals_name_field_and_value(self, schedule: Any, message: str) -> None:
        with pytest.raises(TableError, match=message):
            GoodputTable.from_schedule(schedule)


class TestAgainstVllm:
    @pytest.fixture(scope="class")
    def lookup(self) -> Any:
        utils = pytest.importorskip("vllm.v1.spec_decode.dynamic.utils", reason="vLLM is not installed")
        return utils.build_dynamic_sd_schedule_lookup

    @given(schedule=schedules(), shuffle=st.randoms())
    def test_same_k_at_every_batch(self, lookup: Any, schedule: list[list[int]], shuffle: Any) -> None:
        shuffle.shuffle(schedule)
        dense = lookup(schedule, 600, 12)
        table = GoodputTable.from_schedule(schedule)
        assert [table.best_k(batch) for batch in range(1, 601)] == dense[1:]

    @given(schedule=st.lists(st.lists(st.integers(-1, 9), min_size=3, max_size=3), max_size=3))
    def test_refuses_the_same(self, lookup: Any, schedule: list[list[int]]) -> None:
        def accepts(build: Any) -> bool:
            try:
                build()
            except ValueError:
                return False
            return True

        theirs = accepts(lambda: lookup(schedule, 20, 9))
        assert accepts(lambda: GoodputTable.from_schedule(schedule)) == theirs
