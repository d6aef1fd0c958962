"""A repair of vLLM's sampler on CPU, without which speculation at a temperature above 0 gives noise."""

from __future__ import annotations

from typing import Any


def mend_cpu_sampling() -> None:
    """Replace the function of vLLM 0.32 that repeats each request's temperature for each of its drafts.

    Its CPU kernel writes into an integer copy of the result, so that the temperatures used are uninitialised memory:
    every draft is then rejected and random tokens come out, for greedy requests, too, that share a batch with others.
    Engines without a drafter are not touched by it. To be called in the process that holds the model, before its first
    step.
    """
    from vllm.v1.sample import rejection_sampler

    rejection_sampler.expand_batch_to_tokens = expand_batch_to_tokens


def expand_batch_to_tokens(
    x: Any, cu_num_tokens: Any, num_tokens: int, replace_from: float = 0, replace_to: float = 0
) -> Any:
    """Repeat each request's value once per token of it.

    Parameters
    ----------
    x
        One value per request, tensor of shape ``(requests,)``.
    cu_num_tokens
        Cumulative tokens, tensor of shape ``(requests,)``.
    num_tokens
        Tokens in all, the last of ``cu_num_tokens``.
    replace_from, replace_to
        A value, and what is put in its place.

    Returns
    -------
    Tensor of shape ``(num_tokens,)`` and the type of ``x``.
    """
    import torch

    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    values = x.masked_fill(x == replace_from, replace_to)
    return values.repeat_interleave(counts.long(), output_size=num_tokens)
