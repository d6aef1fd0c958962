"""The seed figures: two cost surfaces calibrated on published ratios. Nobody measured them.

Both reproduce what was reported of engines whose step times were not printed. The forms below are simple ones of their
kind, the free numbers were solved for; the level in milliseconds is made up, and no ratio depends on it.

**Dense, 100B class.** Reported of a model of Cohere's: fixed K=3 is slower than no speculation at batch 128 and 256; a
K that depends on the batch is about 23 % faster than that at both, and 7.5 % and 1.8 % faster than no speculation. *No
speculation is taken to be an engine without a drafter*, and hit exactly by ``surface.without_drafter()``. In-engine K=0
pays for one forward of the drafter, as vLLM runs EAGLE's first forward whatever K is, and is 1.1 % and 0.9 % slower;
the dynamic K is 8.7 % and 2.7 % above it, so that both readings hold within 2 points. Verifying takes, in units of one
token's compute and with T = B (K + 1) ::

    hypot(RIDGE, T) + KV B            the weights against the operations, and the KV cache at a fixed context
    + FIRST (B / 128)**GROWTH         if K > 0: speculating at all (more logits, sampling, graphs that no longer fit)

and K drafts take max(K, 1) DRAFT RIDGE (1 + B / 128). Acceptance and DRAFT were chosen. At each of the two batches both
ratios are then two linear equations in two unknowns, KV B and the term of FIRST; RIDGE is the one number at which KV
comes out alike at both, GROWTH joins both values of the other. The best of all K falls with the batch: 4, then 3 from
5, 2 from 13, 1 from 38, 0 from 388.

**Mixture of experts.** Reported: the best K is 3 nearly everywhere and 5 at batch 16 to 32, where the 5 brings no
speed, because acceptance beyond position 3 is poor. Verifying takes, in units of its fixed part ::

    1 + EXPERTS (awake experts / 128) + TOKEN T

with 128 experts, 8 per token, routed uniformly, and K drafts take max(K, 1) DRAFT. Acceptance was chosen: 2.73 tokens
per step at K=3 and little beyond. EXPERTS makes verifying 3 drafts at batch 1 cost 1.25 times a step without. Both
figures are those that summaries of Cohere's "Why MoE models get more from speculative decoding" (2026) give for a
mixture of theirs. TOKEN and DRAFT are such that 5 and 3 break even at batch 15.5 and at 32.5. The figure holds for K of
0, 1, 2, 3 and 5. Nothing was reported of K=4, and with acceptance as smooth as here it would beat 3 and 5 by up to
1.6 % at batch 11 to 90.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptk.replay.costs.hardware import QWEN3_30B_A3B
from adaptk.replay.costs.rooflines import awake_experts
from adaptk.replay.drafter import lengths
from adaptk.replay.surface import CostSurface

Array = NDArray[np.float64]

FIGURE_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Batch sizes of both figures."""

DENSE_ACCEPTANCE = (0.75, 0.62, 0.50, 0.40, 0.35)
"""Conditional acceptance per position with the dense surface: chosen."""
DENSE_ARMS = (0, 1, 2, 3, 5)
"""K of the dense figure; a finer choice changes nothing at batch 128 and 256, where 1 is the best of all."""
_DENSE_MS = 0.2  # one token's compute
_RIDGE, _KV, _FIRST, _GROWTH, _DENSE_DRAFT = 61.756, 0.60419, 14.1023, 1.65800, 0.02

MOE_ACCEPTANCE = (0.80, 0.72, 0.62, 0.35, 0.35)
"""Conditional acceptance per position with the mixture's surface: chosen."""
MOE_ARMS = (0, 1, 2, 3, 5)
"""K of the mixture's figure."""
_MOE_MS = 5.0  # the fixed part
_EXPERTS, _TOKEN, _MOE_DRAFT = 1.65628, 0.00092858, 0.0609971


def dense_surface(max_batch: int = 512) -> CostSurface:
    """The dense surface for K up to 5, one context; calibrated, see the module.

    Examples
    --------
    >>> surface = dense_surface()
    >>> round(surface.itl_ms(1, 0), 1), round(surface.itl_ms(128, 0), 1)
    (12.7, 44.4)
    """
    batch, k = _grid(max_batch, len(DENSE_ACCEPTANCE))
    speculating = np.where(k > 0, _FIRST * (batch / 128.0) ** _GROWTH, 0.0)
    verify = np.hypot(_RIDGE, batch * (k + 1.0)) + _KV * batch + speculating
    draft = np.maximum(k, 1.0) * _DENSE_DRAFT * _RIDGE * (1.0 + batch / 128.0)
    return _surface("calibrated on published ratios: dense 100B class", _DENSE_MS * verify, _DENSE_MS * draft)


