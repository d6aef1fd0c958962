"""What a trace says about the tokens of each request: whether a draft of them is accepted, and when they came."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptk.replay.drafter import HIT, MISS, UNKNOWN
from adaptk.replay.traces.columns import emitted_tokens, numbered, request_numbers
from adaptk.step import StepRecord


@dataclass
class Stream:
    """One request as it was recorded.

    ``outcomes`` has ``HIT``, ``MISS`` or ``UNKNOWN`` for each token of the answer. A request of d drafts of which n
    were accepted shows n hits and, if n < d, a miss; the token behind a full acceptance, and what was emitted without
    drafts, was never drafted. That holds for a drafter that proposes the same token whatever K is (a chain). How many
    drafts the drafter returned is kept in ``drafts``, of which only the shares are replayed: where it sometimes
    returned fewer than it was asked for, supply is drawn anew, and a replay is right on average, not to the token, even
    at the recorded K.
    """

    first: int  # step in which it joined
    after_tokens: int  # emitted by all requests before that step
    last: int = 0
    prompt: float = 0.0  # tokens
    pieces: int = 0  # steps that the prompt took
    outcomes: list[int] = field(default_factory=list)
    drafts: list[tuple[int, int, int]] = field(default_factory=list)  # asked for, returned, accepted; per step


class Runs(NamedTuple):
    """The requests of a trace in their order, and figures of its steps, each of shape ``(steps,)``."""

    streams: list[Stream]
    before: NDArray[np.int64]  # tokens emitted before the step
    emitted: NDArray[np.int64]
    decodes: NDArray[np.int64]  # requests that decode
    drafting: NDArray[np.int64]  # requests that go on after the step, for which drafts are made
    live: NDArray[np.int64]  # requests that have joined and not ended, scheduled or not
    silent: int  # requests that emitted nothing, which are not among the streams
    recomputed: int  # prompt tokens in steps in which no request had a prompt: caches lost to preemption, if numbered


def token_runs(steps: Sequence[StepRecord]) -> Runs:
    """Follow every request through a trace.

    What the trace does not say is guessed: which entry is which request by :func:`request_numbers`, what it emitted by
    :func:`emitted_tokens`. Without numbers nothing counts as computed again.
    """
    streams: dict[int, Stream] = {}
    asked: dict[int, int] = {}
    answering: list[list[Stream]] = []
    late = drafts_late(steps)
    before, emitted, decodes = (np.zeros(len(steps), dtype=np.int64) for _ in range(3))
    total = recomputed = 0
    who = list(request_numbers(steps))
    tokens, known = emitted_tokens(steps, who), numbered(steps)
    for i, (step, requests) in enumerate(zip(steps, who, strict=True)):
        before[i] = total
        members = [streams.setdefault(request, Stream(i, total)) for request in requests]
        begun = [stream for stream in members if not stream.outcomes]
        if known and not begun:
            recomputed += step.prefill_tokens
        for stream in begun:
            stream.prompt += step.prefill_tokens / len(begun)
            stream.pieces += 1
        decodes[i] = _decodes(step, len(begun))
        for at, (request, stream) in enumerate(zip(requests, members, strict=True)):
            stream.last = i
            emitted[i] += _take_in(stream, step, at, tokens[i][at], asked.get(request, 0))
            asked[request] = step.k if late or step.draft_k is None else step.draft_k
        total += int(emitted[i])
        answering.append([stream for stream in members if stream.outcomes])
    drafting = np.array([sum(s.last > i for s in those) for i, those in enumerate(answering)], dtype=np.int64)
    live = _live(streams.values(), len(steps))
    heard = [stream for stream in streams.values() if stream.outcomes]
    return Runs(heard, before, emitted, decodes, drafting, live, len(streams) - len(heard), recomputed)


def drafts_late(steps: Sequence[StepRecord]) -> bool:
    """Whether a step's drafts fell into the time of the next one (vLLM's model runner V2)."""
    return any(step.draft_k for step in steps)


def _take_in(stream: Stream, step: StepRecord, at: int, tokens: int, asked: int) -> int:
    """Add what a request did in a step; the ``tokens`` that it emitted."""
    drafted, accepted = step.drafted[at], step.accepted[at]
    if stream.outcomes or drafted:
        stream.drafts.append((max(asked, drafted), drafted, accepted))
    seen = [HIT] * accepted + [MISS if accepted < drafted else UNKNOWN]
    stream.outcomes += (seen + [UNKNOWN] * (tokens - len(seen)))[:tokens]
    return tokens


def _decodes(step: StepRecord, begun: int) -> int:
    if step.decodes is not None:
        return min(step.decodes, step.batch_size)
    return step.batch_size - begun if step.prefill_tokens else step.batch_size


def _live(streams: Iterable[Stream], steps: int) -> NDArray[np.int64]:
    change = np.zeros(steps + 1, dtype=np.int64)
    for stream in streams:
        change[stream.first] += 1
        change[stream.last + 1] -= 1
    return np.cumsum(change)[:-1]
