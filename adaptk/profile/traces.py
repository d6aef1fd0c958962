"""A table from recorded steps: what was played in service is measured already."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from adaptk.profile.est_values import Block, CellEstimate
from adaptk.profile.estimate import AcceptanceCounts, cells, estimate, rows
from adaptk.profile.trace_steps import ENOUGH, Step, batch_names, context_bounds, cut, time_ms, usable
from adaptk.quoted import shown
from adaptk.table import GoodputTable
from adaptk.tablekey import differences
from adaptk.tablerows import MAX_K
from adaptk.tracefile import Trace, TraceError, read_trace, whole_runs

FEWEST_STEPS = 30  # usable ones, below which there is no table
_FEWEST_IN_CELL = 3
_MOSTLY = 0.9  # of the steps with a time that must have the worker's own for it to be used
_FEW = 20  # steps of a cell that is named as thinly measured


class FromTraces(NamedTuple):
    """A table and what a reader should know of it, one sentence each (K never played, batches merged)."""

    table: GoodputTable
    notes: list[str]


def table_from_traces(paths: Sequence[str | os.PathLike[str]], name: str | None = None) -> FromTraces:
    """Build a table from traces of one and the same set-up.

    Steps are used that verified and made the same K, carried no prompt and have a time; unreadable lines are skipped.
    Stretches of time stand for visits. Arms that a controller chose were played when it thought them best: what else
    changed with them (context, prompts) is in their times, as far as a cell does not hold it fixed.

    Parameters
    ----------
    paths
        Files that ``ADAPTK_TRACE`` wrote.
    name
        ``meta["name"]``; default: the files' names.

    Raises
    ------
    TraceError
        If a file cannot be read, their headers' keys differ, or there is too little to build a table from.
    """
    if not paths:
        raise TraceError("no trace was named: give at least one file that ADAPTK_TRACE wrote")
    files = {os.fspath(path): read_trace(path, lenient=True) for path in whole_runs(paths)}
    different = len({os.path.realpath(path) for path in paths})
    if different < len(paths):
        raise TraceError(f"{len(paths)} files were named, {different} of them different: give each once")
    notes = [note for path, trace in files.items() for note in _odd(path, trace)]
    key = _common_key(files, notes)
    records = [[row.step for row in trace.rows] for trace in files.values()]
    device = _has_device_times([step for run in records for step in run])
    runs = [usable(run, device) for run in records]
    steps = [step for run in runs for step in run.steps]
    refused = sum((run.refused for run in runs), Counter[str]())
    played = {step.k for step in steps}
    if len(steps) < FEWEST_STEPS:
        raise TraceError(_too_little(files, steps, refused))
    counts = _acceptance(records, min(max(played), MAX_K))
    blocks = _blocks([run.steps for run in runs], notes)
    widths = {k: counts.width(k) for k in played} if any(counts.asked) else {}
    found = _thick_enough(cells(estimate(blocks, widths)), notes)
    if not found:
        raise TraceError(f"no cell has {_FEWEST_IN_CELL} steps of {len(steps)} usable ones: record for longer")
    _name_missing(files, {cell.k for cell in found}, notes)
    names = [Path(path).name for path in files]
    provenance = {
        "command": "adaptk profile --from-traces",
        "files": names,
        "steps": sum(len(run) for run in records),
        "usable": len(steps),
        "not_used": dict(refused),
        "times": "device_ms" if device else "elapsed_ms",
    }
    meta = {"name": name or ", ".join(names), "key": key, "provenance": provenance}
    known = [position for position, tried in enumerate(counts.tried, start=1) if tried]
    last = known[-1] if known else 0
    table = GoodputTable.from_rows(
        rows(found),
        counts.conditional()[:last] or None,
        meta,
        acceptance_counts=counts.counts()[:last] or None,
        supply=counts.supply()[:last] or None,
    )
    return FromTraces(table, notes)


def _odd(path: str, trace: Trace) -> Iterator[str]:
    """What of a file is not there."""
    if trace.skipped:
        yield f"{path}: {_counted(trace.skipped, 'line')} could not be read"
    if trace.cut:
        yield f"{path}: {_counted(trace.cut, 'row')} cut off at its end"
    if trace.missing:
        yield f"{path}: {_counted(trace.missing, 'earlier piece')} of it not there"


def _common_key(files: dict[str, Trace], notes: list[str]) -> dict[str, Any]:
    """What the headers say of the set-up, all together."""
    common: dict[str, Any] = {}
    for path, trace in files.items():
        key = trace.header.get("key")
        if key is None:
            if len(files) > 1:
                notes.append(f"{path}: its header has no key, so it is taken to be of the same set-up")
            continue
        if not isinstance(key, dict):
            raise TraceError(f"{path}, line 1: key is {shown(key)}: give an object, or leave it out")
        different = differences(common, key)
        if different:
            told = "; ".join(
                line.replace("in the table", "before it").replace("here", "in this one") for line in different
            )
            raise TraceError(f"{path}: is of another set-up than the files before ({told}): build a table from each")
        common |= {field: value for field, value in key.items() if common.get(field) is None}
    return common


def _has_device_times(records: Sequence[Any]) -> bool:
    by_device = sum(time_ms(record, True) is not None for record in records)
    by_clock = sum(time_ms(record, False) is not None for record in records)
    return by_device > 0 and by_device >= _MOSTLY * by_clock


def _acceptance(records: Sequence[Sequence[Any]], positions: int) -> AcceptanceCounts:
    total = AcceptanceCounts()
    for run in records:
        total = total.merge(AcceptanceCounts.from_records(run, positions))
    return total


def _blocks(runs: Sequence[Sequence[Step]], notes: list[str]) -> list[Block]:
    """Blocks of all traces, booked under common batches and levels."""
    steps = [step for run in runs for step in run]
    names = batch_names(Counter(step.batch for step in steps))
    merged = sorted(size for size, booked in names.items() if size != booked)
    if merged:
        notes.append(
            f"{_counted(len(merged), 'batch size')} from {merged[0]} to {merged[-1]} had fewer than {ENOUGH} steps: "
            "booked under the mean of their neighbours"
        )
    bounds = context_bounds([step.context for step in steps])
    unknown = sum(step.context is None for step in steps)
    if bounds and unknown:
        notes.append(f"{_counted(unknown, 'step')} of unknown context left out")
    blocks: list[Block] = []
    for run in runs:
        blocks += cut(run, bounds, names, max((block.visit for block in blocks), default=-1) + 1)
    return blocks


def _thick_enough(found: Sequence[CellEstimate], notes: list[str]) -> list[CellEstimate]:
    kept = [cell for cell in found if cell.n >= _FEWEST_IN_CELL]
    if len(kept) < len(found):
        notes.append(f"{_counted(len(found) - len(kept), 'cell')} with fewer than {_FEWEST_IN_CELL} steps left out")
    thin = [cell for cell in kept if cell.n < _FEW]
    if thin:
        told = ", ".join(f"batch {cell.batch} K={cell.k}" for cell in thin[:4]) + (", ..." if len(thin) > 4 else "")
        notes.append(f"{_counted(len(thin), 'cell')} with fewer than {_FEW} steps: {told}")
    return kept


def _name_missing(files: dict[str, Trace], measured: set[int], notes: list[str]) -> None:
    """Say which K the traces could have played and did not, or not for long enough to be measured."""
    played = {row.step.k for trace in files.values() for row in trace.rows}
    offered = {k for trace in files.values() for row in trace.rows if row.decision for k in row.decision.arms}
    notes += [f"K={k} was never played: its times will be inter- or extrapolated" for k in sorted(offered - played)]
    notes += [f"K={k} was played, but in no step that shows its cost alone" for k in sorted(played - measured)]
    if len(measured) == 1:
        notes.append(f"only K={min(measured)} was measured: the table cannot tell which K is best")


def _too_little(files: dict[str, Trace], steps: Sequence[Step], refused: Counter[str]) -> str:
    where = next(iter(files)) if len(files) == 1 else f"the {len(files)} traces"
    total = sum(len(trace.rows) for trace in files.values())
    why = ", ".join(f"{reason}: {number}" for reason, number in refused.most_common() if number)
    return (
        f"{where}: {_counted(len(steps), 'usable step')} of {total}, {FEWEST_STEPS} are needed"
        + (f" (not used: {why})" if why else "")
        + ": record for longer, with K held for some steps at a time"
    )


def _counted(number: int, what: str) -> str:
    if number == 1:
        return f"1 {what}"
    return f"{number} {what}s"
