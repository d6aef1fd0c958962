"""Which K at which batch size: the schedule that draws of goodput speak for, against the operator's."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from adaptk.report.columns import Bools, Floats, Ints
from adaptk.report.findings import Basis
from adaptk.report.loads import Baseline, Groups
from adaptk.report.times import NEAR
from adaptk.schedule import merge_runs

LEAST_GAIN = 0.005  # below which no change is advised
_LARGEST = 65_536  # batch size to which a schedule is written out, at most
_DOUBT, _DOUBT_ALONE = 0.05, 0.01  # that a K is slower, at most; of one for few batch sizes, unlike all around
_NARROW = 1.5  # times the first batch size, below which a range's last one makes it a range of few
SWITCH = 0.0005  # of the whole time, that one more range of a schedule must be worth
GROUNDS: tuple[Basis, ...] = ("measured", "near", "table")
"""What advice may rest on."""
_TIMED: tuple[Basis, ...] = ("measured", "near")


class Plan(NamedTuple):
    """The K advised for each group, and what speaks for it; arms as indices.

    ``now`` and ``new`` have shape ``(groups,)``. ``saved`` are draws of the share of a group's time that each arm in
    place of the operator's would save, shape ``(draws, groups, arms)``; ``known`` where both rest on more than a shape,
    shape ``(groups, arms)``. ``weight`` is each group's share of the time of all steps,
    had the operator's K been played.
    """

    now: Ints
    new: Ints
    saved: Floats
    known: Bools
    weight: Floats


def plan(
    lengths: Floats,
    logs: Floats,
    groups: Groups,
    played: Ints,
    grounds: list[list[Basis]],
    arms: tuple[int, ...],
    busy_ms: float,
) -> Plan:
    """Choose a schedule.

    A K replaces the operator's over neighbouring groups only where it is believed faster at each, by ``LEAST_GAIN``
    over them together and, at 95 %, faster at all, and both are known from more than a shape. The doubt may be less for
    few batch sizes among others of another K, and where several other K were timed, any of which may seem quick by
    chance. Among those, each further range of the schedule must be worth its while.

    Parameters
    ----------
    lengths, logs
        Draws of acceptance length and log step time, shape ``(draws, groups, arms)``.
    groups
        The load.
    played
        Steps in which each K was verified, shape ``(groups, arms)``.
    grounds
        What each cell rests on, shape ``(groups, arms)``.
    arms
        The K.
    busy_ms
        Time of all steps, those of no group included.
    """
    n = len(groups)
    rows = np.arange(n)
    now = np.array([_nearest(arms, k) for k in groups.k_now.tolist()], dtype=np.int64)
    goodput = lengths / np.exp(logs)
    own = goodput[:, rows, now]
    itl, length = np.exp(logs).mean(axis=0), lengths.mean(axis=0)
    # Prompts take their time whatever K is: only the rest of a group's time becomes shorter.
    drafted = (played * itl).sum(axis=1)
    scale = np.minimum(1.0, groups.busy_ms / np.maximum(drafted, 1e-12))
    prompts = groups.busy_ms - scale * drafted
    decoding = scale * (played * length).sum(axis=1) / length[rows, now] * itl[rows, now]  # of the same tokens
    whole = np.maximum(decoding + prompts, 1e-12)
    share = decoding / whole
    saved = share[:, None] * (1.0 - own[:, :, None] / goodput)
    known = np.array([[basis in GROUNDS for basis in row] for row in grounds], dtype=bool).reshape(n, len(arms))
    known &= known[rows, now][:, None]
    # Of the time that all would have taken with the own K, those of no group included.
    everything = busy_ms - float(groups.busy_ms.sum()) + float(whole.sum())
    weight = whole / everything if busy_ms > 0.0 else np.zeros(n)
    sure = np.zeros((n, len(arms)), dtype=bool)
    doubt = _DOUBT / max(sum(any(row[arm] in _TIMED for row in grounds) for arm in range(len(arms))) - 1, 1)
    for arm in range(len(arms)):
        better = known[:, arm] & (saved[:, :, arm].mean(axis=0) > 0.0)
        for run in _runs(np.where(better, now, -1)):
            sure[run, arm] = better[run[0]] and _beyond_doubt(saved[:, run, arm], weight[run], doubt)
    sure[rows, now] = True
    new = _cheapest(np.where(sure, saved.mean(axis=0) * weight[:, None], -np.inf))
    for run in _runs(now * len(arms) + new):
        at_most = min(doubt, _DOUBT_ALONE) if _stands_alone(groups, new, run) else doubt
        if new[run[0]] != now[run[0]] and not _beyond_doubt(saved[:, run, new[run[0]]], weight[run], at_most):
            new[run] = now[run]
    return Plan(now, new, saved, known, weight)


def _runs(values: Ints) -> list[list[int]]:
    """Places of neighbours that are equal."""
    runs: list[list[int]] = []
    for place, value in enumerate(values.tolist()):
        if runs and values[runs[-1][0]] == value:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def _stands_alone(groups: Groups, new: Ints, run: list[int]) -> bool:
    """Whether a range of one or few batch sizes has a K of its own: engines change little from one size to the next."""
    first, last = run[0], run[-1]
    around = [place for place in (first - 1, last + 1) if 0 <= place < len(groups)]
    narrow = bool(groups.last[last] < _NARROW * groups.first[first])
    return narrow and bool(around) and all(new[place] != new[first] for place in around)


def _beyond_doubt(saved: Floats, weight: Floats, doubt: float) -> bool:
    """Whether an arm saves enough over some groups together; ``saved`` has shape ``(draws, groups)``."""
    total = float(weight.sum())
    if total <= 0.0:
        return False
    together = saved @ weight / total
    return bool(np.quantile(together, doubt) > 0.0 and together.mean() >= LEAST_GAIN)


def written_out(
    groups: Groups, new: Ints, base: Baseline, arms: tuple[int, ...], by_table: Callable[[int, int], bool]
) -> list[list[int]]:
    """The advised schedule for every batch size.

    Sizes that were not recorded follow the nearest that were, as far as the operator's K is the same, where they are
    within a factor of ``NEAR`` of them or ``by_table(group, size)`` says so; else they keep what they have.
    """
    top = max(*(last for _, last, _ in base.schedule), int(groups.last.max(initial=1)))
    top = min(top, _LARGEST)
    sizes = np.arange(1, top + 1)
    ks = np.array([base.k(size) for size in sizes.tolist()])
    if len(groups):
        edges = (groups.last[:-1] + groups.first[1:]) // 2
        nearest = np.searchsorted(edges, sizes)
        changed = new != np.array([_nearest(arms, k) for k in groups.k_now.tolist()])
        # Between two groups the edge of the operator's own schedule is the border.
        for size, near in zip(sizes.tolist(), nearest.tolist(), strict=True):
            for group in (near, min(near + 1, len(groups) - 1), max(near - 1, 0)):
                if groups.k_now[group] == ks[size - 1] and (group == near or groups.k_now[near] != ks[size - 1]):
                    first, last = int(groups.first[group]), int(groups.last[group])
                    close = first / NEAR <= size <= last * NEAR
                    if changed[group] and _same_range(base, size, first) and (close or by_table(group, size)):
                        ks[size - 1] = arms[int(new[group])]
                    break
    return merge_runs(ks.tolist())


def _same_range(base: Baseline, one: int, other: int) -> bool:
    """Whether two batch sizes lie in one stretch of equal K of the operator's schedule."""
    low, high = min(one, other), max(one, other)
    k = base.k(low)
    return base.k(high) == k and all(own == k for first, _, own in base.schedule if low <= first <= high)


def _nearest(arms: tuple[int, ...], k: int) -> int:
    return min(range(len(arms)), key=lambda i: (abs(arms[i] - k), arms[i]))


def _cheapest(worth: Floats) -> Ints:
    """The arm of each group that is worth most in all, where each change between groups costs ``SWITCH``."""
    n = len(worth)
    if n == 0:
        return np.zeros(0, dtype=np.int64)
    total = worth[0].copy()
    came: list[Ints] = []
    for group in range(1, n):
        jump = int(total.argmax())
        moved = total[jump] - SWITCH > total
        came.append(np.where(moved, jump, np.arange(len(total))))
        total = np.where(moved, total[jump] - SWITCH, total) + worth[group]
    at = int(total.argmax())
    path = [at]
    for before in reversed(came):
        at = int(before[at])
        path.append(at)
    return np.array(path[::-1])
