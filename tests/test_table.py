from __future__ import annotations

import json
import timeit
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.table import GoodputTable
from adaptk.tabledrafts import DEFAULT_ACCEPTANCE
from tests.strategies import batches, ks, row_lists, rows_of, tables, timed_tables

FIXTURE = Path(__file__).parents[2] / "shared" / "data" / "p32374.json"


def conditional(marginal: list[float]) -> list[float]:
    """P(i accepted | those before accepted) from P(1..i accepted)."""
    return [after / before for before, after in zip([1.0, *marginal], marginal, strict=False)]


@pytest.fixture
def measured() -> GoodputTable:
    """The measured table of vLLM pull request 32374."""
    if not FIXTURE.is_file():
        pytest.skip("the measured table ../shared/data/p32374.json is not beside this checkout")
    data = json.loads(FIXTURE.read_text())
    grid = {int(b): {int(k): ms for k, ms in line.items()} for b, line in data["itl_ms"].items()}
    return GoodputTable.from_rows(rows_of(grid), conditional(data["acceptance_marginal"]), {"name": data["name"]})


class TestMeasured:
    def test_best_k_falls_with_the_batch(self, measured: GoodputTable) -> None:
        best = [measured.best_k(batch, arms=(0, 1, 3, 5)) for batch in (1, 4, 16, 64, 256)]
        assert best == [3, 3, 3, 1, 0]

    def test_marginal_acceptance_becomes_conditional(self, measured: GoodputTable) -> None:
        assert measured.acceptance == pytest.approx((0.6812, 0.5746, 0.5199, 0.4983, 0.5069), abs=5e-5)

    def test_acceptance_length_is_one_plus_the_marginals(self, measured: GoodputTable) -> None:
        assert measured.acceptance_length(3) == pytest.approx(1 + 0.6812 + 0.3914 + 0.2035)

    def test_nothing_looks_wrong_in_it(self, measured: GoodputTable) -> None:
        assert measured.check() == []


class TestInterpolation:
    table = GoodputTable.from_rows(rows_of({2: {0: 10.0, 4: 20.0}, 4: {0: 14.0, 4: 30.0}, 8: {0: 16.0, 4: 50.0}}))

    @pytest.mark.parametrize(
        ("batch", "k", "ms"),
        [
            (3, 0, 12.0),  # halfway between two rows
            (2.5, 0, 11.0),
            (1, 0, 10.0),  # below the first row: its value
            (12, 0, 18.0),  # above the last: 0.5 ms per request
            (10**6, 4, 50.0 + 5.0 * (10**6 - 8)),
            (2, 2, 15.0),  # between two K
            (2, 6, 25.0),  # beyond them
        ],
    )
    def test_values_by_hand(self, batch: float, k: int, ms: float) -> None:
        assert self.table.itl_ms(batch, k) == pytest.approx(ms)

    def test_never_below_the_last_row(self) -> None:
        falling = GoodputTable.from_rows(rows_of({1: {0: 10.0}, 2: {0: 8.0}}))
        assert falling.itl_ms(100, 0) == 8.0

    def test_staircase_takes_the_next_row(self) -> None:
        stair = GoodputTable.from_rows(rows_of({1: {0: 10.0}, 8: {0: 12.0}, 16: {0: 20.0}}), meta={"staircase": True})
        assert [stair.itl_ms(b, 0) for b in (1, 2, 8, 9, 16, 24)] == [10.0, 12.0, 12.0, 20.0, 20.0, 28.0]

    def test_extrapolation_in_k_stays_positive(self) -> None:
        steep = GoodputTable.from_rows(rows_of({1: {3: 10.0, 4: 30.0}}))
        assert steep.itl_ms(1, 0) == pytest.approx(0.5)  # a line would give -50 ms
        assert steep.knows(3)
        assert not steep.knows(0)

    def test_single_k_costs_the_same_for_all(self) -> None:
        assert GoodputTable.from_rows(rows_of({1: {3: 10.0}})).itl_ms(1, 7) == 10.0

    def test_a_k_with_fewer_rows_uses_its_own(self) -> None:
        table = GoodputTable.from_rows(rows_of({1: {0: 5.0, 3: 9.0}, 64: {0: 8.0}, 128: {0: 9.0, 3: 30.0}}))
        assert table.itl_ms(64, 3) == pytest.approx(9.0 + 21.0 * 63 / 127)

    def test_contexts_are_surfaces(self) -> None:
        levels = [
            rows_of({1: {0: ms}, 5: {0: ms + 4.0}}, context=c) for c, ms in ((100, 10.0), (300, 20.0), (900, 50.0))
        ]
        table = GoodputTable.from_rows([row for rows in levels for row in rows])
        found = [table.itl_ms(1, 0, c) for c in (0, 100, 200, 300, 900, 10**6)]
        assert found == pytest.approx([10.0, 10.0, 15.0, 20.0, 50.0, 50.0])
        assert table.itl_ms(3, 0, 200) == pytest.approx(17.0)
        assert table.itl_ms(1, 0) == 20.0  # no context asked: the middle level
        assert table.contexts == (100.0, 300.0, 900.0)

    def test_rows_without_context_answer_questions_without(self) -> None:
        table = GoodputTable.from_rows(rows_of({1: {0: 7.0}}) + rows_of({1: {0: 10.0}}, context=100))
        assert (table.itl_ms(1, 0), table.itl_ms(1, 0, 5)) == (7.0, 10.0)

    def test_rows_without_context_answer_all_if_alone(self) -> None:
        assert GoodputTable.from_rows(rows_of({1: {0: 7.0}})).itl_ms(1, 0, 5000) == 7.0

    @given(row_lists(), st.booleans())
    def test_passes_through_every_row(self, rows: list[dict[str, Any]], stair: bool) -> None:
        table = GoodputTable.from_rows(rows, meta={"staircase": stair})
        for row in rows:
            assert table.itl_ms(row["batch"], row["k"], row["context"]) == pytest.approx(row["itl_ms"], rel=1e-12)

    @given(timed_tables(contexts=False))
    def test_between_two_rows_it_goes_one_way(self, table: GoodputTable) -> None:
        for k in table.ks:
            for low, high in pairwise(row for row in table.rows if row.k == k):
                points = np.linspace(low.batch, high.batch, 7)
                rise = np.diff(table.itl_grid(points, [k])[:, 0]) * np.sign(high.itl_ms - low.itl_ms)
                assert np.all(rise >= -1e-9 * high.itl_ms)
                assert abs(rise.sum()) <= abs(high.itl_ms - low.itl_ms) * (1 + 1e-9)

    @given(timed_tables(), st.lists(batches, min_size=1, max_size=5), st.lists(ks, min_size=1, max_size=4))
    def test_grid_agrees_with_single_values_and_is_positive(
        self, table: GoodputTable, some_batches: list[int], some_ks: list[int]
    ) -> None:
        for context in (None, 500.0):
            grid = table.itl_grid(some_batches, some_ks, context)
            single = [[table.itl_ms(b, k, context) for k in some_ks] for b in some_batches]
            assert grid.shape == (len(some_batches), len(some_ks))
            assert np.all(grid > 0.0)
            np.testing.assert_allclose(grid, np.array(single, dtype=float), rtol=1e-12)


