"""Step times as measured: by group of batch sizes and K, stalls left out, with their errors."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from adaptk.prefill import RARE
from adaptk.report.columns import Bools, Columns, Floats, Ints
from adaptk.report.loads import Groups, clean, mixed
from adaptk.tablerows import MAX_K

_SOUND = 1.5  # times the median of a cell: what lies beyond is a stall
_FEW_ALIKE, _SOUND_AMONG_FEW = 8, 3.0  # steps of one number of drafts, and what is a stall among so few
_STALLED = 2.0  # times the median of its kind, from which many steps in a row are a stall, no slower engine
_TOO_QUICK = 1.0 / 3.0  # of that median: what is quicker is the clock's mistake
_REST = 0.1  # of a step that is left to its decoding requests, at least, whatever is taken off for prompts
_ALL = 0.98  # of the drafts asked for: a drafter that returns so many returns all
_FEW_STEPS = 8  # that tell little of how much steps differ
_ONE_STEP = 0.15  # what is then taken for it, log units
_MOST_ALIKE = 0.8  # correlation of neighbouring steps that is believed
_WARM_UP = 40  # steps, at the beginning of a file


class Piece(NamedTuple):
    """The steps of one K at one group within one block: how many, log of their usual time, and at which load."""

    group: int
    arm: int
    block: int
    steps: int
    log_ms: float
    decodes: float
    context: float


class Cells(NamedTuple):
    """What was measured, shape ``(groups, arms)`` each: steps, log of the usual time, load; NaN where nothing.

    ``pieces`` hold the same by block, for what disturbs a block disturbs all K in it; ``variance`` is that of the log
    time of one step within a piece, as many steps in a row count.
    """

    steps: Ints
    log_ms: Floats
    decodes: Floats
    context: Floats
    supply: Floats  # share of the drafts asked for that were verified, shape (groups,)
    with_prompts: bool  # whether steps with prompts had to be used
    pieces: list[Piece]
    variance: float


def measured(columns: Columns, groups: Groups, used: Bools, blocks: Ints, arms: tuple[int, ...]) -> Cells:
    """Times of the steps ``used`` that are one K's alone, by group and arm."""
    own = used & (groups.of >= 0) & ~_beginning(columns)
    alone, with_prompt = own & clean(columns), own & mixed(columns)
    per_token = _prompt_cost(columns, groups, alone | with_prompt)
    with_prompts = bool(alone.sum() < RARE * (alone | with_prompt).sum())
    ms = columns.ms.copy()
    if with_prompts:
        ms -= per_token * columns.prefill
        alone = alone | (with_prompt & (ms > _REST * columns.ms))
    shape = (len(groups), len(arms))
    steps = np.zeros(shape, dtype=np.int64)
    log_ms, decodes, context = (np.full(shape, math.nan) for _ in range(3))
    pieces: list[Piece] = []
    offs: list[Floats] = []
    for a, k in enumerate(arms):
        for g in range(len(groups)):
            inside = np.flatnonzero(alone & (groups.of == g) & (columns.asked == k))
            if len(inside) == 0:
                continue
            level = np.empty(len(inside))
            usual = float(np.median(ms[inside]))
            for block in np.unique(blocks[inside]).tolist():
                here = blocks[inside] == block
                which = inside[here]
                times = level[here] = _without_stalls(ms[which], columns.verified[which], usual)
                pieces.append(Piece(g, a, block, len(which), math.log(times.mean()), *_load(columns, which)))
                offs.append(times / times.mean() - 1.0)
            steps[g, a] = len(inside)
            log_ms[g, a] = math.log(level.mean())
            decodes[g, a], context[g, a] = _load(columns, inside)
    supply = _supply(columns, groups, alone)
    return Cells(steps, log_ms, decodes, context, supply, with_prompts, pieces, _variance(offs))


def _load(columns: Columns, which: Ints) -> tuple[float, float]:
    """Mean decoding requests, and mean tokens per request in the KV cache, NaN where unknown."""
    known = columns.context[which]
    known = known[~np.isnan(known)]
    return float(columns.decodes[which].mean()), float(known.mean()) if len(known) else math.nan