def moe_surface(max_batch: int = 512) -> CostSurface:
    """The mixture's surface for K up to 5, one context; calibrated, see the module.

    Examples
    --------
    >>> surface = moe_surface()
    >>> verify = surface.verify_ms[0, 1]
    >>> round(float(verify[3] / verify[0]), 3)
    1.25
    """
    batch, k = _grid(max_batch, len(MOE_ACCEPTANCE))
    tokens = batch * (k + 1.0)
    awake = awake_experts(QWEN3_30B_A3B, tokens) / QWEN3_30B_A3B.experts
    return _surface(
        "calibrated on published ratios: mixture of experts",
        _MOE_MS * (1.0 + _EXPERTS * awake + _TOKEN * tokens),
        _MOE_MS * _MOE_DRAFT * np.maximum(k, 1.0),
    )


class FigureRow(NamedTuple):
    """One batch size and K of a seed figure; the ratios are of tokens per second."""

    batch: int
    k: int
    tokens_per_s: float  # of one request
    over_no_drafter: float  # against an engine without a drafter
    over_k0: float  # against in-engine K=0
    over_k3: float  # against fixed K=3
    best: bool  # the fastest K at this batch size: what a K that depends on the batch takes


def figure_rows(
    surface: CostSurface,
    acceptance: Sequence[float],
    arms: Sequence[int],
    batches: Sequence[int] = FIGURE_BATCHES,
    context: float | None = None,
) -> list[FigureRow]:
    """Steady decoding at every batch size and K, ready to plot.

    Parameters
    ----------
    surface, acceptance
        Step times, and conditional acceptance per position, shape ``(k_max,)``.
    arms
        K to show; must hold 3, which one of the ratios is against, and is best left in rising order.
    batches, context
        Decoding requests, and mean tokens per request in their KV cache (default: the surface's lowest level).

    Raises
    ------
    ValueError
        If ``arms`` lacks 3, or a K or batch size is beyond the surface or the acceptance.

    Examples
    --------
    >>> best = [row for row in figure_rows(moe_surface(), MOE_ACCEPTANCE, MOE_ARMS) if row.best]
    >>> [row.k for row in best]
    [3, 3, 3, 3, 5, 5, 3, 3, 3]
    """
    top = min(surface.k_max, len(acceptance))
    if 3 not in arms or not all(0 <= k <= top for k in arms):
        raise ValueError(f"arms is {tuple(arms)!r}: give K from 0 to {top}, 3 among them")
    if not all(1 <= b <= surface.max_batch for b in batches):
        raise ValueError(f"batches is {tuple(batches)!r}: give 1 to {surface.max_batch}")
    length, grid = lengths(acceptance), surface.itl_grid(context)
    bare = surface.without_drafter().itl_grid(context)
    rows = []
    for b in batches:
        speed = {k: float(1e3 * length[k] / grid[b, k]) for k in {*arms, 0}}
        none, best = float(1e3 / bare[b, 0]), max(arms, key=speed.__getitem__)
        rows += [FigureRow(b, k, v, v / none, v / speed[0], v / speed[3], k == best) for k in arms for v in [speed[k]]]
    return rows


def dense_figure() -> list[FigureRow]:
    """Rows of the dense seed figure."""
    return figure_rows(dense_surface(), DENSE_ACCEPTANCE, DENSE_ARMS)


def moe_figure() -> list[FigureRow]:
    """Rows of the mixture's seed figure."""
    return figure_rows(moe_surface(), MOE_ACCEPTANCE, MOE_ARMS)


def _grid(max_batch: int, k_max: int) -> tuple[Array, Array]:
    """Batch sizes and K of every cell, each of shape ``(max_batch + 1, k_max + 1)``."""
    batch, k = np.mgrid[0 : max_batch + 1, 0 : k_max + 1].astype(np.float64)
    return batch, k


def _surface(name: str, verify: Array, draft: Array) -> CostSurface:
    """One context; a prompt token costs what one more decoding request does at the largest batch."""
    draft[0] = 0.0
    return CostSurface(name, np.zeros(1), verify[None], draft, float(verify[-1, 0] - verify[-2, 0]), 0.0)
