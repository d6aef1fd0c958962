"""Drafters: how often drafts are accepted, as a process over the tokens of each request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

UNKNOWN, MISS, HIT = -1, 0, 1


@dataclass(frozen=True)
class Drafter:
    """Acceptance as a property of the text: whether a draft is accepted depends on the token, not on the step.

    Each token of each request has one random number, the same for every policy. A draft of it at depth j is accepted if
    the number lies below the acceptance of the token's kind of text at that depth. A request's next step starts behind
    the last token that was really emitted, so what a policy drafts decides which tokens it drafts next.

    Parameters
    ----------
    acceptance
        Conditional acceptance probability per kind of text and draft position, shape ``(kinds, k_max)``.
    mix
        Probability that a segment of a request of kind i is text of kind j, shape ``(kinds, kinds)``; identity: none.
    segment
        Tokens of a segment.
    supply
        Probability that the drafter returns a draft at a position, given the one before, shape ``(kinds, k_max)``.
    cold, cold_steps
        After ``COLD_AFTER`` or more steps at K=0 acceptance is down by this share, fading with this many drafted steps.
    """

    acceptance: Array
    mix: Array | None = None
    segment: int = 64
    supply: Array | None = None
    cold: float = 0.0
    cold_steps: float = 20.0

    def __post_init__(self) -> None:
        for name in ("acceptance", "supply", "mix"):
            grid = getattr(self, name)
            if grid is not None and (grid.ndim != 2 or not np.all((grid >= 0) & (grid <= 1))):
                raise ValueError(f"{name} is {grid!r}: give probabilities, one row per kind of text")
        if self.supply is not None and self.supply.shape != self.acceptance.shape:
            raise ValueError(f"supply has shape {self.supply.shape}: give that of acceptance, {self.acceptance.shape}")
        if self.mix is not None and self.mix.shape != (self.kinds, self.kinds):
            raise ValueError(f"mix has shape {self.mix.shape}: give one row and one column per kind of text")
        if self.mix is not None and not np.allclose(self.mix.sum(axis=1), 1.0):
            raise ValueError(f"mix is {self.mix!r}: each row must add up to 1")
        if self.segment < 1 or not 0 <= self.cold <= 1 or self.cold_steps <= 0:
            raise ValueError(f"segment is {self.segment}, cold is {self.cold}, cold_steps is {self.cold_steps}: give "
                             "at least 1, a share, and more than 0")  # fmt: skip

    @property
    def k_max(self) -> int:
        """Draft positions."""
        return int(self.acceptance.shape[1])

    @property
    def kinds(self) -> int:
        """Kinds of text."""
        return int(self.acceptance.shape[0])

    def to(self, k_max: int) -> Drafter:
        """The same drafter for ``k_max`` positions: cut, or the last acceptance held."""
        columns = np.minimum(np.arange(k_max), self.k_max - 1)
        supply = None if self.supply is None else self.supply[:, columns]
        return replace(self, acceptance=self.acceptance[:, columns], supply=supply)


COLD_AFTER = 8
"""Steps at K=0 after which a drafter that reads the target's states has lost touch."""


def profiles(*rows: Sequence[float], k_max: int = 7) -> Array:
    """Acceptance of several kinds of text, each row held from its last entry on, shape ``(len(rows), k_max)``.

    Examples
    --------
    >>> profiles([0.7], [0.5, 0.4], k_max=3).tolist()
    [[0.7, 0.7, 0.7], [0.5, 0.4, 0.4]]
    """
    return np.array([[row[min(j, len(row) - 1)] for j in range(k_max)] for row in rows], dtype=float)


def conditional(marginal: Sequence[float]) -> list[float]:
    """Conditional acceptance from the probability that a position is reached and accepted.

    Examples
    --------
    >>> [round(a, 3) for a in conditional([0.68, 0.39])]
    [0.68, 0.574]
    """
    return [m / p for m, p in zip(marginal, (1.0, *marginal[:-1]), strict=True)]


def lengths(acceptance: Sequence[float] | Array) -> Array:
    """Acceptance length for K = 0, 1, ..., shape ``(k_max + 1,)``, from conditional acceptance."""
    return np.concatenate(([1.0], 1.0 + np.cumsum(np.cumprod(np.asarray(acceptance, dtype=float)))))


# Marginal acceptance in the test table of a vLLM fork: an EAGLE head trained for one
# step, whose acceptance falls fast with depth, and an EAGLE-3 head, trained on its own drafts.
EAGLE = tuple(conditional([0.68, 0.39, 0.20, 0.10, 0.06, 0.03, 0.02]))
EAGLE3 = tuple(conditional([0.76, 0.54, 0.39, 0.28, 0.21, 0.15, 0.12]))
# A block drafter proposes all positions at once: flat over the first positions, falling at the block's end. The shape
# is an assumption; K is then a verification cut, for a shorter block would change the drafts.
DFLASH = (0.80, 0.78, 0.75, 0.71, 0.66, 0.60, 0.53)
