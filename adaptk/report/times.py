"""Step time of every K at every group of batch sizes: measured where it was played, inferred elsewhere, in joint draws.

The log of a step time is that of the seed table plus an error: of the whole engine, of the steepness in K, between no
drafts and some, of one K, of one batch size; each smooth over batch sizes. How large such errors are is not known
beforehand: it is learnt from the K that were played. A table that is right there to one percent is believed elsewhere,
too, one that is off by thirty hardly. Without a table the shape of a roofline takes its place, with wide errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

from adaptk.grid import BATCH_UNKNOWN, KERNEL, LEVEL_UNKNOWN, ON_OFF, SLOPE, between, interpolate
from adaptk.prior import StepTimePrior
from adaptk.report.blocks import DRAWS
from adaptk.report.columns import Bools, Floats, Ints
from adaptk.report.findings import Basis
from adaptk.report.loads import Groups
from adaptk.report.measured import Cells, Piece

ENOUGH = 30  # steps that measure a cell
STRETCHES = 5  # separate stretches in which these must lie: fewer may all be of one slow spell
NEAR = 1.6  # batch sizes within this factor are neighbours
_SCALES = np.geomspace(0.02, 0.5, 12)
_WANDER = np.geomspace(0.004, 0.4, 8)  # of whole blocks, log units: neighbours on the machine, clocks
_USUAL_WANDER, _WANDER_SPREAD = 0.03, 1.0  # what is thought of it beforehand, and by how many e-folds that may be off
_STRAY = (0.0, 0.05, 0.2)  # of one piece alone: stalls that were not told from slow steps
_LASTS = 4.0  # blocks, for which half of it stays
_LEAST_ERROR, _ONE_STEP = 0.003, 0.15  # of a measured cell, of one that was seen in a single step; log units
_MOST_PIECES = 256
_THICK = 8  # steps
# Relative to the scale of a table's error: steepness, no drafts or some, one K, one batch size.
_TABLE = (1.5, 0.6, 0.3, 0.6)
_STAIR, _STAIR_UNKNOWN = 0.012, 0.04  # one cell alone, log units


class Times(NamedTuple):
    """Log milliseconds, shape ``(draws, places, arms)``, and what each rests on, shape ``(places, arms)``."""

    draws: Floats
    basis: list[list[Basis]]


class Place(NamedTuple):
    """Where step times are asked for: decoding requests, and mean tokens per request in the KV cache."""

    decodes: float
    context: float | None


def draw_times(
    cells: Cells, groups: Groups, further: list[Place], arms: tuple[int, ...], prior: StepTimePrior, seed: int
) -> Times:
    """Draw step times at the groups and at ``further`` places, given what was measured."""
    places = [Place(d, None if math.isnan(c) else c) for d, c in zip(groups.decodes, groups.context, strict=True)]
    places += further
    if not places:
        return Times(np.zeros((DRAWS, 0, len(arms))), [])
    supply = np.concatenate([cells.supply, np.full(len(further), cells.supply.mean() if len(groups) else 1.0)])
    before = np.array(
        [_at(prior, place.decodes, place.context, share) for place, share in zip(places, supply.tolist(), strict=True)]
    ).reshape(len(places), len(arms))
    batches = np.repeat([max(place.decodes, 1.0) for place in places], len(arms))
    ks = np.tile(np.arange(len(arms)), len(places))
    seen = _observed(cells, prior)
    rng = np.random.default_rng(seed)
    draws = _posterior(partial(_covariance, batches, ks, arms, timed=prior.timed), seen, prior.timed, rng)
    draws = draws.reshape(DRAWS, len(places), len(arms)) + before
    bases = _bases(cells, groups, places, arms, prior)
    _order(draws, bases)
    return Times(draws, bases)


class _Observed(NamedTuple):
    """Means of pieces: the point of each, how far its log time lies from the prior's, and the covariance of its error.

    ``blocks`` is the part of the covariance that stems from what disturbs whole blocks, to be scaled by its variance.
    """

    rows: Ints
    off: Floats
    noise: Floats
    blocks: Floats


def _observed(cells: Cells, prior: StepTimePrior) -> _Observed:
    pieces = _merged(_thick(cells.pieces))
    arms = len(prior.arms)
    rows = np.array([piece.group * arms + piece.arm for piece in pieces], dtype=np.int64)
    expected = [_at(prior, each.decodes, each.context, cells.supply[each.group])[each.arm] for each in pieces]
    off = np.array([piece.log_ms for piece in pieces]) - np.array(expected)
    steps = np.array([piece.steps for piece in pieces], dtype=float)
    few = _LEAST_ERROR + _ONE_STEP / np.maximum(cells.steps.ravel()[rows], 1)
    own = np.maximum(cells.variance / steps, _LEAST_ERROR**2)
    noise = np.diag(own) + np.equal.outer(rows, rows) * np.outer(few, few)
    place = np.array([piece.block for piece in pieces], dtype=float)
    apart = np.abs(np.subtract.outer(place, place))
    return _Observed(rows, off, noise, 0.5 * (apart == 0) + 0.5 * np.exp(-apart / _LASTS))


def _thick(pieces: list[Piece]) -> list[Piece]:
    """Without those of so few steps that stalls are not told from steps, where a cell has better ones."""
    most: dict[tuple[int, int], int] = {}
    for piece in pieces:
        most[piece[:2]] = max(most.get(piece[:2], 0), piece.steps)
    return [piece for piece in pieces if piece.steps >= min(_THICK, most[piece[:2]])]


def _merged(pieces: list[Piece]) -> list[Piece]:
    """The pieces, of longer blocks where there are very many."""
    while len(pieces) > _MOST_PIECES and max(piece.block for piece in pieces) > 0:
        together: dict[tuple[int, int, int], list[Piece]] = {}
        for piece in pieces:
            together.setdefault((piece.group, piece.arm, piece.block // 2), []).append(piece)
        pieces = [_mean(key, parts) for key, parts in together.items()]
    return pieces


def _mean(key: tuple[int, int, int], parts: list[Piece]) -> Piece:
    share = np.array([part.steps for part in parts], dtype=float)
    log_ms, decodes, context = (np.average([part[i] for part in parts], weights=share).item() for i in (4, 5, 6))
    return Piece(*key, int(share.sum()), log_ms, decodes, context)


def _posterior(covariance: Callable[[float], Floats], seen: _Observed, timed: bool, rng: np.random.Generator) -> Floats:
    """Draws at all points, shape ``(DRAWS, points)``.

    How large the table's errors are, and how much blocks differ, is weighed by what makes the pieces likely.
    """
    rows = seen.rows
    chances, inners = [], []
    for scale in _SCALES.tolist() if timed else [1.0]:
        whole = covariance(scale)
        for wander, stray in product(_WANDER.tolist(), _STRAY) if len(rows) else [(_USUAL_WANDER, 0.0)]:
            inner = whole[np.ix_(rows, rows)] + seen.noise + wander**2 * seen.blocks + stray**2 * np.eye(len(rows))
            solved = np.linalg.solve(inner, seen.off)
            usual = -0.5 * (math.log(wander / _USUAL_WANDER) / _WANDER_SPREAD) ** 2
            chances.append(usual - 0.5 * (seen.off @ solved + np.linalg.slogdet(inner)[1]))
            inners.append((scale, inner))
    weights = np.exp(np.array(chances) - max(chances))
    draws = []
    for (scale, inner), n in zip(inners, rng.multinomial(DRAWS, weights / weights.sum()).tolist(), strict=True):
        if n:
            whole = covariance(scale)
            across = whole[:, rows]
            solved = np.linalg.solve(inner, np.column_stack([seen.off, across.T]))
            draws.append(_normal(across @ solved[:, 0], whole - across @ solved[:, 1:], n, rng))
    return np.asarray(rng.permutation(np.concatenate(draws)))


def _at(prior: StepTimePrior, decodes: float, context: float | None, supply: float) -> list[float]:
    """The prior's log step times, linear between whole batch sizes, where a share of the drafts is returned."""
    context = None if context is None or math.isnan(context) else context
    low = max(int(decodes), 1)
    share = min(max(decodes - low, 0.0), 1.0)
    here, above = prior.row(low, context), prior.row(low + 1, context)
    full = [a + share * (b - a) for a, b in zip(here, above, strict=True)]
    return full if supply == 1.0 else [interpolate(full, *between(prior.arms, supply * k)) for k in prior.arms]


