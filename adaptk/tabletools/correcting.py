"""A table corrected by what a controller believed when its snapshot was taken."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from adaptk.controller import Controller
from adaptk.quoted import said, shown
from adaptk.snapshot import fingerprint
from adaptk.table import GoodputTable
from adaptk.tablerows import TableError
from adaptk.tabletools.imported import read_text


class Corrected(NamedTuple):
    """The corrected table, the engine steps behind it, and what is to be said of it, one sentence each."""

    table: GoodputTable
    steps: int
    notes: list[str]


def read_snapshot(path: Path) -> Mapping[str, Any]:
    """A controller's snapshot from a JSON file: its top level, what stands there as ``controller``, or a state file's.

    Raises
    ------
    TableError
        If the file cannot be read, or holds no snapshot.
    """
    remedy = "give what Controller.snapshot() returned, as JSON"
    try:
        content: Any = msgspec.json.decode(read_text(path))
    except (msgspec.DecodeError, RecursionError) as error:
        raise TableError(f"{path}: is no JSON ({said(error)}): {remedy}") from None
    for name in ("controller", "snapshot"):  # the latter is where ADAPTK_STATE has it
        if isinstance(content, dict) and isinstance(content.get(name), dict):
            content = content[name]
    if not isinstance(content, dict) or "arms" not in content or "acceptance" not in content:
        raise TableError(f"{path}: holds {shown(content)} and no snapshot of a controller: {remedy}")
    return content


def correct(
    table: GoodputTable | None, snapshot: Mapping[str, Any], source: str, allow_mismatch: bool = False
) -> Corrected:
    """The table that the controller of a snapshot believed in.

    Parameters
    ----------
    table
        What the controller was started from; ``None`` if it had none.
    snapshot
        As ``Controller.snapshot()`` gave it.
    source
        What the table was read from; goes into the provenance.
    allow_mismatch
        Take another table than the snapshot's: acceptance is taken over, widened, step times stay the table's.

    Raises
    ------
    TableError
        If the snapshot is damaged or of another table, or the controller has learnt nothing that a table holds.
    """
    if table is not None and snapshot.get("table") is None and not allow_mismatch:
        raise TableError("the snapshot's controller was started without a table: give --no-table in place of the "
                         "table, or --allow-mismatch to keep this table's step times")  # fmt: skip
    if table is None and snapshot.get("table") is not None and not allow_mismatch:
        raise TableError("the snapshot's controller was started from a table: give that table")
    try:
        controller = Controller.restore(snapshot, table, as_prior=allow_mismatch)
        corrected = controller.corrected_table()
    except ValueError as error:
        said = str(error).replace("restore with as_prior=True to begin from what it believed, widened",
                                  "pass --allow-mismatch to take over its acceptance")  # fmt: skip
        raise TableError(said) from None
    steps = _steps(snapshot)
    if steps == 0:
        raise TableError("the snapshot's controller had observed no step: there is nothing to correct")
    notes = []
    if table is not None and (corrected == table or snapshot.get("table") != fingerprint(table)):
        corrected = _by_acceptance(controller, table)
        notes.append("no step times were learnt around this table: its own stay, only the acceptance is corrected")
    elif table is not None:
        notes += _lost(table, corrected)
    meta = corrected.meta
    before = meta.get("provenance")
    if isinstance(before, Mapping):  # corrected again and again, it would nest ever deeper
        before = before.get("seed_provenance", before)
    meta["provenance"] = {"corrected_from": source, "seed": fingerprint(table) or "none", "steps": steps}
    if before:
        meta["provenance"]["seed_provenance"] = before
    return Corrected(_rebuilt(corrected, meta), steps, notes)


def _steps(snapshot: Mapping[str, Any]) -> int:
    counters = snapshot.get("counters")
    steps = counters.get("steps") if isinstance(counters, Mapping) else None
    return steps if isinstance(steps, int) else 0


def _by_acceptance(controller: Controller, table: GoodputTable) -> GoodputTable:
    """The table with the believed acceptance, where no step time was learnt or may be kept."""
    accepted = controller._acceptance.long_run(controller.arms)[0]
    if not accepted:
        raise TableError("the controller has seen no step time and has no draft to accept: there is nothing to correct")
    return _rebuilt(table, table.meta | {"corrected": True}, accepted)


def _lost(table: GoodputTable, corrected: GoodputTable) -> list[str]:
    """What of the table the corrected one has no longer."""
    notes = []
    dropped = [k for k in table.ks if not corrected.knows(k)]
    if dropped and table.has_times:
        notes.append(f"rows of K={','.join(map(str, dropped))} are left out: these were no arms of the controller")
    if table.contexts:
        levels = len(table.contexts)
        were = f"{levels} levels of context are one" if levels > 1 else "level of context has changed"
        notes.append(f"the table's {were}: the mean context when the state was saved")
    return notes


def _rebuilt(table: GoodputTable, meta: Mapping[str, Any], accepted: list[float] | None = None) -> GoodputTable:
    """The same table with other notes, and, where given, another acceptance, which the counts are not of."""
    acceptance = table.acceptance if accepted is None else accepted
    counts = table.acceptance_counts if accepted is None else None
    if table.schedule is not None:
        return GoodputTable.from_schedule(
            table.schedule, acceptance, meta, acceptance_counts=counts, supply=table.supply
        )
    return GoodputTable.from_rows(table.rows, acceptance, meta, acceptance_counts=counts, supply=table.supply)
