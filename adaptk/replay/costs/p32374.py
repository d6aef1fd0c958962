"""The profile printed in vLLM pull request 32374: Llama-3.1-8B with an EAGLE head on an H100, measured there."""

from __future__ import annotations

from functools import cache

import numpy as np

from adaptk.replay.costs.hardware import H100, LLAMA_8B, Deployment
from adaptk.replay.costs.rooflines import HOST_MS, LAYER_MS, MIXED_LAYER_MS, prefill_ms
from adaptk.replay.drafter import conditional
from adaptk.replay.surface import CostSurface

BATCHES = (1, 4, 16, 64, 256)
KS = (0, 1, 3, 5)
ITL_MS = (
    (6.521, 7.368, 8.841, 10.326),
    (6.602, 7.473, 8.981, 10.400),
    (6.899, 7.852, 9.518, 11.196),
    (7.774, 9.656, 13.498, 16.831),
    (14.491, 27.138, 41.848, 57.404),
)
"""Inter-token latency as printed, milliseconds: a row per batch size, a column per K."""

NAME = "measured in vLLM #32374: Llama-3.1-8B + EAGLE on H100"

ACCEPTANCE = tuple(conditional([0.6812, 0.3914, 0.2035, 0.1014, 0.0514]))
"""Conditional acceptance per position, shape ``(5,)``; printed there as the share of steps that reach a position."""


def p32374_surface() -> CostSurface:
    """The profile for batch 1 to 256 and K 0 to 5, linear in both between its cells; it has no context term.

    Only sums were printed. *The split is assumed*: at batch 1, where verifying more tokens is next to free, all that
    drafts cost is drafting; at larger batches drafting grows as the step at K=0 does, as far as verifying more drafts
    still costs no less than verifying fewer. K=0 is taken as in-engine and its drafter as free. Prompt tokens and the
    step without decoding requests are those of the roofline for the same model and GPU.

    Examples
    --------
    >>> surface = p32374_surface()
    >>> round(surface.itl_ms(64, 3), 3), round(surface.itl_ms(160, 1), 3)
    (13.498, 18.397)
    """
    batches, ks = np.arange(BATCHES[-1] + 1), np.arange(KS[-1] + 1)
    nodes = np.array([np.interp(ks, KS, row) for row in ITL_MS])
    itl = np.array([np.interp(batches, BATCHES, column) for column in nodes.T]).T
    added = itl - itl[:, :1]
    grown = added[1] * itl[:, :1] / itl[1, 0]
    verify = itl[:, :1] + np.maximum.accumulate(np.maximum(added - grown, 0.0), axis=1)
    draft = itl - verify
    verify[0], draft[0] = HOST_MS + LAYER_MS * LLAMA_8B.layers, 0.0
    prompt = prefill_ms(Deployment(H100, LLAMA_8B))
    return CostSurface(NAME, np.zeros(1), verify[None], draft, prompt, MIXED_LAYER_MS * LLAMA_8B.layers)


@cache
def public_surface() -> CostSurface:
    """The same, built once: what the cases and most of the long worlds run on."""
    return p32374_surface()
