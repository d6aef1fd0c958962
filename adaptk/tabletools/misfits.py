"""Cells of a table whose step time is far from what the cells beside them say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from statistics import median

Cells = Mapping[tuple[int, int], float]
Place = tuple[int, int]

_UNLIKE = math.log(2.0)  # of a time over what its neighbours say
_MOST = 21


def misfits(cells: Cells) -> Iterator[str]:
    """One sentence for each cell of ``{(batch, k): ms}`` that is twice or half of what its neighbours make of it.

    A cell is expected to stand to the one beside it as their neighbours in the next line do. A wrong cell makes those
    around it look wrong as well: of such a group the one is named without which the rest fits best.

    Examples
    --------
    >>> list(misfits({(b, k): 90.0 if (b, k) == (4, 1) else 5.0 + k for b in (1, 4, 16) for k in (0, 1, 3)}))
    ['batch 4, k 1: 90 ms is 15 times what the cells beside it would make it']
    """
    batches, ks = (sorted({cell[i] for cell in cells}) for i in (0, 1))
    rows, columns = ({value: i for i, value in enumerate(values)} for values in (batches, ks))
    logs = {(rows[batch], columns[k]): math.log(ms) for (batch, k), ms in cells.items()}
    off = {place: found for place in logs if (found := _off(logs, place)) is not None}
    for _ in range(_MOST):
        suspects = [place for place, ratio in off.items() if abs(ratio) > _UNLIKE]
        if not suspects:
            return
        worst = max(suspects, key=lambda place: (abs(off[place]), place))
        group = [place for place in suspects if place in _around(worst, 1)]
        place = min(group, key=lambda place: (_left(logs, off, place), -abs(off[place]), place))
        batch, k = batches[place[0]], ks[place[1]]
        times = f"{cells[batch, k]:g} ms is {math.exp(off[place]):.2g} times"
        yield f"batch {batch}, k {k}: {times} what the cells beside it would make it"
        logs[place] -= off[place]
        off |= {near: found for near in _around(place, 1) if (found := _off(logs, near)) is not None}


def _off(logs: Mapping[Place, float], place: Place) -> float | None:
    """Log of a time over what its neighbours say, the median of the four corners; ``None`` where none says it."""
    i, j = place
    expected = [
        logs[there, j] + logs[i, other] - logs[there, other]
        for there in (i - 1, i + 1)
        for other in (j - 1, j + 1)
        if (there, j) in logs and (i, other) in logs and (there, other) in logs
    ]
    return logs[place] - median(expected) if place in logs and expected else None


def _left(logs: Mapping[Place, float], off: Mapping[Place, float], place: Place) -> float:
    """How much around a cell would still not fit if it were as its neighbours say."""
    mended = {near: logs[near] for near in _around(place, 2) if near in logs} | {place: logs[place] - off[place]}
    return sum(abs(found) for near in _around(place, 1) if (found := _off(mended, near)) is not None)


def _around(place: Place, reach: int) -> Iterable[Place]:
    span = range(-reach, reach + 1)
    return [(place[0] + di, place[1] + dj) for di in span for dj in span]
