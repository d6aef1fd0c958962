"""The batch size and context that decisions look at: smoothed, so that one request more or less does not flip them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

RATE = 0.25  # of one step
JUMP = math.log(1.4)  # a change of regime, not of a request
MANY = 8  # requests: a jump this wide is believed at once, a smaller one (prefills that join) when it lasts
STILL = 1e-3  # ln(batch)
CONTEXT_CHANGE = 1.3  # factor


class LoadTracker:
    """Smoothed ln(batch) that follows jumps, and the mean context per request."""

    def __init__(self) -> None:
        self.batch = 0
        self.context: float | None = None
        self._log = 0.0
        self._outside = 0
        self._still = False
        self._context_low = self._context_high = -1.0

    def update(self, batch: int, context_tokens: int | None, requests: int) -> bool:
        """Take the load of the step to decide; whether it is another regime than the last one."""
        if batch == self.batch and self._still:
            return self._follow_context(context_tokens, requests)
        log = math.log(batch)
        jumped = False
        if self.batch == 0:
            self._log, jumped = log, True
        elif abs(log - self._log) > JUMP:
            self._outside += 1
            if self._outside > 1 or abs(batch - self.batch) >= MANY:
                self._log, self._outside, jumped = log, 0, True
        else:
            self._outside = 0
            self._log += RATE * (log - self._log)
        self._still = abs(log - self._log) < STILL
        if jumped or abs(math.exp(self._log) - self.batch) > 0.6:  # a tenth beyond the rounding edge: no flicker on it
            self.batch = max(1, round(math.exp(self._log)))
        return self._follow_context(context_tokens, requests) or jumped

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-safe."""
        return {
            "batch": self.batch,
            "context": self.context,
            "log": self._log,
            "outside": self._outside,
            "still": self._still,
            "context_range": [self._context_low, self._context_high],
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over the state of a ``snapshot``."""
        self.batch, self.context, self._log = data["batch"], data["context"], data["log"]
        self._outside, self._still = data["outside"], data["still"]
        self._context_low, self._context_high = data["context_range"]

    def _follow_context(self, context_tokens: int | None, requests: int) -> bool:
        if context_tokens is None:
            return False
        context = self.context = context_tokens / requests
        if self._context_low <= context <= self._context_high:
            return False
        first = self._context_high < 0.0
        self._context_low = (1.0 + context) / CONTEXT_CHANGE - 1.0
        self._context_high = (1.0 + context) * CONTEXT_CHANGE - 1.0
        return not first
