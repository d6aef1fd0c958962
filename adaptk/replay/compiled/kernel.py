"""The engine's step, compiled: verify, draft, take time, schedule the next batch.

Everything lives in a few arrays; ``layout`` names their rows and entries.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from adaptk.replay import drafter
from adaptk.replay.compiled import batching, layout, text
from adaptk.replay.compiled.batching import begin_scripted, drop, queue_step, script_step
from adaptk.replay.compiled.layout import Conf, Log, Real, Slot, State, Weather
from adaptk.replay.compiled.text import accepted_drafts, kind_of, supplied_drafts, warmth
from adaptk.replay.drafter import COLD_AFTER


@njit
def _verify_ms(verify: Any, contexts: Any, batch: int, width: float, context: float) -> float:
    """Time to verify ``width`` drafts per request, between whole numbers of drafts and levels of context."""
    low = min(int(width), verify.shape[2] - 1)
    high = min(low + 1, verify.shape[2] - 1)
    part = width - low
    last = contexts.shape[0] - 1
    right = 0
    while right < last and contexts[right] < context:
        right += 1
    time = (1.0 - part) * verify[right, batch, low] + part * verify[right, batch, high]
    if right == 0 or contexts[right] <= context:
        return time
    left = right - 1
    share = (context - contexts[left]) / (contexts[right] - contexts[left])
    before = (1.0 - part) * verify[left, batch, low] + part * verify[left, batch, high]
    return (1.0 - share) * before + share * time


@njit
def _goes_on(tokens: int, emitted: int, conf: Any, real: Any, longer: Any) -> float:
    """Probability that an answer that has ``emitted`` tokens, and will have one more, has ``tokens`` beyond that one.

    In a script answers are geometric, which have no memory; else they are as long as those of the load are.
    """
    if conf[Conf.SCRIPTED]:
        mean = real[Real.MEAN_OUTPUT]
        return float((1.0 - 1.0 / max(1.000001, mean)) ** tokens) if mean > 0.0 else 1.0
    at = emitted + 1 + tokens
    return float(longer[at] / longer[emitted + 1]) if at < longer.shape[0] else 0.0


@njit
def _truth(
    slots: Any,
    state: Any,
    surface: Any,
    contexts: Any,
    draft: Any,
    chances: Any,
    mix: Any,
    weather: Any,
    conf: Any,
    real: Any,
    longer: Any,
    truth: Any,
) -> None:
    """Expected acceptance length and step time of every K at the scheduled step, prompt tokens apart.

    The third layer is the acceptance length that a drafter gone cold has at the moment. Which draft is accepted and
    which token ends an answer is not foreseen, only how likely it is.
    """
    step, decodes = state[State.STEP], state[State.DECODES]
    truth[:, step] = 0.0
    if decodes == 0:
        return
    widths = np.zeros(truth.shape[2])
    factor = warmth(state, real)
    for i in range(state[State.LIVE]):
        if slots[Slot.PREFILL, i] > 0:
            continue
        kind = kind_of(slots[Slot.KIND, i], slots[Slot.REQUEST, i], slots[Slot.CURSOR, i], conf, mix)
        reach = now = given = length = length_now = 1.0
        width = 0.0
        truth[0, step, 0] += 1.0
        truth[2, step, 0] += 1.0
        for j in range(truth.shape[2] - 1):
            given *= chances[1, kind, j]
            reach *= chances[0, kind, j] * chances[1, kind, j]
            now *= factor * chances[0, kind, j] * chances[1, kind, j]
            width += given
            widths[j + 1] += width
            goes_on = _goes_on(j + 1, slots[Slot.CURSOR, i], conf, real, longer)
            length += reach * goes_on
            length_now += now * goes_on
            truth[0, step, j + 1] += length
            truth[2, step, j + 1] += length_now
    mean = state[State.CONTEXT] / state[State.BATCH]
    idle = _verify_ms(surface, contexts, decodes, 0.0, mean) + draft[decodes, 0]
    for k in range(truth.shape[2]):
        truth[0, step, k] /= decodes
        truth[2, step, k] /= decodes
        full = _verify_ms(surface, contexts, decodes, widths[k] / decodes, mean) + draft[decodes, k]
        full = idle + weather[Weather.K_FACTOR, step] * (full - idle)
        truth[1, step, k] = weather[Weather.LEVEL, step] * full


@njit
def _compiling(seen: Any, sizes: Any, decodes: int, width: float, conf: Any) -> bool:
    """Whether this pair of K and padded size was met too rarely to be compiled."""
    if conf[Conf.COMPILE_STEPS] == 0 or decodes == 0:
        return False
    k = min(int(np.ceil(width)), seen.shape[0] - 1)
    size = 0
    while size < sizes.shape[0] and sizes[size] < decodes * (k + 1):
        size += 1
    seen[k, size] += 1
    return bool(seen[k, size] <= conf[Conf.COMPILE_STEPS])


@njit
def _emit(
    slots: Any, requests: Any, known: Any, state: Any, conf: Any, real: Any, chances: Any, mix: Any, rows: Any
) -> None:
    """Verify what is pending and compute prompts; ``rows`` becomes drafted, accepted and emitted per request."""
    factor = warmth(state, real)
    row = tokens = verified = 0
    for i in range(state[State.LIVE]):
        prompt, chunk = slots[Slot.PREFILL, i], slots[Slot.CHUNK, i]
        if prompt > 0 and chunk == 0:
            continue
        drafted = slots[Slot.PENDING, i]
        accepted = 0
        if drafted > 0:
            accepted = accepted_drafts(slots, i, drafted, factor, requests, known, conf, chances, mix)
        emitted = min(accepted + 1, slots[Slot.LEFT, i])
        if prompt > 0:
            slots[Slot.PREFILL, i] = prompt - chunk
            slots[Slot.CONTEXT, i] += chunk
            if chunk < prompt:
                emitted = 0
        else:
            slots[Slot.CONTEXT, i] += emitted
        slots[Slot.CURSOR, i] += emitted
        slots[Slot.LEFT, i] -= emitted
        rows[0, row], rows[1, row], rows[2, row], rows[3, row] = drafted, accepted, emitted, slots[Slot.REQUEST, i]
        row += 1
        tokens += emitted
        verified += drafted
    while row < state[State.BATCH]:  # a script's joining requests
        rows[0, row], rows[1, row], rows[2, row], rows[3, row] = 0, 0, 0, -1
        row += 1
    state[State.TOKENS], state[State.VERIFIED] = tokens, verified
    state[State.EMITTED] += tokens


@njit
def _take_time(
    k: int, slots: Any, state: Any, conf: Any, real: Any, surface: Any, contexts: Any, draft: Any, weather: Any
) -> None:
    """Move the clock by the step's time."""
    step, decodes, prompt = state[State.STEP], state[State.DECODES], state[State.PREFILL]
    width = state[State.VERIFIED] / decodes if decodes > 0 else 0.0
    mean = state[State.CONTEXT] / state[State.BATCH]
    idle = _verify_ms(surface, contexts, decodes, 0.0, mean)
    verify = idle + weather[Weather.K_FACTOR, step] * (_verify_ms(surface, contexts, decodes, width, mean) - idle)
    drafting = 0
    for i in range(state[State.LIVE]):
        # A script's answer that ends is replaced at once: its successor's drafts are made in this step.
        drafting += slots[Slot.PREFILL, i] == 0 and (slots[Slot.LEFT, i] > 0 or conf[Conf.SCRIPTED] == 1)
    none = draft[drafting, 0]
    made = none + weather[Weather.K_FACTOR, step] * (draft[drafting, k] - none)
    if conf[Conf.RUNNER] == 2:  # the step's drafts fall into the time of the next one
        made, real[Real.DRAFT_BEFORE] = real[Real.DRAFT_BEFORE], made
    time = verify + made
    if prompt > 0:
        time += real[Real.MIXED_MS] + real[Real.PREFILL_MS] * prompt
    time = time * weather[Weather.LEVEL, step] * weather[Weather.FACTOR, step] + weather[Weather.EXTRA_MS, step]
    real[Real.ELAPSED] = time


