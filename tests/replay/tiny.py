"""Scenarios that take milliseconds, and rows made up by hand."""

from __future__ import annotations

from typing import Any

import pytest

from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.evaluate import Bench, Row
from adaptk.replay.noise import Noise
from adaptk.replay.scenarios import Check, Scenario, script
from adaptk.replay.simulator import World
from tests.replay.handmade import surface

ARMS = (0, 1, 3)
ACCEPTANCE = (0.8, 0.7, 0.6)


def drafts_used(judged: Any) -> bool:
    return bool(judged.run.k.max() > 0)


def world_of(seed: int) -> World:
    load = script(60, lambda step: 1 + step % 4)
    return World(surface(k_max=3), Drafter(profiles(ACCEPTANCE, k_max=3)), load, 60, noise=Noise(0.02), seed=seed)


def tiny(
    name: str = "T1", checks: tuple[Check, ...] = (Check("drafts are used", drafts_used),), **more: Any
) -> Scenario:
    """A scenario of 60 steps at batch 1 to 4."""
    table = surface(k_max=3).to_table(ARMS, ACCEPTANCE, (1, 2, 4))
    fields: dict[str, Any] = {"table": table, "arms": ARMS, **more}
    return Scenario(name, f"what {name} is about", world_of, startup=table, checks=checks, **fields)


def row(scenario: str = "A", policy: str = "adaptk", seed: int = 0, **more: Any) -> Row:
    """A row with plausible figures, ``more`` of them given."""
    fields: dict[str, Any] = {
        "arms": ARMS, "tokens_per_s": 100.0, "oracle_ratio": 0.9, "table_ratio": 1.1, "switches_per_1000": 5.0,
        "explore_ms": 2.0, "passed": True, "failed": [], "p50_ms": 10.0, "p99_ms": 12.0, "recovery_steps": None,
        "recoveries": [], "lasting_per_1000": 4.0, "in_visits": 0.01, "below_k0": 0.0, "over_k0": 0.0,
        "over_k0_early": 0.0, "regret_ms": 3.0, "steps": 60, "tokens": 100, "time_ms": 600.0, "unfinished": 0,
        "latency_ms": None, **more,
    }  # fmt: skip
    return Row(scenario=scenario, policy=policy, seed=seed, **fields)


def interrupt_run(monkeypatch: pytest.MonkeyPatch, finished: int) -> None:
    """An interrupt comes once so many policies have been run."""
    real: Any = Bench.run
    calls = iter(range(finished + 1))

    def impatient(*arguments: Any, **more: Any) -> Any:
        if next(calls) == finished:
            raise KeyboardInterrupt
        return real(*arguments, **more)

    monkeypatch.setattr(Bench, "run", impatient)
