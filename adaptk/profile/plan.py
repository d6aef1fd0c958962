"""What a session is to measure, and who is told how far it is."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from adaptk.profile.alloc_visit import Progress, Visit


class Plan(NamedTuple):
    """What is to be measured.

    Parameters
    ----------
    prompts
        How many prompts the engine was given.
    budget_s
        Seconds of measuring, those of earlier runs included and the engine's start not.
    target
        Width of a 95 % interval, relative, at which a cell is precise enough.
    max_tokens
        Longest answer, tokens.
    batches, contexts
        ``None``: what fits the engine, see :mod:`adaptk.profile.levels`.
    """

    prompts: int
    budget_s: float
    target: float
    max_tokens: int
    batches: tuple[int, ...] | None = None
    contexts: tuple[int, ...] | None = None


class Watcher(Protocol):
    """Is told how far a session is."""

    def answering(self, answered: int, seconds_left: float) -> None:
        """Prompts are being answered."""
        ...

    def visiting(self, visit: Visit, progress: Progress) -> None:
        """A visit begins."""
        ...

    def measured(self) -> None:
        """A visit ended, and its blocks are in the journal."""
        ...

    def say(self, text: str) -> None:
        """Something worth a line happened."""
        ...
