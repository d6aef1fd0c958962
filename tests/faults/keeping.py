"""A controller that learns a little at a time, and a keeper of its state without an engine around."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adaptk import Controller, StepRecord
from adaptk.settings import Mode
from adaptk.statefile import State, read_state
from adaptk.vllm_plugin.state import Keeper
from adaptk.vllm_plugin.stateplace import Place
from tests.publicengine import PUBLIC

KEY = {"model": "llama", "device": "H100"}


class Steered:
    """What a keeper needs of a steering."""

    def __init__(self) -> None:
        self.active = True
        self.mode: Mode = "on"
        self.at_work = False
        self.turn = 0


def learn(controller: Controller, steps: int = 1) -> None:
    """So many steps at a batch size that changes."""
    for _ in range(steps):
        batch = 1 + controller.counters["steps"] // 7 % 40
        k = controller.choose(batch, 100 * batch)
        took = 8.0 + 0.05 * batch * (k + 1)
        controller.observe(
            StepRecord(
                batch_size=batch,
                elapsed_ms=took,
                k=k,
                drafted=[k] * batch,
                accepted=[min(k, 1)] * batch,
                context_tokens=100 * batch,
                asked=k,
            )
        )


def fresh() -> Controller:
    return Controller(PUBLIC, seed=0)


def kept(path: Path, controller: Controller, steering: Any, key: dict[str, Any] | None = None) -> Keeper:
    """A keeper that has begun as an engine's does: with the lock, if it can be had, and the file read."""
    keeper = Keeper(placed(path, key), controller, steering)
    keeper.place.lock()
    keeper.start()
    return keeper


def placed(path: Path, key: dict[str, Any] | None = None) -> Place:
    """A place of the engine with this key."""
    return Place(path, KEY if key is None else key, "0.32.0")


def saved(path: Path) -> State:
    """The state in a file that must hold one."""
    state = read_state(path)
    assert state is not None
    return state


def steps_in(path: Path) -> int:
    """Steps that the saved controller had seen, all of its state checked."""
    restored = Controller.restore(saved(path).snapshot, PUBLIC)
    return restored.counters["steps"]
