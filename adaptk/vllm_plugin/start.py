"""What an adaptive scheduler checks and says when it starts: act, shadow, or stand down with the reason."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptk._version import __version__
from adaptk.arms import resolve_arms
from adaptk.onefile import refuse_one_file
from adaptk.settings import Settings
from adaptk.tablekey import differences, summary
from adaptk.vllm_plugin import capture, capturesizes, compat, drafters, faulttext, refusals
from adaptk.vllm_plugin.collect import Collector
from adaptk.vllm_plugin.control import Control
from adaptk.vllm_plugin.identity import identity, table_key
from adaptk.vllm_plugin.log import logger, one_line
from adaptk.vllm_plugin.steering import Policy, Steering
from adaptk.vllm_plugin.traceheader import trace_header

if TYPE_CHECKING:
    from adaptk.controller import Controller
    from adaptk.table import GoodputTable

_LIMITS = ("min_k", "max_itl_ms", "budget", "seed")
_DEFAULTS = dict(zip(Settings.__struct_fields__, Settings.__struct_defaults__, strict=True))
_NO_TABLE = "no table"
_SCHEDULE = "no table, seeded by the configured schedule"


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
        scheduled = _scheduled_ks(scheduler)
    finally:
        capture.neutralise(scheduler)
    steering = _made(scheduler, settings, controller, scheduled)
    if settings.metrics_port is not None and settings.mode != "off":
        try:
            _serve_metrics(scheduler, settings, steering)
        except Exception:
            steering.close()
            raise
    return steering


def _made(scheduler: Any, settings: Settings, controller: Policy | None, scheduled: set[int]) -> Steering:
    """The steering of ``scheduler``, inert where ``_start`` refuses and that is not to be raised."""
    try:
        return _start(scheduler, settings, controller, scheduled)
    except Exception as error:
        if settings.strict:
            raise StartError(f"adaptk cannot start: {one_line(error)}") from error
        if isinstance(error, NotHereError):
            return _inert(logging.WARNING, str(error), _vllms_k(scheduler))
        ours = isinstance(error, (StartError, ValueError, OSError)) and bool(str(error))
        return _inert(logging.ERROR, str(error) if ours else repr(error), _vllms_k(scheduler), None if ours else error)


def _start(scheduler: Any, settings: Settings, controller: Policy | None, scheduled: set[int]) -> Steering:
    config = getattr(scheduler, "vllm_config", None)
    if settings.mode == "off":
        return _inert(logging.INFO, "ADAPTK is off")
    k_max = int(getattr(scheduler, "num_spec_tokens", 0) or 0)
    if k_max <= 0 or (config is not None and getattr(config, "speculative_config", None) is None):
        return _inert(logging.INFO, "no speculative decoding is configured, so there is nothing to choose")
    unfit = compat.unfit_reason()
    if unfit is not None:  # where the class was named without the entry point, which looks first
        raise StartError(unfit)
    reason = refusals.inert_reason(config)
    if reason is not None:
        raise NotHereError(reason)
    _check_base(scheduler, config)
    refuse_one_file(settings, _rank(config))
    price = _price(config)
    if price is not None and settings.mode == "on":
        raise StartError(price)
    key, table_named, graphs = table_key(config), "of the given controller", None
    given = controller is not None
    if controller is None:
        table, table_named = _table(config, settings, k_max)
        trusted = _same_engine(table, table_named, key, settings)
        arms, sizes = _arms(config, settings, table, k_max, scheduled), compat.capture_sizes(config)
        graphs = capturesizes.coverage(config, scheduled)
        if graphs is not None:
            arms, sizes = capturesizes.playable(arms, graphs), graphs.padded
        controller = _controller(table, arms, settings, k_max, sizes, key, trusted)
        controller.limit_to_graphs(graphs)
    v2 = _v2(scheduler, config)
    collector = Collector(drafters.dummy_limit(config, v2))
    steering = Steering(controller, k_max, mode=settings.mode, collector=collector, draft_cost=drafters.draft_cost(v2))
    arms = tuple(getattr(controller, "arms", ()))
    try:
        if settings.state is not None:
            _keep_state(steering, _ranked(settings.state, config), key, settings, graphs, given)
            controller = steering.controller
        if settings.trace is not None:
            header = trace_header(
                config, settings, controller, arms=arms, k_max=k_max, rank=_rank(config), table=table_named, key=key
            )
            steering.writer = _trace(_ranked(settings.trace, config), header, settings)
            if steering.writer is not None:  # where the engine is dropped without a shutdown
                weakref.finalize(steering, steering.writer.close).atexit = False
        collector.numbered = steering.writer is not None
        _announce(config, settings, arms, table_named, v2)
        for note in drafters.price_notes(config, v2):
            logger.warning("adaptk: %s", note)
        if settings.control is not None:
            path = Path(_ranked(settings.control, config))
            _tell_control(path)
            steering.control = Control(path, steering, price)
    except Exception:
        steering.close()
        raise
    return steering


def _keep_state(
    steering: Steering, path: str, key: Mapping[str, Any], settings: Settings, graphs: Any, given: bool
) -> None:
    """Go on from a former state and keep it; without one the engine goes on afresh, unless under strict."""
    from adaptk.vllm_plugin.resume import keep_state

    if given:
        logger.warning("adaptk: ADAPTK_STATE is neither read nor written, as the controller was given")
        return
    try:
        keep_state(steering, path, key, settings, graphs)
    except Exception as error:
        if settings.strict:
            raise StartError(f"ADAPTK_STATE: {one_line(error)}") from error
        foreseen = isinstance(error, (ValueError, OSError, RuntimeError))
        logger.warning("adaptk keeps no state: %s", error if foreseen else faulttext.short(error))


def _trace(path: str, header: dict[str, Any], settings: Settings) -> Any:
    """What writes the trace; without one the engine goes on, unless under strict."""
    from adaptk.trace import TraceError, TraceWriter

    try:
        writer = TraceWriter(path, header, max_mb=settings.trace_max_mb)
    except TraceError as error:
        if settings.strict:
            raise
        logger.error("adaptk writes no trace: %s", error)
        return None
    logger.info("adaptk writes a trace to %s", path)
    return writer


def _tell_control(path: Path) -> None:
    """Say where the mode is taken from; a folder that is not there may be made later, but is most often a mistake."""
    try:
        there = path.parent.is_dir()
    except OSError:  # as of a name that is too long
        there = False
    if there:
        logger.info("adaptk takes its mode from %s, where that is; `adaptk mode` writes it", path)
    else:
        logger.warning(
            "adaptk would take its mode from %s, but there is no folder %s: make it, or give another ADAPTK_CONTROL",
            path,
            path.parent,
        )


def _serve_metrics(scheduler: Any, settings: Settings, steering: Steering) -> None:
    """Serve the metrics of ``steering``, also of an inert one; without them the engine goes on, unless under strict."""
    from adaptk.vllm_plugin import metrics

    config = getattr(scheduler, "vllm_config", None)
    try:
        metrics.serve(steering, settings, config, rank=_rank(config), v2=_v2(scheduler, config))
    except Exception as error:
        if settings.strict:
            raise StartError(f"adaptk cannot start: {one_line(error)}") from error
        unforeseen = None if isinstance(error, metrics.MetricsError) else error
        logger.warning("adaptk serves no metrics: %s", error, exc_info=unforeseen)


def _v2(scheduler: Any, config: Any) -> bool:
    return bool(getattr(scheduler, "use_v2_model_runner", compat.runner_v2(config)))


def _inert(level: int, reason: str, k: str = "", unforeseen: Exception | None = None) -> Steering:
    steering = Steering(None, reason=reason)
    logger.log(level, "adaptk %s is inactive: %s%s", __version__, reason, k and f". {k}", exc_info=unforeseen)
    return steering


def _vllms_k(scheduler: Any) -> str:
    """What decides the drafts of a scheduler that adaptk leaves alone: not the schedule that it set for capture."""
    if capture.operators_schedule(getattr(scheduler, "vllm_config", None)) is not None:
        return "The number of drafts is that of your num_speculative_tokens_per_batch_size"
    return f"The number of drafts is num_speculative_tokens, {getattr(scheduler, 'num_spec_tokens', None)}, throughout"


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


def _price(config: Any) -> str | None:
    """Why another K than vLLM's would cost more than it brings here, or ``None``."""
    speculative = getattr(config, "speculative_config", None)
    schedule = getattr(speculative, "num_speculative_tokens_per_batch_size", None)
    if schedule or config is None or not compat.full_graphs(config):
        return None
    return refusals.graph_reason(config) or (
        "FULL CUDA graphs were captured for num_speculative_tokens only, because vLLM dropped the schedule, or adaptk "
        "was not yet in the process that configured the engine; name it in the environment or on the command line, or "
        "set num_speculative_tokens_per_batch_size yourself"
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


def _table(config: Any, settings: Settings, k_max: int) -> tuple[GoodputTable | None, str]:
    from adaptk.table import GoodputTable

    if settings.table is not None:
        path = _ranked(settings.table, config)
        table = GoodputTable.load(path)
        return table, f"{path} ({_described(table)})"
    schedule = capture.operators_schedule(config)
    if schedule is None:
        return None, _NO_TABLE
    clamped = [[first, last, min(k, k_max)] for first, last, k in schedule]
    return GoodputTable.from_schedule(clamped), _SCHEDULE


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
) -> Controller:
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


