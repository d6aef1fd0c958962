"""What the policy that played has emitted, and what others would have in the time of its steps, as believed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from adaptk.belief import ArmBelief
from adaptk.vllm_plugin.metrics.sums import Place

POLICIES = ("played", "k0", "table", "adaptk", "vllm")


class Timed(NamedTuple):
    """Timed steps of one place: how many, their milliseconds, and the tokens that they emitted."""

    steps: float
    ms: float
    tokens: float


class Reference:
    """Tokens by policy, of which ``unknown`` counts those that were taken over as emitted.

    Parameters
    ----------
    policies
        Those of ``POLICIES`` that can be told.
    """

    def __init__(self, policies: tuple[str, ...]) -> None:
        self.tokens = dict.fromkeys(policies, 0.0)
        self.unknown = dict.fromkeys(policies, 0.0)

    def count(self, at: Place, timed: Timed, beliefs: Mapping[int, ArmBelief], table_k: int | None) -> None:
        """Add steps of one place.

        Parameters
        ----------
        beliefs
            By K, at the batch size and context of these steps.
        table_k
            What the seed table would play there.
        """
        _, k, chosen, vllms = at
        instead = {"played": k, "k0": 0, "table": table_k, "adaptk": chosen, "vllm": vllms}
        for policy in self.tokens:
            other = instead[policy]
            tokens = timed.tokens if other == k else None
            if tokens is None and other is not None:
                tokens = emitted(timed, beliefs.get(k), beliefs.get(other))
            if tokens is None:
                self.unknown[policy] += timed.tokens
            self.tokens[policy] += timed.tokens if tokens is None else tokens

    def take_over(self, tokens: float) -> None:
        """Add tokens that no K has a part in, as those of prompts."""
        for policy in self.tokens:
            self.tokens[policy] += tokens


def emitted(timed: Timed, played: ArmBelief | None, other: ArmBelief | None) -> float | None:
    """Tokens that another K would have emitted in the time in which one was played; ``None`` where that is not known.

    The time of the K itself is what its steps are believed to take. What the steps took beyond that, for prompts and
    stalls, is taken to be needed for the same number of tokens whatever the K.

    Examples
    --------
    >>> def arm(k, al, itl_ms):
    ...     unused = dict.fromkeys(("al_low", "al_high", "itl_low", "itl_high", "p_best", "table_itl_ms", "drift"), 0.0)
    ...     return ArmBelief(k=k, al=al, itl_ms=itl_ms, goodput=1000.0 * al / itl_ms, **unused)
    >>> emitted(Timed(steps=10, ms=100.0, tokens=20.0), arm(1, 2.0, 10.0), arm(0, 1.0, 8.0))
    12.5
    >>> emitted(Timed(steps=10, ms=200.0, tokens=20.0), arm(1, 2.0, 10.0), arm(0, 1.0, 8.0)) > 12.5
    True
    """
    if played is None or other is None or not played.goodput or not other.goodput or played.itl_ms is None:
        return None
    own = min(timed.ms, timed.steps * played.itl_ms)
    if own <= 0.0:
        return timed.tokens
    return timed.tokens * timed.ms / (timed.ms - own + own * played.goodput / other.goodput)
