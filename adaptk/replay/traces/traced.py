"""A recorded trace as a world to try other policies in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from adaptk.replay.drafter import UNKNOWN
from adaptk.replay.noise import Noise
from adaptk.replay.policies.recorded import Recorded
from adaptk.replay.scenarios import Scenario
from adaptk.replay.simulator import World
from adaptk.replay.surface import Array, CostSurface
from adaptk.replay.traces.columns import numbered
from adaptk.replay.traces.tokenruns import Runs, token_runs
from adaptk.replay.traces.tracefit import (
    ENOUGH,
    EXTREME,
    Samples,
    fit_cost,
    mean_factor,
    played,
    samples_of,
    table_over_trace,
    with_shape,
    with_table,
)
from adaptk.replay.traces.tracekinds import kinds
from adaptk.replay.traces.traceload import engine_of, load_of, most_steps
from adaptk.replay.traces.tracerows import read_rows, time_ms
from adaptk.replay.workload import Requests
from adaptk.step import StepRecord
from adaptk.table import GoodputTable
from adaptk.tracefile import TraceError

FOREIGN = 2.0  # times the trace's step times, or one over it: the table is of another engine

RECORDED = "recorded"
"""Name of the policy that plays what was recorded."""


class Traced(NamedTuple):
    """A trace made into a scenario.

    The scenario has a policy ``RECORDED`` of its own, which plays what was recorded. ``skipped`` counts the rows that
    were passed over, ``notes`` say what was assumed, ``measured_tokens_per_s`` is of the steps that have a time.
    """

    scenario: Scenario
    skipped: int
    notes: list[str]
    measured_tokens_per_s: float


def traced_scenario(
    path: str | os.PathLike[str],
    table: GoodputTable | None = None,
    arms: Sequence[int] | None = None,
    lenient: bool = False,
    last: int | None = None,
) -> Traced:
    """Make a scenario of a recorded trace.

    Of each request, the tokens come as they were recorded: where a draft was accepted or rejected it always will be
    (exact for chain drafters and every K up to the recorded one); a token that was never drafted is drawn from the
    acceptance of its stretch of the trace, and so is the number of drafts where the drafter left some out. Load is a
    closed loop on work: a request arrives when as many tokens have been emitted as in the trace before it joined: a
    faster policy gets it sooner, at the same point of the work. One that waited for a place in a full engine waits
    again. Time in which the trace's engine was idle is left out. Step times are those of a cost surface fitted to the
    trace, with noise like that of the trace.

    Parameters
    ----------
    path
        File that a ``TraceWriter`` wrote.
    table
        What policies are seeded with; it also shapes the cost of each K that the trace has not enough steps of. Without
        one, a K between others that it has lies on the line through them, and one beyond them cannot be chosen.
    arms
        The K that may be chosen; default: those that the trace names and whose cost is known.
    lenient
        Skip and count rows that cannot be read, instead of refusing them.
    last
        Replay only so many steps, the last ones; default: all.

    Raises
    ------
    TraceError
        If the file or a row of it cannot be read or replayed.
    ValueError
        If an arm is no K that can be replayed.
    """
    rows = read_rows(path, lenient, last)
    steps = rows.steps
    may = tuple(sorted(rows.arms if arms is None else set(arms)))
    if not may or may[0] < 0:
        raise ValueError(f"arms is {arms!r}: give numbers of drafts of at least 0")
    runs, samples = _checked(path, steps)
    k_max = max(*may, *(step.k for step in steps), *(max(step.drafted) for step in steps))
    kind, drafter = kinds(runs.streams, k_max)
    load, engine = load_of(runs, kind), engine_of(steps, runs)
    cost = _cost(path, samples, may, (engine.max_requests, k_max), table, chosen=arms is not None)
    may = cost.arms
    world = World(cost.surface, drafter, load, most_steps(steps, load, engine.max_tokens), engine, cost.noise)
    before, ks = runs.before.tolist(), [step.k for step in steps]
    scenario = Scenario(
        name=Path(path).name,
        about=f"recorded: {len(steps)} steps, {len(load)} requests, {int(runs.emitted.sum())} tokens",
        world=lambda seed: replace(world, seed=seed),
        table=table,
        startup=cost.surface.to_table(may, drafter.acceptance.mean(axis=0).tolist()),
        arms=may,
        checks=(),
        own_policies={RECORDED: lambda setup: Recorded(setup, before, ks)},
    )
    notes = [*rows.notes, *_load_notes(steps, runs, load), *cost.notes]
    timed = np.array([time_ms(step) is not None for step in steps])
    rate = 1000.0 * float(runs.emitted[timed].sum()) / float(samples.ms.sum())
    return Traced(scenario, rows.skipped, notes, rate)


class _Cost(NamedTuple):
    surface: CostSurface
    noise: Noise
    arms: tuple[int, ...]  # whose cost is known
    notes: list[str]


def _checked(path: str | os.PathLike[str], steps: Sequence[StepRecord]) -> tuple[Runs, Samples]:
    """Requests that emitted something, and steps that have a time."""
    runs = token_runs(steps)
    samples = samples_of(steps, runs)
    if not runs.emitted.any():
        raise TraceError(f"{path}: no step emitted a token: record while requests are served")
    if len(samples.ms) == 0:
        raise TraceError(f"{path}: no step has a time: record elapsed_ms or device_ms")
    return runs, samples


def _cost(
    path: str | os.PathLike[str],
    samples: Samples,
    arms: tuple[int, ...],
    size: tuple[int, int],
    table: GoodputTable | None,
    chosen: bool,
) -> _Cost:
    """The surface up to ``size`` (batch, K), with the noise around it; ``chosen``: the arms were asked for."""
    known = played(samples)
    missing = [k for k in range(size[1] + 1) if k not in known and (k in arms or k in samples.k)]
    if table is None or not table.has_times or not known:
        table = None
        if len(known) < 2 and any(k in arms for k in missing):
            seen = f"only K={known[0]} was" if known else "no K was"
            raise TraceError(
                f"{path}: {seen} played for at least {ENOUGH} steps, which does not tell what another costs: give a "
                "table of step times, or only that K as arms"
            )
    # A line beyond the K that were played may end anywhere, at no cost at all too.
    beyond = [] if table is not None or not known else [k for k in missing if not known[0] < k < known[-1]]
    if chosen and not set(arms).isdisjoint(beyond):
        k = min(set(arms).intersection(beyond))
        raise TraceError(f"{path}: {_seen(samples, k)}, which does not tell its cost: give a table of step times, or "
                         "leave it out of the arms")  # fmt: skip
    arms = tuple(k for k in arms if k not in beyond)
    fit = fit_cost(samples, known)
    surface = fit.surface(f"step times fitted to {Path(path).name}", *size, 2.0 * float(samples.context.max()))
    if table is not None:
        surface = with_table(surface, table, missing, known)
    surface = with_shape(surface, beyond, known)
    usual = fit.expected(samples) / mean_factor(fit.noise)
    notes = _cost_notes(samples, usual, missing, beyond, table is not None)
    off = 1.0 if table is None else table_over_trace(surface, table, samples, known)
    if not 1.0 / FOREIGN <= off <= FOREIGN:
        notes.append(
            f"the table's step times are {off:.3g} times those of the trace in the median: policies start far from "
            "the truth; give a table of the engine that was recorded"
        )
    return _Cost(surface, fit.noise, arms, notes)


def _load_notes(steps: Sequence[StepRecord], runs: Runs, load: Requests) -> list[str]:
    """What was assumed of the requests."""
    notes = [
        "load: each request arrives when as many tokens have been emitted as before it joined in the trace, or, where "
        "it joined a full engine, with the one before it; time in which the engine was idle is left out"
    ]
    if not numbered(steps):
        notes.append("the steps do not say which request is which: guessed by position")
    assert load.known is not None
    unknown = float(np.mean(load.known == UNKNOWN))
    notes.append(f"{unknown:.0%} of the tokens were never drafted: whether a draft of them is accepted is drawn")
    firsts = [stream.first for stream in runs.streams]
    if len(set(firsts)) < len(firsts):
        notes.append("of requests that joined together only the sum of their prompts is known: shared out equally")
    running = sum(stream.first == 0 for stream in runs.streams) if steps[0].prefill_tokens == 0 else 0
    if running:
        notes.append(f"{running} requests had begun before the trace: they are given a prompt of 1 token")
    if runs.silent:
        notes.append(f"{runs.silent} requests emitted nothing and are left out")
    if runs.recomputed:
        notes.append(
            f"{runs.recomputed} prompt tokens were computed again after a preemption: there is none in a replay"
        )
    if any(step.emitted is None for step in steps):
        notes.append(
            "some steps do not say what they emitted: taken as one token more than was accepted, "
            "and none for a part of a prompt; which steps are such parts is guessed"
        )
    return notes


def _seen(samples: Samples, k: int) -> str:
    """How little a K was played."""
    count = int(np.sum((samples.k == k) & (samples.drafting > 0)))
    if count == 0:
        return f"K={k} was never played"
    return f"K={k} was played in {count} step{'s' if count > 1 else ''} only"


def _cost_notes(
    samples: Samples, usual: Array, unknown: Sequence[int], beyond: Sequence[int], shaped: bool
) -> list[str]:
    """What was assumed of the step times."""
    how = "its cost is in proportion to the table" if shaped else "its cost is on the line through the other K"
    cannot = "it is not simulated; give a table of step times"
    notes = [f"{_seen(samples, k)}: {cannot if k in beyond else how}" for k in unknown]
    extreme = samples.ms[samples.ms > EXTREME * usual]
    if len(extreme):
        notes.append(
            f"{len(extreme)} steps took more than {EXTREME:g} times what was to be expected, {extreme.sum():.3g} ms "
            "together: they are kept, as stalls"
        )
    return notes
