"""Cells that do not fit those beside them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adaptk.replay.costs.p32374 import BATCHES, ITL_MS, KS
from adaptk.tabletools.misfits import misfits

CELLS = {(b, k): t for b, line in zip(BATCHES, ITL_MS, strict=True) for k, t in zip(KS, line, strict=True)}


class TestMisfits:
    @given(st.sampled_from(sorted(CELLS)), st.sampled_from([0.2, 4.0, 20.0]))
    def test_one_wrong_cell_is_found_wherever_it_is(self, cell: tuple[int, int], factor: float) -> None:
        """By name, and no other one with it, but beside a corner, where two cells explain it as well."""
        found = list(misfits(CELLS | {cell: factor * CELLS[cell]}))
        assert len(found) == 1
        corner = cell[0] in (BATCHES[0], BATCHES[-1]) and cell[1] in (KS[0], KS[-1])
        assert corner or found[0].startswith(f"batch {cell[0]}, k {cell[1]}:")

    def test_one_line_says_nothing(self) -> None:
        """Where nothing stands beside it in the other direction, nothing is expected."""
        assert list(misfits({(1, 0): 5.0, (1, 1): 500.0})) == []
        assert list(misfits({})) == []

    def test_nonsense_ends(self) -> None:
        """Times without any order are cut off."""
        found = list(misfits({(b, k): 10.0 ** ((b * 7 + k * 5) % 9) for b in range(1, 40) for k in range(12)}))
        assert 1 <= len(found) <= 21
