"""Sessions from architecture to table, on this processor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adaptk.surface import machine as machines
from adaptk.surface.architecture import Architecture
from adaptk.surface.drafters import eagle_shape
from adaptk.surface.machine import Machine, MachineError
from adaptk.surface.plan import Place
from adaptk.surface.result import busy, left_out, table_of, unreached
from adaptk.surface.session import Options, Outcome, run
from adaptk.surface.show import surface_lines
from adaptk.table import GoodputTable
from tests.surface.small import Quiet, Steps, small, small_mixture

pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def quick_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy small enough for a test."""
    monkeypatch.setitem(machines._COPIED, "cpu", 2**16)


def options(target: Architecture, drafter: Architecture | None = None, **changed: Any) -> Options:
    given = {"batches": (1, 4), "ks": (0, 1, 3), "contexts": (8, 16), "budget_s": 0.8, "dtype": "float32", **changed}
    return Options(target=target, drafter=drafter, **given)


def measured(given: Options) -> tuple[Outcome, GoodputTable, Quiet]:
    outcome, watcher = Outcome(), Quiet()
    run(given, Machine("cpu"), outcome, watcher, lambda _: None, Steps())
    table = table_of(given, outcome, device="this", ways=1, acceptance=(0.7,), command=["adaptk", "surface"])
    return outcome, table, watcher


@pytest.mark.parametrize("target", [small(), small_mixture(n_shared_experts=1), small(sliding_window=4)])
@pytest.mark.parametrize("drafting", ["none", "eagle", "model"])
def test_every_cell_has_a_row(target: Architecture, drafting: str) -> None:
    """Dense, mixture and window; each kind of drafter: every batch, K and context, with its samples and mode."""
    drafter = {"none": None, "eagle": eagle_shape(target), "model": small(num_hidden_layers=1)}[drafting]
    outcome, table, watcher = measured(options(target, drafter))
    assert {(row.batch, row.k, row.context) for row in table.rows} == {
        (batch, k, context) for batch in (1, 4) for k in (0, 1, 3) for context in (8.0, 16.0)
    }
    assert all(row.graph_mode == "none" and row.n and row.itl_ms > 0 for row in table.rows)
    assert outcome.layers_built == 3
    assert len(watcher.finished) == 4
    assert not outcome.interrupted


def test_the_table_says_how_it_came_about(tmp_path: Path) -> None:
    """What was measured stands in the key, how in the provenance; it comes back from a file as it was."""
    given = options(small_mixture(), eagle_shape(small_mixture()))
    outcome, table, _ = measured(given)
    assert table.meta["key"] == {
        "model": "small-mixture", "dtype": "float32", "device": "this", "tensor_parallel": 1,
    }  # fmt: skip
    said = table.meta["provenance"]
    assert said["command"] == "adaptk surface"
    assert said["layers"] == "3 of 3"
    assert said["copy_gb_per_s"] > 0
    assert {"torch", "python", "threads"} <= set(said["machine"])
    assert any("weak prior for a mixture" in clause for clause in said["left_out"])
    table.save(tmp_path / "table.json")
    assert GoodputTable.load(tmp_path / "table.json") == table
    assert json.loads((tmp_path / "table.json").read_bytes())["schema_version"] == 1
    assert outcome.seconds > 0


def test_cells_that_do_not_fit_are_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A context that would not fit beside the model is not measured; the output says which."""
    target = small()
    fits = 4 * (target.parameters + target.all_cache_elements(4, 16) + 10 * target.activation_elements(16)) / 0.85
    monkeypatch.setattr(Machine, "free_bytes", lambda _: int(fits))
    given = options(target, contexts=(16, 10**6))
    outcome, table, _ = measured(given)
    assert table.contexts == (16.0,)
    assert sorted(outcome.left_out) == [Place(1, 10**6), Place(4, 10**6)]
    assert left_out(given, outcome, 1)[-1] == ("cells that do not fit in memory: batch 1, 4 at context 1000000")


def test_a_model_that_does_not_fit_is_measured_by_some_of_its_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many layers as memory has room for, scaled, and said."""
    target = small(num_hidden_layers=40)
    room = target.head_weights + target.activation_elements(16) + 24 * target.block_weights(target.layers[0])
    monkeypatch.setattr(Machine, "free_bytes", lambda _: int(4 * room / 0.85))
    given = options(target)
    outcome, table, _ = measured(given)
    assert 8 <= outcome.layers_built < 24
    assert table.meta["provenance"]["layers"] == f"{outcome.layers_built} of 40"
    said = left_out(given, outcome, 2)
    assert f"{40 - outcome.layers_built} of 40 layers (scaled from {outcome.layers_built})" in said
    assert "communication between the 2 ranks" in said
    assert any(clause.startswith("whether it fits") for clause in said)


