"""What is said beside an exported schedule."""

from __future__ import annotations

import pytest

from adaptk.table import GoodputTable
from adaptk.tabletools.advice import advice
from adaptk.tabletools.tiers import tiers
from tests.tabletools.measured import public_rows, public_table, with_intervals


def said(triples: list[list[int]]) -> str:
    return "\n".join(advice(GoodputTable.from_schedule(triples), triples))


class TestAdvice:
    def test_the_ladder_draws_no_remark_on_graphs(self) -> None:
        """K of 0, 1, 3, 7 within the ceiling: only what holds for every schedule."""
        text = said([[1, 64, 7], [65, 128, 3], [129, 256, 1], [257, 512, 0]])
        assert "ladder" not in text
        assert "divide" not in text
        assert "ceiling" not in text
        assert "PIECEWISE on vLLM's model runner V1" in text
        assert "data parallelism" in text

    @pytest.mark.parametrize(
        ("triples", "pairs"),
        [
            ([[1, 8, 6], [9, 32, 4], [33, 128, 3]], "K=3 with K=4, K=3 with K=6, K=4 with K=6"),
            ([[1, 8, 2], [9, 9, 1]], "K=1 with K=2"),
        ],
    )
    def test_tiers_that_shadow_each_other(self, triples: list[list[int]], pairs: str) -> None:
        """K+1 that do not divide one another."""
        assert pairs in said(triples)
        assert "off the ladder" in said(triples)

    def test_steps_above_the_ceiling(self) -> None:
        """K=3 takes 512 tokens at batch 128."""
        assert "K=3 above batch 128 is more than 512 tokens" in said([[1, 129, 3]])
        assert "ceiling" not in said([[1, 128, 3]])
        assert "K=3 above batch 199" in said([[1, 199, 0], [200, 300, 3]])

    def test_what_the_table_does_not_know(self) -> None:
        """Extrapolated batch sizes and K, and a guessed acceptance."""
        table = GoodputTable.from_rows(public_rows())
        text = "\n".join(advice(table, tiers(table, 512, arms=(2, 4)), arms=(2, 4)))
        assert "have no rows in the table" in text
        assert "above batch 256 the table has no rows" in text
        assert "acceptance is unknown" in text

    def test_small_tiers_are_offered_for_merging(self) -> None:
        """With the option that merges them."""
        table = public_table()
        triples = table.to_schedule(170)
        assert triples[-1] == [170, 170, 0]
        assert "batch 170 to 170: K=0 is at most" in "\n".join(advice(table, triples))
        assert "--min-gain 0.01" in "\n".join(advice(table, triples))

    def test_an_engine_without_graphs_hears_nothing_of_them(self) -> None:
        """A table measured without graphs says so in its key."""
        rows = [{"batch": b, "k": k, "itl_ms": 5.0 + b * k} for b in (1, 8) for k in (0, 6)]
        bare = GoodputTable.from_rows(rows, [0.9], {"key": {"graph_mode": "NONE"}})
        assert "graph" not in " ".join(advice(bare, [[1, 8, 6]]))
        assert "graph" in " ".join(advice(GoodputTable.from_rows(rows, [0.9]), [[1, 8, 6]]))

    def test_choices_within_the_noise_are_named(self) -> None:
        """Where two arms' intervals overlap, the schedule is pasted with that in mind."""
        told = " ".join(advice(with_intervals(0.3), [[1, 8, 3]]))
        assert "the best K leads another one by less than the noise" in told
        assert "less than the noise" not in " ".join(advice(with_intervals(0.0001), [[1, 8, 3]]))
