"""The load of a trace, tied to the work done instead of the clock, and the engine that it ran on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adaptk.replay.simulator import Engine
from adaptk.replay.traces.columns import tokens_of
from adaptk.replay.traces.tokenruns import Runs, drafts_late
from adaptk.replay.workload import Requests
from adaptk.step import StepRecord


def load_of(runs: Runs, kind: NDArray[np.int64]) -> Requests:
    """The requests of a trace, each tied to the work done before it joined.

    It arrives when as many tokens have been emitted as before it joined in the trace. One that joined when the engine
    had just been as full as it ever was must have waited for a place: it arrives with the one before it, and waits
    again. ``kind`` has shape ``(requests,)``. Answers end where they did in the trace, or with it.
    """
    full = runs.live.max()
    after = [0]
    for stream in runs.streams:
        waited = stream.first > 0 and runs.live[stream.first - 1] == full
        after.append(after[-1] if waited else stream.after_tokens)
    return Requests(
        arrival_ms=np.zeros(len(runs.streams)),
        prompt=np.array([max(1, round(stream.prompt)) for stream in runs.streams], dtype=np.int64),
        output=np.array([len(stream.outcomes) for stream in runs.streams], dtype=np.int64),
        kind=kind,
        after_tokens=np.array(after[1:], dtype=np.int64),
        known=np.array([outcome for stream in runs.streams for outcome in stream.outcomes], dtype=np.int8),
    )


def engine_of(steps: Sequence[StepRecord], runs: Runs) -> Engine:
    """An engine as large as the trace shows it; the memory for its KV cache is not in a trace and has no end."""
    return Engine(
        max_requests=int(runs.live.max()), max_tokens=_most_tokens(steps, runs), runner=2 if drafts_late(steps) else 1
    )


def most_steps(steps: Sequence[StepRecord], load: Requests, largest: int) -> int:
    """Steps that any policy can need: each of the trace as many times over as it emitted tokens for one request."""
    alone = sum(max((tokens_of(step, i) for i in range(step.batch_size)), default=0) for step in steps)
    prompts = int(np.sum(-(-load.prompt // largest)))
    return min(2 * (len(steps) + alone), int(load.output.sum())) + prompts


def _most_tokens(steps: Sequence[StepRecord], runs: Runs) -> int:
    """The limit of a step's tokens: the largest step where prompts came in pieces, else one that never binds."""
    tokens = [
        step.prefill_tokens + int(decodes) + sum(step.drafted)
        for step, decodes in zip(steps, runs.decodes, strict=True)
    ]
    split = any(stream.pieces > 1 for stream in runs.streams)
    return max(tokens) if split else max(1 << 20, 2 * max(tokens))
