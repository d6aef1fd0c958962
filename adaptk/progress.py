"""A progress bar where there is a terminal and rich, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from adaptk.quoted import visible


class Progress:
    """Says on standard error what is being done, how far it is and how long it may still take; a context manager.

    Pieces that are counted (:meth:`begin`, :meth:`done`) are taken to last as long as those before them; who knows
    better says so (:meth:`reach`).
    """

    def __init__(self) -> None:
        self._bar: Any = _rich_bar() if sys.stderr is not None and sys.stderr.isatty() else None
        self._task: Any = None
        self._done = 0
        self._total = 0
        self._begun = 0.0

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, what: str, total: int) -> None:
        """Start counting ``total`` pieces of work."""
        self._done, self._total, self._begun = 0, total, time.monotonic()
        if self._bar is None:
            self.say(what)
        else:
            self._show(what, 0.0, f"0/{total}", None)

    def doing(self, what: str) -> None:
        """Name the piece in work."""
        if self._task is not None:
            self._bar.update(self._task, description=visible(what))

    def done(self, what: str) -> None:
        """Count one piece as finished."""
        self._done += 1
        missing = max(self._total - self._done, 0)
        seconds_left = (time.monotonic() - self._begun) / self._done * missing
        count = f"{self._done}/{self._total}"
        if self._bar is not None:
            self._show(what, self._done / max(self._total, 1), count, seconds_left)
        else:
            self.say(f"[{count}, {span(seconds_left)} left] {what}" if missing else f"[{count}] {what}")

    def reach(self, share: float, seconds_left: float, what: str) -> None:
        """Be at a share of the whole, with so many seconds left, and name the piece in work."""
        if self._bar is None:
            self.say(f"[{100 * share:3.0f} %, {span(seconds_left)} left] {what}")
        else:
            self._show(what, share, f"{100 * share:.0f} %", seconds_left)

    def say(self, what: str) -> None:
        """Print a line that stays."""
        what = visible(what)
        if self._bar is not None:
            self._bar.console.print(what, highlight=False, markup=False)
        elif sys.stderr is not None:
            print(what, file=sys.stderr, flush=True)

    def _show(self, what: str, share: float, at: str, seconds_left: float | None) -> None:
        ends = None if seconds_left is None else time.monotonic() + seconds_left
        what = visible(what)
        if self._task is None:
            self._task = self._bar.add_task(what, total=1.0, at=at, ends=ends)
        self._bar.update(self._task, completed=share, description=what, at=at, ends=ends)


def span(seconds: float) -> str:
    """A time as people say it.

    Examples
    --------
    >>> span(42.4), span(150.0), span(5400.0)
    ('42 s', '2:30 min', '1:30 h')
    """
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60}:{whole % 60:02d} min" if whole < 3600 else f"{whole // 3600}:{whole % 3600 // 60:02d} h"


def _rich_bar() -> Any:
    try:
        from rich import progress
        from rich.console import Console
        from rich.text import Text
    except ModuleNotFoundError:
        return None

    class Left(progress.ProgressColumn):
        """Counts down between two pieces."""

        def render(self, task: progress.Task) -> Text:
            ends = task.fields["ends"]
            left = -1.0 if ends is None else ends - time.monotonic()  # overdue: nobody knows
            return Text("" if left < 0.0 else f"{span(left)} left", "progress.remaining")

    return progress.Progress(
        progress.BarColumn(16),
        progress.TextColumn("{task.fields[at]}", style="progress.percentage", markup=False),
        Left(),
        progress.TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