def _covariance(batches: Floats, ks: Ints, arms: tuple[int, ...], scale: float, timed: bool) -> Floats:
    """Covariance of the errors of all points, log units squared."""
    values = np.array(arms, dtype=float)[ks]
    steep = np.log1p(values) / math.log1p(max(arms[-1], 1))
    drafting = (values > 0).astype(float)
    near = np.exp(-0.5 * (np.subtract.outer(np.log(batches), np.log(batches)) / KERNEL) ** 2)
    smooth, same = 0.5 + 0.5 * near, np.equal.outer(ks, ks)
    if timed:
        level, (slope, on_off, alone, batch) = 1.0, _TABLE
    else:
        level, slope, on_off, alone, batch = LEVEL_UNKNOWN, 1.5 * SLOPE, 1.5 * ON_OFF, 0.1, BATCH_UNKNOWN
    total = level**2 + slope**2 * smooth * np.outer(steep, steep) + on_off**2 * smooth * np.outer(drafting, drafting)
    total = scale**2 * (total + alone**2 * near * same + batch**2 * near)
    return np.asarray(total + (_STAIR if timed else _STAIR_UNKNOWN) ** 2 * np.eye(len(ks)))


def _normal(mean: Floats, covariance: Floats, n: int, rng: np.random.Generator) -> Floats:
    if n == 0:
        return np.zeros((0, len(mean)))
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2.0)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(mean + rng.standard_normal((n, len(mean))) @ root.T)


