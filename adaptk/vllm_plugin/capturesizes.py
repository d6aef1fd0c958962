"""Capture sizes and schedule in vLLM's configuration: no arm is played without its graph; and what that costs."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Any

from adaptk.vllm_plugin import capture, compat, graphs
from adaptk.vllm_plugin.graphs import Coverage
from adaptk.vllm_plugin.log import logger


def before_sizes(config: Any) -> Any:
    """The ``VllmConfig`` as it would be without a schedule, before vLLM sets its capture sizes; the original is kept.

    ``None`` where no graph depends on a schedule: without one, without FULL graphs, or on model runner V1.
    """
    speculative = config.speculative_config
    if speculative is None or not speculative.num_speculative_tokens_per_batch_size:
        return None
    if not compat.full_graphs(config) or not compat.runner_v2(config) or not compat.v2_keeps_full_graphs():
        return None
    plain = copy.copy(config)
    plain.speculative_config = copy.copy(speculative)
    plain.speculative_config.num_speculative_tokens_per_batch_size = None
    plain.compilation_config = copy.copy(config.compilation_config)
    return plain


def arrange(config: Any, plain: Any) -> None:
    """See to it that every arm has its graphs in a ``VllmConfig`` whose capture sizes vLLM has just set.

    Sizes that the operator named stay as they are; so do those that are bound to something else. Then, and where it
    would take too many graphs, arms are left out of adaptk's own schedule. An operator's schedule is never changed.

    Parameters
    ----------
    plain
        What ``before_sizes`` gave; it gets the capture sizes that vLLM would have without a schedule.
    """
    speculative, compilation = config.speculative_config, config.compilation_config
    schedule = speculative.num_speculative_tokens_per_batch_size
    own = isinstance(schedule, capture.CaptureSchedule)
    if own and schedule.graphs_told:  # the configuration is finished a second time, in the engine's process
        return
    fixed = _fixed(plain)
    compat.set_capture_sizes(plain)
    max_num_seqs = int(config.scheduler_config.max_num_seqs)
    sizes = [int(size) for size in compilation.cudagraph_capture_sizes or ()]
    ks = sorted({min(k, int(speculative.num_speculative_tokens)) for _, _, k in schedule})
    if not sizes or not compat.uniform_graphs(config):
        return
    if own:
        left = graphs.kept(sizes, ks, max_num_seqs, fixed)
        if left != tuple(ks):
            _tell_left_out(sizes, ks, left, fixed)
            schedule = capture.capture_schedule(left, max_num_seqs)
            speculative.num_speculative_tokens_per_batch_size = schedule
            ks = list(left)
        schedule.graphs_told = True
    found = Coverage(sizes, ks, max_num_seqs)
    if not fixed:
        better = Coverage(graphs.arranged(sizes, ks, max_num_seqs), ks, max_num_seqs)
        if better.sizes != found.sizes and (own or better.captures <= graphs.MOST_CAPTURES):
            compilation.cudagraph_capture_sizes = list(better.sizes)
            found = better
    _tell_cost(config, found, plain, sizes)


def coverage(config: Any, ks: Iterable[int]) -> Coverage | None:
    """Which steps have a FULL graph in an engine whose schedule names ``ks``; ``None`` where it has no such graphs.

    Parameters
    ----------
    config
        The engine's ``VllmConfig``, finished.
    """
    ks = set(ks)
    if config is None or not ks or not compat.full_graphs(config):
        return None
    max_num_seqs = int(config.scheduler_config.max_num_seqs)
    return Coverage(compat.capture_sizes(config), ks, max_num_seqs, compat.uniform_graphs(config))


def playable(arms: Sequence[int], found: Coverage) -> tuple[int, ...]:
    """The arms that have a graph at every batch within their reach; where none has, those with any graphs at all.

    Where vLLM captured for none of them, the arms are those that it did capture for.
    """
    scheduled = tuple(k for k in arms if k in found.ks)
    kept = tuple(filter(found.whole, scheduled)) or scheduled or tuple(filter(found.whole, found.ks)) or found.ks
    if kept != tuple(arms):
        logger.warning(
            "adaptk plays only %s of its arms %s: vLLM has FULL CUDA graphs for no others, or not at every batch size. "
            "Name them in num_speculative_tokens_per_batch_size, leave cudagraph_capture_sizes out, and, without a "
            "schedule of your own, let max_num_seqs be at least %d",
            kept,
            tuple(arms),
            len(arms),
        )
    return kept


def _fixed(plain: Any) -> bool:
    """Whether capture sizes are not adaptk's to choose: named, also compiled for, or bound to tensor parallelism."""
    compilation = plain.compilation_config
    shared = getattr(getattr(compilation, "pass_config", None), "enable_sp", False)
    named = bool(compilation.cudagraph_capture_sizes) or bool(compilation.compile_sizes)
    return named or (bool(shared) and plain.parallel_config.tensor_parallel_size > 1)


def _tell_left_out(sizes: Sequence[int], ks: Sequence[int], left: Sequence[int], fixed: bool) -> None:
    dropped = sorted(set(ks) - set(left))
    if not fixed:
        logger.warning(
            "adaptk leaves out K=%s: graphs for every number of drafts in %s would be more than %d",
            ", ".join(map(str, dropped)),
            tuple(ks),
            graphs.MOST_CAPTURES,
        )
        return
    logger.warning(
        "adaptk leaves out K=%s: with cudagraph_capture_sizes=%s steps would lack their FULL CUDA graph. Leave "
        "cudagraph_capture_sizes out, or name multiples of %d",
        ", ".join(map(str, dropped)),
        list(sizes),
        math.lcm(*(k + 1 for k in ks)),
    )


def _tell_cost(config: Any, found: Coverage, plain: Any, vllms: Sequence[int]) -> None:
    without = Coverage(
        plain.compilation_config.cudagraph_capture_sizes or (),
        (int(config.speculative_config.num_speculative_tokens),),
        found.max_num_seqs,
    )
    mixed = bool(config.compilation_config.cudagraph_mode.mixed_mode())
    logger.info(
        "adaptk: FULL CUDA graphs for %s. Beyond that batch an arm is not played where another one has a graph; a "
        "larger max_cudagraph_capture_size takes it further. vLLM captures %d graphs of decode steps%s, without "
        "adaptk %d%s; a drafter with graphs of its own captures more in like proportion.%s",
        ", ".join(f"K={k} up to {found.reach(k)} requests" for k in found.ks),
        found.captures,
        f" and {len(found.sizes)} for mixed ones" if mixed else "",
        without.captures,
        f" and {len(without.sizes)}" if mixed else "",
        "" if tuple(vllms) == found.sizes else " Capture sizes are adaptk's, as under vLLM's own some steps had none.",
    )
