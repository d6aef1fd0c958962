"""What adaptk relies on in vLLM's source beyond ``compat.HOOKS``: names, signatures, orders, and since when."""

from __future__ import annotations

from typing import NamedTuple

from adaptk.vllm_plugin import serveargs
from adaptk.vllm_plugin.compat import DP_HOOK, SCHEDULE_HOOK, SIZES_HOOK

CONFIG = "vllm.config"
SCHEDULER = "vllm.v1.core.sched.scheduler"
ASYNC = "vllm.v1.core.sched.async_scheduler"
OUTPUT = "vllm.v1.core.sched.output"
REQUEST = "vllm.v1.request"
CORE = "vllm.v1.engine.core"
ARGUMENTS = "vllm.engine.arg_utils"
WORKER = "vllm.v1.worker.worker_base"


class Order(NamedTuple):
    """In a method, ``first`` stands before ``then``; either may be absent where ``optional`` names it."""

    module: str
    owner: str
    method: str
    first: str
    then: str
    why: str
    optional: str = ""


class Bound(NamedTuple):
    """A name that a class or a method has from one minor version on (``since``), or had until one (``until``).

    Where ``inside`` is empty the name is a member of the class; else it is mentioned in the method ``inside``.
    """

    module: str
    owner: str
    name: str
    since: int
    until: int = 10_000
    inside: str = ""
    branch: str = ""  # what in adaptk goes once every supported version has it; empty: nothing does


# Read on instances: a plain attribute that methods set counts as well.
READ: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        SCHEDULER,
        "Scheduler",
        (
            "vllm_config",
            "num_spec_tokens",
            "dynamic_sd_lookup",
            "requests",
            "running",
            "parallel_config",
            "use_pp",
            "use_v2_model_runner",
            "update_draft_token_ids",
        ),
    ),
    (
        CORE,
        "EngineCore",
        (
            "scheduler",
            "batch_queue",
            "collective_rpc",
            "reset_prefix_cache",
            "add_lora",
            "pin_lora",
            "profile",
            "save_sharded_state",
        ),
    ),
    (ASYNC, "AsyncScheduler", ("_spec_token_placeholders", "pp_size")),
    (
        REQUEST,
        "Request",
        (
            "request_id",
            "status",
            "num_tokens",
            "num_computed_tokens",
            "num_output_tokens",
            "num_output_placeholders",
            "is_prefill_chunk",
            "spec_token_ids",
        ),
    ),
    (OUTPUT, "NewRequestData", ("req_id",)),
    (OUTPUT, "SchedulerOutput", ("finished_req_ids", "preempted_req_ids", "pending_structured_output_tokens")),
    ("vllm.v1.outputs", "ModelRunnerOutput", ("kv_connector_output", "cudagraph_stats")),
    ("vllm.v1.outputs", "KVConnectorOutput", ("invalid_block_ids",)),
    (CONFIG, "SchedulerConfig", ("scheduler_cls", "max_num_batched_tokens")),
    (
        CONFIG,
        "VllmConfig",
        (
            "model_config",
            "cache_config",
            "parallel_config",
            "scheduler_config",
            "kv_transfer_config",
            "additional_config",
            "use_v2_model_runner",
            "__post_init__",
        ),
    ),
    (
        CONFIG,
        "SpeculativeConfig",
        ("method", "model", "draft_model_config", "parallel_drafting", "use_step3p5_mtp", "use_gemma4_mtp"),
    ),
    (CONFIG, "ModelConfig", ("model", "dtype", "quantization", "max_model_len", "enforce_eager", "is_moe")),
    (CONFIG, "CacheConfig", ("cache_dtype", "block_size", "num_gpu_blocks")),
    ("vllm.lora.request", "LoRARequest", ("load_inplace",)),
    ("vllm.compilation.cuda_graph", "CUDAGraphStat", ("runtime_mode",)),
    (
        CONFIG,
        "ParallelConfig",
        (
            "data_parallel_size",
            "data_parallel_rank",
            "data_parallel_index",
            "tensor_parallel_size",
            "pipeline_parallel_size",
            "world_size",
            "distributed_executor_backend",
            "enable_elastic_ep",
        ),
    ),
    (CONFIG, "KVTransferConfig", ("kv_role",)),
    (CONFIG, "CompilationConfig", ("cudagraph_mode", "cudagraph_capture_sizes", "compile_sizes", "pass_config")),
    (CONFIG, "CUDAGraphMode", ("has_full_cudagraphs", "separate_routine", "mixed_mode", "FULL", "PIECEWISE", "NONE")),
    (ARGUMENTS, "EngineArgs", ("additional_config",)),
    ("vllm.platforms.interface", "Platform", ("is_cpu", "get_device_name")),
)

# Methods that some supported versions have not; BOUNDS says which.
OPTIONAL = (DP_HOOK,)

