"""The schedule that adaptk gives vLLM so that vLLM prepares for every arm; it is never followed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adaptk.arms import resolve_arms
from adaptk.settings import Settings
from adaptk.vllm_plugin import refusals
from adaptk.vllm_plugin.log import logger


class CaptureSchedule(list[tuple[int, int, int]]):
    """A schedule of adaptk's own making.

    The type is the mark: it reaches the engine's process by pickle, and there tells this schedule from an operator's.
    """


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
    """Set the capture schedule in a ``VllmConfig`` whose operator set none, where adaptk is going to act."""
    speculative = config.speculative_config
    if speculative is None or speculative.num_speculative_tokens_per_batch_size is not None:
        return
    if refusals.inert_reason(config) is not None or refusals.graph_reason(config) is not None:
        return
    k_max = int(speculative.num_speculative_tokens)
    try:
        arms = resolve_arms(None, settings.arms, k_max)
    except ValueError:
        return  # the engine's process refuses it with the reason, once
    schedule = capture_schedule(arms, int(config.scheduler_config.max_num_seqs))
    speculative.num_speculative_tokens_per_batch_size = schedule
    logger.info(
        "adaptk set num_speculative_tokens_per_batch_size=%s, so that vLLM prepares for every arm; the K of each step "
        "is adaptk's. A schedule of your own would be kept.",
        [list(entry) for entry in schedule],
    )


def operators_schedule(config: Any) -> list[list[int]] | None:
    """The schedule of the operator, or ``None`` where there is none or only adaptk's own."""
    speculative = getattr(config, "speculative_config", None)
    schedule = getattr(speculative, "num_speculative_tokens_per_batch_size", None)
    if not schedule or isinstance(schedule, CaptureSchedule):
        return None
    return [list(entry) for entry in schedule]


def neutralise(scheduler: Any) -> None:
    """Make a scheduler's lookup answer its fixed maximum where it was built from adaptk's capture schedule.

    After this, what vLLM puts in ``num_spec_tokens_to_schedule`` is always the K it would have used without adaptk.
    """
    config = getattr(scheduler, "vllm_config", None)
    speculative = getattr(config, "speculative_config", None)
    schedule = getattr(speculative, "num_speculative_tokens_per_batch_size", None)
    lookup = getattr(scheduler, "dynamic_sd_lookup", None)
    if isinstance(schedule, CaptureSchedule) and lookup is not None:
        scheduler.dynamic_sd_lookup = [scheduler.num_spec_tokens] * len(lookup)
