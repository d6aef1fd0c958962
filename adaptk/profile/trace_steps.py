"""Which recorded steps show what one arm costs, and in which cell each belongs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from adaptk.controller import FULL_SUPPLY
from adaptk.evidence import LONGEST_MS, SHORTEST_MS, most_and_sum
from adaptk.prefill import RARE
from adaptk.profile.est_values import Block, Group
from adaptk.step import StepRecord
from adaptk.tablerows import MAX_BATCH, MAX_K

ENOUGH = 40  # steps at which a batch size stands for itself, and that a stretch of time is cut into
_MOST_STRETCHES = 12  # of a group, taken for visits
_ALIKE = 1.5  # highest over lowest tenth of contexts up to which one level will do
_APART = 4.0  # above which three levels are made, not two
_LEVEL = 200  # steps that a level of context needs at least


class Step(NamedTuple):
    """A step of one arm: its place in the trace, decoding requests, K, drafts verified per request, context, time."""

    at: int
    batch: int
    k: int
    width: float
    context: float | None
    ms: float


class Usable(NamedTuple):
    """Steps that can be used, and why the others cannot: reason -> steps."""

    steps: list[Step]
    refused: Counter[str]


def usable(records: Sequence[StepRecord], device: bool) -> Usable:
    """Pick the steps that verified and made the same K, carried no prompt and have a time.

    Those that waited for a grammar are left out too, unless nearly all did: a table is of steps that do not wait.

    Parameters
    ----------
    records
        Consecutive steps.
    device
        Whether only the worker's own time counts; else only the wall clock does.
    """
    steps: list[Step] = []
    refused: Counter[str] = Counter()
    if records:
        refused["the first step, whose drafts nobody asked for here"] += 1
    some_wait = sum(not record.waited for record in records) >= RARE * len(records)
    for at, (before, record) in enumerate(pairwise(records), start=1):
        decodes = record.batch_size if record.decodes is None else min(record.decodes, record.batch_size)
        most, drafts = most_and_sum(record.drafted)
        asked = max(before.k if record.asked is None else record.asked, most)
        made = record.k if record.draft_k is None else record.draft_k
        verified = drafts if record.verified is None else record.verified
        ms = time_ms(record, device)
        if decodes < 1:
            refused["no request decoded"] += 1
        elif record.prefill_tokens:
            refused["prompt tokens in the step"] += 1
        elif made != asked:
            refused["K changed"] += 1
        elif verified > (asked + 0.01) * decodes:
            refused["more drafts than asked for"] += 1
        elif asked > MAX_K or decodes > MAX_BATCH:
            refused["a batch or a K beyond what a table may hold"] += 1
        elif ms is None:
            refused["no time"] += 1
        elif record.waited and some_wait:
            refused["waited for a grammar"] += 1
        else:
            context = None if record.context_tokens is None else record.context_tokens / record.batch_size
            steps.append(Step(at, decodes, asked, verified / decodes, context, ms))
    with_drafts = [step for step in steps if step.k > 0]
    empty = sum(step.width == 0.0 for step in with_drafts)
    if empty and empty < (1.0 - FULL_SUPPLY) * len(with_drafts):  # the drafter is one that always has drafts
        steps = [step for step in steps if step.k == 0 or step.width > 0.0]
        refused["drafts missing"] += empty
    return Usable(steps, refused)


def time_ms(record: StepRecord, device: bool) -> float | None:
    """The step's time by the worker's clock or by the wall clock, milliseconds; ``None`` where that is unknown."""
    value = record.device_ms if device else record.elapsed_ms
    return float(value) if value is not None and SHORTEST_MS <= value <= LONGEST_MS else None


def cut(steps: Sequence[Step], levels: Sequence[float], names: dict[int, int], visit: int) -> list[Block]:
    """Blocks of one trace's steps: runs of one arm, in stretches of time that stand for visits.

    Parameters
    ----------
    steps
        Usable steps of one trace, in order.
    levels
        Bounds between levels of context, rising, as of :func:`context_bounds`; a level is named by its number.
    names
        The batch that each batch size is booked under, as of :func:`batch_names`.
    visit
        Number of the first visit.
    """
    groups: dict[Group, list[Step]] = {}
    for step in steps:
        if step.context is None and levels:
            continue
        level = None if step.context is None else float(np.searchsorted(levels, step.context, side="right"))
        groups.setdefault(Group(names[step.batch], level), []).append(step)
    blocks: list[Block] = []
    for group, mine in groups.items():
        stretches = min(max(len(mine) // ENOUGH, 1), _MOST_STRETCHES)
        for i in range(stretches):
            part = mine[i * len(mine) // stretches : (i + 1) * len(mine) // stretches]
            blocks += _runs(part, group, visit)
            visit += 1
    return blocks


def _runs(steps: Sequence[Step], group: Group, visit: int) -> list[Block]:
    runs: list[list[Step]] = []
    for step in steps:
        if not runs or runs[-1][-1].k != step.k or runs[-1][-1].at + 1 != step.at:
            runs.append([])
        runs[-1].append(step)
    return [
        Block(
            batch=group.batch,
            k=run[0].k,
            context=group.context,
            mean_context=float(np.mean([s.context for s in run if s.context is not None])) if _known(run) else None,
            visit=visit,
            at_s=float(run[0].at),
            ms=tuple(step.ms for step in run),
            widths=tuple(step.width for step in run),
        )
        for run in runs
    ]


def _known(steps: Iterable[Step]) -> bool:
    return any(step.context is not None for step in steps)


def batch_names(sizes: Counter[int]) -> dict[int, int]:
    """The batch that each size is booked under: itself where it has enough steps, else the mean of its bin.

    Bins are half a power of two wide; their means are rounded, and may be a size that has enough steps itself.

    Examples
    --------
    >>> batch_names(Counter({1: 100, 9: 10, 10: 30, 64: 5}))
    {1: 1, 9: 10, 10: 10, 64: 64}
    """
    bins: dict[int, list[int]] = {}
    names = {size: size for size, steps in sorted(sizes.items()) if steps >= ENOUGH}
    for size in sorted(sizes.keys() - names.keys()):
        bins.setdefault(math.floor(2.0 * math.log2(size)), []).append(size)
    for members in bins.values():
        mean = sum(size * sizes[size] for size in members) / sum(sizes[size] for size in members)
        names |= dict.fromkeys(members, round(mean))
    return dict(sorted(names.items()))


def context_bounds(contexts: Sequence[float | None]) -> list[float]:
    """Bounds between levels of context, tokens per request, rising: none where contexts are alike or few."""
    known = np.array([context for context in contexts if context is not None])
    if len(known) < max(2 * _LEVEL, 0.9 * len(contexts)):
        return []
    low, high = np.quantile(known, (0.1, 0.9))
    if high <= _ALIKE * low or high == 0.0:
        return []
    levels = 3 if high > _APART * low and len(known) >= 3 * _LEVEL else 2
    bounds = [float(bound) for bound in np.unique(np.quantile(known, np.arange(1, levels) / levels))]
    return [bound for bound in bounds if known.min() < bound]