def _variance(offs: list[Floats]) -> float:
    """Variance of a step's time within its piece, as a share, times the steps in a row that tell as much as one."""
    freedom = sum(len(off) - 1 for off in offs)
    if freedom < _FEW_STEPS:
        return _ONE_STEP**2
    squares = sum(float(off @ off) for off in offs)
    if squares <= 0.0:
        return 0.0
    alike = min(max(sum(float(off[:-1] @ off[1:]) for off in offs) / squares, 0.0), _MOST_ALIKE)
    return squares / freedom * (1.0 + alike) / (1.0 - alike)


def _prompt_cost(columns: Columns, groups: Groups, used: Bools) -> float:
    """Milliseconds per prompt token, from steps that are alike in all else; at least 0."""
    at = np.flatnonzero(used)
    if len(at) == 0 or not columns.prefill[at].any():
        return 0.0
    cells = groups.of[at] * (MAX_K + 1) + columns.asked[at]
    _, cell = np.unique(cells, return_inverse=True)
    n = np.bincount(cell)
    x, t = columns.prefill[at].astype(float), columns.ms[at]
    limit = np.array([3.0 * np.median(t[cell == c]) for c in range(len(n))])[cell]
    keep = (t <= limit) | (x > 0)
    cell, x, t = cell[keep], x[keep], t[keep]
    n = np.maximum(np.bincount(cell, minlength=len(n)), 1)
    dx = x - (np.bincount(cell, weights=x, minlength=len(n)) / n)[cell]
    dt = t - (np.bincount(cell, weights=t, minlength=len(n)) / n)[cell]
    squares = float(dx @ dx)
    return max(0.0, float(dx @ dt) / squares) if squares > 0.0 else 0.0


def _without_stalls(ms: Floats, verified: Ints, usual: float) -> Floats:
    """Times with those beyond ``_SOUND`` times the median of their number of drafts put to the mean of the others.

    A drafter that sometimes returns none makes short and long steps, both of which belong to the K. ``usual`` is the
    median of more of their kind, which few are held against.
    """
    level = ms.copy()
    here = float(np.median(ms))
    usual = usual if len(ms) < _FEW_ALIKE or here > _STALLED * usual else here
    drafts = np.floor(2.0 * np.log2(verified + 1.0))  # alike within half an octave
    for number in np.unique(drafts).tolist():
        alike = drafts == number
        times = ms[alike]
        few = len(times) < _FEW_ALIKE  # whose median may be a stall
        middle = usual if few else min(float(np.median(times)), _STALLED * usual)
        ratio = times / middle
        sound = (ratio <= (_SOUND_AMONG_FEW if few else _SOUND)) & (ratio >= _TOO_QUICK)
        level[alike] = np.where(sound, times, times[sound].mean() if sound.any() else middle)
    return level


def _supply(columns: Columns, groups: Groups, used: Bools) -> Floats:
    """Share of the drafts asked for that were verified, by group; 1 for a drafter that returns all."""
    n = len(groups)
    drafting = used & (columns.asked > 0)
    at = groups.of[drafting]
    wanted = (columns.asked[drafting] * columns.decodes[drafting]).astype(float)
    asked = np.bincount(at, weights=wanted, minlength=n)
    given = np.bincount(at, weights=columns.verified[drafting], minlength=n)
    everywhere = given.sum() / asked.sum() if asked.sum() > 0.0 else 1.0
    share = np.where(asked > 0.0, given / np.maximum(asked, 1.0), everywhere)
    return np.where(share > _ALL, 1.0, share)


def _beginning(columns: Columns) -> Bools:
    """The first steps of each file, in which engines are still slow, where they are few of all."""
    starts = np.flatnonzero(np.diff(columns.source, prepend=-1))
    place = np.arange(len(columns.source)) - np.repeat(starts, np.diff(np.append(starts, len(columns.source))))
    lengths = np.bincount(columns.source)[columns.source]
    return np.asarray(place < np.minimum(_WARM_UP, lengths // 20))
