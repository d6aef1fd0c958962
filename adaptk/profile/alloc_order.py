"""In which order groups are first seen and arms are played, and what a grid must be."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

from adaptk.profile.est_values import Group


def coarse_to_fine(grid: Sequence[Group]) -> dict[Group, tuple[int, int]]:
    """Rank of each group: extremes and middle of batches and contexts first, so that an early end leaves no gap.

    Examples
    --------
    >>> ranks = coarse_to_fine([Group(batch) for batch in (1, 2, 4, 8, 16)])
    >>> [group.batch for group in sorted(ranks, key=ranks.get)]
    [1, 16, 4, 2, 8]
    """
    batches = _halved(sorted({float(group.batch) for group in grid}))
    contexts = _halved(sorted({-1.0 if group.context is None else group.context for group in grid}))
    ranks = {}
    for group in grid:
        context = contexts[-1.0 if group.context is None else group.context]
        ranks[group] = (batches[group.batch] + context, context)
    return ranks


def arm_order(arms: Sequence[int], turn: int, repeats: int) -> tuple[int, ...]:
    """The arms there and back again, ``repeats`` times, begun with another one at each ``turn``.

    Examples
    --------
    >>> arm_order((0, 1, 3), turn=1, repeats=1)
    (1, 3, 0, 0, 3, 1)
    """
    order: list[int] = []
    for repeat in range(repeats):
        start = (turn + repeat) % len(arms)
        there = [*arms[start:], *arms[:start]]
        order += [*there, *reversed(there)]
    return tuple(order)


def check_grid(
    grid: Sequence[Group],
    arms: Sequence[int],
    budget_s: float,
    target: float,
    min_visits: int,
    steps: int,
    blocks: int,
    weights: Mapping[Group, float],
) -> None:
    """Refuse what cannot be measured.

    Raises
    ------
    ValueError
        That names the field, its value and the remedy.
    """
    if not grid or len(set(grid)) < len(grid):
        raise ValueError(
            f"grid has {len(grid)} groups, {len(set(grid))} of them different: give at least one, each once"
        )
    for group in grid:
        context = group.context
        if group.batch < 1 or (context is not None and not 0.0 <= context < math.inf):
            raise ValueError(f"grid has {group}: give a batch of at least 1 and a context of at least 0 tokens")
    if not arms or len(set(arms)) < len(arms) or min(arms) < 0:
        raise ValueError(f"arms is {arms!r}: give at least one number of drafts from 0, each once")
    for name, value in (("budget_s", budget_s), ("target", target)):
        if not 0.0 < value < math.inf:
            raise ValueError(f"{name} is {value!r}: give a positive number")
    for name, least, number in (("min_visits", 1, min_visits), ("steps", 1, steps), ("blocks", 2, blocks)):
        if number < least:
            raise ValueError(f"{name} is {number!r}: give at least {least}")
    if blocks % 2:
        raise ValueError(f"blocks is {blocks!r}: give an even number, arms are played there and back again")
    for group, weight in weights.items():
        if not 0.0 <= weight < math.inf:
            raise ValueError(f"weights has {weight!r} for {group}: give a number of at least 0")


def _halved(values: Sequence[float]) -> dict[float, int]:
    """Rank of each of the rising ``values``: the first, the last, then middles of what lies between."""
    ranks = {values[0]: 0}
    ranks.setdefault(values[-1], 1)
    spans = deque([(0, len(values) - 1)])
    while spans:
        low, high = spans.popleft()
        middle = (low + high) // 2
        if middle in (low, high):
            continue
        ranks[values[middle]] = len(ranks)
        spans += [(low, middle), (middle, high)]
    return ranks
