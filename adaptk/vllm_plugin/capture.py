"""The schedule that adaptk gives vLLM so that vLLM prepares for every arm; it is never followed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from adaptk.arms import resolve_arms
from adaptk.settings import MODES, Settings
from adaptk.vllm_plugin import asked, compat, refusals
from adaptk.vllm_plugin.log import logger

# In the part of a configuration that chooses the scheduler.
NOTE = asked.NOTES + "captures"


class CaptureSchedule(list[tuple[int, int, int]]):
    """A schedule of adaptk's own making.

    The type is the mark: it reaches the engine's process by pickle, and there tells this schedule from an operator's.
    Beside it stands a copy (see ``note``), as whoever copies a checked configuration makes a plain list of this one.
    """

    graphs_told = False  # whether capture sizes were arranged for it, and the operator told

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        return _received, (list(self), self.graphs_told)


def _received(entries: list[tuple[int, int, int]], graphs_told: bool) -> CaptureSchedule | None:
    """The schedule in another process; none where adaptk is switched off and nobody is there to overrule it."""
    if MODES.get(os.environ.get("ADAPTK", "").strip().lower()) == "off":
        return None
    schedule = CaptureSchedule(entries)
    schedule.graphs_told = graphs_told
    return schedule


def capture_schedule(arms: Sequence[int], max_num_seqs: int) -> CaptureSchedule:
    """Name every arm once, the deepest at batch 1 and the shallowest from some small batch on.

    vLLM captures graphs only for numbers of drafts named in its schedule, for all batches that fit under the ceiling
    of its tokens. In this order no tier hides another one.

    Parameters
    ----------
    arms
        Drafts per request, distinct, each ``>= 0``.
    max_num_seqs
        Largest batch of the engine, ``>= 1``. With fewer batch sizes than arms, middle arms are left out.

    Examples
    --------
    >>> capture_schedule((0, 1, 3, 7), 512)
    [(1, 1, 7), (2, 2, 3), (3, 3, 1), (4, 512, 0)]
    >>> capture_schedule((0, 1, 3, 7), 2)
    [(1, 1, 7), (2, 2, 0)]
    """
    deepest_first = sorted(arms, reverse=True)
    if len(deepest_first) > max_num_seqs:
        kept = deepest_first[: max_num_seqs - 1]
        deepest_first = [*kept, deepest_first[-1]] if kept else deepest_first[:1]
    last = len(deepest_first)
    return CaptureSchedule(
        (batch, max_num_seqs if batch == last else batch, k) for batch, k in enumerate(deepest_first, start=1)
    )


def announce(config: Any, settings: Settings) -> None:
    """Set the capture schedule in a ``VllmConfig`` under which adaptk may act and whose operator set none."""
    speculative = config.speculative_config
    if speculative is None or speculative.num_speculative_tokens_per_batch_size is not None:
        return
    if refusals.graph_reason(config) is not None:
        return
    if compat.runner_v2(config) and not compat.v2_keeps_full_graphs():
        return  # 0.24 runs V2 without a schedule only: one would move the engine to V1
    k_max = int(speculative.num_speculative_tokens)
    try:
        arms = resolve_arms(None, settings.arms, k_max)
    except ValueError:
        return  # the engine's process refuses it with the reason, once
    schedule = capture_schedule(arms, int(config.scheduler_config.max_num_seqs))
    speculative.num_speculative_tokens_per_batch_size = schedule
    logger.info(
        "adaptk set num_speculative_tokens_per_batch_size=%s, so that vLLM prepares for every arm. No step follows it: "
        "K is adaptk's in mode on and vLLM's own, %s, in shadow. A schedule of your own would be kept.",
        [list(entry) for entry in schedule],
        k_max,
    )


def note(config: Any) -> None:
    """Leave on a ``VllmConfig`` that its schedule is adaptk's, where it is, on the part that chooses the scheduler."""
    if own_schedule(config):
        schedule = config.speculative_config.num_speculative_tokens_per_batch_size
        config.scheduler_config.__dict__[NOTE] = [tuple(entry) for entry in schedule]


def own_schedule(config: Any) -> bool:
    """Whether the schedule of a ``VllmConfig`` is adaptk's."""
    speculative = getattr(config, "speculative_config", None)
    schedule = getattr(speculative, "num_speculative_tokens_per_batch_size", None)
    noted = getattr(getattr(config, "scheduler_config", None), "__dict__", {}).get(NOTE)
    if not schedule or noted is None:
        return isinstance(schedule, CaptureSchedule)
    return isinstance(schedule, CaptureSchedule) or [tuple(entry) for entry in schedule] == noted


def operators_schedule(config: Any) -> list[list[int]] | None:
    """The schedule of the operator, or ``None`` where there is none or only adaptk's own."""
    speculative = getattr(config, "speculative_config", None)
    schedule = getattr(speculative, "num_speculative_tokens_per_batch_size", None)
    if schedule is None or not schedule or own_schedule(config):
        return None
    return [list(entry) for entry in schedule]


def neutralise(scheduler: Any) -> None:
    """Make a scheduler's lookup answer its fixed maximum where it was built from adaptk's capture schedule.

    After this, what vLLM puts in ``num_spec_tokens_to_schedule`` is always the K it would have used without adaptk.
    """
    lookup = getattr(scheduler, "dynamic_sd_lookup", None)
    if lookup is not None and own_schedule(getattr(scheduler, "vllm_config", None)):
        scheduler.dynamic_sd_lookup = [scheduler.num_spec_tokens] * len(lookup)
