"""A recorded request log as a scenario: its arrivals, prompts and answers on an engine simulated from a preset."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptk.arms import DEFAULT_ARMS, resolve_arms
from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.hardware import B200, H100, H200, LLAMA_8B, LLAMA_70B, QWEN3_30B_A3B, Deployment
from adaptk.replay.noise import Noise
from adaptk.replay.policies.base import Setup
from adaptk.replay.policies.static import FixedK, StaticTable
from adaptk.replay.presets import Preset, preset
from adaptk.replay.requestfiles import first, read_requests, scaled
from adaptk.replay.scenarios import Scenario
from adaptk.replay.simulator import Engine, Run, World, simulate
from adaptk.replay.workload import Requests
from adaptk.table import GoodputTable

MOST_STEPS = 200_000
"""Steps of the engine that are simulated at most: what does not end in them is left out of the load."""

LATE = 0.1
"""Share of the time of arrivals that the engine may run on behind the last one before it counts as overloaded."""

IDLE = 0.2
"""Share of the time without work above which the engine's goodput is mostly that of the arrivals."""

_ENGINES = {
    "h100-8b": Deployment(H100, LLAMA_8B),
    "h200-70b": Deployment(H200, LLAMA_70B, chips=4),
    "b200-moe": Deployment(B200, QWEN3_30B_A3B),
    "p32374": Deployment(H100, LLAMA_8B),
}
_NOISE = Noise(sigma=0.03, correlation=0.3, stalls=0.001)  # of a quiet machine: an assumption


class Fleet(NamedTuple):
    """A request log made a scenario, how many of its lines were skipped, and what is to be said about it."""

    scenario: Scenario
    skipped: int
    notes: list[str]


def workload_scenario(
    path: str | os.PathLike[str],
    engine: str = "h100-8b",
    table: GoodputTable | None = None,
    arms: Sequence[int] | None = None,
    rate: float = 1.0,
    requests: int | None = None,
    lenient: bool = False,
) -> Fleet:
    """Read a request log and build the world that serves it.

    All seeds serve the same load; noise and acceptance differ. Without ``table`` policies are seeded with what a
    profile of that very engine at the load's mean context would say, so that the table is right.

    Parameters
    ----------
    path
        The log, as :func:`adaptk.replay.requestfiles.read_requests` takes it.
    engine
        A preset.
    table
        The operator's own table.
    arms
        K to choose among; ``None``: 0, 1, 3 and 7 as far as the preset goes, and its largest.
    rate
        Arrivals come so many times as fast.
    requests
        Only the first so many.

    Raises
    ------
    ValueError
        If the log cannot be read, the preset is unknown, or an argument is out of range.
    """
    model = preset(engine)
    loaded = read_requests(path, lenient)
    load = scaled(loaded.requests if requests is None else first(loaded.requests, requests), rate)
    chosen = _arms(model, table, arms)
    surface = replace(model.surface.padded(), name=engine)
    most = min(256, surface.max_batch)
    room = _ENGINES[engine].kv_tokens if engine in _ENGINES else Engine().kv_tokens
    _check_room(path, load, room)
    drafter = Drafter(profiles(model.acceptance, k_max=surface.k_max))
    startup = surface.to_table(chosen, model.acceptance)
    own = surface.to_table(chosen, model.acceptance, context=_mean_context(load)) if table is None else table
    made = World(surface, drafter, load, min(MOST_STEPS, _most_steps(load)), Engine(most, kv_tokens=room), _NOISE)
    setup = Setup(own, startup, chosen)
    world, slowest, notes = _fitted(made, setup)
    usual = simulate(world, StaticTable(setup))
    served = len(usual.ended_ms)
    scenario = Scenario(
        name=Path(os.fsdecode(path)).name,
        about=f"{served} requests on {engine}" + (f", {rate:g} times as fast" if rate != 1.0 else ""),
        world=lambda seed: replace(world, seed=seed),
        table=own,
        startup=startup,
        arms=chosen,
        checks=(),
    )
    said = [f"The engine is simulated: {model.note}.", *_seed_note(table, load), *notes]
    said += _load_notes(slowest, usual, chosen[0], load.arrival_ms[:served])
    if loaded.skipped:
        lines = (
            "1 line of the log could not be read and was"
            if loaded.skipped == 1
            else (f"{loaded.skipped} lines of the log could not be read and were")
        )
        said.append(f"{lines} skipped.")
    return Fleet(scenario, loaded.skipped, said)


