"""Which requests are in the next step: continuous batching, or what a script says. Compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from adaptk.replay.compiled.layout import Conf, Line, Real, Req, Slot, State
from adaptk.replay.compiled.text import supplied_drafts, uniform

ENDLESS = 1 << 40


@njit
def drop(slots: Any, live: int, i: int) -> None:
    """Take out slot i; the order of the others stays."""
    for field in range(slots.shape[0]):
        for j in range(i, live - 1):
            slots[field, j] = slots[field, j + 1]


@njit
def script_step(k: int, slots: Any, state: Any, conf: Any, real: Any, script: Any, chances: Any, mix: Any) -> None:
    """Make the batch what the script says for this step."""
    step = state[State.STEP]
    if step >= script.shape[1]:
        state[State.BATCH] = 0
        return
    wanted = script[Line.DECODES, step]
    live = min(state[State.LIVE], wanted)
    fresh = live
    while live < wanted:
        slots[:, live] = 0
        begin_scripted(slots, live, state, conf, real)
        live += 1
    state[State.LIVE] = live
    for i in range(live):
        other = i < script[Line.OTHERS, step]
        slots[Slot.KIND, i] = script[Line.OTHER_KIND, step] if other else script[Line.KIND, step]
        if i >= fresh and k > 0:
            slots[Slot.PENDING, i] = supplied_drafts(slots, i, k, conf, chances, mix)
    context = max(script[Line.CONTEXT, step], 0)
    state[State.DECODES] = live
    state[State.BATCH] = live + script[Line.JOINING, step]
    state[State.PREFILL] = script[Line.PROMPT, step]
    state[State.CONTEXT] = context * state[State.BATCH]


@njit
def begin_scripted(slots: Any, i: int, state: Any, conf: Any, real: Any) -> None:
    serial = state[State.SERIAL]
    state[State.SERIAL] = serial + 1
    slots[Slot.REQUEST, i] = serial
    slots[Slot.CURSOR, i] = 0
    slots[Slot.LEFT, i] = ENDLESS
    if real[Real.MEAN_OUTPUT] > 0.0:  # geometric
        u = 1.0 - uniform(conf[Conf.SEED], 20, serial, 0)
        slots[Slot.LEFT, i] = 1 + int(np.log(u) / np.log(1.0 - 1.0 / max(1.000001, real[Real.MEAN_OUTPUT])))


@njit
def _preempt(slots: Any, returned: Any, requests: Any, state: Any, conf: Any, lookahead: int) -> int:
    """While the KV cache cannot hold all running requests, the one admitted last goes back to the queue.

    Returns the tokens of the cache that those that stay hold or will.
    """
    live = state[State.LIVE]
    used = 0
    for i in range(live):
        used += slots[Slot.CONTEXT, i] + slots[Slot.PREFILL, i] + lookahead
    while live > 1 and used > conf[Conf.KV_TOKENS]:
        live -= 1
        used -= slots[Slot.CONTEXT, live] + slots[Slot.PREFILL, live] + lookahead
        request = slots[Slot.REQUEST, live]
        requests[Req.DONE, request] = slots[Slot.CURSOR, live]
        returned[state[State.RETURNED]] = request
        state[State.RETURNED] += 1
        state[State.PREEMPTED] += 1
    state[State.LIVE] = live
    return int(used)


@njit
def _ready(requests: Any, arrivals: Any, state: Any, clock: float, empty: bool) -> bool:
    """Whether the next request that was never admitted may be."""
    at = state[State.NEXT]
    if at >= requests.shape[1] or arrivals[at] > clock:
        return False
    if requests[Req.ROUND, at] > state[State.ROUND]:
        if not empty:
            return False
        state[State.ROUND] = requests[Req.ROUND, at]
    # An empty engine emits no more tokens: what waits for some would wait for ever.
    return empty or requests[Req.AFTER, at] <= state[State.EMITTED]


@njit
def _admit(
    slots: Any,
    returned: Any,
    requests: Any,
    arrivals: Any,
    state: Any,
    conf: Any,
    real: Any,
    lookahead: int,
    used: int,
    room: int,
) -> None:
    """Take in waiting requests while slots, KV cache and the step's tokens have room; ``used`` is of the cache."""
    while room > 0 and state[State.LIVE] < conf[Conf.MAX_REQUESTS]:
        back = state[State.RETURNED] > 0
        if not back and not _ready(requests, arrivals, state, real[Real.CLOCK], state[State.LIVE] == 0):
            break
        request = returned[state[State.RETURNED] - 1] if back else state[State.NEXT]
        done = requests[Req.DONE, request]
        prompt = requests[Req.PROMPT, request] + done
        if state[State.LIVE] > 0 and used + prompt + lookahead > conf[Conf.KV_TOKENS]:
            break
        if back:
            state[State.RETURNED] -= 1
        else:
            state[State.NEXT] += 1
        i = state[State.LIVE]
        state[State.LIVE] = i + 1
        used += prompt + lookahead
        slots[Slot.REQUEST, i] = request
        slots[Slot.CURSOR, i] = done
        slots[Slot.LEFT, i] = requests[Req.OUTPUT, request] - done
        slots[Slot.CONTEXT, i] = 0
        slots[Slot.PREFILL, i] = prompt
        slots[Slot.PENDING, i] = 0
        slots[Slot.CHUNK, i] = min(prompt, room)
        slots[Slot.KIND, i] = requests[Req.KIND, request]
        room -= slots[Slot.CHUNK, i]


@njit
def queue_step(
    slots: Any, returned: Any, requests: Any, arrivals: Any, state: Any, conf: Any, real: Any, k_max: int
) -> None:
    """Continuous batching: running requests first, then waiting ones, prompts in chunks."""
    lookahead = k_max + 1
    used = _preempt(slots, returned, requests, state, conf, lookahead)
    if state[State.LIVE] + state[State.RETURNED] == 0 and state[State.NEXT] < requests.shape[1]:
        real[Real.CLOCK] = max(real[Real.CLOCK], arrivals[state[State.NEXT]])  # idle until the next one comes
    room = conf[Conf.MAX_TOKENS]
    for i in range(state[State.LIVE]):
        slots[Slot.CHUNK, i] = 0
        if slots[Slot.PREFILL, i] == 0:
            room -= 1 + slots[Slot.PENDING, i]
    for i in range(state[State.LIVE]):
        if slots[Slot.PREFILL, i] > 0 and room > 0:
            slots[Slot.CHUNK, i] = min(slots[Slot.PREFILL, i], room)
            room -= slots[Slot.CHUNK, i]
    _admit(slots, returned, requests, arrivals, state, conf, real, lookahead, used, room)
    decodes = prefill = context = batch = 0
    for i in range(state[State.LIVE]):
        decodes += slots[Slot.PREFILL, i] == 0
        if slots[Slot.PREFILL, i] == 0 or slots[Slot.CHUNK, i] > 0:
            batch += 1
            context += slots[Slot.CONTEXT, i]
        prefill += slots[Slot.CHUNK, i]
    state[State.DECODES], state[State.PREFILL] = decodes, prefill
    state[State.BATCH], state[State.CONTEXT] = batch, context
