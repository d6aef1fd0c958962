"""What was seen in an engine, and what is concluded from it: the values that the other files hand around."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import msgspec


class Group(NamedTuple):
    """The cells that differ in K alone: one batch size at one context level.

    ``batch`` is decoding requests; ``context`` the level asked for, tokens per request, ``None`` where unknown.
    """

    batch: int
    context: float | None = None


class Block(NamedTuple):
    """Consecutive steps of one arm within a visit to a group, its first steps (of two arms) left out.

    Parameters
    ----------
    batch, k, context
        Decoding requests, drafts asked for per request, context level in tokens per request (``None``: unknown).
    mean_context
        Tokens per request that the cache really held, on average over the block; ``None`` where unknown.
    visit
        Number of the visit, rising over the session; no two groups share one.
    at_s
        Seconds from the start of the session to the start of the block.
    ms
        Wall time of each step, milliseconds, shape ``(steps,)``; what is not finite and positive is left out.
    widths
        Drafts verified per request in each of these steps, shape ``(steps,)``.
    """

    batch: int
    k: int
    context: float | None
    mean_context: float | None
    visit: int
    at_s: float
    ms: tuple[float, ...]
    widths: tuple[float, ...]

    @property
    def group(self) -> Group:
        """Batch size and context level."""
        return Group(self.batch, self.context)


class CellEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """Inter-token latency of one cell.

    Parameters
    ----------
    batch, k, context
        As in :class:`Block`.
    itl_ms
        Mean time of a step at the arm's long-run mean width, stalls left out, milliseconds.
    low_ms, high_ms
        95 % interval of ``itl_ms`` that holds the drift between visits; ``None`` with fewer than three visits.
    n, blocks, visits
        Steps, blocks and visits behind it.
    spread_ms, p10_ms, p90_ms
        Standard deviation and percentiles of the steps as they were seen, stalls left out, milliseconds.
    stalled
        Share of the steps that was left out as stalls.
    mean_context
        Tokens per request that the cache really held; ``None`` where unknown.
    """

    batch: int
    k: int
    context: float | None
    itl_ms: float
    low_ms: float | None
    high_ms: float | None
    n: int
    blocks: int
    visits: int
    spread_ms: float
    p10_ms: float
    p90_ms: float
    stalled: float = 0.0
    mean_context: float | None = None

    @property
    def relative_width(self) -> float:
        """Width of the 95 % interval over ``itl_ms``; infinite where the interval is unknown."""
        if self.low_ms is None or self.high_ms is None:
            return math.inf
        return (self.high_ms - self.low_ms) / self.itl_ms


class GroupEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The cells of one group, and how well its arms are told apart.

    Parameters
    ----------
    group
        Batch size and context level.
    cells
        Estimate per K.
    width_ms
        Milliseconds that one more draft per request costs a step.
    log_ratios
        ``(k, other) -> (log(itl_k / itl_other), standard error)`` from visits that played both: drift that hits all
        arms of a visit alike is not in it. For each pair of arms with ``k < other``.
    """

    group: Group
    cells: Mapping[int, CellEstimate]
    width_ms: float
    log_ratios: Mapping[tuple[int, int], tuple[float, float]]

    def log_ratio(self, k: int, other: int) -> tuple[float, float]:
        """``log(itl_k / itl_other)`` and its standard error.

        Raises
        ------
        KeyError
            If one of the two has not been measured.
        """
        if k == other:
            return 0.0, 0.0
        if k > other:
            mean, error = self.log_ratios[(other, k)]
            return -mean, error
        return self.log_ratios[(k, other)]
