"""Which numbers of drafts a controller may choose from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from adaptk.quoted import shown
from adaptk.table import GoodputTable
from adaptk.tablerows import MAX_K

DEFAULT_ARMS = (0, 1, 3, 7)  # K + 1 of 1, 2, 4, 8 tile CUDA graph sizes best
MOST_ARMS = 65  # 0 to 64


def resolve_arms(table: GoodputTable | None, arms: Sequence[int] | None, k_max: int | None) -> tuple[int, ...]:
    """The arms in rising order: those given, else the default cut at ``k_max``, it, and what a schedule prescribes.

    Raises
    ------
    ValueError
        If there is none, or one is negative, repeated, no whole number or above ``k_max``.
    """
    if k_max is not None and not _is_count(k_max):
        raise ValueError(f"k_max is {shown(k_max)}: give a whole number of at least 0")
    if arms is None:
        if table is None and k_max is None:
            raise ValueError("k_max is None: without a table say how many drafts the engine can make, or give arms")
        prescribed = table.ks if table is not None and not table.has_times else ()
        most = k_max if k_max is not None else max(table.ks) if table is not None else 0
        return _few(sorted({int(k) for k in (*DEFAULT_ARMS, *prescribed) if k <= most} | {int(most)}))
    try:
        arms = tuple(arms)
    except TypeError:
        raise ValueError(f"arms is {shown(arms)}: give a sequence of whole numbers, as (0, 1, 3, 7)") from None
    for k in arms:
        if not _is_count(k):
            raise ValueError(f"arms holds {shown(k)}: give whole numbers of at least 0, as (0, 1, 3, 7)")
        if k_max is not None and k > k_max:
            raise ValueError(
                f"arms holds {shown(k)}, k_max is {shown(k_max)}: leave that arm out or let the engine draft more"
            )
    if len(set(arms)) != len(arms) or not arms:
        raise ValueError(f"arms is {shown(arms)}: give at least one, none twice")
    return _few(sorted(map(int, arms)))


def _few(arms: Sequence[int]) -> tuple[int, ...]:
    """Refuse more than can be told apart by what they take: beliefs hold a matrix of all arms with all others."""
    if arms[-1] > MAX_K:
        raise ValueError(f"arms go up to {shown(arms[-1])}: give none above {MAX_K}")
    if len(arms) > MOST_ARMS:
        raise ValueError(f"arms are {len(arms)}, {shown(arms)}: give at most {MOST_ARMS}")
    return tuple(arms)


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 0)
