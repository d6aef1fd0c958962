"""Tables of the public profile, as they are and with what a profile of adaptk adds to them."""

from __future__ import annotations

from typing import Any

from adaptk.replay.costs.p32374 import ACCEPTANCE, BATCHES, ITL_MS, KS
from adaptk.table import GoodputTable

COUNTS = [[681, 1000], [391, 681], [203, 391], [101, 203], [51, 101]]


def public_rows(**extra: Any) -> list[dict[str, Any]]:
    cells = zip(BATCHES, ITL_MS, strict=True)
    return [{"batch": b, "k": k, "itl_ms": t, **extra} for b, line in cells for k, t in zip(KS, line, strict=True)]


def public_table(meta: dict[str, Any] | None = None) -> GoodputTable:
    return GoodputTable.from_rows(public_rows(), ACCEPTANCE, {"name": "public"} | (meta or {}))


def with_intervals(half: float, counts: list[list[int]] | None = None) -> GoodputTable:
    """Every time with an interval of ``half`` of it on either side."""
    rows = [
        row | {"low_ms": row["itl_ms"] * (1 - half), "high_ms": row["itl_ms"] * (1 + half)} for row in public_rows()
    ]
    return GoodputTable.from_rows(rows, ACCEPTANCE, {"name": "public"}, acceptance_counts=counts)


def of_levels(*levels: float) -> GoodputTable:
    """The public times, longer with the context."""
    rows = [
        row | {"context": level, "itl_ms": row["itl_ms"] * (1 + level / 20_000 * (1 + row["batch"] / 64))}
        for level in levels
        for row in public_rows()
    ]
    return GoodputTable.from_rows(rows, ACCEPTANCE, {"name": "levels"})
