"""Acceptance length of every K at every group of batch sizes, in joint draws."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from adaptk.report.blocks import DRAWS
from adaptk.report.columns import Bools, Columns, Floats, Ints
from adaptk.report.findings import Basis
from adaptk.report.loads import Groups
from adaptk.report.unasked import Unasked
from adaptk.table import GoodputTable

TRIALS = 30.0  # drafts that the acceptance of all batch sizes together is worth at one group
ENOUGH_ASKED = 100  # requests asked for a draft at a position from which it counts as measured, reached or not
BY_TABLE, BY_GUESS = 0.3, 0.7  # spread of a position that was never drafted, log odds
_GUESS = 0.7  # acceptance where nothing at all is known


class Lengths(NamedTuple):
    """Tokens per request and step, shape ``(draws, groups, arms)``, and what each arm's acceptance rests on."""

    draws: Floats
    basis: list[Basis]


def draw_lengths(
    columns: Columns,
    groups: Groups,
    used: Bools,
    blocks: Ints,
    resample: Floats,
    arms: tuple[int, ...],
    table: GoodputTable | None,
    hazard: float,
    steered: bool,
    seed: int,
) -> Lengths:
    """Draw acceptance lengths from resampled blocks of the steps ``used``.

    What a request gains at a position is counted against all requests that could have been drafted for, so that a
    drafter that returned nothing is in it. ``hazard`` is the probability per token that an output ends there: drafts
    behind it are worth nothing. ``steered``: K followed the text, so that drafts not asked for are not like the others.
    """
    positions, n = columns.succeeded.shape[1], len(groups)
    rng = np.random.default_rng(seed)
    mask = used & (groups.of >= 0) & columns.linked & ~columns.lost
    place = blocks[mask] * n + groups.of[mask]
    size = resample.shape[1] * n
    asked = columns.asked[mask]
    able = columns.able[mask]
    before = able.astype(float)
    conditional = np.zeros((DRAWS, n, positions))
    known = np.zeros(positions)
    # What no draft was made for is not known to be like the rest: texts wander from block to block.
    apart = rng.standard_normal((DRAWS, n)) / np.sqrt(_blocks_of(columns, groups, used, blocks))
    lacking = Unasked(_sums(place, before, n, size)) if steered else None
    for j in range(positions):
        inside = asked > j
        good = _sums(place[inside], columns.succeeded[:, j][mask][inside].astype(float), n, size)
        tried = _sums(place[inside], before[inside], n, size)
        known[j] = able[inside].sum()
        if tried.sum() > 0:
            wander = _wander(good.sum(axis=1), tried.sum(axis=1))
            guessed = np.zeros((DRAWS, n))
            if lacking is not None:
                filled = lacking.fill(good, tried)
                good, tried = filled.good, filled.tried
                guessed = rng.standard_normal((DRAWS, 1)) * filled.unsure
            hits, trials = resample @ good, resample @ tried
            everywhere = (hits.sum(axis=1) + 0.5) / (trials.sum(axis=1) + 1.0)
            elsewhere = np.clip(everywhere[:, None] + wander * apart, 0.0, 1.0)
            conditional[:, :, j] = np.clip((hits + TRIALS * elsewhere) / (trials + TRIALS) + guessed, 0.0, 1.0)
        before = columns.succeeded[:, j][mask].astype(float)
    basis = _fill(conditional, known, table, rng)
    going = np.cumprod(np.clip(conditional, 0.0, 1.0) * (1.0 - min(max(hazard, 0.0), 1.0)), axis=2)
    lengths = np.concatenate([np.ones((DRAWS, n, 1)), 1.0 + np.cumsum(going, axis=2)], axis=2)
    deepest = [min(k, positions) for k in arms]
    worst: list[Basis] = [basis[k - 1] if k else "measured" for k in deepest]
    return Lengths(lengths[:, :, deepest], worst)


def _sums(place: Ints, values: Floats, groups: int, size: int) -> Floats:
    """Sums by block and group, shape ``(blocks, groups)``."""
    return np.bincount(place, weights=values, minlength=size).astype(np.float64).reshape(size // max(groups, 1), groups)


def _blocks_of(columns: Columns, groups: Groups, used: Bools, blocks: Ints) -> Floats:
    """In how many blocks each group was served, at least 1."""
    met = used & (groups.of >= 0)
    pairs = np.unique(blocks[met] * len(groups) + groups.of[met])
    return np.maximum(np.bincount(pairs % max(len(groups), 1), minlength=len(groups)), 1).astype(float)


def _wander(good: Floats, tried: Floats) -> float:
    """How far the acceptance of blocks lies apart, beyond what chance makes of it."""
    full = tried > 0
    if full.sum() < 2:
        return 0.0
    rate = float(good.sum() / tried.sum())
    seen = float(np.average((good[full] / tried[full] - rate) ** 2, weights=tried[full]))
    chance = rate * (1.0 - rate) * float(full.sum()) / float(tried.sum())
    return math.sqrt(max(seen - chance, 0.0))


def _fill(conditional: Floats, known: Floats, table: GoodputTable | None, rng: np.random.Generator) -> list[Basis]:
    """Give positions that were hardly drafted the acceptance of the one before, or the table's; what each rests on."""
    basis: list[Basis] = []
    said = None if table is None or table.acceptance is None else table.acceptance
    shift, wander = np.zeros((DRAWS, 1)), np.zeros((DRAWS, 1))
    last: Floats | None = None
    for j, asked in enumerate(known.tolist()):
        by_table = None if said is None else _logit(np.array(said[min(j, len(said) - 1)]))
        if asked >= ENOUGH_ASKED:
            last = conditional[:, :, j]
            shift = np.zeros((DRAWS, 1)) if by_table is None else (_logit(last) - by_table).mean(axis=1, keepdims=True)
            basis.append("measured")
            continue
        wander = wander + rng.normal(0.0, BY_GUESS if by_table is None else BY_TABLE, (DRAWS, 1))
        if by_table is not None:
            guess = by_table + shift + wander + np.zeros_like(conditional[:, :, j])
        else:
            guess = (_logit(last) if last is not None else _logit(np.full_like(conditional[:, :, j], _GUESS))) + wander
        conditional[:, :, j] = 1.0 / (1.0 + np.exp(-guess))
        basis.append("table" if by_table is not None else "shape")
    return basis


def _logit(share: Floats) -> Floats:
    inside = np.clip(share, 1e-4, 1.0 - 1e-4)
    return np.asarray(np.log(inside / (1.0 - inside)))
