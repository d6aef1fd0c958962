"""Counts what a server under adaptk wrote against what was noted beside it, and what its metrics say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from adaptk.controller import Controller
from adaptk.statefile import read_state
from adaptk.trace import read_trace
from tests.benchmarks.soak.clock import Steps
from tests.engine.metricspages import Page

Span = tuple[float, float]  # seconds of time.perf_counter


class Check(NamedTuple):
    """Something that must hold, whether it does, and the figures."""

    name: str
    held: bool
    said: str

    def __str__(self) -> str:
        return f"{'ok    ' if self.held else 'FAILED'} {self.name}: {self.said}"


def trace_holds_every_step(path: Path, steps: Steps, off: Sequence[Span], dropped: int) -> list[Check]:
    """Each noted step has one row, with as many tokens; one under way while the mode was ``off`` may have none.

    A step's row is read from the clock before its note is made, and after the note of the step before.
    """
    trace = read_trace(path)
    ended = np.array([row.step.t_ms for row in trace.rows]) / 1e3
    emitted = np.array([sum(row.step.emitted or ()) for row in trace.rows])
    place = np.searchsorted(steps.ended, ended)
    strange = int((place == len(steps.ended)).sum())
    rows = np.bincount(place[place < len(steps.ended)], minlength=len(steps.ended))
    written = np.bincount(
        place[place < len(steps.ended)], emitted[place < len(steps.ended)], minlength=len(steps.ended)
    )
    excused = np.zeros(len(rows), dtype=bool)
    begins = np.concatenate([steps.ended[:1], steps.ended[:-1]])
    for begun, over in off:
        excused |= (steps.ended >= begun) & (begins <= over)
    missing = int((rows[~excused] == 0).sum())
    wrong = int(((written != steps.emitted) & (rows > 0)).sum())
    return [
        Check(
            "the trace has every step, or counted it as dropped",
            missing == dropped and strange == 0 and int(rows.max(initial=0)) <= 1,
            f"{len(trace.rows)} rows for {len(steps.ended)} steps, of which {int((excused & (rows == 0)).sum())} have "
            f"none, being in mode off; {missing} missing, {dropped} counted as dropped, {strange} rows of no step",
        ),
        Check(
            "each row has the tokens of its step",
            wrong == 0 and int(emitted.sum()) > 0,
            f"{int(emitted.sum())} tokens in the trace, {int(steps.emitted.sum())} noted; {wrong} rows differ",
        ),
    ]


def metrics_are_well(page: Page) -> list[Check]:
    """No fault, and adaptk still at work."""
    faults, active = page.value("adaptk_faults_total"), page.value("adaptk_active")
    dropped = {cause: int(n) for (cause,), n in page.by("adaptk_observations_dropped_total", "cause").items() if n}
    timed = page.sum("adaptk_timed_steps_total")
    return [
        Check("adaptk is active and had no fault", active == 1 and not faults, f"active {active:g}, faults {faults:g}"),
        Check("it learnt", timed > 0, f"{timed:.0f} timed steps; not learnt from: {dropped or 'none'}"),
    ]


def state_restores(path: Path) -> Check:
    """The state file gives a controller back."""
    name = "the state file restores"
    try:
        state = read_state(path)
        if state is None:
            return Check(name, False, f"{path} is not there")
        controller = Controller.restore(state.snapshot, None)
    except ValueError as error:
        return Check(name, False, f"{type(error).__name__}: {error}")
    return Check(name, True, f"{path.stat().st_size} bytes, arms {controller.arms}")
