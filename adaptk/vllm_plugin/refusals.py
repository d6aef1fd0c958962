"""Where adaptk must not choose K: each reason in the words that the operator reads."""

from __future__ import annotations

from typing import Any

from adaptk.vllm_plugin import compat, drafters


def inert_reason(config: Any, *, configuring: bool = False) -> str | None:
    """Why adaptk must not choose K under this ``VllmConfig``, or ``None``; an absent part forbids nothing.

    ``configuring``: it is the whole deployment's, not yet that of one engine, in which independent ranks are alone.
    """
    speculative = getattr(config, "speculative_config", None)
    parallel = getattr(config, "parallel_config", None)
    if not (configuring and independent_ranks(config)):
        reason = _agreement_reason(parallel)
        if reason is not None:
            return reason
    if getattr(parallel, "pipeline_parallel_size", 1) > 1 and not _drafts_stay_on_workers(config):
        return (
            "pipeline_parallel_size is above 1 without async scheduling: vLLM then hands a step's drafts to the "
            "scheduler while their requests are still in flight, and schedules these requests once more wherever the "
            "number of drafts changes. Use model runner V2 with async scheduling, or no pipeline parallelism"
        )
    if getattr(getattr(config, "kv_transfer_config", None), "kv_role", None) == "kv_producer":
        return (
            "kv_role is kv_producer: this engine computes prompts for others and decodes nothing; run adaptk where the "
            "requests are decoded"
        )
    if getattr(speculative, "enable_adaptive_verification", False):
        return (
            "enable_adaptive_verification varies the verified width behind adaptk's back, so that step times cannot be "
            "learnt; set it to false or unset ADAPTK"
        )
    return drafters.reason_to_refuse(config, compat.runner_v2(config))


def _drafts_stay_on_workers(config: Any) -> bool:
    """Whether drafts never pass through the scheduler, so that a request in flight has no drafts there."""
    asynchronous = getattr(getattr(config, "scheduler_config", None), "async_scheduling", False)
    return bool(asynchronous) and compat.runner_v2(config)


def independent_ranks(config: Any) -> bool:
    """Whether a ``VllmConfig`` is that of several ranks that vLLM runs as engines which know nothing of each other.

    So it is for dense models: inside each engine ``data_parallel_size`` is 1. The experts of a mixture are spread over
    the ranks, which step together.
    """
    parallel = getattr(config, "parallel_config", None)
    dense = getattr(getattr(config, "model_config", None), "is_moe", None) is False
    return dense and getattr(parallel, "data_parallel_size", 1) > 1 and not _launched_outside(parallel)


def _agreement_reason(parallel: Any) -> str | None:
    """Why another scheduler must decide the same in every step, which schedulers that measure time do not."""
    if getattr(parallel, "data_parallel_size", 1) > 1:
        return (
            "data_parallel_size is above 1 and its ranks must agree on the number of drafts; vLLM keeps the static "
            "num_speculative_tokens"
        )
    if getattr(parallel, "enable_elastic_ep", False):
        return (
            "enable_elastic_ep may add ranks at any time, which must agree on the number of drafts; vLLM keeps the "
            "static num_speculative_tokens"
        )
    if _launched_outside(parallel) and getattr(parallel, "world_size", 1) > 1:
        return (
            "the external_launcher runs a scheduler in every rank of the model, and all must decide alike; use another "
            "distributed_executor_backend, or one rank"
        )
    return None


def _launched_outside(parallel: Any) -> bool:
    return getattr(parallel, "distributed_executor_backend", None) == "external_launcher"


def graph_reason(config: Any) -> str | None:
    """Why full CUDA graphs and a changing K do not go together here, or ``None``; asked where no schedule is set."""
    if not compat.full_graphs(config):
        return None
    if not compat.v2_keeps_full_graphs():
        return (
            "this vLLM gives up its FULL CUDA graphs for PIECEWISE ones once a schedule is set, which can cost more "
            "than a better K brings. Accept that price by setting num_speculative_tokens_per_batch_size yourself, or "
            "use vLLM 0.25 or later with model runner V2"
        )
    if not compat.runner_v2(config):
        return (
            "model runner V1 gives up its FULL CUDA graphs for PIECEWISE ones once a schedule is set, which can cost "
            "more than a better K brings. Accept that price by setting num_speculative_tokens_per_batch_size yourself, "
            "or use VLLM_USE_V2_MODEL_RUNNER=1, which keeps them"
        )
    if drafters.draft_model(getattr(config, "speculative_config", None)) and not compat.drafters_graphs_bear_schedule():
        return (
            "model runner V2 of this vLLM fails at its start where a schedule is set: it takes numbers of drafts for "
            "widths of the drafter's own graphs. Use vLLM 0.32 or later, or cudagraph_mode=PIECEWISE"
        )
    return None
