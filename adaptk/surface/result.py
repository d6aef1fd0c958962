"""The table that a measurement gives, with all that it should say of how it came about."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from adaptk.surface.plan import Place
from adaptk.surface.samples import Summary
from adaptk.surface.session import Options, Outcome
from adaptk.table import GoodputTable
from adaptk.tablerows import TableRow

_ALWAYS = (
    "sampling beyond the highest logit",
    "embedding, rotary positions, writes to the key-value cache",
    "the engine's own work on the host",
)


def table_of(
    options: Options,
    outcome: Outcome,
    *,
    device: str,
    ways: int,
    acceptance: Sequence[float] | None,
    command: Sequence[str],
) -> GoodputTable:
    """The table of what ``outcome`` holds.

    Parameters
    ----------
    options, outcome
        Of the session; at least one place is finished.
    device
        The machine's name.
    ways
        Ranks of tensor parallelism that the shapes are one's share of.
    acceptance
        Conditional acceptance per draft position, shape ``(positions,)``; ``None`` where unknown.
    command
        What was called.

    Raises
    ------
    TableError
        If a time is beyond what a table holds.
    """
    measured = outcome.measurement
    assert measured is not None
    graph_mode = measured.graph_mode or "none"
    rows = [_row(place, k, found, graph_mode) for (place, k), found in measured.rows().items()]
    return GoodputTable.from_rows(
        rows,
        acceptance,
        {
            "name": f"{options.target.name} on {device}, blocks without weights",
            "key": {
                # What an engine would call alike. A drafter's shape has no name of an engine's, nor have its graphs.
                "model": options.target.name,
                "dtype": options.dtype,
                "device": device,
                "tensor_parallel": ways,
            },
            "provenance": _provenance(options, outcome, ways, command),
        },
    )


def left_out(options: Options, outcome: Outcome, ways: int) -> list[str]:
    """What the times do not hold, one clause each."""
    said = list(_ALWAYS)
    if ways > 1:
        said.append(f"communication between the {ways} ranks")
    said += options.target.remarks
    if options.drafter is not None:
        said += [f"of the drafter: {remark}" for remark in options.drafter.remarks]
    if options.target.experts:
        said.append("real routing: it is uniform and independent here, so this is a weak prior for a mixture")
    there, built = len(options.target.layers), outcome.layers_built
    if built < there:
        said.append(f"{there - built} of {there} layers (scaled from {built})")
    if not outcome.model_fits:
        said.append("whether it fits: the whole model does not, in this machine's memory")
    if outcome.left_out:
        said.append(f"cells that do not fit in memory: {places_text(outcome.left_out)}")
    return said


def unreached(options: Options, outcome: Outcome, cut_short: bool) -> str | None:
    """A sentence on the places that were not measured, by the budget or as the run was cut short; ``None``: no such."""
    if not outcome.not_reached:
        return None
    places = places_text(outcome.not_reached)
    if cut_short:
        return f"Not measured before the run was cut short: {places}."
    return (
        f"Not measured within the budget of {options.budget_s:g} s: {places}. Give a longer --budget, or fewer "
        "--batches, --ks or --contexts."
    )


def places_text(places: Iterable[Place]) -> str:
    """Places in words, those of one context together.

    Examples
    --------
    >>> places_text([Place(8, 256), Place(4, 256), Place(4, 1024)])
    'batch 4, 8 at context 256; batch 4 at context 1024'
    """
    batches: dict[int, list[int]] = {}
    for place in sorted(places, key=lambda place: (place.context, place.batch)):
        batches.setdefault(place.context, []).append(place.batch)
    return "; ".join(f"batch {', '.join(map(str, some))} at context {context}" for context, some in batches.items())


def busy(outcome: Outcome) -> str | None:
    """A warning where a processor had other work: threads that wait for each other may then take ten times as long.

    Samples of one cell may agree all the same, so that their interval does not tell.
    """
    load, cores = outcome.machine.get("load_before", 0.0), outcome.machine.get("cores", 1)
    if load <= 0.5 * cores:
        return None
    return (
        f"This machine was busy when the run began (load {load:g} on {cores} cores): these times may be several times "
        "too long. Repeat it when nothing else is running."
    )


def _provenance(options: Options, outcome: Outcome, ways: int, command: Sequence[str]) -> dict[str, Any]:
    speed = outcome.copy_gb_per_s
    return {
        "method": "random decoder blocks of the model's shape, timed without an engine; medians, 95 % intervals",
        "command": " ".join(command),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(outcome.seconds, 1),
        "drafter": "none" if options.drafter is None else options.drafter.name,
        "layers": f"{outcome.layers_built} of {len(options.target.layers)}",
        "copy_gb_per_s": None if speed is None or not math.isfinite(speed) else round(speed, 1),
        "machine": outcome.machine,
        "interrupted": outcome.interrupted,
        "budget_s": options.budget_s,
        "not_reached": places_text(outcome.not_reached) or None,
        "left_out": left_out(options, outcome, ways),
    }


def _row(place: Place, k: int, found: Summary, graph_mode: str) -> TableRow:
    return TableRow(
        batch=place.batch,
        k=k,
        itl_ms=_rounded(found.median_ms),
        context=float(place.context),
        n=found.n,
        spread_ms=_rounded(found.spread_ms),
        p10_ms=_rounded(found.p10_ms),
        p90_ms=_rounded(found.p90_ms),
        low_ms=None if found.low_ms is None else _rounded(found.low_ms),
        high_ms=None if found.high_ms is None else _rounded(found.high_ms),
        graph_mode=graph_mode,
    )


def _rounded(value_ms: float) -> float:
    """To the tenth of a microsecond, finer than any clock here."""
    return round(value_ms, 4)
