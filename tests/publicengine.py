"""The engine of the public profile in the replay: small worlds for a controller whose table it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adaptk import Decision
from adaptk.replay.casechecks import PUBLISHED, drafter, public_table
from adaptk.replay.costs.p32374 import public_surface
from adaptk.replay.drafter import Drafter
from adaptk.replay.measures import best_rate, efficiency
from adaptk.replay.policies.base import Policy
from adaptk.replay.scenarios import script
from adaptk.replay.simulator import Run, World, simulate

PUBLIC = public_table()
ARMS = (0, 1, 3, 5)


def world(
    steps: int,
    batch: int | Callable[[int], int],
    accepted: float | Drafter = PUBLISHED,
    *,
    k_factor: float = 1.0,
    level: float = 1.0,
    kind: int | Callable[[int], int] = 0,
    joining: Callable[[int], tuple[int, int]] | None = None,
    **more: Any,
) -> World:
    """Drafts cost ``k_factor`` times and whole steps ``level`` times what the table says.

    ``accepted`` is the acceptance at every position, or a drafter; ``kind`` and ``joining`` are of ``script``, ``more``
    of ``World``. Where nothing else is said: runner V1, feedback without delay, 3 % noise.
    """
    surface = public_surface().stretched(k_factor, level)
    text = accepted if isinstance(accepted, Drafter) else drafter([accepted])
    return World(surface, text, script(steps, batch, kind=kind, joining=joining), steps, **more)


def decided(at: World, policy: Policy) -> list[Decision]:
    """The decisions that belonged to the steps of a run, one each."""
    run = simulate(at, policy, record=True)
    decisions = [row.decision for row in run.rows if row.decision is not None]
    assert len(decisions) == len(run.k)
    return decisions


def of_best(run: Run, start: int = 0, end: int | None = None) -> float:
    """The share of the best arm's goodput that was had."""
    return efficiency(run, best_rate(run), start, end)