def _ranked(path: str, config: Any) -> str:
    """A path of the settings with the data-parallel rank filled in; also where the rank is an engine of its own."""
    return path.replace("{rank}", str(_rank(config)))


def _rank(config: Any) -> int:
    parallel = getattr(config, "parallel_config", None)
    return int(getattr(parallel, "data_parallel_index", getattr(parallel, "data_parallel_rank", 0)) or 0)


def _announce(config: Any, settings: Settings, arms: Sequence[int], table: str, v2: bool) -> None:
    schedule = getattr(getattr(config, "speculative_config", None), "num_speculative_tokens_per_batch_size", None)
    most = getattr(getattr(config, "speculative_config", None), "num_speculative_tokens", None)
    owner = (
        f"set by adaptk for capture only; vLLM's own K is {most}" if capture.own_schedule(config) else "the operator's"
    )
    limits = "".join(
        f", {name} {getattr(settings, name)}" for name in _LIMITS if getattr(settings, name) != _DEFAULTS[name]
    )
    logger.info(
        "adaptk %s on vLLM %s: mode %s, arms %s%s, %s, schedule %s, model runner %s",
        __version__,
        compat.vllm_version(),
        settings.mode,
        arms,
        limits,
        table if table in (_NO_TABLE, _SCHEDULE) else f"table {table}",
        f"{[list(entry) for entry in schedule]} ({owner})" if schedule else "none",
        "V2" if v2 else "V1",
    )
