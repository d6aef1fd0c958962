"""adaptk's start in a scheduler that schedules nothing: the engine's own code says what it would do here."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import msgspec

from adaptk.doctor.facts import Engine, Outcome, Reach, Told
from adaptk.settings import Settings

# What a start would open, write or serve.
_SILENT = {"trace": None, "state": None, "control": None, "metrics_port": None, "strict": False}


class Lines:
    """Keeps what is logged: adaptk's lines, and what vLLM warns of. A context manager.

    It sits where records are made: vLLM takes handlers off its loggers when it reads its arguments.
    """

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.notes: list[str] = []
        self._make = logging.getLogRecordFactory()

    def __enter__(self) -> Lines:
        self._make = logging.getLogRecordFactory()
        logging.setLogRecordFactory(self._made)
        return self

    def __exit__(self, *_: object) -> None:
        logging.setLogRecordFactory(self._make)

    def _made(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._make(*args, **kwargs)
        with contextlib.suppress(Exception):  # a line that cannot be shown
            if record.name == "vllm.adaptk":
                self.told.append(Told(record.levelno, record.getMessage()))
            elif record.name.startswith("vllm") and record.levelno >= logging.WARNING:
                self.notes.append(record.getMessage())
        return record


def rehearse(config: Any, lines: Lines, table: str | None = None) -> Engine:
    """What adaptk would find and do in the engine of a finished ``VllmConfig``, whose classes are patched.

    Parameters
    ----------
    config
        The whole deployment's; it is changed as vLLM changes it in an engine's process.
    lines
        Listens to the loggers.
    table
        Path that takes the place of the settings'.
    """
    from adaptk.vllm_plugin import asked, capture, capturesizes, compat, drafters, refusals
    from adaptk.vllm_plugin.identity import model_name, table_key

    parallel, speculative = config.parallel_config, config.speculative_config
    ranks = int(parallel.data_parallel_size)
    alone = refusals.independent_ranks(config)
    preparing = _taken(lines)
    if alone:
        _make_independent(parallel)
    settings = asked.settings_for(config.scheduler_config)
    if settings.mode == "off":
        settings = msgspec.structs.replace(settings, mode="on")
    if table is not None:
        settings = msgspec.structs.replace(settings, table=table)
    bare, scheduler = _start(config, msgspec.structs.replace(settings, table=None), lines)
    seeded = None if settings.table is None else _start(config, settings, lines)[0]
    switched = None
    if settings.mode == "shadow" and settings.control is not None:
        switched = _start(config, msgspec.structs.replace(settings, mode="on", table=None), lines)[0]
    found = capturesizes.coverage(config, _scheduled(config))
    v2 = compat.runner_v2(config)
    schedule = capture.operators_schedule(config)
    return Engine(
        model=model_name(getattr(config.model_config, "model", None)) or "?",
        settings=settings,
        moe=bool(getattr(config.model_config, "is_moe", False)),
        dtype=str(getattr(config.model_config, "dtype", "")).removeprefix("torch."),
        max_num_seqs=int(config.scheduler_config.max_num_seqs),
        v2=v2,
        asynchronous=bool(getattr(config.scheduler_config, "async_scheduling", False)),
        scheduler=scheduler,
        tensor_parallel=int(parallel.tensor_parallel_size),
        pipeline_parallel=int(parallel.pipeline_parallel_size),
        ranks=ranks if alone else 1,
        method=getattr(speculative, "method", None),
        drafter=model_name(drafters.draft_model(speculative)),
        k_max=int(getattr(speculative, "num_speculative_tokens", 0) or 0),
        saves_drafting=drafters.saves_drafting(config, v2),
        price_notes=tuple(drafters.price_notes(config, v2)) if speculative is not None else (),
        operators_schedule=None if schedule is None else tuple((a, b, k) for a, b, k in schedule),
        graph_mode=compat.graph_mode(config) or "NONE",
        eager=bool(getattr(config.model_config, "enforce_eager", False)),
        reaches=None if found is None else tuple(
            Reach(k, found.reach(k), tuple(hole.batch for hole in found.holes(k))) for k in found.ks
        ),
        captures=0 if found is None else found.captures,
        key=table_key(config),
        bare=bare,
        seeded=seeded,
        switched=switched,
        preparing=preparing,
        notes=tuple(dict.fromkeys(lines.notes)),
    )  # fmt: skip


def _make_independent(parallel: Any) -> None:
    """What vLLM does in the process of each rank of a dense model."""
    make = getattr(parallel, "reconfigure_for_independent_dp_rank", None)
    if make is not None:
        make()
    else:
        parallel.data_parallel_size = 1


def _start(config: Any, settings: Settings, lines: Lines) -> tuple[Outcome, str]:
    """How adaptk starts in the scheduler that vLLM would build, and the name of that one's own class."""
    from adaptk.vllm_plugin.start import start

    _taken(lines)
    scheduler, named = _scheduler(config, settings)
    steering = start(scheduler, msgspec.structs.replace(settings, **_SILENT))
    arms = tuple(getattr(steering.controller, "arms", ())) if steering.active else ()
    outcome = Outcome(active=steering.active, reason=steering.reason or "", arms=arms, told=_taken(lines))
    steering.close()
    return outcome, named


def _scheduler(config: Any, settings: Settings) -> tuple[Any, str]:
    """An object of the adaptive class with what adaptk's start reads of it, and none of vLLM's own parts."""
    from adaptk.vllm_plugin import compat
    from adaptk.vllm_plugin.scheduler import adaptive

    chosen = config.scheduler_config.get_scheduler_cls()
    if not isinstance(chosen, type):  # a function, of which only a call would tell what it makes
        named = getattr(chosen, "__qualname__", repr(chosen))
        chosen = adaptive(_vllms_own(config), settings=settings)
    else:
        named = next((base.__qualname__ for base in chosen.__mro__ if not hasattr(base, "adaptk")), "?")
    scheduler: Any = object.__new__(chosen)
    scheduler.__dict__.update(
        vllm_config=config,
        num_spec_tokens=int(getattr(config.speculative_config, "num_speculative_tokens", 0) or 0),
        dynamic_sd_lookup=_lookup(config),
        use_v2_model_runner=compat.runner_v2(config),
    )
    return scheduler, named


def _vllms_own(config: Any) -> type:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    chosen: type = AsyncScheduler if config.scheduler_config.async_scheduling else Scheduler
    return chosen


def _lookup(config: Any) -> list[int] | None:
    """vLLM's K by batch size, as its scheduler makes it of the schedule."""
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    speculative = config.speculative_config
    schedule = getattr(speculative, "num_speculative_tokens_per_batch_size", None)
    if not schedule:
        return None
    most, k_max = int(config.scheduler_config.max_num_seqs), int(speculative.num_speculative_tokens)
    return list(build_dynamic_sd_schedule_lookup(schedule, most, k_max))


def _scheduled(config: Any) -> set[int]:
    return set((_lookup(config) or [])[1:])


def _taken(lines: Lines) -> tuple[Told, ...]:
    """The lines of adaptk's since the last call."""
    told = tuple(lines.told)
    lines.told.clear()
    return told