class TestBestK:
    def test_goodput_is_length_over_time(self) -> None:
        table = GoodputTable.from_rows(rows_of({1: {2: 10.0}}), [0.7, 0.5])
        assert table.goodput(1, 2) == pytest.approx(205.0)

    def test_last_acceptance_is_held(self) -> None:
        table = GoodputTable.from_rows(rows_of({1: {0: 1.0}}), [0.5])
        assert table.acceptance_length(3) == pytest.approx(1 + 0.5 + 0.25 + 0.125)

    def test_unknown_acceptance_is_a_weak_guess(self) -> None:
        table = GoodputTable.from_rows(rows_of({1: {0: 1.0}}))
        assert table.acceptance is None
        assert table.acceptance_length(2) == pytest.approx(1 + DEFAULT_ACCEPTANCE + DEFAULT_ACCEPTANCE**2)

    def test_equals_go_to_the_smaller_k(self) -> None:
        table = GoodputTable.from_rows(rows_of({1: {0: 10.0, 1: 15.0, 2: 17.5}}), [0.5])
        assert table.best_k(1) == 0
        assert table.best_k(1, arms=(2, 1)) == 1

    def test_a_hill_is_allowed(self) -> None:
        """Mixture-of-experts models want few drafts at small and large batches and more in between."""
        grid = {1: {0: 5.0, 3: 14.0}, 32: {0: 10.0, 3: 12.0}, 256: {0: 20.0, 3: 60.0}}
        table = GoodputTable.from_rows(rows_of(grid), [0.7, 0.6, 0.5])
        assert [table.best_k(batch) for batch in (1, 32, 256)] == [0, 3, 0]
        assert [k for _, _, k in table.to_schedule(256)] == [0, 3, 0]

    @given(timed_tables(), st.lists(ks, min_size=1, max_size=4), st.sampled_from([None, 0, 700.0]))
    def test_best_k_has_the_highest_goodput(self, table: GoodputTable, arms: list[int], context: float | None) -> None:
        for batch in (1, 17, 5000):
            goodput = {k: table.goodput(batch, k, context) or 0.0 for k in arms}
            assert goodput[table.best_k(batch, context, arms)] == pytest.approx(max(goodput.values()), rel=1e-12)

    @given(tables, st.integers(1, 700), st.none() | st.lists(ks, min_size=1, max_size=4))
    def test_schedule_round_trip(self, table: GoodputTable, max_batch: int, arms: list[int] | None) -> None:
        triples = table.to_schedule(max_batch, arms=arms)
        again = GoodputTable.from_schedule(triples)
        assert triples[0][0] == 1
        assert triples[-1][1] == max_batch
        assert all(here[2] != after[2] for here, after in pairwise(triples))
        for batch in {1, max_batch, *(first for first, _, _ in triples), max(1, max_batch // 2)}:
            assert again.best_k(batch) == table.best_k(batch, arms=arms)


def test_a_grid_is_fast_enough_to_plan_with() -> None:
    """About 50 µs on a quiet machine; the wide limit only finds a change of the order."""
    table = GoodputTable.from_rows(rows_of({2**i: {k: 5.0 + k + i for k in (0, 1, 3, 5)} for i in range(10)}))
    points = np.arange(1.0, 141.0)
    best_s = min(timeit.repeat(lambda: table.itl_grid(points, (0, 1, 3, 7)), number=20, repeat=10)) / 20
    assert best_s < 1e-3


def test_repr_and_hash() -> None:
    table = GoodputTable.from_rows(rows_of({1: {0: 9.0}}), meta={"name": "x"})
    assert repr(table) == "<GoodputTable x: 1 rows, k=(0,)>"
    with pytest.raises(TypeError, match="unhashable"):
        hash(table)
    assert table != GoodputTable.from_schedule([[1, 1, 0]])
    assert table != "table"
