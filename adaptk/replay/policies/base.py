"""What every policy of the replay is built from and answers to: the controller's own protocol."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from adaptk.decision import Decision
from adaptk.step import StepRecord
from adaptk.table import GoodputTable


class Setup(NamedTuple):
    """What a policy may know before the first step.

    ``table`` is the operator's seed, which the world may contradict; ``None``: there is none. ``startup`` holds the
    step times that a profiling run at the engine's start would have measured, at a short context, and the acceptance
    that the drafter's authors would have published. ``arms`` are the K that may be chosen, rising, ``k_max`` the
    largest.
    """

    table: GoodputTable | None
    startup: GoodputTable
    arms: tuple[int, ...]
    seed: int = 0

    @property
    def k_max(self) -> int:
        """The largest K."""
        return self.arms[-1]

    @property
    def timed(self) -> GoodputTable:
        """The seed table where it has step times, else the profile taken at the engine's start."""
        return self.table if self.table is not None and self.table.has_times else self.startup


class Policy(Protocol):
    """Chooses the number of drafts per request for each step; ``adaptk.Controller`` is one.

    The n-th ``observe`` belongs to the n-th ``choose`` and may come one or more steps late.
    """

    arms: tuple[int, ...]

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """Drafts per request for the step now being scheduled; one of ``arms``."""
        ...

    def observe(self, record: StepRecord) -> Decision | None:
        """Take in a finished step."""
        ...


class Rival:
    """Base of the other policies: holds the arms, and whether the last choice was made to learn something.

    ``learns`` is false where ``observe`` does nothing, so that no records need be made.
    """

    learns = True

    def __init__(self, arms: tuple[int, ...]) -> None:
        self.arms = arms
        self.exploring = False

    def observe(self, record: StepRecord) -> Decision | None:
        """Take in a finished step; gives no decision."""
        raise NotImplementedError


def arm_at_most(arms: tuple[int, ...], k: int) -> int:
    """The largest arm not above ``k``, or the smallest arm.

    Examples
    --------
    >>> arm_at_most((0, 1, 3), 2), arm_at_most((1, 3), 0)
    (1, 1)
    """
    return max((arm for arm in arms if arm <= k), default=arms[0])


def decoding(batch_size: int, decodes: int | None) -> int:
    """Requests that decode, where known, else all."""
    return batch_size if decodes is None or not 0 < decodes < batch_size else decodes
