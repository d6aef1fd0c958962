"""Where adaptk must not choose K: each reason in the words that the operator reads."""

from __future__ import annotations

from typing import Any

from adaptk.vllm_plugin import compat, drafters


def inert_reason(config: Any) -> str | None:
    """Why adaptk must not choose K under this ``VllmConfig``, or ``None``; an absent part forbids nothing."""
    speculative = getattr(config, "speculative_config", None)
    parallel = getattr(config, "parallel_config", None)
    if getattr(parallel, "data_parallel_size", 1) > 1:
        return (
            "data_parallel_size is above 1 and its ranks must agree on the number of drafts; vLLM keeps the static "
            "num_speculative_tokens"
        )
    if getattr(parallel, "pipeline_parallel_size", 1) > 1:
        return (
            "pipeline_parallel_size is above 1, where step times cannot be told apart; run without pipeline parallelism"
        )
    if getattr(speculative, "enable_adaptive_verification", False):
        return (
            "enable_adaptive_verification varies the verified width behind adaptk's back, so that step times cannot be "
            "learnt; set it to false or unset ADAPTK"
        )
    method = getattr(speculative, "method", None)
    if method == "extract_hidden_states":
        return "the method extract_hidden_states only hands out hidden states, so that there is no K worth choosing"
    if method is not None and not compat.runner_v2(config) and not drafters.v1_takes_k(method):
        return (
            f"on this model runner the drafter {method} works with num_speculative_tokens drafts only; use another "
            "drafter, or model runner V2 if it supports this one"
        )
    return None


def graph_reason(config: Any) -> str | None:
    """Why full CUDA graphs and a changing K do not go together here, or ``None``; asked where no schedule is set."""
    if not compat.full_graphs(config):
        return None
    if not compat.runner_v2(config) or compat.version_tuple(compat.vllm_version()) < (0, 25):
        return (
            "this model runner gives up its FULL CUDA graphs for PIECEWISE ones once a schedule is set, which can cost "
            "more than a better K brings. Accept that price by setting num_speculative_tokens_per_batch_size yourself, "
            "or use VLLM_USE_V2_MODEL_RUNNER=1"
        )
    return None
