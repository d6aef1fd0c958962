"""What ``adaptk profile`` shows while it measures."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adaptk.profile.allocate import Progress, Visit
    from adaptk.profile.orders import Doing


class Bar:
    """The session's progress on standard error: a bar with the time left on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        from adaptk.progress import Progress as Shown

        self._shown = Shown()
        self._what = ""
        self._share = 0.0

    def __enter__(self) -> Bar:
        self._shown.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.__exit__(None, None, None)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._shown.say(text)

    def doing(self, at: Doing) -> None:
        """Show what the engine is at."""
        self._shown.doing(f"{self._what}K={at.k}")

    def answering(self, answered: int, seconds_left: float) -> None:
        """Show that prompts are being answered."""
        self._what = "answers, "
        self._shown.reach(0.0, seconds_left, f"answering prompts, {answered} done")

    def visiting(self, visit: Visit, progress: Progress) -> None:
        """Show which visit begins, how far the session is and how long it may still take."""
        context = "" if visit.group.context is None else f", context {visit.group.context:g}"
        self._what = f"batch {visit.group.batch}{context}, "
        done = f"{progress.settled} of {progress.cells} cells precise"
        # What is left is a guess that moves both ways; a bar that goes back would only look broken.
        self._share = max(self._share, progress.share)
        self._shown.reach(self._share, progress.seconds_left, f"{self._what}{visit.why}; {done}")

    def measured(self) -> None:
        """A visit ended; the next one will say more."""
