"""The rows of a trace that can be replayed, and what is wrong with the others."""

from __future__ import annotations

import math
import os
from collections import Counter
from typing import Any, NamedTuple

from adaptk.step import StepRecord
from adaptk.tracefile import TraceError, TraceRow, read_trace


class Rows(NamedTuple):
    """Steps of a trace in their order; ``skipped`` counts those that a lenient reader passed over."""

    header: dict[str, Any]
    steps: list[StepRecord]
    arms: tuple[int, ...]  # played or open to a decision, rising
    skipped: int
    notes: list[str]


def read_rows(path: str | os.PathLike[str], lenient: bool = False) -> Rows:
    """Read a trace and check that its rows fit together.

    Refused, or with ``lenient`` skipped and counted: a clock that goes back, lists with another number of requests than
    the batch, a request named twice. Passed over with a note: steps without requests, and steps whose outcome never
    came (no lists). A step that played another K than its decision says is taken as played: in shadow mode that is the
    rule.

    Raises
    ------
    TraceError
        If the file cannot be read, a row is refused, or nothing is left to replay.
    """
    trace = read_trace(path, lenient)
    steps, skipped, seen = [], trace.skipped, Counter[str]()
    clock = -math.inf
    arms: set[int] = set()
    for row, line in zip(trace.rows, trace.lines, strict=True):
        step = row.step
        fault = _fault(step, clock)
        if step.t_ms is not None and math.isfinite(step.t_ms):
            clock = step.t_ms
        if fault is not None:
            if not lenient:
                raise TraceError(f"{path}, line {line}: {fault}, or read leniently to skip and count the row")
            skipped += 1
            continue
        _look(row, seen)
        if step.batch_size > 0 and len(step.drafted) > 0:
            steps.append(step)
            arms |= {step.k} | set(() if row.decision is None else row.decision.arms)
    if not steps:
        raise TraceError(f"{path}: has no step that can be replayed: record one with ADAPTK_TRACE or adaptk demo")
    notes = [f"{count} {what}" for what, count in seen.items()]
    if skipped:
        notes.insert(0, f"{skipped} rows were skipped")
    return Rows(trace.header, steps, tuple(sorted(arms)), skipped, notes)


def time_ms(step: StepRecord) -> float | None:
    """Wall time of a step, else the worker's; ``None`` where neither is a positive, finite number."""
    for time in (step.elapsed_ms, step.device_ms):
        if time is not None and math.isfinite(time) and time > 0:
            return time
    return None


def _fault(step: StepRecord, clock: float) -> str | None:
    if step.t_ms is not None and step.t_ms < clock:
        return (
            f"t_ms goes back from {clock:g} to {step.t_ms:g}: split a file that holds two recordings, remove the row "
            "of a clock that was set"
        )
    if len(step.drafted) not in (0, step.batch_size):
        return f"drafted has {len(step.drafted)} entries, batch_size is {step.batch_size}: give one per request"
    if step.requests is not None and len(set(step.requests)) < len(step.requests):
        twice = next(number for number in step.requests if list(step.requests).count(number) > 1)
        return f"requests names {twice} twice: give each request a number of its own"
    return None


def _look(row: TraceRow, seen: Counter[str]) -> None:
    step, decision = row.step, row.decision
    if step.batch_size == 0:
        seen["steps had no requests and are left out"] += 1
    elif len(step.drafted) == 0:
        seen["steps are left out whose outcome never came; their tokens are missing"] += 1
    elif time_ms(step) is None:
        seen["steps have no time: their cost is taken from the others"] += 1
    if decision is not None and decision.k != step.k:
        seen["steps played another K than was decided (shadow mode?): the K played is replayed"] += 1
    elif decision is not None and step.k not in decision.arms:
        seen["steps played a K that is not among the decision's arms"] += 1
