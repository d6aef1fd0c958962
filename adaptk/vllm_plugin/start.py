"""What an adaptive scheduler checks and says when it starts: act, shadow, or stand down with the reason."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adaptk._version import __version__
from adaptk.arms import resolve_arms
from adaptk.settings import Settings
from adaptk.tablekey import differences, summary
from adaptk.vllm_plugin import capture, compat, drafters, refusals
from adaptk.vllm_plugin.collect import Collector
from adaptk.vllm_plugin.identity import identity, table_key
from adaptk.vllm_plugin.log import logger
from adaptk.vllm_plugin.steering import Policy, Steering

if TYPE_CHECKING:
    from adaptk.table import GoodputTable

_NOT_SERVED = ("state", "control", "metrics_port")


class StartError(RuntimeError):
    """adaptk cannot start as it was asked to; the message says why and what to do."""


class NotHereError(StartError):
    """Nothing is wrong, but under this configuration adaptk must not choose K."""


def start(scheduler: Any, settings: Settings, controller: Policy | None = None) -> Steering:
    """Build the steering of ``scheduler`` and log what it will do.

    Raises
    ------
    StartError
        Under ``settings.strict`` where the configuration, a setting or the table is refused, or anything else goes
        wrong. Otherwise that is logged and the steering is inert. Without speculation it is inert in any case.
    """
    try:
        return _start(scheduler, settings, controller)
    except Exception as error:
        if settings.strict:
            raise StartError(f"adaptk cannot start: {error}") from error
        return _inert(logging.WARNING if isinstance(error, NotHereError) else logging.ERROR, str(error))


def _start(scheduler: Any, settings: Settings, controller: Policy | None) -> Steering:
    config = getattr(scheduler, "vllm_config", None)
    scheduled = _scheduled_ks(scheduler)
    capture.neutralise(scheduler)
    k_max = int(getattr(scheduler, "num_spec_tokens", 0) or 0)
    if k_max <= 0 or (config is not None and getattr(config, "speculative_config", None) is None):
        return _inert(logging.INFO, "no speculative decoding is configured, so there is nothing to choose")
    reason = refusals.inert_reason(config)
    if reason is not None:
        raise NotHereError(reason)
    _check_base(scheduler, config)
    _check_graphs(config, settings)
    key, table_named = table_key(config), "of the given controller"
    if controller is None:
        table, table_named = _table(config, settings, k_max)
        trusted = _same_engine(table, table_named, key, settings)
        arms = _captured(config, _arms(config, settings, table, k_max, scheduled), scheduled)
        controller = _controller(table, arms, settings, k_max, compat.capture_sizes(config), key, trusted)
    v2 = bool(getattr(scheduler, "use_v2_model_runner", compat.runner_v2(config)))
    steering = Steering(
        controller,
        k_max,
        acting=settings.mode != "shadow",
        collector=Collector(drafters.dummy_limit(config, v2)),
        draft_cost=drafters.draft_cost(v2),
    )
    notes = drafters.price_notes(config, v2)
    arms = tuple(getattr(controller, "arms", ()))
    steering.writer = _writer(config, settings, arms, table_named, key)
    if steering.collector is not None:
        steering.collector.numbered = steering.writer is not None
    _announce(config, settings, arms, table_named, v2)
    for note in notes:
        logger.warning("adaptk: %s", note)
    return steering


def _inert(level: int, reason: str) -> Steering:
    logger.log(level, "adaptk %s is inactive: %s", __version__, reason)
    return Steering(None, reason=reason)


def _scheduled_ks(scheduler: Any) -> set[int]:
    """The numbers of drafts that vLLM has prepared for, empty where it has no schedule."""
    lookup = getattr(scheduler, "dynamic_sd_lookup", None)
    return set(lookup[1:]) if lookup else set()


def _check_base(scheduler: Any, config: Any) -> None:
    asynchronous = getattr(getattr(config, "scheduler_config", None), "async_scheduling", False)
    if asynchronous and not compat.is_async_class(type(scheduler)):
        raise StartError(
            f"async_scheduling is on and {type(scheduler).__qualname__} is no AsyncScheduler, so that vLLM makes no "
            "drafts at all; derive it from AsyncScheduler or turn async_scheduling off"
        )


def _check_graphs(config: Any, settings: Settings) -> None:
    speculative = getattr(config, "speculative_config", None)
    schedule = getattr(speculative, "num_speculative_tokens_per_batch_size", None)
    if settings.mode == "shadow" or schedule or config is None or not compat.full_graphs(config):
        return
    raise StartError(
        refusals.graph_reason(config)
        or "FULL CUDA graphs were captured for num_speculative_tokens only, because vLLM dropped the schedule (it does "
        "so for data parallelism); run one engine per rank without data_parallel_size"
    )


def _arms(
    config: Any, settings: Settings, table: GoodputTable | None, k_max: int, scheduled: set[int]
) -> tuple[int, ...]:
    """The arms named by the settings, else the default ones and what the operator's schedule prescribes."""
    try:
        arms = resolve_arms(table, settings.arms, k_max)
    except ValueError as error:
        raise StartError(f"ADAPTK_ARMS: {error}") from None
    if settings.arms is not None or capture.operators_schedule(config) is None:
        return arms
    return tuple(sorted(scheduled.union(arms)))


