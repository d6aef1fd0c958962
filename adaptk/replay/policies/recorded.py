"""The policy that was recorded in a trace."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from adaptk.replay.policies.base import Rival, Setup
from adaptk.step import StepRecord


class Recorded(Rival):
    """Plays the K that a trace has at the same point of the work: after as many emitted tokens.

    Not the same step: where a replay differs from the trace, a sequence by steps would drift away from the load that
    it was chosen for.

    Parameters
    ----------
    setup
        Its arms, with those recorded, are the policy's.
    before
        Tokens emitted before each recorded step, not falling, shape ``(steps,)``.
    ks
        K of each, shape ``(steps,)``.
    """

    def __init__(self, setup: Setup, before: Sequence[int], ks: Sequence[int]) -> None:
        super().__init__(tuple(sorted({*setup.arms, *ks})))
        self._before, self._ks = before, ks
        self._emitted = 0
        self._last = -1

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """The recorded K; of several steps that began at the same point, one after the other."""
        at = max(0, bisect_right(self._before, self._emitted) - 1)
        first = bisect_left(self._before, self._before[at])
        self._last = min(at, max(first, self._last + 1))
        return self._ks[self._last]

    def observe(self, record: StepRecord) -> None:
        """Count the tokens."""
        self._emitted += sum(record.emitted or ())
