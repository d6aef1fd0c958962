"""Step times from first principles: bytes to read against operations to do.

A step reads the weights that its tokens need once, whatever their number, and does two operations per parameter and
token. The two overlap in part: the root of their squares is taken for their time, at most 41 % above the slower one, as
it fits the profile published in vLLM pull request 32374 from 1 to 384 tokens and their maximum does not. Attention and
talking between GPUs are kernels of their own and come on top, and so does a floor.

Left out: sampling and the tokens' logits, unequal loads of experts (routing counts as uniform and independent, so more
experts wake than in truth), the drafter's own KV cache.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from adaptk.replay.costs.hardware import BYTES, DENSE_SHARE, EXPERT_SHARE, Deployment, DraftModel, Model, eagle
from adaptk.replay.surface import CostSurface

Array = NDArray[np.float64]

# Assumptions. The first two together were chosen so that Llama-3.1-8B on an H100 takes the 6.5 ms at batch 1 and K=0 of
# vLLM pull request 32374, the third so that a draft of an EAGLE head with the whole vocabulary takes its 0.74 ms there.
HOST_MS = 1.0  # scheduling, input preparation, sampling, per step
LAYER_MS = 0.015  # filling and draining a layer's kernels, inside a CUDA graph
DRAFT_HOST_MS = 0.25  # the same for one forward of the drafter
REDUCE_MS = 0.010  # latency of one all-reduce between GPUs; two in each layer
MIXED_LAYER_MS = 0.02  # launching a layer's attention outside the graph, in a step with prompt tokens

CONTEXTS = (256.0, 2048.0, 32_768.0)
"""Levels of context, tokens per request. Reading the KV cache takes time in proportion, so two levels would do; the
middle one is what a table answers with that is not asked for a context."""


def awake_experts(model: Model, tokens: Array) -> Array:
    """Expected number of distinct experts of a layer that at least one of ``tokens`` is routed to, same shape.

    Routing is taken as uniform and independent: E (1 - (1 - k/E)^tokens).

    Examples
    --------
    >>> from adaptk.replay.costs.hardware import QWEN3_30B_A3B
    >>> awake_experts(QWEN3_30B_A3B, np.array([0, 1, 4, 64])).round(1).tolist()
    [0.0, 8.0, 29.1, 125.9]
    """
    return np.asarray(model.experts * (1.0 - (1.0 - model.top_k / model.experts) ** tokens))


def products_ms(deployment: Deployment, tokens: Array) -> Array:
    """Time of all matrix products with weights for ``tokens`` in one step, same shape, milliseconds."""
    model = deployment.model
    always = model.layers * (model.attention + (0 if model.experts else model.mlp)) + model.head
    read, done = np.full_like(tokens, float(always)), always * tokens
    if model.experts:
        read = read + model.layers * model.mlp * awake_experts(model, tokens)
        done = done + model.layers * model.mlp * model.top_k * tokens * (DENSE_SHARE / EXPERT_SHARE)
    return np.asarray(np.hypot(read * BYTES / deployment.bytes_ms, 2.0 * done / deployment.flops_ms))


def attention_ms(deployment: Deployment, batch: Array, k: Array, context: float) -> Array:
    """Time of attention over ``context`` tokens of each of ``batch`` requests with k + 1 tokens each, milliseconds."""
    model = deployment.model
    read = batch * context * model.kv_bytes / deployment.bytes_ms
    done = 4.0 * model.layers * model.heads * model.head_dim * batch * (k + 1.0) * context / deployment.flops_ms
    return np.asarray(np.hypot(read, done))


def reduce_ms(deployment: Deployment, layers: int, hidden: int, tokens: Array) -> Array:
    """Time of the all-reduces of ``layers`` layers, two in each, milliseconds; 0 on one GPU."""
    n = deployment.chips
    if n == 1:
        return np.zeros_like(tokens)
    sent = tokens * hidden * BYTES * 2.0 * (n - 1.0) / n
    return np.asarray(2.0 * layers * (REDUCE_MS + sent / deployment.link_bytes_ms))


def drafting_ms(deployment: Deployment, drafter: DraftModel, batch: Array) -> Array:
    """Time of one forward of the drafter at one token per request, same shape as ``batch``, milliseconds."""
    read = drafter.parameters * BYTES / deployment.bytes_ms
    done = 2.0 * drafter.parameters * batch / deployment.flops_ms
    return np.asarray(DRAFT_HOST_MS + np.hypot(read, done) + reduce_ms(deployment, 1, drafter.hidden, batch))


def roofline_surface(
    deployment: Deployment, drafter: DraftModel | None = None, max_batch: int = 256, k_max: int = 7
) -> CostSurface:
    """What a deployment's steps take, smooth in tokens; :meth:`CostSurface.padded` makes it a staircase.

    At K=0 the drafter (default: :func:`eagle` of the model) costs one forward all the same, as vLLM runs EAGLE's first
    forward whatever K is. A step without decoding requests is the floor; its prompt tokens come on top, at the cost of
    their operations.

    Examples
    --------
    >>> from adaptk.replay.costs.hardware import H100, LLAMA_8B
    >>> surface = roofline_surface(Deployment(H100, LLAMA_8B))
    >>> surface.verify_ms[0, 1, :2].round(2).tolist()
    [6.47, 6.47]
    """
    model = deployment.model
    batch, k = (np.asarray(a, np.float64) for a in np.mgrid[0 : max_batch + 1, 0 : k_max + 1])
    tokens = batch * (k + 1.0)
    floor = HOST_MS + LAYER_MS * model.layers
    work = floor + products_ms(deployment, tokens) + reduce_ms(deployment, model.layers, model.hidden, tokens)
    verify = np.stack([work + attention_ms(deployment, batch, k, context) for context in CONTEXTS])
    verify[:, 0] = floor
    draft = drafting_ms(deployment, drafter or eagle(model), batch) * np.maximum(k, 1.0)
    draft[0] = 0.0
    name = f"roofline from datasheets: {deployment.name}"
    prompt = prefill_ms(deployment)
    return CostSurface(name, np.array(CONTEXTS), verify, draft, prompt, MIXED_LAYER_MS * model.layers)


def prefill_ms(deployment: Deployment) -> float:
    """Operations of one prompt token, milliseconds; its logits are not computed, and its attention is left out."""
    model = deployment.model
    mlp = model.mlp * (model.top_k * DENSE_SHARE / EXPERT_SHARE if model.experts else 1.0)
    return float(2.0 * model.layers * (model.attention + mlp) / deployment.flops_ms)
