"""What the controller decided for one step, and why."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Reason(StrEnum):
    """Why an arm was played."""

    EXPLOIT = "exploit"  # believed best
    EXPLORE = "explore"  # a priced visit to another arm
    HOLD = "hold"  # the running arm is kept although another looks slightly better, or timing is not trusted
    GUARD = "guard"  # a visit was drawn and refused by the ledger or an arm limit
    MIN_K = "min_k"  # a smaller arm would be best, the operator forbids it
    FALLBACK = "fallback"  # the K that the engine would have used by itself


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of ``Controller.choose``.

    ``seq`` counts answers from 0; ``propensity`` is the probability with which the rule would have played ``k`` in
    that state; ``arms`` are the arms it could have played; ``t_ms`` is the clock of the caller's process, milliseconds,
    where known.
    """

    seq: int
    k: int
    propensity: float
    reason: Reason
    arms: tuple[int, ...]
    t_ms: float | None = None
