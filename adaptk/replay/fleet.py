"""A recorded request log as a scenario: its arrivals, prompts and answers on an engine simulated from a preset."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from adaptk.arms import DEFAULT_ARMS, resolve_arms
from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.noise import Noise
from adaptk.replay.policies.base import Setup
from adaptk.replay.policies.static import FixedK, StaticTable
from adaptk.replay.presets import Preset, preset
from adaptk.replay.requestfiles import first, only, read_requests, scaled
from adaptk.replay.scenarios import Scenario
from adaptk.replay.simulator import Engine, Run, World, simulate
from adaptk.replay.workload import Requests
from adaptk.table import GoodputTable

MOST_STEPS = 200_000
"""Steps of the engine that are simulated at most: what does not end in them is left out of the load."""

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
    acceptance: Sequence[float] | None = None,
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
    lenient
        Skip and count lines that cannot be read.
    acceptance
        Conditional acceptance of the drafter per position, the last one held; ``None``: the preset's.

    Raises
    ------
    ValueError
        If the log cannot be read, the preset is unknown, or an argument is out of range.
    """
    model = preset(engine)
    if acceptance is not None:
        model = model._replace(acceptance=_checked(acceptance, model.surface.k_max))
    loaded = read_requests(path, lenient)
    load = scaled(loaded.requests if requests is None else first(loaded.requests, requests), rate)
    chosen = _arms(model, table, arms)
    surface = model.surface.padded()
    most = min(256, surface.max_batch)
    room = Engine().kv_tokens if model.kv_tokens is None else model.kv_tokens
    _check_room(path, load, room)
    drafter = Drafter(profiles(model.acceptance, k_max=surface.k_max))
    startup = surface.to_table(chosen, model.acceptance)
    made = World(surface, drafter, load, min(MOST_STEPS, _most_steps(load)), Engine(most, kv_tokens=room), _NOISE)
    world, bare, notes = _fitted(made)
    assert isinstance(world.load, Requests)
    load = world.load
    own = surface.to_table(chosen, model.acceptance, context=_mean_context(load)) if table is None else table
    usual = simulate(world, StaticTable(Setup(own, startup, chosen)))
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
    whose = "the preset's" if acceptance is None else "as given"
    said = [
        f"The engine is simulated: {model.note}.",
        f"Acceptance per position, given that all before were accepted, {whose}: {_listed(model.acceptance)}.",
        *_seed_note(table, load),
        *notes,
        *_load_notes(bare, usual),
    ]
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


def _checked(acceptance: Sequence[float], k_max: int) -> tuple[float, ...]:
    """Acceptance of ``k_max`` positions, the last one held."""
    for value in acceptance:
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"acceptance holds {value!r}: give shares from 0 to 1, one per position")
    if not 1 <= len(acceptance) <= k_max:
        raise ValueError(f"acceptance has {len(acceptance)} positions: give 1 to {k_max}, as the preset drafts")
    return tuple(float(acceptance[min(i, len(acceptance) - 1)]) for i in range(k_max))


def _listed(acceptance: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in acceptance)


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


def _fitted(world: World) -> tuple[World, Run, list[str]]:
    """The world with the load that ends within its steps without a drafter, which takes most steps; that run of it."""
    assert isinstance(world.load, Requests)
    dry = _bare_run(world)
    ended = np.isfinite(dry.ended_ms)
    notes = []
    if not ended.all():
        if not ended.any():
            raise ValueError(
                f"no request ends within {MOST_STEPS} steps of the engine, the most that are simulated: "
                "take the long answers out of the log"
            )
        notes = [
            f"Only {int(ended.sum())} of {len(ended)} requests are served: the others do not end within {MOST_STEPS} "
            "steps of the engine, the most that are simulated."
        ]
        world = replace(world, load=only(world.load, ended))
        dry = _bare_run(world)
    room = int(1.05 * len(dry.k)) + 100  # noise moves a few arrivals between steps
    return replace(world, steps=room), dry, notes


def _bare_run(world: World) -> Run:
    bare = replace(world, surface=world.surface.without_drafter())
    return simulate(bare, FixedK(Setup(None, bare.surface.to_table((0,), None), (0,)), 0))


def _seed_note(table: GoodputTable | None, load: Requests) -> list[str]:
    if table is not None:
        return []
    return [
        f"Policies start from a table of that very engine at the load's mean context of {_mean_context(load):.0f} "
        "tokens: the right one, which leaves little to learn. Give your own with --table."
    ]


def _load_notes(bare: Run, usual: Run) -> list[str]:
    """How loaded the engine is without a drafter and with the static table."""
    at_once = float(np.average(usual.batch, weights=usual.elapsed))
    notes = [
        f"The engine is busy {100 * _busy(bare):.0f} % of the time without a drafter, {100 * _busy(usual):.0f} % with "
        f"the static table, then with {at_once:.1f} requests in a step on average."
    ]
    if usual.preempted:
        notes.append(f"Requests were preempted {usual.preempted} times for want of KV cache.")
    return notes


def _busy(run: Run) -> float:
    return float(run.elapsed.sum() / run.clock[-1])
