"""The table that a session amounts to, finished or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from adaptk.profile.estimate import AcceptanceCounts, Group, GroupEstimate, cells, rows
from adaptk.profile.taxrows import strangers
from adaptk.table import GoodputTable

_BASELINE_FIELDS = ("batch", "context", "itl_ms", "low_ms", "high_ms", "n")


class Tax(NamedTuple):
    """What having a drafter costs at K=0: step time over that of the engine without one.

    ``low`` and ``high`` are the 95 % interval, ``None`` where one of the two has none. The two engines run one after
    the other: what the machine did meanwhile is in the ratio and not in the interval.
    """

    batch: int
    context: float | None
    ratio: float
    low: float | None
    high: float | None


def build_table(
    estimates: Mapping[Group, GroupEstimate],
    acceptance: AcceptanceCounts,
    key: Mapping[str, Any],
    provenance: Mapping[str, Any],
    bare: Mapping[Group, GroupEstimate] | None = None,
) -> GoodputTable | None:
    """The table of what is known; ``None`` while that is nothing.

    Parameters
    ----------
    estimates
        Of the engine with its drafter.
    acceptance
        Counts of the answers.
    key, provenance
        What was measured, and how.
    bare
        Estimates of the engine without a drafter, for ``meta["baseline"]``.
    """
    found = [_rounded(row) for row in rows(cells(estimates))]
    if not found:
        return None
    mode = key.get("graph_mode")
    if isinstance(mode, str) and mode:
        found = [row | {"graph_mode": mode} for row in found]
    meta: dict[str, Any] = {"name": engine_name(key), "key": dict(key), "provenance": dict(provenance)}
    if bare:
        kept = [{field: _rounded(row)[field] for field in _BASELINE_FIELDS} for row in rows(cells(bare))]
        meta["baseline"] = {"rows": kept, "tax": [_rounded(tax._asdict()) for tax in taxes(estimates, bare)]}
    known = bool(acceptance.tried and acceptance.tried[0])
    return GoodputTable.from_rows(
        found,
        [round(share, 5) for share in acceptance.conditional()] if known else None,
        meta,
        acceptance_counts=acceptance.counts() if known else None,
        supply=_supply(acceptance) if known else None,
    )


def taxes(estimates: Mapping[Group, GroupEstimate], bare: Mapping[Group, GroupEstimate]) -> list[Tax]:
    """The price of a drafter in every group that was measured with and without one.

    The two are different processes, one after the other: unlike two arms of one engine they share no drift, so that the
    interval is that of two independent means.
    """
    found = []
    for group in sorted(estimates.keys() & bare.keys(), key=lambda g: (g.context or -1.0, g.batch)):
        mine, theirs = estimates[group].cells.get(0), bare[group].cells.get(0)
        if mine is not None and theirs is not None:
            found.append(Tax(mine.batch, mine.context, *strangers(mine, theirs)))
    return found


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    """A tenth of a microsecond is finer than any clock here, and a file is easier to read."""
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}


def _supply(acceptance: AcceptanceCounts) -> Sequence[float] | None:
    supply = [round(share, 5) for share in acceptance.supply()]
    return supply if supply and min(supply) < 1.0 else None


def engine_name(key: Mapping[str, Any]) -> str:
    """Model, drafter and device of a table's key, as one says them."""
    drafter = key.get("drafter") or key.get("method")
    parts = [str(key.get("model") or "unnamed"), *([f"with {drafter}"] if drafter else [])]
    return " ".join(parts) + (f" on {key['device']}" if key.get("device") else "")
