"""Two tables side by side."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

from adaptk.replay.costs.p32374 import ACCEPTANCE
from adaptk.table import GoodputTable
from adaptk.tabletools.compared import compare
from adaptk.tabletools.difflines import comparison_lines
from tests.strategies import tables
from tests.tabletools.measured import COUNTS, of_levels, public_rows, public_table, with_intervals


def slower(factor: float, half: float = 0.01) -> GoodputTable:
    """The public table with all drafts slower, K=0 as it is."""
    rows = [row | {"itl_ms": row["itl_ms"] * (factor if row["k"] else 1.0)} for row in public_rows()]
    rows = [row | {"low_ms": row["itl_ms"] * (1 - half), "high_ms": row["itl_ms"] * (1 + half)} for row in rows]
    return GoodputTable.from_rows(rows, ACCEPTANCE)


def at_level(factor: float, level: float) -> GoodputTable:
    """The same at a level of context."""
    rows = [msgspec.structs.replace(row, context=level) for row in slower(factor).rows]
    return GoodputTable.from_rows(rows, ACCEPTANCE)


def said(first: GoodputTable, second: GoodputTable) -> str:
    return " ".join(line.text for line in comparison_lines(compare(first, second), "a.json", "b.json"))


class TestCompare:
    def test_a_table_with_itself(self) -> None:
        """Nothing differs."""
        found = compare(public_table(), public_table())
        assert found.same_decisions
        assert (found.key, found.acceptance, found.choices, found.only_first) == ([], [], [], 0)
        assert all(ratio.ratio == 1.0 for ratio in found.ratios)

    def test_cells_outside_both_intervals(self) -> None:
        """5 % more is outside 1 %, and inside 10 %."""
        found = compare(with_intervals(0.01), slower(1.05))
        assert [ratio.k for ratio in found.ratios if ratio.apart] == [1, 3, 5] * 5
        assert found.ratios[0].ratio == pytest.approx(1.05)
        assert not any(ratio.apart for ratio in compare(with_intervals(0.1), slower(1.05)).ratios)
        assert all(ratio.apart is None for ratio in compare(public_table(), slower(1.05)).ratios)

    def test_where_decisions_differ_and_what_it_costs(self) -> None:
        """With drafts 12 % slower K=0 starts earlier; the cost is the mean of each batch's own."""
        first, second = public_table(), slower(1.12)
        found = compare(first, second, max_batch=256)
        assert not found.same_decisions
        (last,) = [choice for choice in found.choices if choice.second_k == 0]
        span = range(last.first_batch, last.last_batch + 1)
        assert all((first.best_k(b), second.best_k(b)) == (last.first_k, 0) for b in span)
        losses = [1 - first.goodput(b, 0) / first.goodput(b, last.first_k) for b in span]  # type: ignore[operator]
        assert last.cost_by_first == pytest.approx(sum(losses) / len(losses))
        assert last.cost_by_second is not None
        assert last.cost_by_second > 0.0

    def test_acceptance_by_its_trials(self) -> None:
        """60 of 100 and 70 of 100 may be the same, 600 and 700 of 1,000 not."""
        for scale, apart in ((1, False), (10, True)):
            one, other = (
                GoodputTable.from_rows(
                    public_rows(), [share], acceptance_counts=[[round(100 * share * scale), 100 * scale]]
                )
                for share in (0.6, 0.7)
            )
            (share,) = compare(one, other).acceptance
            assert (share.position, share.first, share.second, share.apart) == (1, 0.6, 0.7, apart)
        assert compare(with_intervals(0.1, COUNTS), public_table()).acceptance == []

    def test_keys(self) -> None:
        """Only what both name."""
        one, other = (public_table({"key": key}) for key in ({"device": "H100", "method": "eagle"}, {"device": "H200"}))
        (line,) = compare(one, other).key
        assert "H100" in line
        assert "H200" in line

    def test_tables_without_a_common_cell(self) -> None:
        """The second's answers stand beside the first's cells, and count as no measurement."""
        found = compare(with_intervals(0.01), of_levels(512))
        assert found.interpolated
        assert all(ratio.ratio > 1.0 and ratio.apart is None for ratio in found.ratios)

    def test_common_levels_of_context_are_compared_each(self) -> None:
        """Decisions at a level that only one has say nothing."""
        found = compare(of_levels(512, 4096), of_levels(4096, 16_384))
        assert found.same_decisions
        assert found.only_first == found.only_second == 20

    def test_levels_a_little_apart_are_the_same(self) -> None:
        """80 tokens and 83: cells are compared with their intervals, decisions at each table's own level."""
        first, second = (at_level(factor, level) for factor, level in ((1.0, 83.0), (1.12, 80.0)))
        found = compare(first, second)
        assert [(pair.first, pair.second) for pair in found.levels] == [(83.0, 80.0)]
        assert (found.interpolated, found.only_first, found.only_second) == (False, 0, 0)
        assert [ratio.k for ratio in found.ratios if ratio.apart] == [1, 3, 5] * 5
        assert {ratio.context for ratio in found.ratios} == {choice.context for choice in found.choices} == {83.0}
        plain = compare(at_level(1.0, 83.0), at_level(1.12, 83.0))
        assert plain.levels == []
        assert [choice.cost_by_second for choice in found.choices] == [
            choice.cost_by_second for choice in plain.choices
        ]
        assert compare(first, at_level(1.12, 70.0)).interpolated

    def test_a_schedule(self) -> None:
        """It has no times: what its K costs is known by the other table only."""
        found = compare(public_table(), GoodputTable.from_schedule([[1, 512, 3]]))
        assert found.ratios == []
        assert all(choice.cost_by_second is None and choice.cost_by_first is not None for choice in found.choices)

    @settings(max_examples=40)
    @given(tables, tables)
    def test_any_two(self, first: GoodputTable, second: GoodputTable) -> None:
        """Decisions are the same exactly if the schedules are; what is printed fits 80 columns."""
        found = compare(first, second, max_batch=64)
        if {*first.contexts} & {*second.contexts} == set():
            assert found.same_decisions == (first.to_schedule(64) == second.to_schedule(64))
        assert max(len(line.text) for line in comparison_lines(found, "a.json", "b.json")) <= 80


class TestLines:
    def test_levels_taken_for_the_same(self) -> None:
        """Said, and the intervals are used."""
        text = said(at_level(1.0, 83.0), at_level(1.12, 80.0))
        assert "Levels of context taken for the same, in A and in B: 83 and 80." in text
        assert "(! outside both intervals)" in text
        assert "noise" not in text

    def test_why_noise_cannot_be_told(self) -> None:
        """No common cell is another reason than no interval, and some may be judged while others are not."""
        assert "Such times have no intervals: noise cannot be told." in said(at_level(1.0, 83.0), at_level(1.12, 40.0))
        assert "No cell has an interval in both: noise cannot be told." in said(with_intervals(0.01), public_slower())
        rows = [msgspec.structs.replace(row, low_ms=None) if row.k == 3 else row for row in slower(1.1).rows]
        text = said(with_intervals(0.01), GoodputTable.from_rows(rows, ACCEPTANCE))
        assert "? no interval in both: noise cannot be told." in text
        assert "1.100 !" in text
        assert "1.100 ?" in text


def public_slower() -> GoodputTable:
    """Times a tenth longer, without intervals."""
    return GoodputTable.from_rows([row | {"itl_ms": 1.1 * row["itl_ms"]} for row in public_rows()], ACCEPTANCE)
