"""The rows of a trace that can be replayed, and what is wrong with the others."""

from __future__ import annotations

import math
import os
from collections import Counter, deque
from typing import Any, NamedTuple

from adaptk.decision import Decision
from adaptk.evidence import LONGEST_MS, SHORTEST_MS
from adaptk.step import StepRecord
from adaptk.tablerows import MAX_K
from adaptk.tracefile import Reader, TraceError, TraceRow

MOST_TOKENS = 10**8
"""Most prompt or draft tokens of a step, and tokens in the KV cache: no engine holds as many."""


class Rows(NamedTuple):
    """Steps of a trace in their order; ``skipped`` counts those that a lenient reader passed over."""

    header: dict[str, Any]
    steps: list[StepRecord]
    arms: tuple[int, ...]  # played or open to a decision, rising
    skipped: int
    notes: list[str]


def read_rows(path: str | os.PathLike[str], lenient: bool = False, last: int | None = None) -> Rows:
    """Read a trace and check that its rows fit together; of a long one, keep the ``last`` so many steps.

    The earlier pieces of its run are read along; a row that was cut off at the end is left out with a note.

    Refused, or with ``lenient`` skipped and counted: a clock that goes back, a decision's number that stands twice or
    goes back, lists with another number of requests than the batch, a request named twice, more tokens emitted than the
    drafts explain, a propensity outside (0, 1], and numbers that no engine has (K above 1024, arms below 0, more than
    ``MOST_TOKENS`` tokens). Passed over with a note: steps without requests, and steps whose outcome never came (no
    lists). A step that played another K than its decision says is taken as played: in shadow mode that is the rule.

    Taken with a note: steps without a time that can be believed (see :func:`time_ms`), decisions without a propensity,
    and steps that are missing, as the numbers of the decisions show. Rows that are missing, or stand twice, where the
    trace has no decisions cannot be seen. Where the numbers begin again at 0, another controller took over.

    Raises
    ------
    TraceError
        If the file cannot be read, a row is refused, or nothing is left to replay.
    """
    reader = Reader(path, lenient)
    steps: deque[StepRecord] = deque(maxlen=last)
    skipped, whole, seen = 0, 0, Counter[str]()
    clock, order = -math.inf, _Order()
    arms: set[int] = set()
    for row in reader:
        step, line = row.step, reader.line
        fault = _clock_fault(step, clock) or _list_fault(step) or _size_fault(row)
        if step.t_ms is not None and math.isfinite(step.t_ms):
            clock = step.t_ms
        if row.decision is not None:
            fault = order.fault(row, row.decision, reader.lines) or fault
        if fault is not None:
            if not lenient:
                raise TraceError(f"{reader.file}, line {line}: {fault}, or read leniently to skip and count the row")
            skipped += 1
            continue
        _look(row, seen)
        if step.batch_size > 0 and len(step.drafted) > 0:
            steps.append(step)
            whole += 1
            arms |= {step.k} | set(() if row.decision is None else row.decision.arms)
    if not steps:
        raise TraceError(f"{path}: has no step that can be replayed: record one with ADAPTK_TRACE or adaptk demo")
    notes = [f"{count} {what}" for what, count in seen.items()]
    if order.missing:
        are, them = ("step is", "it") if order.missing == 1 else ("steps are", "them")
        notes.insert(0, f"{order.missing} {are} missing from the trace, with what was emitted in {them}")
    if reader.missing:
        piece, are = ("earlier piece", "is") if reader.missing == 1 else ("earlier pieces", "are")
        notes.insert(0, f"{reader.missing} {piece} of the trace {are} not there: removed, or elsewhere")
    if reader.cut:
        rows, are = ("row", "is") if reader.cut == 1 else ("rows", "are")
        notes.insert(0, f"{reader.cut} {rows} {are} cut off at the end of a file, and left out")
    skipped += reader.skipped
    if skipped:
        notes.insert(0, "1 row was skipped" if skipped == 1 else f"{skipped} rows were skipped")
    if whole > len(steps):
        notes.insert(0, f"the last {len(steps)} of {whole} steps are replayed")
    return Rows(reader.header, list(steps), tuple(sorted(arms)), skipped, notes)


