"""Rules that look K up and never learn: vLLM's dynamic speculative decoding, right and wrong tables, and fixed K."""

from __future__ import annotations

import math
from typing import Any

from adaptk.replay.drafter import conditional
from adaptk.replay.policies.base import Policy, Rival, Setup
from adaptk.step import StepRecord
from adaptk.table import GoodputTable

PROFILES: dict[str, tuple[float, ...]] = {
    "E1": (0.68, 0.39, 0.20, 0.10, 0.06, 0.03, 0.02),
    "E3": (0.76, 0.54, 0.39, 0.28, 0.21, 0.15, 0.12),
    "low": (0.17, 0.15, 0.12, 0.01),
}
"""Published unconditional acceptance per position of an EAGLE, an EAGLE-3 and a poor drafter.

Read in the test stub of a public fork of vLLM: placeholder quality.
"""

STRETCH = 4.0  # a context this many times longer, where the table has no second level
LEAST_SHARE = 0.05  # of the step without drafts: no scaled step is quicker


class FixedK(Rival):
    """The same K at every step.

    Raises
    ------
    ValueError
        If ``k`` is not among the arms.
    """

    learns = False

    def __init__(self, setup: Setup, k: int) -> None:
        super().__init__(setup.arms)
        if k not in setup.arms:
            raise ValueError(f"k is {k!r}: give one of the arms {setup.arms}")
        self.k = k

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """The fixed K."""
        return self.k

    def observe(self, record: StepRecord) -> None:
        """Nothing is learnt."""


class StaticTable(Rival):
    """vLLM's dynamic speculative decoding: K looked up by the number of scheduled requests.

    Source: vLLM pull request 32374 and the 0.32.0 release, read. The lookup counts prefills with the decodes, knows no
    context, and carries the last K beyond its end; a K that the engine was not set up for becomes the arm below. vLLM
    ships no table: that K is the one with the highest goodput, acceptance length over step time, is how its author
    made his. No exploration, no drift, no switching cost.

    The constructors below make the same rule with a wrong table. They need step times, so that a seed that is only a
    schedule is replaced by the profile of the engine's start.

    Parameters
    ----------
    setup
        The seed table is looked up; without one, the profile taken at the engine's start.
    table
        Looked up instead.
    """

    learns = False

    def __init__(self, setup: Setup, table: GoodputTable | None = None) -> None:
        super().__init__(setup.arms)
        seed = setup.startup if setup.table is None else setup.table
        self.table = seed if table is None else table
        self._lookup: dict[int, int] = {}

    @classmethod
    def other_drafter(cls, setup: Setup, profile: str) -> StaticTable:
        """A table made with another drafter: right step times, acceptance of one of ``PROFILES``.

        Raises
        ------
        ValueError
            If there is no such profile.
        """
        if profile not in PROFILES:
            raise ValueError(f"profile is {profile!r}: give one of {', '.join(PROFILES)}")
        table = setup.timed
        return cls(setup, GoodputTable.from_rows(table.rows, conditional(PROFILES[profile]), table.meta))

    @classmethod
    def costs_off(cls, setup: Setup, factor: float) -> StaticTable:
        """A table in which drafts cost ``factor`` times what they do: 1.25, 1.5 and 2 are the usual ones.

        Scaled is what each row has beyond K=0 at its batch and context; the step without drafts stays as it is, since
        one factor on all rows would leave every choice the same. Below 1 drafts look too cheap.

        Raises
        ------
        ValueError
            If ``factor`` is not positive and finite.
        """
        if not (factor > 0.0 and math.isfinite(factor)):
            raise ValueError(f"factor is {factor!r}: give a positive number, as 1.5")
        table = setup.timed
        rows = []
        for row in table.rows:
            idle = _idle_ms(table, row.batch, row.context)
            scaled = idle + factor * (row.itl_ms - idle)
            rows.append(_row(row.batch, row.k, max(scaled, LEAST_SHARE * idle), row.context))
        return cls(setup, GoodputTable.from_rows(rows, table.acceptance, table.meta))

    @classmethod
    def other_context(cls, setup: Setup) -> StaticTable:
        """A table measured at another context than the one served.

        Where the table has rows at several levels of context (or some beside rows without), only the deepest level is
        kept; the right table answers from the rows without context, else from the middle one. Where it has no second
        level, a context ``STRETCH`` = 4 times longer is made up: reading the cache costs every K the same, in
        proportion to the requests, so 3 times the growth of the step without drafts since batch 1 is added to all K.
        That overstates the cache's share, as not all of the growth is due to it.
        """
        table = setup.timed
        levels = {row.context for row in table.rows}
        if len(levels) > 1:
            deepest = table.contexts[-1]
            rows = [_row(row.batch, row.k, row.itl_ms, deepest) for row in table.rows if row.context == deepest]
        else:
            rows = []
            for row in table.rows:
                growth = _idle_ms(table, row.batch, row.context) - _idle_ms(table, 1, row.context)
                rows.append(_row(row.batch, row.k, row.itl_ms + (STRETCH - 1.0) * max(growth, 0.0), row.context))
        return cls(setup, GoodputTable.from_rows(rows, table.acceptance, table.meta))

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """The table's K for ``batch_size`` scheduled requests."""
        k = self._lookup.get(batch_size)
        if k is None:
            k = self._lookup[batch_size] = self.table.best_k(max(1, batch_size), arms=self.arms)
        return k

    def observe(self, record: StepRecord) -> None:
        """Nothing is learnt."""


def as_configured(setup: Setup) -> Policy:
    """What the engine does by itself: its table, or the largest K at every step where it has none."""
    return FixedK(setup, setup.k_max) if setup.table is None else StaticTable(setup)


def _idle_ms(table: GoodputTable, batch: int, context: float | None) -> float:
    """Step time without drafts, milliseconds; on a line through the smallest K where the table has no K=0."""
    return float(table.itl_grid([batch], [0], context)[0, 0])


def _row(batch: int, k: int, itl_ms: float, context: float | None) -> dict[str, Any]:
    return {"batch": batch, "k": k, "itl_ms": itl_ms, "context": context}
