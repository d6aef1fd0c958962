"""The judgement: acceptance lengths and step times estimated, schedules compared on draws of both.

Not the live controller's posteriors, which forget so that they can follow: a recording is looked at as a whole, or,
where acceptance or step time changed for good within it, from the last such change on. Stretches of steps are
resampled, so that what wanders with the texts is in the intervals; K that were never timed rest on the table, as far as
it proved right where K were (:mod:`adaptk.report.times`).

What disturbs a while (a neighbour on the machine, a run of stalls) is estimated for each block and not held against the
K that was played meanwhile.

How far that can be trusted is measured against simulated traces whose truth is known: ``python -m
tests.benchmarks.report_advice``, with its figures in docs/measurements.md. Intervals are wide on purpose: a loss of 3 %
is found with a right table, with a wrong one often left undecided. Without a table nothing is advised from one K alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from adaptk.prior import StepTimePrior
from adaptk.report.advising import Evidence, advise
from adaptk.report.blocks import block_numbers, interval, settled, weights
from adaptk.report.columns import Bools, Columns, Floats, Ints
from adaptk.report.exploring import ledger
from adaptk.report.findings import Advice, Basis, Cell, Interval, Ledger
from adaptk.report.grounds import caveats, foreign, rests_on
from adaptk.report.lengths import Lengths, draw_lengths
from adaptk.report.loads import Baseline, Groups, baseline, clean, groups, replaced
from adaptk.report.measured import measured
from adaptk.report.reading import Recording
from adaptk.report.schedules import Plan, plan
from adaptk.report.steered import steered
from adaptk.report.times import Place, Times, draw_times
from adaptk.table import GoodputTable

_RANK: tuple[Basis, ...] = ("measured", "near", "table", "shape", "nothing")


class Judged(NamedTuple):
    """What was concluded, and what it was concluded from.

    ``steered`` are the steps in which adaptk's K was played, shape ``(steps,)``; ``with_prompts`` says whether steps
    with prompts had to be used; ``blocks`` are each step's stretch and how often each resample takes each stretch.
    """

    base: Baseline
    steered: Bools
    advice: Advice
    cells: list[Cell]
    with_prompts: bool
    ledger: Ledger | None
    blocks: tuple[Ints, Floats]


def judge(recording: Recording) -> Judged:
    """Estimate acceptance lengths and step times, and compare schedules on draws of them.

    Parameters
    ----------
    recording
        At least one step.
    """
    columns, arms = recording.columns, recording.arms
    headers = [source.header for source in recording.sources]
    by_adaptk = steered(columns, [header.mode for header in headers])
    base = baseline(columns, by_adaptk, headers, arms)
    followed = replaced(columns, by_adaptk, base)
    load = groups(columns, base)
    used, changes = settled(columns, load, [header.rank for header in headers])
    blocks, number = block_numbers(used)
    resample = weights(number, seed=0)
    timed_table = recording.table if recording.table is not None and recording.table.has_times else None
    seen = measured(columns, load, used, blocks, arms)
    why_foreign = foreign(recording, seen, arms)
    own_table = None if why_foreign else timed_table
    prior = StepTimePrior(own_table, arms)
    hazard = recording.controller._acceptance.stops.hazard
    lengths = draw_lengths(columns, load, used, blocks, resample, arms, own_table, hazard, followed, seed=1)
    octaves = _octaves(columns, load)
    places = [octave.place for octave in octaves]
    drawn = draw_times(seen, load, places, arms, prior, seed=2)
    n = len(load)
    grounds = [[_worst(basis, lengths.basis[a]) for a, basis in enumerate(row)] for row in drawn.basis[:n]]
    busy = float(np.nansum(columns.ms))
    played = _played(columns, load, arms)
    chosen = plan(lengths.draws, drawn.draws[:, :n], load, played, grounds, arms, busy)
    evidence = Evidence(
        base,
        arms,
        grounds,
        headers,
        rests_on(recording, seen, grounds, lengths, own_table is not None, arms),
        caveats(recording, changes, why_foreign, followed),
        own_table is not None,
        bool(why_foreign),
        _by_table(own_table, lengths, load, chosen, arms),
        bool(by_adaptk.any()),
        frozenset(k for k, steps in zip(arms, seen.steps.sum(axis=0), strict=True) if steps),
    )
    advice = advise(chosen, load, evidence)
    cells = _cells(columns, octaves, load, lengths, drawn, arms, timed_table)
    goodput = (lengths.draws / np.exp(drawn.draws[:, :n])).mean(axis=0)
    explored = ledger(columns, by_adaptk, load.of, arms, goodput)
    return Judged(base, by_adaptk, advice, cells, seen.with_prompts, explored, (blocks, resample))


def _played(columns: Columns, load: Groups, arms: tuple[int, ...]) -> Ints:
    """Steps in which the drafts of each K were verified, by group; a K between two arms counts as the nearer one."""
    inside = load.of >= 0
    asked = columns.asked[inside]
    arm = np.abs(np.subtract.outer(asked, np.array(arms))).argmin(axis=1)
    size = len(load) * len(arms)
    return np.bincount(load.of[inside] * len(arms) + arm, minlength=size).reshape(len(load), len(arms))


def _by_table(
    table: GoodputTable | None, lengths: Lengths, load: Groups, chosen: Plan, arms: tuple[int, ...]
) -> Callable[[int, int], bool]:
    """Whether a group's new K is faster than its present one at a batch size, by the table's times."""
    length = lengths.draws.mean(axis=0)

    def faster(group: int, size: int) -> bool:
        if table is None:
            return False
        context = None if np.isnan(load.context[group]) else float(load.context[group])
        now, new = (
            float(length[group, arm]) / itl if (itl := table.itl_ms(size, arms[arm], context)) else 0.0
            for arm in (int(chosen.now[group]), int(chosen.new[group]))
        )
        return new > now

    return faster


class _Octave(NamedTuple):
    first: int
    last: int
    place: Place
    shares: Floats  # of the groups, shape (groups,)
    which: Bools  # its steps


def _octaves(columns: Columns, load: Groups) -> list[_Octave]:
    """Powers of two of decoding requests that were served."""
    inside = load.of >= 0
    octave = np.where(inside, np.log2(np.maximum(columns.decodes, 1)).astype(int), -1)
    found = []
    for number in np.unique(octave[inside]).tolist():
        which = octave == number
        context = columns.context[which]
        context = context[~np.isnan(context)]
        shares = np.bincount(load.of[which], minlength=len(load)) / which.sum()
        place = Place(float(columns.decodes[which].mean()), float(context.mean()) if len(context) else None)
        found.append(_Octave(2**number, 2 ** (number + 1) - 1, place, shares, which))
    return found


def _cells(
    columns: Columns,
    octaves: list[_Octave],
    load: Groups,
    lengths: Lengths,
    drawn: Times,
    arms: tuple[int, ...],
    table: GoodputTable | None,
) -> list[Cell]:
    """Belief by octave and K."""
    alone = clean(columns)
    cells = []
    for number, octave in enumerate(octaves):
        logs = drawn.draws[:, len(load) + number]
        length = np.einsum("dga,g->da", lengths.draws, octave.shares)
        bases = [_worst(drawn.basis[len(load) + number][a], lengths.basis[a]) for a in range(len(arms))]
        known = [a for a, basis in enumerate(bases) if basis in ("measured", "near", "table")]
        winners = np.argmax((length / np.exp(logs))[:, known], axis=1) if len(known) > 1 else None
        for a, k in enumerate(arms):
            here = octave.which & (columns.asked == k)
            timed = here & alone
            itl = interval(np.exp(logs[:, a]))
            said = None if table is None else table.itl_ms(octave.place.decodes, k, octave.place.context)
            shape = drawn.basis[len(load) + number][a] == "shape"
            cells.append(
                Cell(
                    first=octave.first,
                    last=octave.last,
                    batch=octave.place.decodes,
                    k=k,
                    steps=int(here.sum()),
                    timed=int(timed.sum()),
                    measured_ms=float(np.median(columns.ms[timed])) if timed.any() else None,
                    itl_ms=None if shape else itl,
                    table_ms=said,
                    ratio=None if shape or said is None else Interval(*(each / said for each in _values(itl))),
                    acceptance_length=interval(length[:, a]),
                    goodput=None if shape else float(1000.0 * np.mean(length[:, a] / np.exp(logs[:, a]))),
                    best_probability=float(np.mean(winners == known.index(a)))
                    if winners is not None and a in known
                    else None,
                    basis=drawn.basis[len(load) + number][a],
                )
            )
    return cells


def _worst(one: Basis, other: Basis) -> Basis:
    return max(one, other, key=_RANK.index)


def _values(each: Interval) -> tuple[float, float, float]:
    return each.value, each.low, each.high
