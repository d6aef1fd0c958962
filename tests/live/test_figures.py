"""Figures from counts and beliefs."""

from __future__ import annotations

import pytest

from adaptk.live.figures import acceptance, drift_mark, gain, reasons, worst_drift
from adaptk.live.page import snapshots
from adaptk.live.snapshot import Cell, CellBelief, Counts, Snapshot
from tests.live.pages import Engine, page


def test_gains_are_of_tokens() -> None:
    """Of the engine's, or in shadow of those that adaptk would have emitted."""
    (on,) = snapshots(page(Engine()))
    assert gain(on.counts, "k0") == pytest.approx(0.25)
    assert gain(on.counts, "table") == pytest.approx(1.0 / 0.9 - 1.0)
    (shadow,) = snapshots(page(Engine(mode="shadow")))
    assert gain(shadow.counts, "vllm") == pytest.approx(0.0)
    assert gain(shadow.counts, "vllm", shadow=True) == pytest.approx(0.2)


@pytest.mark.parametrize("reference", [{}, {"k0": 0.0}, {"k0": 5e-324}])
def test_without_a_reference_there_is_no_gain(reference: dict[str, float]) -> None:
    """Nor where it is next to nothing."""
    assert gain(Counts(reference={"played": 1e300, **reference}), "k0") is None


def test_reasons_are_shares_of_all_decisions() -> None:
    """Over all K."""
    made = Counts(decisions={(3, "exploit"): 2.0, (1, "exploit"): 1.0, (7, "explore"): 1.0})
    assert reasons(made) == {"exploit": 0.75, "explore": 0.25}
    assert reasons(Counts()) == {}


def test_acceptance_is_of_the_drafts_that_were_reached() -> None:
    """None reached: unknown."""
    counts = Counts(reached={1: 10.0, 2: 0.0}, accepted={1: 8.0})
    assert [acceptance(counts, position) for position in (1, 2, 3)] == [0.8, None, None]


def test_drift_either_way_is_marked() -> None:
    """At a table's 1.1 and 0.9 not yet, beyond 1.3 and 0.7 twice."""
    marks = [drift_mark(ratio) for ratio in (0.6, 0.69, 0.85, 0.95, 1.0, 1.09, 1.2, 1.31)]
    assert marks == ["!!", "!!", "!", "", "", "", "!", "!!"]


def test_the_worst_drift_is_of_cells_that_were_played() -> None:
    """Half the table's time is farther off than 1.8 times it; an interval that holds the table's time is not sure."""
    cells = {
        Cell("1", 0): CellBelief(drift=9.0),
        Cell("1", 1): CellBelief(drift=1.8, table_itl=1.0, itl_low=1.7, itl_high=1.9),
        Cell("1", 3): CellBelief(drift=0.5, table_itl=1.0, itl_low=0.2, itl_high=1.1),
        Cell("1", 7): CellBelief(drift=0.0),
    }
    played = Counts(steps={cell: 5.0 for cell in cells if cell.k != 0})
    seen = Snapshot(model="m", engine="0", cells=cells, counts=played)
    assert worst_drift(seen) == (Cell("1", 3), 0.5)
    assert worst_drift(seen, sure=True) == (Cell("1", 1), 1.8)
    assert worst_drift(Snapshot(model="m", engine="0")) is None
