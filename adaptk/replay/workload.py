"""Workloads: which requests arrive when, or what batch each step has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Requests:
    """Requests of a workload in the order in which they are served, one entry each, shape ``(requests,)``.

    Parameters
    ----------
    arrival_ms
        Clock at which the request arrives, milliseconds, not falling. All 0 is a closed loop: the engine's
        ``max_requests`` is then the concurrency.
    prompt, output
        Tokens of the prompt and of the answer, each at least 1.
    kind
        Kind of text, a row of the drafter's acceptance.
    round
        Not falling; a request of a later round waits until every request of the earlier rounds has ended (rollouts of
        reinforcement learning). ``None``: one round.
    after_tokens
        Tokens that the engine must have emitted before the request arrives, not falling; ``None``: no such rule. Ties a
        recorded load to the work done instead of the clock.
    known
        Per token of the answers, one request after the other, whether a draft of it is accepted: ``drafter.HIT``,
        ``MISS`` or ``UNKNOWN``, shape ``(output.sum(),)``; ``None``: nothing is known.
    """

    arrival_ms: Floats
    prompt: Ints
    output: Ints
    kind: Ints
    round: Ints | None = None
    after_tokens: Ints | None = None
    known: NDArray[np.int8] | None = None

    def __post_init__(self) -> None:
        for name in ("prompt", "output", "kind", "round", "after_tokens"):
            values = getattr(self, name)
            if values is not None and values.shape != self.arrival_ms.shape:
                raise ValueError(
                    f"{name} has shape {values.shape}: give one entry per request, {self.arrival_ms.shape}"
                )
        if len(self.arrival_ms) == 0:
            raise ValueError("arrival_ms is empty: give at least one request")
        if not np.all(np.isfinite(self.arrival_ms)):
            raise ValueError("arrival_ms holds a time that is no number: give milliseconds")
        for name in ("arrival_ms", "round", "after_tokens"):
            values = getattr(self, name)
            if values is not None and np.any(np.diff(values) < 0):
                raise ValueError(f"{name} falls: sort the requests by it")
        if min(self.prompt.min(), self.output.min()) < 1:
            raise ValueError("prompt or output holds a number below 1: give tokens of at least 1")
        if self.known is not None and self.known.shape != (self.output.sum(),):
            raise ValueError(f"known has shape {self.known.shape}: give one entry per token, {self.output.sum()}")

    def __len__(self) -> int:
        return len(self.arrival_ms)

    @property
    def kinds(self) -> tuple[int, int]:
        """The lowest and the highest kind of text."""
        return int(self.kind.min()), int(self.kind.max())

    @property
    def open_loop(self) -> bool:
        """Whether requests arrive by the clock."""
        return bool(self.arrival_ms[-1] > 0)


@dataclass(frozen=True)
class Script:
    """A load given step by step, whatever the policy does; each array has shape ``(steps,)``.

    Parameters
    ----------
    decodes
        Requests that decode, at least 0.
    joining, prompt_tokens
        Requests in the step that compute prompt tokens, and how many tokens those are.
    context
        Mean tokens per request in the KV cache; -1 where it is not told to the policy.
    kind
        Kind of text.
    others, other_kind
        The first ``others`` requests of the batch have text of kind ``other_kind`` instead.
    extra_ms
        Added to the step's time: compilation at boot, a stall at a known step.
    output
        Mean tokens of an answer, geometric; 0: answers do not end. An answer that ends is replaced by the next.
    """

    decodes: Ints
    joining: Ints
    prompt_tokens: Ints
    context: Floats
    kind: Ints
    others: Ints
    other_kind: int = 0
    extra_ms: Floats | None = None
    output: float = 0.0

    def __post_init__(self) -> None:
        for name in ("joining", "prompt_tokens", "context", "kind", "others"):
            if getattr(self, name).shape != self.decodes.shape:
                raise ValueError(f"{name} has shape {getattr(self, name).shape}: give {self.decodes.shape}, one a step")
        empty = np.flatnonzero(self.decodes + self.joining <= 0)
        if len(self.decodes) == 0 or len(empty):
            raise ValueError(f"step {empty[0] if len(empty) else 0} has nobody in it: give steps that are not empty")

    def __len__(self) -> int:
        return len(self.decodes)

    @property
    def kinds(self) -> tuple[int, int]:
        """The lowest and the highest kind of text."""
        others = [self.other_kind] if self.others.any() else []
        met = [*others, int(self.kind.min()), int(self.kind.max())]
        return min(met), max(met)
