"""What people ask of an engine, from its counts and beliefs: gains, reasons, drift."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from adaptk.live.snapshot import Cell, CellBelief, Counts, Snapshot

DRIFTED, FAR = 0.10, 0.30  # of a step time: shares off the table that are marked, and marked twice
REASONS = ("exploit", "explore", "hold", "guard", "min_k")


def gain(counts: Counts, policy: str, shadow: bool = False) -> float | None:
    """How many more tokens there were than with another policy in the same time, as a share; ``None``: not known.

    Parameters
    ----------
    counts
        Since the start, or of a span.
    policy
        Of ``Counts.reference``: ``k0``, ``table``, ``vllm``.
    shadow
        Compare with it what adaptk would have emitted, not what the engine did.

    Examples
    --------
    >>> counts = Counts(reference={"played": 110.0, "k0": 100.0, "adaptk": 120.0})
    >>> round(gain(counts, "k0"), 3), round(gain(counts, "k0", shadow=True), 3)
    (0.1, 0.2)
    """
    ours = counts.reference.get("adaptk" if shadow else "played", 0.0)
    theirs = counts.reference.get(policy, 0.0)
    ratio = ours / theirs if theirs > 0.0 else 0.0
    return ratio - 1.0 if 0.0 < ratio < math.inf else None


def shares(counts: Mapping[Any, float]) -> dict[Any, float]:
    """Each key's share of the whole; empty where there is nothing.

    Examples
    --------
    >>> shares({"hold": 1.0, "exploit": 3.0})
    {'hold': 0.25, 'exploit': 0.75}
    """
    total = sum(counts.values())
    return {key: value / total for key, value in counts.items()} if total > 0.0 else {}


def reasons(counts: Counts) -> dict[str, float]:
    """The share of decisions by reason."""
    by_reason: dict[str, float] = {}
    for (_, reason), count in counts.decisions.items():
        by_reason[reason] = by_reason.get(reason, 0.0) + count
    return shares(by_reason)


def acceptance(counts: Counts, position: int) -> float | None:
    """The conditional acceptance that was counted at a draft position; ``None`` where no draft reached it."""
    reached = counts.reached.get(position, 0.0)
    return min(counts.accepted.get(position, 0.0) / reached, 1.0) if reached > 0.0 else None


def drift_mark(ratio: float | None) -> str:
    """How far a step time is off the table's: ``""``, ``"!"`` beyond 10 % or ``"!!"`` beyond 30 %, either way.

    Examples
    --------
    >>> drift_mark(1.05), drift_mark(0.85), drift_mark(1.4), drift_mark(None)
    ('', '!', '!!', '')
    """
    off = abs(ratio - 1.0) if ratio is not None else 0.0
    return "!!" if off > FAR else "!" if off > DRIFTED else ""


def worst_drift(snapshot: Snapshot, sure: bool = False) -> tuple[Cell, float] | None:
    """The cell whose step time is farthest off the table, among those that were played, and its ratio.

    ``sure``: among those only whose interval does not hold the table's time.
    """
    off = {
        cell: belief.drift
        for cell, belief in snapshot.cells.items()
        if belief.drift is not None and belief.drift > 0.0 and snapshot.counts.steps.get(cell, 0.0) > 0.0
        if not sure or not _holds_table(belief)
    }
    return max(off.items(), key=lambda item: abs(math.log(item[1])), default=None)


def _holds_table(belief: CellBelief) -> bool:
    if belief.table_itl is None or belief.itl_low is None or belief.itl_high is None:
        return False
    return belief.itl_low <= belief.table_itl <= belief.itl_high