@njit
def _move_on(slots: Any, state: Any, conf: Any, real: Any, k: int, chances: Any, mix: Any, ended: Any) -> None:
    """After a step: take out what has ended, draft for the others."""
    at = 0
    for _ in range(state[State.LIVE]):
        if slots[Slot.LEFT, at] <= 0 and not conf[Conf.SCRIPTED]:
            ended[slots[Slot.REQUEST, at]] = real[Real.CLOCK]
            drop(slots, state[State.LIVE], at)
            state[State.LIVE] -= 1
            continue
        if slots[Slot.LEFT, at] <= 0:
            begin_scripted(slots, at, state, conf, real)
        slots[Slot.PENDING, at] = (
            supplied_drafts(slots, at, k, conf, chances, mix) if slots[Slot.PREFILL, at] == 0 else 0
        )
        at += 1
    state[State.BLIND] = state[State.BLIND] + 1 if k == 0 else 0
    if state[State.BLIND] >= COLD_AFTER:
        state[State.COLD], state[State.WARM] = 1, 0
    elif k > 0:
        state[State.WARM] += 1


@njit
def _advance(
    k: int,
    slots: Any,
    returned: Any,
    requests: Any,
    arrivals: Any,
    known: Any,
    state: Any,
    conf: Any,
    real: Any,
    script: Any,
    surface: Any,
    contexts: Any,
    draft: Any,
    chances: Any,
    mix: Any,
    weather: Any,
    seen: Any,
    sizes: Any,
    rows: Any,
    log: Any,
    ended: Any,
    longer: Any,
    truth: Any,
) -> None:
    """Run the step that is scheduled with k and schedule the next one; before the first step, ``k`` is -1.

    A batch of 0 in the state means that nothing is left to do.
    """
    if k >= 0:
        step = state[State.STEP]
        log[Log.BATCH, step], log[Log.DECODES, step] = state[State.BATCH], state[State.DECODES]
        log[Log.PREFILL, step], log[Log.CONTEXT, step] = state[State.PREFILL], state[State.CONTEXT]
        _emit(slots, requests, known, state, conf, real, chances, mix, rows)
        _take_time(k, slots, state, conf, real, surface, contexts, draft, weather)
        width = state[State.VERIFIED] / state[State.DECODES] if state[State.DECODES] > 0 else 0.0
        if _compiling(seen, sizes, state[State.DECODES], width, conf):
            real[Real.ELAPSED] += real[Real.COMPILE_MS]
            log[Log.COMPILED, step] = real[Real.COMPILE_MS]
        real[Real.CLOCK] += real[Real.ELAPSED]
        _move_on(slots, state, conf, real, k, chances, mix, ended)
        log[Log.K, step], log[Log.TOKENS, step] = k, state[State.TOKENS]
        log[Log.ELAPSED, step], log[Log.CLOCK, step] = real[Real.ELAPSED], real[Real.CLOCK]
        state[State.STEP] = step + 1
        if state[State.STEP] >= log.shape[1]:
            state[State.BATCH] = 0
            return
    if conf[Conf.SCRIPTED]:
        script_step(k, slots, state, conf, real, script, chances, mix)
    else:
        queue_step(slots, returned, requests, arrivals, state, conf, real, truth.shape[2] - 1)
    if state[State.BATCH] > 0:
        _truth(slots, state, surface, contexts, draft, chances, mix, weather, conf, real, longer, truth)


def _compiled(sources: int) -> Any:
    """``_advance`` with a cache that is good for these sources only.

    numba looks at the file of the cached function alone: what is compiled into it from other files would go stale. The
    number becomes part of the cache's key.
    """

    @njit(cache=True)
    def advance(
        k: int, slots: Any, returned: Any, requests: Any, arrivals: Any, known: Any, state: Any, conf: Any, real: Any,
        script: Any, surface: Any, contexts: Any, draft: Any, chances: Any, mix: Any, weather: Any, seen: Any,
        sizes: Any, rows: Any, log: Any, ended: Any, longer: Any, truth: Any,
    ) -> None:  # fmt: skip
        if sources >= 0:
            _advance(
                k, slots, returned, requests, arrivals, known, state, conf, real, script, surface, contexts, draft,
                chances, mix, weather, seen, sizes, rows, log, ended, longer, truth,
            )  # fmt: skip

    return advance


def _checksum() -> int:
    sources = (layout, drafter, text, batching, sys.modules[__name__])
    return zlib.crc32(b"".join(Path(str(source.__file__)).read_bytes() for source in sources))


advance = _compiled(_checksum())
