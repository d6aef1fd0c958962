"""The simulator: drives one policy through one world, step by step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import force_setattr as put
from numpy.typing import NDArray

from adaptk.decision import Decision
from adaptk.replay.compiled.kernel import advance
from adaptk.replay.compiled.layout import Conf, Line, Log, Real, Req, Slot, State, Weather
from adaptk.replay.drafter import Drafter
from adaptk.replay.noise import Compilation, Drift, Noise
from adaptk.replay.policies.base import Policy
from adaptk.replay.surface import CAPTURE_SIZES, CostSurface
from adaptk.replay.workload import Requests, Script
from adaptk.step import StepRecord
from adaptk.tracefile import TraceRow

Array = NDArray[np.float64]


class Engine(NamedTuple):
    """How the engine runs its batches.

    ``max_requests`` run at once; prompts fill a step up to ``max_tokens`` tokens, decoding requests and their drafts
    are never cut; the KV cache holds ``kv_tokens``. ``runner`` 1 makes a step's drafts within that step's time, 2
    within the next one's (vLLM's model runners V1 and V2). ``delay`` is the number of further steps that are scheduled
    before a step's result is known: 0 sync, 1 async.
    """

    max_requests: int = 256
    max_tokens: int = 8192
    kv_tokens: int = 1 << 40
    runner: int = 1
    delay: int = 0


@dataclass(frozen=True)
class World:
    """Everything that happens to a policy and that it cannot change; the same seed gives the same world.

    ``steps`` is the most steps that are simulated.
    """

    surface: CostSurface
    drafter: Drafter
    load: Requests | Script
    steps: int
    engine: Engine = field(default_factory=Engine)
    noise: Noise = field(default_factory=Noise)
    drift: Drift = field(default_factory=Drift)
    compilation: Compilation = field(default_factory=Compilation)
    seed: int = 0

    def __post_init__(self) -> None:
        widest = int(self.load.decodes.max()) if isinstance(self.load, Script) else self.engine.max_requests
        if widest > self.surface.max_batch:
            raise ValueError(f"the load has batches of {widest}: the surface {self.surface.name} ends at "
                             f"{self.surface.max_batch}, extend it")  # fmt: skip
        if self.engine.runner not in (1, 2):
            raise ValueError(f"runner is {self.engine.runner}: give 1 or 2")
        for name, value in (*self.engine._asdict().items(), ("steps", self.steps)):
            if value < (0 if name == "delay" else 1):
                raise ValueError(f"{name} is {value}: give at least {0 if name == 'delay' else 1}")
        lowest, highest = self.load.kinds
        if lowest < 0 or highest >= self.drafter.kinds:  # compiled code does not look
            wrong = highest if lowest >= 0 else lowest
            raise ValueError(f"the load has text of kind {wrong}, the drafter has {self.drafter.kinds}: add a row")


@dataclass
class Run:
    """What happened, one entry per step; times in milliseconds.

    ``length`` and ``itl`` hold the expected acceptance length and step time of every K, shape ``(steps, k_max +
    1)``; zero in steps without decoding requests. Expected is over which drafts are accepted and over where answers
    end, given the requests' kinds of text and how long answers of the load are: no policy could know more. Prompt
    tokens are not in ``itl``. ``length_now`` is what ``length`` comes down to where the policy has let the drafter
    go cold, ``compiled`` the part of ``elapsed`` that compilation took. ``noise`` multiplies a step's time,
    ``prompt_ms`` is the expected time of its prompt tokens, ``extra_ms`` what the load adds: with ``itl`` they give
    the time of one K, where ``elapsed`` of a step after a change holds two. ``arms`` are those that the run is
    judged by; ``scripted`` whether the load was a script.
    """

    arms: tuple[int, ...]
    k: NDArray[np.int64]
    batch: NDArray[np.int64]
    decodes: NDArray[np.int64]
    tokens: NDArray[np.int64]
    prefill: NDArray[np.int64]
    context: NDArray[np.int64]
    elapsed: Array
    clock: Array
    length: Array
    itl: Array
    length_now: Array
    compiled: Array
    noise: Array
    prompt_ms: Array
    extra_ms: Array
    exploring: NDArray[np.bool_]
    ended_ms: Array  # clock at the end of each request, NaN where it did not end, shape (requests,)
    preempted: int
    scripted: bool
    rows: list[TraceRow] = field(default_factory=list)


def simulate(world: World, policy: Policy, record: bool = False, arms: tuple[int, ...] | None = None) -> Run:
    """Drive ``policy`` through ``world``.

    ``record`` keeps a trace's rows: every step with the decision that it was scheduled with, where the policy gives
    decisions. ``arms`` are those that the run is judged by, rising; the policy's own by default, which may be fewer
    than the scenario offers.

    A policy with a method ``foresee(length, itl)`` is told the truth of each step before it chooses: expected
    acceptance length and step time of every K, shape ``(k_max + 1,)``.

    Raises
    ------
    ValueError
        If the policy's arms are beyond the world's surface.
    """
    arms = policy.arms if arms is None else arms
    k_max = max(policy.arms[-1], arms[-1])
    if k_max > world.surface.k_max:
        raise ValueError(f"K is up to {k_max}: the surface {world.surface.name} ends at K={world.surface.k_max}")
    arrays = _arrays(world, k_max)
    exploring = np.zeros(world.steps, dtype=bool)
    rows: list[TraceRow] = []
    _drive(world, policy, arrays, exploring, rows if record else None)
    return _run(world, arms, arrays, exploring, rows)


def _drive(
    world: World, policy: Policy, arrays: _Arrays, exploring: NDArray[np.bool_], rows: list[TraceRow] | None
) -> None:
    state, real, buffer, args = arrays.state, arrays.real, arrays.rows, tuple(arrays)
    clock = arrays.log[Log.CLOCK]
    choose, observe, foresee = policy.choose, policy.observe, getattr(policy, "foresee", None)
    learns, explores = getattr(policy, "learns", True) or rows is not None, hasattr(policy, "exploring")
    told = not isinstance(world.load, Script) or bool(np.all(world.load.context >= 0))
    second, numbered = world.engine.runner == 2, rows is not None and isinstance(world.load, Requests)
    waiting: deque[StepRecord] = deque()
    delay, before, step = world.engine.delay, 0, 0
    advance(-1, *args)
    now = state.tolist()
    while now[_BATCH]:
        batch, decodes, prompt = now[_BATCH], now[_DECODES], now[_PREFILL]
        context = now[_CONTEXT] if told else None
        if foresee is not None:
            foresee(arrays.truth[0, step], arrays.truth[1, step])
        k = choose(batch, context, decodes)
        if explores:
            exploring[step] = policy.exploring  # type: ignore[attr-defined]
        advance(k, *args)
        now = state.tolist()
        if learns:
            made = before if second else None
            # The clock is the log's: the state's has moved on where the engine then idles.
            waiting.append(
                _record(
                    batch, float(real[_ELAPSED]), k, buffer[:, :batch].tolist(), context, prompt, made, decodes,
                    float(clock[step]), numbered,
                )
            )  # fmt: skip
            if len(waiting) > delay:
                _observe(observe, waiting.popleft(), rows)
        before = k
        step += 1
    for record in waiting:
        _observe(observe, record, rows)


def _record(
    batch_size: int,
    elapsed_ms: float,
    k: int,
    rows: list[list[int]],
    context: int | None,
    prompt: int,
    draft_k: int | None,
    decodes: int,
    t_ms: float,
    numbered: bool,
) -> StepRecord:
    """A record of fields that are known to be sound: to check them takes longer than to simulate the step."""
    record = copy(_EMPTY)
    put(record, "batch_size", batch_size)
    put(record, "elapsed_ms", elapsed_ms)
    put(record, "k", k)
    put(record, "drafted", rows[0])
    put(record, "accepted", rows[1])
    put(record, "emitted", rows[2])
    put(record, "context_tokens", context)
    put(record, "prefill_tokens", prompt)
    put(record, "decodes", decodes)
    put(record, "t_ms", t_ms)
    if draft_k is not None:
        put(record, "draft_k", draft_k)
    if numbered:
        put(record, "requests", rows[3])
    return record


_EMPTY = StepRecord(batch_size=0, elapsed_ms=None, k=0, drafted=[], accepted=[])
_BATCH, _DECODES, _PREFILL, _CONTEXT = State.BATCH, State.DECODES, State.PREFILL, State.CONTEXT
_ELAPSED = Real.ELAPSED


def _observe(observe: Callable[[StepRecord], Decision | None], record: StepRecord, rows: list[TraceRow] | None) -> None:
    decision = observe(record)
    if rows is not None:
        rows.append(TraceRow(record, decision))


class _Arrays(NamedTuple):
    """The arguments of ``kernel.advance`` behind k, in its order."""

    slots: Any
    returned: Any
    requests: Any
    arrivals: Any
    known: Any
    state: Any
    conf: Any
    real: Any
    script: Any
    surface: Any
    contexts: Any
    draft: Any
    chances: Any
    mix: Any
    weather: Any
    seen: Any
    sizes: Any
    rows: Any
    log: Any
    ended: Any
    longer: Any
    truth: Any


def _arrays(world: World, k_max: int) -> _Arrays:
    load, engine, drafter, steps = world.load, world.engine, world.drafter.to(max(k_max, 1)), world.steps
    conf = np.zeros(len(Conf), dtype=np.int64)
    conf[Conf.MAX_REQUESTS], conf[Conf.MAX_TOKENS] = engine.max_requests, engine.max_tokens
    conf[Conf.KV_TOKENS], conf[Conf.SEGMENT] = engine.kv_tokens, drafter.segment
    conf[Conf.COMPILE_STEPS], conf[Conf.SEED] = world.compilation.steps, world.seed
    conf[Conf.RUNNER] = engine.runner
    real = np.zeros(len(Real))
    real[Real.PREFILL_MS], real[Real.MIXED_MS] = world.surface.prefill_ms, world.surface.mixed_ms
    real[Real.COMPILE_MS], real[Real.COLD] = world.compilation.ms, drafter.cold
    real[Real.COLD_STEPS] = drafter.cold_steps
    requests, arrivals, known = np.zeros((len(Req), 1), dtype=np.int64), np.zeros(1), np.zeros(0, dtype=np.int8)
    script = np.zeros((len(Line), 0), dtype=np.int64)
    if isinstance(load, Script):
        slots, widest = int(load.decodes.max()), int((load.decodes + load.joining).max())
        conf[Conf.SCRIPTED], real[Real.MEAN_OUTPUT], script = 1, load.output, _script(load)
    else:
        slots = widest = engine.max_requests
        requests, arrivals = _requests(load), np.array(load.arrival_ms, dtype=float)
        known = known if load.known is None else np.array(load.known, dtype=np.int8)
    supply = np.ones_like(drafter.acceptance) if drafter.supply is None else drafter.supply
    return _Arrays(
        slots=np.zeros((len(Slot), max(slots, 1)), dtype=np.int64),
        returned=np.zeros(requests.shape[1] + 1, dtype=np.int64),
        requests=requests,
        arrivals=arrivals,
        known=known,
        state=np.zeros(len(State), dtype=np.int64),
        conf=conf,
        real=real,
        script=script,
        surface=np.array(world.surface.verify_ms[:, :, : k_max + 1], dtype=float, order="C"),
        contexts=np.array(world.surface.contexts, dtype=float, order="C"),
        draft=np.array(world.surface.draft_ms[:, : k_max + 1], dtype=float, order="C"),
        chances=np.array([drafter.acceptance, supply], dtype=float, order="C"),
        mix=np.zeros((0, 0)) if drafter.mix is None else np.array(drafter.mix, dtype=float, order="C"),
        weather=_weather(world),
        seen=np.zeros((k_max + 1, len(CAPTURE_SIZES) + 1), dtype=np.int64),
        sizes=np.asarray(CAPTURE_SIZES, dtype=np.int64),
        rows=np.zeros((4, max(widest, 1)), dtype=np.int64),
        log=np.zeros((len(Log), steps)),
        ended=np.full(requests.shape[1], np.nan),
        longer=np.bincount(requests[Req.OUTPUT])[::-1].cumsum()[::-1].astype(float),
        truth=np.zeros((3, steps, k_max + 1)),
    )


def _requests(load: Requests) -> NDArray[np.int64]:
    table = np.zeros((len(Req), len(load)), dtype=np.int64)
    table[Req.PROMPT], table[Req.OUTPUT], table[Req.KIND] = load.prompt, load.output, load.kind
    table[Req.OFFSET, 1:] = np.cumsum(load.output)[:-1]
    if load.round is not None:
        table[Req.ROUND] = load.round
    if load.after_tokens is not None:
        table[Req.AFTER] = load.after_tokens
    return table


def _script(load: Script) -> NDArray[np.int64]:
    lines = np.zeros((len(Line), len(load)), dtype=np.int64)
    lines[Line.DECODES], lines[Line.JOINING], lines[Line.PROMPT] = load.decodes, load.joining, load.prompt_tokens
    lines[Line.CONTEXT], lines[Line.KIND], lines[Line.OTHERS] = load.context, load.kind, load.others
    lines[Line.OTHER_KIND] = load.other_kind
    return lines


def _weather(world: World) -> Array:
    weather = np.zeros((len(Weather), world.steps))
    weather[Weather.FACTOR] = world.noise.factors(world.steps, np.random.default_rng([world.seed, 1]))
    weather[Weather.LEVEL], weather[Weather.K_FACTOR] = world.drift.curves(world.steps)
    if isinstance(world.load, Script) and world.load.extra_ms is not None:
        extra = world.load.extra_ms[: world.steps]
        weather[Weather.EXTRA_MS, : len(extra)] = extra
    return weather


def _prompt_ms(world: World, arrays: _Arrays, steps: int) -> Array:
    surface, prompt = world.surface, arrays.log[Log.PREFILL, :steps]
    mixed = np.where(prompt > 0, surface.mixed_ms + surface.prefill_ms * prompt, 0.0)
    alone = np.where(arrays.log[Log.DECODES, :steps] == 0, surface.verify_ms[0, 0, 0] + surface.draft_ms[0, 0], 0.0)
    return np.asarray(arrays.weather[Weather.LEVEL, :steps] * (mixed + alone))


def _run(
    world: World, arms: tuple[int, ...], arrays: _Arrays, exploring: NDArray[np.bool_], rows: list[TraceRow]
) -> Run:
    steps = int(arrays.state[State.STEP])
    log = arrays.log[:, :steps]
    whole = log.astype(np.int64)
    return Run(
        arms=arms,
        k=whole[Log.K],
        batch=whole[Log.BATCH],
        decodes=whole[Log.DECODES],
        tokens=whole[Log.TOKENS],
        prefill=whole[Log.PREFILL],
        context=whole[Log.CONTEXT],
        elapsed=log[Log.ELAPSED],
        clock=log[Log.CLOCK],
        length=arrays.truth[0, :steps],
        itl=arrays.truth[1, :steps],
        length_now=arrays.truth[2, :steps],
        compiled=log[Log.COMPILED],
        noise=arrays.weather[Weather.FACTOR, :steps],
        prompt_ms=_prompt_ms(world, arrays, steps),
        extra_ms=arrays.weather[Weather.EXTRA_MS, :steps],
        exploring=exploring[:steps],
        ended_ms=arrays.ended,
        preempted=int(arrays.state[State.PREEMPTED]),
        scripted=isinstance(world.load, Script),
        rows=rows,
    )
