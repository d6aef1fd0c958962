"""Which groups of cells an engine can be measured in: batch sizes and levels of context that fit it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from adaptk.profile.estimate import Group
from adaptk.profile.orders import EngineInfo

LARGEST_BATCH = 256  # measured unless others are named; beyond it step time goes on linearly
LARGEST_CONTEXT = 8192  # the same, tokens
LEAST_CONTEXT = 16
STEPS, BLOCKS = 8, 2  # kept per block, and blocks per arm and visit
CHANGE = 2  # steps that a change of K costs
WARM_UP = 3  # steps of each arm at a batch size that is new
FULL = 0.97  # of the KV cache


class Growth(NamedTuple):
    """Tokens that one visit adds to a request: ``expected``, and at ``most`` (every draft accepted)."""

    expected: float
    most: int

    @classmethod
    def of(cls, order: Sequence[int], length: Callable[[int], float], steps: int = STEPS) -> Growth:
        """For a visit that plays ``order``; ``length`` gives the acceptance length of a K."""
        return cls(
            expected=sum((steps + CHANGE) * length(k) for k in order),
            most=sum((steps + CHANGE) * (k + 1) for k in order) + sum(WARM_UP * (k + 1) for k in set(order)),
        )


def default_batches(info: EngineInfo) -> list[int]:
    """Powers of two up to the engine's limit, and the limit.

    Examples
    --------
    >>> default_batches(EngineInfo({}, (0, 1), 24, 2048, 10_000))
    [1, 2, 4, 8, 16, 24]
    """
    most = min(info.max_num_seqs, LARGEST_BATCH)
    return sorted({*(2**i for i in range(most.bit_length())), most})


def default_contexts(info: EngineInfo, growth: Growth) -> list[int]:
    """Two levels of mean context, tokens: the largest power of two that fits every request, and an eighth of it.

    Examples
    --------
    >>> default_contexts(EngineInfo({}, (0, 1, 3), 32, 1024, 60_000), Growth(80.0, 200))
    [64, 512]
    """
    room = max(_longest(info, growth) + round(growth.expected / 2), LEAST_CONTEXT)
    high = min(2 ** (room.bit_length() - 1), LARGEST_CONTEXT)
    return sorted({max(high // 8, LEAST_CONTEXT), high})


def prompt_length(context: int, growth: Growth) -> int:
    """Tokens of the prompts of a visit whose mean context is to be ``context`` tokens."""
    return max(LEAST_CONTEXT, context - round(growth.expected / 2))


def fitting(
    batches: Sequence[int], contexts: Sequence[int], info: EngineInfo, growth: Growth
) -> tuple[list[Group], list[str]]:
    """The groups that fit the engine, and one sentence for each part that does not."""
    groups, notes = [], []
    fitting_batches = [batch for batch in batches if batch <= info.max_num_seqs]
    if len(fitting_batches) < len(batches):
        over = ", ".join(str(batch) for batch in batches if batch > info.max_num_seqs)
        notes.append(f"batch {over}: above max_num_seqs {info.max_num_seqs}, left out")
    for context in contexts:
        length = prompt_length(context, growth)
        if length > _longest(info, growth):
            least = length + info.max_model_len - _longest(info, growth)
            notes.append(f"context {context}: needs max_model_len {least}, it is {info.max_model_len}, left out")
            continue
        fits = [batch for batch in fitting_batches if batch * (length + growth.most) <= FULL * info.kv_tokens]
        groups += [Group(batch, context) for batch in fits]
        if len(fits) < len(fitting_batches):
            over = ", ".join(str(batch) for batch in fitting_batches if batch not in fits)
            notes.append(
                f"context {context}, batch {over}: more than the {info.kv_tokens} tokens of KV cache, left out"
            )
    return groups, notes


def _longest(info: EngineInfo, growth: Growth) -> int:
    """Longest prompt that stays clear of the end, where vLLM hands out dummies instead of drafts."""
    return info.max_model_len - growth.most - max(info.arms) - 2