def _arms(model: Preset, table: GoodputTable | None, arms: Sequence[int] | None) -> tuple[int, ...]:
    k_max = model.surface.k_max
    if arms is None and table is not None:
        return tuple(k for k in table.ks if k <= k_max) or (0,)
    wanted = None if arms is None else tuple(arms)
    return resolve_arms(None, wanted, min(k_max, DEFAULT_ARMS[-1]) if wanted is None else k_max)


def _check_room(path: str | os.PathLike[str], load: Requests, room: int) -> None:
    longest = int((load.prompt + load.output).max())
    if longest > room:
        raise ValueError(
            f"{os.fsdecode(path)}: a request has {longest} tokens, the preset's KV cache holds {room}: "
            "choose a larger preset, or take that request out"
        )


def _mean_context(load: Requests) -> float:
    """Mean tokens in the KV cache of a request while it decodes, over all tokens of answers."""
    held = load.prompt + 0.5 * load.output
    return float(np.average(held, weights=load.output))


def _most_steps(load: Requests) -> int:
    """As many steps as one request after the other would take, prompts in chunks of 8192 tokens."""
    return int(load.output.sum() + np.sum(-(-load.prompt // Engine().max_tokens)))


def _fitted(world: World, setup: Setup) -> tuple[World, Run, list[str]]:
    """The world with the load that ends within its steps at the smallest K, which takes most steps; that run of it."""
    assert isinstance(world.load, Requests)
    dry = simulate(world, FixedK(setup, setup.arms[0]))
    ended = np.isfinite(dry.ended_ms)
    if ended.all():
        # Noise moves a few arrivals between steps: some room for that.
        return replace(world, steps=min(world.steps, int(1.05 * len(dry.k)) + 100)), dry, []
    whole, kept = len(world.load), int(np.argmin(ended))
    if kept == 0:
        raise ValueError(
            f"the first request does not end within {MOST_STEPS} steps of the engine, the most that are simulated: "
            "take it out of the log"
        )
    note = (
        f"Only the first {kept} of {whole} requests are served: the others do not end within {MOST_STEPS} steps of the "
        f"engine, the most that are simulated."
    )
    return replace(world, load=first(world.load, kept)), dry, [note]


def _seed_note(table: GoodputTable | None, load: Requests) -> list[str]:
    if table is not None:
        return []
    return [
        f"Policies start from a table of that very engine at the load's mean context of {_mean_context(load):.0f} "
        "tokens: the right one, which leaves little to learn. Give your own with --table."
    ]


def _load_notes(slowest: Run, usual: Run, k: int, arrival_ms: NDArray[np.float64]) -> list[str]:
    """How loaded the engine is at the smallest ``k`` and with the static table."""
    at_once = float(np.average(usual.batch, weights=usual.elapsed))
    notes = [
        f"The engine is busy {100 * _busy(slowest):.0f} % of the time at K={k}, {100 * _busy(usual):.0f} % with the "
        f"static table, then with {at_once:.1f} requests in a step on average."
    ]
    if usual.preempted:
        notes.append(f"Requests were preempted {usual.preempted} times for want of KV cache.")
    late_ms = float(usual.clock[-1] - arrival_ms[-1])
    if _busy(usual) < 1.0 - IDLE:
        notes.append(
            "An engine that waits for requests emits what arrives, whatever K is: compare ms/tok, or raise --rate."
        )
    elif arrival_ms[-1] > 0.0 and late_ms > LATE * arrival_ms[-1]:
        notes.append(
            f"The engine does not keep up and ends {late_ms / 1000.0:.0f} s after the last arrival: ms/tok is mostly "
            "time in the queue. Lower --rate for latencies as they would be served."
        )
    return notes


def _busy(run: Run) -> float:
    return float(run.elapsed.sum() / run.clock[-1])