def _captured(config: Any, arms: tuple[int, ...], scheduled: set[int]) -> tuple[int, ...]:
    """The arms for which vLLM has full graphs, where it has any."""
    if not scheduled or config is None or not compat.full_graphs(config):
        return arms
    kept = tuple(k for k in arms if k in scheduled) or tuple(sorted(scheduled))
    if kept != arms:
        logger.warning(
            "adaptk plays only %s of its arms %s: vLLM has FULL CUDA graphs for no others. Name them in "
            "num_speculative_tokens_per_batch_size, or, without one of your own, let max_num_seqs be at least %d",
            kept,
            arms,
            len(arms),
        )
    return kept


def _table(config: Any, settings: Settings, k_max: int) -> tuple[GoodputTable | None, str]:
    from adaptk.table import GoodputTable

    if settings.table is not None:
        path = settings.table.replace("{rank}", str(_rank(config)))
        table = GoodputTable.load(path)
        return table, f"{path} ({_described(table)})"
    schedule = capture.operators_schedule(config)
    if schedule is None:
        return None, "no table"
    clamped = [[first, last, min(k, k_max)] for first, last, k in schedule]
    return GoodputTable.from_schedule(clamped), "no table, seeded by the configured schedule"


def _described(table: GoodputTable) -> str:
    """What was measured, in one line: the table's key and the plain entries of its notes."""
    plain = {name: value for name, value in table.meta.items() if isinstance(value, (str, int, float))}
    return summary({**plain, **table.key}) or "no meta"


def _same_engine(table: GoodputTable | None, named: str, key: Mapping[str, Any], settings: Settings) -> bool:
    """Whether the table's key names nothing that is another here; where it does, only ``allow_mismatch`` goes on."""
    differing = [] if table is None else differences(table.key, key)
    if not differing:
        return True
    told = f"the table {named} was measured on another engine: {'; '.join(differing)}"
    if not settings.allow_mismatch:
        raise StartError(
            f"{told}. Measure one here with `adaptk profile`, or set ADAPTK_ALLOW_MISMATCH=1 to start from it as a "
            "weak prior"
        )
    logger.warning("adaptk: %s. It is a weak prior: adaptk starts at the cheapest arm and climbs", told)
    return False


def _controller(
    table: GoodputTable | None,
    arms: Sequence[int],
    settings: Settings,
    k_max: int,
    sizes: Sequence[int],
    key: dict[str, Any],
    trusted: bool,
) -> Policy:
    from adaptk.controller import Controller

    return Controller(
        table,
        arms=arms,
        settings=settings,
        seed=settings.seed,
        k_max=k_max,
        capture_sizes=sizes,
        identity=identity(key),
        trusted=trusted,
    )


def _writer(config: Any, settings: Settings, arms: Sequence[int], table: str, key: dict[str, Any]) -> Any:
    if settings.trace is None:
        return None
    from adaptk.trace import TraceWriter

    header = {
        "adaptk": __version__,
        "vllm": compat.vllm_version(),
        "mode": settings.mode,
        "arms": list(arms),
        "table": table,
        "key": key,
        "schedule": capture.operators_schedule(config),
    }
    return TraceWriter(settings.trace.replace("{rank}", str(_rank(config))), header)


def _rank(config: Any) -> int:
    parallel = getattr(config, "parallel_config", None)
    return int(getattr(parallel, "data_parallel_index", getattr(parallel, "data_parallel_rank", 0)) or 0)


def _announce(config: Any, settings: Settings, arms: Sequence[int], table: str, v2: bool) -> None:
    schedule = getattr(getattr(config, "speculative_config", None), "num_speculative_tokens_per_batch_size", None)
    owner = "set by adaptk for capture only" if isinstance(schedule, capture.CaptureSchedule) else "the operator's"
    logger.info(
        "adaptk %s on vLLM %s: mode %s, arms %s, table %s, schedule %s, model runner %s",
        __version__,
        compat.vllm_version(),
        settings.mode,
        arms,
        table,
        f"{[list(entry) for entry in schedule]} ({owner})" if schedule else "none",
        "V2" if v2 else "V1",
    )
    for name in _NOT_SERVED:
        if getattr(settings, name) is not None:
            logger.warning("ADAPTK_%s is not available in adaptk %s and is ignored", name.upper(), __version__)
