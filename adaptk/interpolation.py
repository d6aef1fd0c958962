"""Step time between and beyond the measured cells of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adaptk.tablerows import TableRow

Floats = NDArray[np.float64]

# Linear extrapolation in K can cross zero; no arm is believed faster than this share of the quickest measured one.
_FLOOR = 0.05


class Curve:
    """Step time of one K over the batch size, from that K's own rows."""

    def __init__(self, rows: Sequence[TableRow], staircase: bool) -> None:
        self.batches: Floats = np.array([row.batch for row in rows], dtype=float)  # (rows,), rising
        self.itl_ms: Floats = np.array([row.itl_ms for row in rows], dtype=float)  # (rows,)
        self._staircase = staircase
        self._tail = 0.0  # ms per request above the largest row
        if len(rows) > 1:
            rise = float(self.itl_ms[-1] - self.itl_ms[-2])
            self._tail = max(rise / float(self.batches[-1] - self.batches[-2]), 0.0)

    def at(self, batches: Floats) -> Floats:
        """Milliseconds at ``batches``, same shape."""
        if self._staircase:
            stair = np.minimum(np.searchsorted(self.batches, batches), len(self.batches) - 1)
            inside: Floats = self.itl_ms[stair]
        else:
            inside = np.interp(batches, self.batches, self.itl_ms)
        above: Floats = np.maximum(batches - self.batches[-1], 0.0)
        return inside + self._tail * above


class Surface:
    """Step time over batch size and K at one level of context."""

    def __init__(self, rows: Sequence[TableRow], staircase: bool) -> None:
        by_k: dict[int, list[TableRow]] = {}
        for row in sorted(rows, key=lambda row: row.batch):
            by_k.setdefault(row.k, []).append(row)
        self.ks = tuple(sorted(by_k))
        self.curves = {k: Curve(by_k[k], staircase) for k in self.ks}

    def grid(self, batches: Floats, ks: Sequence[int]) -> Floats:
        """Milliseconds, shape ``(len(batches), len(ks))``."""
        out: Floats = np.empty((len(batches), len(ks)))
        missing = [k for k in ks if k not in self.curves]
        columns = {k: self.curves[k].at(batches) for k in (self.ks if missing else ks)}
        if missing:
            floor = _FLOOR * np.min(list(columns.values()), axis=0)
            columns |= {k: np.maximum(self._between(k, columns), floor) for k in missing}
        for j, k in enumerate(ks):
            out[:, j] = columns[k]
        return out

    def _between(self, k: int, columns: dict[int, Floats]) -> Floats:
        """Linear in K through the two nearest measured K on either side, or the two last ones on one side."""
        if len(self.ks) == 1:
            return columns[self.ks[0]]
        upper = min(max(int(np.searchsorted(self.ks, k)), 1), len(self.ks) - 1)
        low, high = self.ks[upper - 1], self.ks[upper]
        weight = (k - low) / (high - low)
        return (1.0 - weight) * columns[low] + weight * columns[high]


class Surfaces:
    """Step time over batch size, K and mean context; one surface per level of context in the rows."""

    def __init__(self, rows: Sequence[TableRow], staircase: bool) -> None:
        by_level: dict[float | None, list[TableRow]] = {}
        for row in rows:
            by_level.setdefault(row.context, []).append(row)
        self._plain = Surface(by_level[None], staircase) if None in by_level else None
        self.levels: tuple[float, ...] = tuple(sorted(level for level in by_level if level is not None))
        self._surfaces = [Surface(by_level[level], staircase) for level in self.levels]

    def grid(self, batches: Floats, ks: Sequence[int], context: float | None) -> Floats:
        """Milliseconds, shape ``(len(batches), len(ks))``; ``context`` in tokens per request."""
        if self._plain is not None and (context is None or not self._surfaces):
            return self._plain.grid(batches, ks)
        if context is None:
            return self._surfaces[(len(self.levels) - 1) // 2].grid(batches, ks)
        above = int(np.searchsorted(self.levels, context))
        if above == 0 or above == len(self.levels) or self.levels[above] == context:
            return self._surfaces[min(above, len(self.levels) - 1)].grid(batches, ks)
        low, high = self.levels[above - 1], self.levels[above]
        weight = (context - low) / (high - low)
        below, over = (surface.grid(batches, ks) for surface in self._surfaces[above - 1 : above + 1])
        blend: Floats = (1.0 - weight) * below + weight * over
        return blend
