"""A progress bar where there is a terminal and rich, plain lines elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any


class Progress:
    """Says on standard error what is being done; a context manager.

    Parameters
    ----------
    timed
        Whether it shows the time left, for :meth:`reach`, rather than pieces done, for :meth:`begin` and :meth:`done`.
    """

    def __init__(self, timed: bool = False) -> None:
        self._bar: Any = _rich_bar(timed) if sys.stderr is not None and sys.stderr.isatty() else None
        self._task: Any = None
        self._done = 0
        self._total = 0

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, what: str, total: int) -> None:
        """Start counting ``total`` pieces of work."""
        self._done, self._total = 0, total
        if self._bar is None:
            self.say(what)
            return
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(what, total=total)

    def doing(self, what: str) -> None:
        """Name the piece in work."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=what)

    def done(self, what: str) -> None:
        """Count one piece as finished."""
        self._done += 1
        if self._bar is None:
            self.say(f"[{self._done}/{self._total}] {what}")
        else:
            self._bar.update(self._task, description=what, completed=self._done)

    def reach(self, share: float, seconds_left: float, what: str) -> None:
        """Be at a share of the whole, with so many seconds left, and name the piece in work."""
        if self._bar is None:
            self.say(f"[{100 * share:3.0f} %, {_span(seconds_left)} left] {what}")
            return
        if self._task is None:
            self._task = self._bar.add_task(what, total=1.0, left="")
        self._bar.update(self._task, completed=share, description=what, left=f"{_span(seconds_left)} left")

    def say(self, what: str) -> None:
        """Print a line that stays."""
        if self._bar is None:
            print(what, file=sys.stderr, flush=True)
        else:
            self._bar.console.print(what, highlight=False)


def _span(seconds: float) -> str:
    """A time as people say it.

    Examples
    --------
    >>> _span(42.4), _span(150.0)
    ('42 s', '2:30 min')
    """
    whole = max(round(seconds), 0)
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02d} min"


def _rich_bar(timed: bool) -> Any:
    try:
        from rich import progress
        from rich.console import Console
    except ModuleNotFoundError:
        return None
    counted = (progress.BarColumn(30), progress.MofNCompleteColumn(), progress.TimeElapsedColumn())
    left = (progress.BarColumn(16), progress.TaskProgressColumn(), progress.TextColumn("{task.fields[left]}"))
    return progress.Progress(
        *(left if timed else counted),
        progress.TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