# Methods that adaptk puts itself around, with the arguments that it passes on.
SIGNATURES: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    (CONFIG, "SchedulerConfig", "get_scheduler_cls", ("self",)),
    (CONFIG, "VllmConfig", SCHEDULE_HOOK, ("self",)),
    (CONFIG, "VllmConfig", DP_HOOK, ("self",)),
    (CONFIG, "VllmConfig", SIZES_HOOK, ("self",)),
    (SCHEDULER, "Scheduler", "_update_after_schedule", ("self", "scheduler_output")),
    (ASYNC, "AsyncScheduler", "_update_after_schedule", ("self", "scheduler_output")),
    (SCHEDULER, "Scheduler", "update_from_output", ("self", "scheduler_output", "model_runner_output")),
    (SCHEDULER, "Scheduler", "get_grammar_bitmask", ("self", "scheduler_output")),
    (SCHEDULER, "Scheduler", "shutdown", ("self",)),
)

# Functions that adaptk calls, and the modules in one of which a version has them.
FUNCTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (("make_arg_parser", serveargs._PARSERS),)

ORDERS: tuple[Order, ...] = (
    Order(CONFIG, "VllmConfig", "__post_init__", DP_HOOK, SCHEDULE_HOOK,
          "a schedule set at the second must not be dropped by the first", optional=DP_HOOK),
    Order(CONFIG, "VllmConfig", "__post_init__", "_maybe_disable_dynamic_sd_for_v1", SCHEDULE_HOOK,
          "a schedule set at the second must not be dropped by the first", optional="_maybe_disable_dynamic_sd_for_v1"),
    Order(CONFIG, "VllmConfig", "__post_init__", SCHEDULE_HOOK, SIZES_HOOK,
          "capture sizes are derived from the schedule that adaptk set"),
    Order(SCHEDULER, "Scheduler", "schedule", "num_spec_tokens_to_schedule", "_update_after_schedule",
          "vLLM's K is in the output before adaptk puts its own there"),
    Order(ASYNC, "AsyncScheduler", "_update_after_schedule", "super", "num_spec_tokens_to_schedule",
          "placeholders are built from the K that adaptk left in the output"),
    Order(CORE, "EngineCore", "__init__", "load_general_plugins", "get_scheduler_cls",
          "the plugin has entered before the scheduler's class is asked for"),
    Order(CORE, "EngineCore", "step", "execute_model", "get_grammar_bitmask",
          "what adaptk learns when vLLM asks for its grammars is hidden behind the model"),
    Order(CORE, "EngineCore", "step_with_batch_queue", "execute_model", "get_grammar_bitmask",
          "what adaptk learns when vLLM asks for its grammars is hidden behind the model"),
)  # fmt: skip

BOUNDS: tuple[Bound, ...] = (
    Bound(ARGUMENTS, "EngineArgs", "load_general_plugins", 0, inside="__post_init__"),
    Bound(CORE, "EngineCore", "vllm_config", 0, inside="__init__"),
    Bound(WORKER, "WorkerWrapperBase", "load_general_plugins", 0, inside="init_worker"),
    Bound(WORKER, "WorkerWrapperBase", "vllm_config", 0, inside="init_worker"),
    Bound(CONFIG, "SpeculativeConfig", "num_speculative_tokens_per_batch_size", 24),
    Bound(OUTPUT, "SchedulerOutput", "num_spec_tokens_to_schedule", 24),
    Bound(CONFIG, "VllmConfig", "use_v2_model_runner", 25, inside=SCHEDULE_HOOK, branch="compat.v2_keeps_full_graphs"),
    Bound(SCHEDULER, "Scheduler", "pad_spec_decode", 25, inside="schedule"),
    Bound(CONFIG, "VllmConfig", DP_HOOK, 26, branch="the optional place of compat.DP_HOOK in patches"),
    Bound(REQUEST, "Request", "num_stale_output_tokens", 27, branch="async_tokens_to_discard in compat.stale"),
    Bound(REQUEST, "Request", "drop_stale_output", 27, branch="its default in collect"),
    Bound(REQUEST, "Request", "async_tokens_to_discard", 0, 27),
    Bound(CORE, "EngineCore", "set_weight_version", 27),
    Bound(CONFIG, "SpeculativeConfig", "use_multi_module_mtp", 27),
    Bound(CONFIG, "SpeculativeConfig", "enable_adaptive_verification", 28),
    Bound("vllm.v1.outputs", "KVConnectorOutput", "failed_recving", 30),
    Bound(CONFIG, "PassConfig", "enable_sp", 0, 32),
    Bound(
        "vllm.v1.worker.gpu.model_runner",
        "ExecuteModelState",
        "num_spec_tokens_to_schedule",
        32,
        branch="the version in drafters.saves_drafting",
    ),
    Bound(
        "vllm.v1.worker.gpu.spec_decode.target_dependent_ar.cudagraph_utils",
        "SpeculatorCudaGraphManager",
        "specialize_spec_tokens",
        32,
        branch="compat.drafters_graphs_bear_schedule",
    ),
    Bound(
        "vllm.v1.worker.gpu.spec_decode.dflash.speculator",
        "DFlashSpeculator",
        "num_speculative_tokens",
        33,
        inside="propose",
        branch="the version in drafters.price_notes",
    ),
    Bound(OUTPUT, "SchedulerOutput", "skip_drafts", 33, branch="its default where steering looks at it"),
    Bound(CONFIG, "VllmConfig", "_maybe_disable_dynamic_sd_for_v1", 33),
)
