"""Stretches of a recording that stand for one another: what is resampled, and where a lasting change parts them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from adaptk.report.columns import Bools, Columns, Floats, Ints
from adaptk.report.findings import Interval
from adaptk.report.loads import Groups, clean
from adaptk.tablerows import MAX_K

BLOCKS = 32  # stretches that are resampled
DRAWS = 1000
_FINE = 64  # stretches in which a change is looked for
_FEWEST = 6  # stretches on either side of a change
_MOST_CHANGES = 3
_SURE = 6.0  # standard errors
_MATTERS = 0.03  # change of the acceptance length or the step time, as a share
_LEAST_STEPS = 400


class Change(NamedTuple):
    """A lasting change: the first step after it, of what (``acceptance`` or ``time``), and by how much, as a share."""

    step: int
    kind: str
    by: float


def block_numbers(used: Bools) -> tuple[Ints, int]:
    """A block for each step, of equally many used steps, and how many blocks there are; at least 8 steps in each."""
    blocks = int(min(BLOCKS, max(used.sum() // 8, 1)))
    place: Ints = np.cumsum(used) - used.astype(np.int64)
    return np.asarray(np.minimum(place * blocks // max(int(used.sum()), 1), blocks - 1)), blocks


def weights(blocks: int, seed: int) -> Floats:
    """How often each resample takes each block, shape ``(DRAWS, blocks)``; the spread is that of ``blocks - 1``."""
    counts = np.random.default_rng(seed).multinomial(blocks, np.full(blocks, 1.0 / blocks), size=DRAWS)
    if blocks < 2:
        return counts.astype(float)
    return np.asarray(np.maximum(1.0 + (counts - 1.0) * np.sqrt(blocks / (blocks - 1.0)), 0.0))


def interval(draws: Floats) -> Interval:
    """Mean and 90 % interval of draws; the median where the mean is infinite, and never beyond the ends."""
    low, middle, high = np.quantile(draws, (0.05, 0.5, 0.95)).tolist()
    mean = float(draws.mean())
    return Interval(min(max(mean, low), high) if math.isfinite(mean) else middle, low, high)


def settled(columns: Columns, groups: Groups, ranks: Sequence[int | None]) -> tuple[Bools, list[Change]]:
    """Steps after the last lasting change of their rank, and these changes.

    ``ranks`` are those of the files: ranks ran side by side, files of one rank follow each other.
    """
    used = np.ones(len(columns.k), dtype=bool)
    changes: list[Change] = []
    for rank in dict.fromkeys(ranks):
        own = np.array([each == rank for each in ranks], dtype=bool)[columns.source]
        found = lasting_changes(columns, groups, own)
        changes += found[-1:]
        if found:
            used &= ~own | (np.arange(len(used)) >= found[-1].step)
    return used, changes


def lasting_changes(columns: Columns, groups: Groups, among: Bools) -> list[Change]:
    """Changes of acceptance or step time at the same load that lasted to the end of some steps, the latest last."""
    found: list[Change] = []
    start = 0
    for _ in range(_MOST_CHANGES):
        here = [change for change in _candidates(columns, groups, among, start) if change is not None]
        if not here:
            break
        found.append(max(here, key=lambda change: change.step))
        start = found[-1].step
    return found


def _candidates(columns: Columns, groups: Groups, among: Bools, start: int) -> list[Change | None]:
    drafted = among & (groups.of >= 0) & (columns.asked > 0) & (columns.able > 0) & columns.linked
    timed = among & (groups.of >= 0) & clean(columns)
    found = []
    cells = groups.of * (MAX_K + 1) + columns.asked
    length = columns.succeeded.sum(axis=1) / np.maximum(columns.able, 1) + 1.0
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(columns.ms)
    for kind, used, values in (("acceptance", drafted, length), ("time", timed, logs)):
        steps = np.flatnonzero(used)
        steps = steps[steps >= start]
        if len(steps) < _LEAST_STEPS:
            continue
        found.append(_split(steps, values[steps], cells[steps], kind))
    return found


def _split(steps: Ints, values: Floats, cells: Ints, kind: str) -> Change | None:
    """The place that parts a series best, if beyond doubt."""
    _, at = np.unique(cells, return_inverse=True)
    counts = np.bincount(at)
    means = np.bincount(at, weights=values) / counts
    if kind == "time":  # a stall is no change
        medians = np.array([np.median(values[at == cell]) for cell in range(len(counts))])
        values = np.clip(values, medians[at] - 0.7, medians[at] + 0.7)
        means = np.bincount(at, weights=values) / counts
    residual = (values - means[at]) / (means[at] if kind == "acceptance" else 1.0)
    fine = np.arange(len(steps)) * _FINE // len(steps)
    series = np.bincount(fine, weights=residual, minlength=_FINE) / np.bincount(fine, minlength=_FINE)
    best, place = 0.0, 0
    for cut in range(_FEWEST, _FINE - _FEWEST + 1):
        early, late = series[:cut], series[cut:]
        spread = np.sqrt((early.var() * cut + late.var() * (_FINE - cut)) / (_FINE - 2)) + 1e-9
        sure = abs(late.mean() - early.mean()) / (spread * np.sqrt(1.0 / cut + 1.0 / (_FINE - cut)))
        if sure > best:
            best, place = float(sure), cut
    if best < _SURE:
        return None
    by = float(series[place:].mean() - series[:place].mean())
    if abs(by) < _MATTERS:
        return None
    return Change(int(steps[np.searchsorted(fine, place)]), kind, by)