def time_ms(step: StepRecord) -> float | None:
    """Wall time of a step, else the worker's.

    ``None`` where neither lies between ``SHORTEST_MS`` and ``LONGEST_MS``, beyond which the controller takes none
    either. It prefers the worker's own time, of which it learns what K costs; a replay is about what clients wait for.
    """
    for time in (step.elapsed_ms, step.device_ms):
        if time is not None and SHORTEST_MS <= time <= LONGEST_MS:
            return time
    return None


class _Order:
    """Whether decisions follow one another; ``missing`` counts those that no line of the file can hold."""

    def __init__(self) -> None:
        self.missing = 0
        self._last: int | None = None
        self._line = 0
        self._first: TraceRow | None = None  # of this controller

    def fault(self, row: TraceRow, decision: Decision, line: int) -> str | None:
        """What is wrong with the place of a decision on a line."""
        last, began = self._last, self._first
        again = last is not None and decision.seq == 0 and row != began
        if last is not None and decision.seq <= last and not again:
            self._line += 1  # the row is nobody's place
            twice = "stands twice" if decision.seq == last else f"comes after {last}"
            return f"decision.seq {decision.seq} {twice}: remove the row, which repeats or belongs elsewhere"
        if last is not None and not again:
            self.missing += max(0, (decision.seq - last) - (line - self._line))
        if last is None or again:
            self._first = row
        self._last, self._line = decision.seq, line
        return None


def _clock_fault(step: StepRecord, clock: float) -> str | None:
    if step.t_ms is not None and step.t_ms < clock:
        return (
            f"t_ms goes back from {clock:g} to {step.t_ms:g}: split a file that holds two recordings, remove the row "
            "of a clock that was set"
        )
    return None


def _list_fault(step: StepRecord) -> str | None:
    if len(step.drafted) not in (0, step.batch_size):
        return f"drafted has {len(step.drafted)} entries, batch_size is {step.batch_size}: give one per request"
    if step.requests is not None and len(set(step.requests)) < len(step.requests):
        twice = next(number for number, times in Counter(step.requests).items() if times > 1)
        return f"requests names {twice} twice: give each request a number of its own"
    # Drafts that do not count (dummies, grammar) may be accepted all the same: they are only among the verified.
    others = 0 if step.verified is None else max(0, step.verified - sum(step.drafted))
    for tokens, accepted in zip(step.emitted or (), step.accepted, strict=False):
        if tokens > accepted + 1 + others:
            return f"emitted has {tokens} for a request that accepted {accepted}: give at most one token more"
    return None


def _size_fault(row: TraceRow) -> str | None:
    """Numbers that no engine has, which a replay would count up to."""
    step, decision = row.step, row.decision
    ks = [("k", step.k), ("draft_k", step.draft_k or 0), *(("drafted", drafts) for drafts in step.drafted)]
    if decision is not None:
        ks += [("decision.k", decision.k), *(("decision.arms", arm) for arm in decision.arms)]
    for name, k in ks:
        if not 0 <= k <= MAX_K:
            return f"{name} has {k}: K is a whole number from 0 to {MAX_K}; mend or remove the row"
    for tokens in step.emitted or ():
        if tokens > MAX_K + 1:
            return f"emitted has {tokens}: give at most {MAX_K + 1}, as K ends at {MAX_K}; mend or remove the row"
    for name in ("prefill_tokens", "context_tokens", "verified"):
        tokens = getattr(step, name)
        if tokens is not None and tokens > MOST_TOKENS:
            return f"{name} is {tokens}: give at most {MOST_TOKENS}; mend or remove the row"
    if decision is not None and not math.isnan(decision.propensity) and not 0.0 < decision.propensity <= 1.0 + 1e-9:
        return (
            f"decision.propensity is {decision.propensity:g}: give a probability above 0 and up to 1, null if unknown"
        )
    return None


def _look(row: TraceRow, seen: Counter[str]) -> None:
    step, decision = row.step, row.decision
    if step.batch_size == 0:
        seen["steps had no requests and are left out"] += 1
    elif len(step.drafted) == 0:
        seen["steps are left out whose outcome never came; their tokens are missing"] += 1
    elif time_ms(step) is None:
        seen["steps have no time: their cost is taken from the others"] += 1
    if decision is not None and math.isnan(decision.propensity):
        seen["decisions have no propensity: a replay does not need it"] += 1
    if decision is not None and decision.k != step.k:
        seen["steps played another K than was decided (shadow mode?): the K played is replayed"] += 1
    elif decision is not None and step.k not in decision.arms:
        seen["steps played a K that is not among the decision's arms"] += 1