def test_nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too little memory for one layer, or for any cache, is an error that says what to give."""
    monkeypatch.setattr(Machine, "free_bytes", lambda _: 1000)
    with pytest.raises(MachineError, match=r"one layer of each kind.*give smaller --batches"):
        measured(options(small()))
    monkeypatch.setattr(Machine, "free_bytes", lambda _: 10**6)
    with pytest.raises(MachineError, match="the key-value cache of no cell fits"):
        measured(options(small(), contexts=(10**6,)))


def test_an_interrupt_keeps_what_there_is() -> None:
    """Each finished place is handed over at once; an interrupt afterwards changes nothing of it."""
    kept: list[int] = []

    def keep(outcome: Outcome) -> None:
        assert outcome.measurement is not None
        kept.append(len(outcome.measurement.rows()))
        if len(kept) == 2:
            raise KeyboardInterrupt

    outcome = Outcome()
    run(options(small()), Machine("cpu"), outcome, Quiet(), keep, Steps())
    assert outcome.interrupted
    assert kept == [3, 6, 6]


def test_what_was_not_reached_is_told() -> None:
    """By place, with the reason: the budget, or a run that was cut short; a place without memory is told elsewhere."""
    given = options(small(), budget_s=0.001)
    outcome, _, _ = measured(given)
    assert outcome.not_reached == [Place(4, 8), Place(1, 16), Place(4, 16)]
    places = "batch 4 at context 8; batch 1, 4 at context 16"
    assert (unreached(given, outcome, False) or "").startswith(
        f"Not measured within the budget of 0.001 s: {places}. Give a"
    )
    assert outcome.measurement is not None
    outcome.measurement.out_of_memory.append(Place(4, 8))
    cut_short = unreached(given, outcome, cut_short=True)
    assert cut_short == "Not measured before the run was cut short: batch 1, 4 at context 16."
    assert unreached(given, Outcome(), False) is None


def test_a_budget_can_have_begun_before() -> None:
    """What went before the session counts."""
    outcome, clock = Outcome(), Steps()
    for _ in range(790):
        clock()
    run(options(small()), Machine("cpu"), outcome, Quiet(), lambda _: None, clock, begun=0.0)
    assert len(outcome.not_reached) == 3
    assert outcome.seconds > 0.79


@pytest.mark.parametrize(("load", "told"), [(0.1, False), (1.9, False), (2.5, True)])
def test_a_busy_machine_is_told(load: float, told: bool) -> None:
    """Half of the cores at work before the run began; a card, of which this is not known, is none."""
    outcome = Outcome()
    assert busy(outcome) is None
    outcome.machine = {"load_before": load, "cores": 4}
    assert ("load 2.5 on 4 cores" in (busy(outcome) or "")) == told


def test_text_fits_80_columns() -> None:
    """Many K go on below each other; holes, large times and a long remark do not widen it."""
    rows = [
        {
            "batch": batch,
            "k": k,
            "itl_ms": 0.01234 * batch * (k + 1),
            "context": 1024,
            "p10_ms": 0.01 * batch * (k + 1),
            "p90_ms": 0.02 * batch * (k + 1),
        }
        for batch in (1, 100_000)
        for k in range(12)
        if (batch, k) != (1, 11)
    ]
    table = GoodputTable.from_rows(rows, acceptance=[0.9, 0.8])
    shown = surface_lines(table, ["x" * 200, "cells that do not fit"])
    assert [line.style for line in shown[:6]] == ["title", "head", "", "", "head", ""]
    lines = [line.text for line in shown]
    assert max(map(len, lines)) <= 80
    assert lines[0] == "Step time (ms) at context 1024, * best goodput"
    assert lines[1].split() == ["batch", *(f"K={k}" for k in range(8))]
    assert lines[2].split()[:2] == ["1", "0.012*"]
    assert lines[5].split() == ["1", "0.111", "0.123", "0.136", "-"]
    assert any(line.startswith("These times scatter") for line in lines)
    without = GoodputTable.from_rows([msgspec.structs.replace(row, p10_ms=None) for row in table.rows])
    text = "\n".join(line.text for line in surface_lines(without, []))
    assert "*" not in text
    assert "No best K, as acceptance is unknown" in text
    assert "scatter" not in text
