"""Time spent in some methods of an object."""

from __future__ import annotations

import time
from typing import Any


class Stopwatch:
    """Adds up the time spent in some methods of an object, nanoseconds."""

    def __init__(self, owner: Any, *names: str) -> None:
        self.total = 0
        for name in names:
            setattr(owner, name, self._timed(getattr(owner, name)))

    def _timed(self, method: Any) -> Any:
        clock = time.perf_counter_ns

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = clock()
            result = method(*args, **kwargs)
            self.total += clock() - start
            return result

        return timed

    def take(self) -> int:
        """The time since it was last taken."""
        total, self.total = self.total, 0
        return total
