"""One group's steps, boiled down to a level per arm and visit."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptk.profile.est_stalls import ordinary
from adaptk.profile.est_values import Block, Group

_Floats = NDArray[np.float64]

_LOWEST = 0.1  # of a block's mean time that it keeps whatever its widths are moved to
_PRIOR = 0.01  # of the step's time per draft: how far the cost of a draft may lie from what the arms say, at least


class Visited(NamedTuple):
    """An arm within one visit: log of its time at the arm's long-run width, and of each block's; steps behind it."""

    log_ms: float
    blocks: tuple[float, ...]
    steps: int


class ArmFit(NamedTuple):
    """What is known of one arm of a group.

    ``visits`` by number; ``scatter_ms`` the standard deviation, 10th and 90th percentile of the ordinary steps as they
    were; ``stalled`` the share of steps left out; ``shift_error`` the relative error that moving its widths to the
    long-run mean brings.
    """

    visits: dict[int, Visited]
    scatter_ms: tuple[float, float, float]
    stalled: float
    mean_context: float | None
    shift_error: float


class GroupFit(NamedTuple):
    """What is known of a group, before other groups are asked how much a machine drifts."""

    group: Group
    arms: dict[int, ArmFit]
    width_ms: float
    block_variance: float  # of the log between blocks of the same arm and visit


def fit_group(group: Group, blocks: Iterable[Block], widths: Mapping[int, float]) -> GroupFit | None:
    """Fit the blocks of one group; ``None`` where no step of them has a time.

    Parameters
    ----------
    group
        The group that all blocks are of.
    blocks
        Its blocks.
    widths
        Long-run mean width per K; for K that it lacks, the mean of the blocks.

    Raises
    ------
    ValueError
        If a block's times and widths differ in number.
    """
    kept = [block for block in blocks if _checked(block).ms]
    ms = np.array([value for block in kept for value in block.ms], dtype=float)
    width = np.array([value for block in kept for value in block.widths], dtype=float)
    lengths = [len(block.ms) for block in kept]
    index = np.repeat(np.arange(len(kept)), lengths)
    arms = np.repeat(np.array([block.k for block in kept], dtype=np.int64), lengths)
    visits = np.repeat(np.array([block.visit for block in kept], dtype=np.int64), lengths)
    sound = (ms > 0) & np.isfinite(ms) & np.isfinite(width)
    if not sound.any():
        return None
    ms, width, index, arms, visits = ms[sound], width[sound], index[sound], arms[sound], visits[sound]
    keep = ordinary(ms, width, arms, visits)
    all_of = {int(k): int((arms == k).sum()) for k in np.unique(arms)}
    ms, width, index, arms, visits = ms[keep], width[keep], index[keep], arms[keep], visits[keep]
    slope, slope_error = _slope(ms, width, arms, visits)
    fits: dict[int, ArmFit] = {}
    spreads: list[float] = []
    freedom = 0
    for k, total in all_of.items():
        mine = arms == k
        seen = float(width[mine].mean())
        wanted = widths.get(k, seen)
        level = ms - slope * (width - wanted)
        by_visit: dict[int, list[tuple[float, int]]] = defaultdict(list)
        for number in np.unique(index[mine]):
            inside = index == number
            value = max(float(level[inside].mean()), _LOWEST * float(ms[inside].mean()))
            by_visit[kept[number].visit].append((value, int(inside.sum())))
        visited = {visit: _visited(values) for visit, values in sorted(by_visit.items())}
        for one in visited.values():
            spreads.append(float(np.sum((np.array(one.blocks) - np.mean(one.blocks)) ** 2)))
            freedom += len(one.blocks) - 1
        p10, p90 = np.quantile(ms[mine], (0.1, 0.9))
        contexts = [b.mean_context for b in kept if b.k == k and b.mean_context is not None]
        fits[k] = ArmFit(
            visits=visited,
            scatter_ms=(float(np.std(ms[mine])), float(p10), float(p90)),
            stalled=1.0 - int(mine.sum()) / total,
            mean_context=float(np.mean(contexts)) if contexts else None,
            shift_error=slope_error * (wanted - seen) / float(ms[mine].mean()),
        )
    variance = sum(spreads) / freedom if freedom else _from_steps(ms, index)
    return GroupFit(group, fits, slope, variance)


def _checked(block: Block) -> Block:
    if len(block.ms) != len(block.widths):
        raise ValueError(f"a block of visit {block.visit} has {len(block.ms)} times and {len(block.widths)} widths")
    return block


def _visited(values: list[tuple[float, int]]) -> Visited:
    steps = sum(n for _, n in values)
    mean = sum(value * n for value, n in values) / steps
    return Visited(math.log(mean), tuple(math.log(value) for value, _ in values), steps)


def _slope(ms: _Floats, width: _Floats, arms: NDArray[np.int64], visits: NDArray[np.int64]) -> tuple[float, float]:
    """Milliseconds per draft and request, and the standard error.

    From the variation within an arm's visit, which neither drift nor the cost of making drafts is in; drawn towards
    the slope between the arms, more so the less the widths vary within.
    """
    between, level = _between(ms, width, arms), float(np.median(ms))
    _, cell = np.unique(np.stack([arms, visits]), axis=1, return_inverse=True)
    cell = cell.reshape(-1)
    sizes = np.bincount(cell)
    d_width = width - (np.bincount(cell, width) / sizes)[cell]
    d_ms = ms - (np.bincount(cell, ms) / sizes)[cell]
    freedom = len(ms) - len(sizes) - 1
    sxx, sxy = float(d_width @ d_width), float(d_width @ d_ms)
    if freedom < 1 or sxx <= 0.0:
        return between, between
    noise = float(np.sum((d_ms - sxy / sxx * d_width) ** 2)) / freedom
    prior = max(between, _PRIOR * level) ** 2
    weight = noise / prior
    return max((sxy + weight * between) / (sxx + weight), 0.0), math.sqrt(noise / (sxx + weight))


def _between(ms: _Floats, width: _Floats, arms: NDArray[np.int64]) -> float:
    """Slope through the arms' mean times, 0 where they do not differ in width or it would fall."""
    which = [arms == k for k in np.unique(arms)]
    x, y = np.array([width[mine].mean() for mine in which]), np.array([ms[mine].mean() for mine in which])
    sxx = float(np.sum((x - x.mean()) ** 2))
    return max(float((x - x.mean()) @ (y - y.mean())) / sxx, 0.0) if sxx > 1e-12 else 0.0


def _from_steps(ms: _Floats, index: NDArray[np.int64]) -> float:
    """Variance between blocks where none can be compared: that of their steps, doubled as steps are alike nearby."""
    _, block = np.unique(index, return_inverse=True)
    sizes = np.bincount(block)
    logs = np.log(ms)
    centred = logs - (np.bincount(block, logs) / sizes)[block]
    freedom = len(ms) - len(sizes)
    return 2.0 * float(centred @ centred) / freedom / float(sizes.mean()) if freedom > 0 else math.inf