def _order(draws: Floats, bases: list[list[Basis]]) -> None:
    """Let no arm that was not measured be quicker than a smaller one that was, or slower than a larger one.

    More drafts are never less work. What lies on the wrong side of a bound is put as far on the other.
    """
    for place, row in enumerate(bases):
        known = [arm for arm, basis in enumerate(row) if basis == "measured"]
        for arm in range(len(row)):
            if arm in known:
                continue
            times = draws[:, place, arm]
            below, above = [a for a in known if a < arm], [a for a in known if a > arm]
            if below:
                floor = draws[:, place, below[-1]]
                times = floor + np.abs(times - floor)
            if above:
                ceiling = draws[:, place, above[0]]
                times = ceiling - np.abs(ceiling - times)
            if below and above:
                times = np.maximum(times, floor)
            draws[:, place, arm] = times


def _bases(
    cells: Cells, groups: Groups, places: list[Place], arms: tuple[int, ...], prior: StepTimePrior
) -> list[list[Basis]]:
    """What the time of each place and arm rests on."""
    enough = (cells.steps >= ENOUGH) & _apart(cells)
    bases: list[list[Basis]] = []
    for number, place in enumerate(places):
        row: list[Basis] = []
        for a in range(len(arms)):
            apart = np.abs(np.log(groups.decodes[enough[:, a]] / max(place.decodes, 1.0)))
            if number < len(groups) and enough[number, a]:
                row.append("measured")
            elif len(apart) and apart.min() <= math.log(NEAR):
                row.append("measured" if number >= len(groups) and apart.min() < 0.35 else "near")
            elif _told(prior, arms[a]):
                row.append("table")
            else:
                row.append("shape")
        bases.append(row)
    return bases


def _apart(cells: Cells) -> Bools:
    """Which cells were timed in ``STRETCHES`` separate stretches, or most of the time, shape ``(groups, arms)``.

    What befell the machine in one spell is no property of the K that was played meanwhile.
    """
    blocks: dict[tuple[int, int], list[int]] = {}
    for piece in cells.pieces:
        blocks.setdefault(piece[:2], []).append(piece.block)
    found = np.zeros(cells.steps.shape, dtype=bool)
    for group, arm in blocks:
        here = np.unique(blocks[group, arm])
        served = {block for (g, _), each in blocks.items() if g == group for block in each}
        separate = 1 + int(np.sum(np.diff(here) > 1))
        found[group, arm] = separate >= STRETCHES or 2 * len(here) > len(served)
    return found


def _told(prior: StepTimePrior, k: int) -> bool:
    """Whether the table has times of a K, or of others on both sides of it."""
    inside = prior.table is not None and min(prior.table.ks) < k < max(prior.table.ks)
    return prior.timed and (inside or (prior.table is not None and prior.table.knows(k)))
