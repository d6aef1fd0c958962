"""What a controller believes, asked by another thread: a second controller that believes a copy of it."""

from __future__ import annotations

from adaptk.acceptance import PositionBelief
from adaptk.belief import ArmBelief
from adaptk.controller import Controller
from adaptk.peek import Peek


class Mirror:
    """A controller that believes what another one did when it was peeked at, and can be asked by another thread.

    Questions fill caches and take a millisecond each; here they do so without touching the controller that decides.

    Parameters
    ----------
    first
        What to believe, until ``look`` is given another one of the same controller.

    Examples
    --------
    >>> controller = Controller(None, arms=(0, 1, 3), seed=0)
    >>> mirror = Mirror(controller.peek())
    >>> [belief.k for belief in mirror.belief(8, None)], len(mirror.positions())
    ([0, 1, 3], 3)
    """

    def __init__(self, first: Peek) -> None:
        source = first.source
        self.source = source
        self.table = source.table
        self.arms = source.arms
        self._own = Controller(
            source.table,
            arms=source.arms,
            settings=source.settings,
            capture_sizes=source.capture_sizes,
            trusted=source.trusted,
        )
        self._seen: Peek | None = None
        self.look(first)

    def look(self, peek: Peek) -> None:
        """Believe what stands in ``peek``, which must be of the same controller."""
        if peek is not self._seen:
            self._own.believe(peek)
            self._seen = peek

    def belief(self, batch_size: int, context: float | None) -> list[ArmBelief]:
        """One belief per arm at a batch size and a mean context, tokens per request; ``None``: that of late."""
        return self._own.belief(batch_size, None if context is None else round(context * batch_size))

    def positions(self) -> list[PositionBelief]:
        """Conditional acceptance of each draft position, those that the drafter left empty not counted."""
        return self._own.positions()
