"""How much more live acceptance scatters than independent drafts of one probability would."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

BLOCK = 32  # steps whose sum shows what lasts longer than a step
STEP_MEMORY, BLOCK_MEMORY = 200.0, 24.0  # of the two ratios, in steps and in blocks
FIRST_BLOCKS = 4.0  # blocks of plain binomial scatter that are taken as seen before the first
OUTLIER = 9.0  # variances that the square of one surprise counts for at most
LONGEST, SHORTEST = 300.0, 16.0  # memory, steps
LEAST_INFORMATION = 15.0  # that a memory must hold, so that noise alone is no more than 0.2 in log odds
SURE = 0.25  # binomial variances of a block that the excess must be above before it shortens the memory: its own noise


class Scatter:
    """Scatter of steps, and of blocks of steps, about what was expected of them.

    Requests differ lastingly and so does their text. Within a step that shows as ``step``, variance over the binomial
    one. Over a block of steps it adds up: ``block`` is the same ratio for sums over ``BLOCK`` steps, and ``excess`` the
    variance, in log odds, of a block's acceptance about the one believed as it began, counting noise taken off. Where
    what was learnt lags behind, long memory is no use: ``memory`` is the number of steps at which noise and lag
    balance, ``keep`` the share of the evidence that a step leaves then. ``usual`` is what change detection divides by.
    """

    __slots__ = (
        "_blocks",
        "_information",
        "_lags",
        "_learnt",
        "_seen",
        "_square",
        "_squares",
        "_steps",
        "_surprise",
        "_variance",
        "_variances",
        "block",
        "excess",
        "keep",
        "memory",
        "step",
        "usual",
    )

    def __init__(self) -> None:
        self.step = self.block = self.usual = 1.0
        self.excess = 0.0
        self.memory = LONGEST
        self.keep = 1.0 - 1.0 / LONGEST
        self._square = self._variance = 0.0  # of steps, fading
        self._squares = self._lags = self._variances = 0.0  # of blocks, fading
        self._blocks = FIRST_BLOCKS
        self._steps, self._surprise, self._learnt, self._information, self._seen = 0, 0.0, 0.0, 0.0, 0.0

    def add(self, surprise: float, variance: float, information: float, learnt: float) -> None:
        """Take a step: what was accepted beyond expectation, the variance expected of that with and without doubt.

        ``variance`` includes what is not known of the acceptance itself, ``information`` is the binomial variance,
        ``learnt`` what was expected beyond what would have been at the beginning of the block.
        """
        squared = surprise * surprise
        most = OUTLIER * self.step * variance
        self._square += ((squared if squared < most else most) - self._square) / STEP_MEMORY
        self._variance += (variance - self._variance) / STEP_MEMORY
        self._surprise += surprise
        self._learnt += learnt
        self._information += information
        self._seen += variance
        self._steps += 1
        if self._steps >= BLOCK:
            self._close()

    def drop(self) -> None:
        """Forget the block that has begun: a change fell into it."""
        self._steps, self._surprise, self._learnt, self._information, self._seen = 0, 0.0, 0.0, 0.0, 0.0

    @property
    def begins(self) -> bool:
        """Whether the next step is the first of a block."""
        return self._steps == 0

    def _close(self) -> None:
        ratio = self._square / self._variance if self._variance > 0.0 else 1.0
        self.step = ratio if ratio > 1.0 else 1.0
        information, squared = self._information, self._surprise * self._surprise
        if information > 0.5:
            count = self._blocks = min(self._blocks + 1.0, BLOCK_MEMORY)
            most = OUTLIER * self.block * self._seen
            squared = squared if squared < most else most
            beyond = (self._surprise + self._learnt) ** 2
            most = OUTLIER * (self._seen + self.excess * information * information)
            beyond = beyond if beyond < most else most
            self.block = max(1.0, self.block + (squared / self._seen - self.block) / count)
            if self._variances == 0.0:
                self._variances = information * information
            self._squares += (beyond - self.step * information - self._squares) / count
            self._lags += (squared - self.step * information - self._lags) / count
            self._variances += (information * information - self._variances) / count
            self.excess = max(0.0, self._squares / self._variances)
            lag = self._lags / self._variances * information - SURE
            least = max(SHORTEST, LEAST_INFORMATION * BLOCK / information)
            self.memory = min(LONGEST, max(least, BLOCK / lag)) if lag > 0.0 else LONGEST
            self.keep = 1.0 - 1.0 / self.memory
        self.usual = max(self.step, math.sqrt(self.block))
        self.drop()

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-safe."""
        return {name: getattr(self, name) for name in self.__slots__}

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over the state of a ``snapshot``."""
        for name in self.__slots__:
            setattr(self, name, data[name])
