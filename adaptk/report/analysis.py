"""From traces to findings."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from adaptk._version import __version__
from adaptk.report import happened
from adaptk.report.dropped import dropped
from adaptk.report.findings import Findings, PolicyValue, Simulation
from adaptk.report.judging import Judged, judge
from adaptk.report.policies import off_policy, simulated
from adaptk.report.positions import positions
from adaptk.report.reading import Recording, read
from adaptk.table import GoodputTable
from adaptk.tracefile import TraceError

_READING = 0.5  # of the progress, where a simulation follows
Progress = Callable[[str, float], None]


class Analysed(NamedTuple):
    """Findings, and the table as corrected by the traces; ``None`` where they teach nothing that a table holds."""

    findings: Findings
    corrected: GoodputTable | None


def analyse(
    paths: Sequence[str | os.PathLike[str]],
    table: GoodputTable | None = None,
    *,
    lenient: bool = False,
    simulate: bool = True,
    progress: Progress | None = None,
) -> Findings:
    """What traces of one set-up say, and what to change.

    Parameters
    ----------
    paths
        Files that ``ADAPTK_TRACE`` wrote; those of several ranks or days together.
    table
        Table of step times of this engine; default: the one that the traces hold, if they do.
    lenient
        Skip and count lines that cannot be read.
    simulate
        Whether to try other policies in a simulation of the trace, which takes some ten seconds.
    progress
        Is told the stage and the share that is done, 0 to 1. An interrupt while it runs, or in between, ends the work:
        what was found by then is given, marked ``cut_short``.

    Raises
    ------
    TraceError
        If no file is named, one cannot be read or holds no step, or two are of different set-ups.
    """
    return analyse_with_table(paths, table, lenient=lenient, simulate=simulate, progress=progress).findings


def analyse_with_table(
    paths: Sequence[str | os.PathLike[str]],
    table: GoodputTable | None = None,
    *,
    lenient: bool = False,
    simulate: bool = True,
    progress: Progress | None = None,
) -> Analysed:
    """As :func:`analyse`, with the corrected table."""
    tell = progress or (lambda stage, share: None)
    reading = _READING if simulate else 0.95
    recording = read(paths, table, lenient, lambda share: tell("reading", reading * share))
    if len(recording.columns.k) == 0:
        why = "interrupted before the first step was read" if recording.cut_short else "holds no step"
        raise TraceError(f"{os.fspath(paths[0])}: {why}: record while requests are served, or give another trace")
    tell("analysing", reading)
    judged = judge(recording)
    simulation: Simulation | None = None
    estimates: list[PolicyValue] = []
    cut_short = recording.cut_short
    if not cut_short:
        try:
            advised = judged.advice.schedule_new
            estimates = off_policy(recording, judged.base, judged.steered, advised, lenient)
            if simulate:
                simulation = simulated(recording, judged.base, advised, lenient,
                                  lambda share: tell("simulating", reading + (1.0 - reading) * share))  # fmt: skip
        except KeyboardInterrupt:
            cut_short = True
    findings = _findings(recording, judged, estimates, simulation, cut_short)
    tell("done", 1.0)
    return Analysed(findings, _corrected(recording))


def _findings(
    recording: Recording,
    judged: Judged,
    estimates: list[PolicyValue],
    simulation: Simulation | None,
    cut_short: bool,
) -> Findings:
    columns = recording.columns
    facts = [source for source in recording.sources if source.last > source.first]
    parts = [columns.take(slice(source.first, source.last)) for source in facts]
    sources = [
        happened.described(source, part, judged.steered[source.first : source.last])
        for source, part in zip(facts, parts, strict=True)
    ]
    blocks, resample = judged.blocks
    return Findings(
        adaptk=__version__,
        sources=sources,
        advice=judged.advice,
        overview=happened.overview(columns, sources),
        timelines=[
            happened.timeline(number, part, recording, source.first)
            for number, (source, part) in enumerate(zip(facts, parts, strict=True))
        ],
        time=happened.time_shares(parts),
        acceptance=positions(columns, blocks, resample, recording.controller, recording.table),
        dropped=dropped(recording, judged.with_prompts),
        cells=judged.cells,
        off_policy=estimates,
        simulation=simulation,
        notes=_notes(recording),
        ledger=judged.ledger,
        cut_short=cut_short,
    )


def _notes(recording: Recording) -> list[str]:
    notes = []
    for source in recording.sources:
        name = Path(source.path).name
        notes += [f"{name}: {note}." for note in source.header.notes]
        if source.skipped:
            notes.append(f"{name}: {source.skipped} lines could not be read and are left out.")
        if source.pieces > 1:
            notes.append(f"{name}: read from {source.pieces} files, the pieces of one run.")
        if source.cut:
            notes.append(f"{name}: {_counted(source.cut, 'row')} cut off at the end of a file, and left out.")
        if source.missing:
            notes.append(f"{name}: {_counted(source.missing, 'earlier piece')} not there: removed, or elsewhere.")
        if source.restarts:
            notes.append(f"{name}: the engine's controller began anew {source.restarts} times within the file.")
        if source.last == source.first:
            notes.append(f"{name}: holds no step.")
    return notes


def _counted(number: int, what: str) -> str:
    return f"1 {what} is" if number == 1 else f"{number} {what}s are"


def _corrected(recording: Recording) -> GoodputTable | None:
    """The table as now believed; it has the engine's key, unless it began as another engine's."""
    try:
        table = recording.controller.corrected_table()
    except ValueError:
        return None
    if recording.foreign or not recording.key:
        return table
    own = {name: value for name, value in table.key.items() if value is not None}
    meta = table.meta | {"key": recording.key | own}
    if table.schedule is not None:
        return GoodputTable.from_schedule(
            table.schedule, table.acceptance, meta, acceptance_counts=table.acceptance_counts, supply=table.supply
        )
    return GoodputTable.from_rows(
        table.rows, table.acceptance, meta, acceptance_counts=table.acceptance_counts, supply=table.supply
    )
