"""What ``adaptk surface`` shows while it measures."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adaptk.progress import Progress


class Budgeted:
    """Shows how much of the budget is spent: the run visits all places, then again those that scatter, until it ends.

    Parameters
    ----------
    shown
        Where it is shown.
    budget_s
        Seconds for everything.
    begun
        When they began, by ``time.monotonic``.
    """

    def __init__(self, shown: Progress, budget_s: float, begun: float) -> None:
        self._shown, self._budget_s, self._begun = shown, budget_s, begun
        self._total = self._done = 0

    def begin(self, what: str, total: int) -> None:
        """There are ``total`` places."""
        self._total = total
        self._reach(what)

    def done(self, what: str) -> None:
        """A place was visited for the first time."""
        self._done += 1
        self._reach(f"{what}; {self._done} of {self._total} places")

    def doing(self, what: str) -> None:
        """A place was visited again; lines for each would be too many where they stay."""
        self._shown.doing(what)

    def _reach(self, what: str) -> None:
        spent_s = time.monotonic() - self._begun
        self._shown.reach(min(spent_s / self._budget_s, 1.0), max(self._budget_s - spent_s, 0.0), what)
