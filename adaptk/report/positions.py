"""Acceptance by draft position: in the recording, at its end, and in the table."""

from __future__ import annotations

import numpy as np

from adaptk.controller import Controller
from adaptk.report.columns import Columns, Floats, Ints
from adaptk.report.findings import Interval, Position
from adaptk.table import GoodputTable


def positions(
    columns: Columns, blocks: Ints, resample: Floats, controller: Controller, table: GoodputTable | None
) -> list[Position]:
    """Acceptance by draft position, over the whole recording and as believed at its end."""
    believed = controller.positions()
    found = []
    for j in range(min(columns.succeeded.shape[1], controller.arms[-1])):
        reached, good = columns.reached[:, j], columns.succeeded[:, j]
        tried, hits = int(reached.sum()), int(good.sum())
        said = None if table is None or not table.acceptance else table.acceptance[min(j, len(table.acceptance) - 1)]
        found.append(
            Position(
                position=j + 1,
                reached=tried,
                accepted=hits,
                ratio=_ratio(good, reached, blocks, resample) if tried else None,
                believed=Interval(*believed[j]),
                table=said,
            )
        )
    return found


def _ratio(good: Ints, reached: Ints, blocks: Ints, resample: Floats) -> Interval:
    n = resample.shape[1]
    hits, tried = (np.bincount(blocks, weights=each, minlength=n) for each in (good, reached))
    drawn = (resample @ hits + 0.5) / (resample @ tried + 1.0)
    low, high = np.quantile(drawn, (0.05, 0.95)).tolist()
    value = float(good.sum()) / float(reached.sum())
    return Interval(value, min(low, value), max(high, value))
