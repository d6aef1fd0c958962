"""What the cases from users' reports are made of: the public profile as a world, and checks that several cases share.

Checks on beliefs hold for policies that have no ``controller`` to ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from adaptk.controller import Controller
from adaptk.replay import measures
from adaptk.replay.costs.p32374 import ACCEPTANCE, BATCHES, KS, public_surface
from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.measures import Judged
from adaptk.replay.scenarios import Check, Scenario
from adaptk.replay.simulator import World
from adaptk.replay.surface import CostSurface
from adaptk.replay.workload import Script
from adaptk.table import GoodputTable


def public_table(acceptance: Sequence[float] = ACCEPTANCE, ks: Sequence[int] = KS) -> GoodputTable:
    """The public profile as an operator's table, with its own acceptance or another."""
    return public_surface().to_table(ks, acceptance, BATCHES)


def drafter(*acceptance: Sequence[float], **more: Any) -> Drafter:
    """A drafter with one kind of text per row of conditional acceptance."""
    return Drafter(profiles(*acceptance), **more)


PUBLISHED = drafter(ACCEPTANCE)
"""The drafter of the public profile."""


def case(
    name: str,
    about: str,
    load: Script,
    checks: Sequence[Check],
    *,
    text: Drafter = PUBLISHED,
    surface: CostSurface | None = None,
    table: GoodputTable | None = None,
    arms: tuple[int, ...] = KS,
    changes: tuple[int, ...] = (),
    **more: Any,
) -> Scenario:
    """A scripted scenario; surface and table are the public profile's where none is given, ``more`` is of ``World``."""
    truth = public_surface() if surface is None else surface

    def world(seed: int) -> World:
        return World(truth, text, load, len(load), seed=seed, **more)

    return Scenario(
        name=name,
        about=about,
        world=world,
        table=public_table(ks=arms) if table is None else table,
        startup=truth.to_table(arms, ACCEPTANCE),
        arms=arms,
        checks=tuple(checks),
        changes=changes,
        group="cases",
    )


def mostly(ks: Sequence[int], least: float, start: int = 0, end: int | None = None) -> Check:
    """One of ``ks`` on at least this share of the steps."""
    which = " or ".join(map(str, ks))
    what = f"K={which} on {least:.0%} of the steps {_span(start, end)}"
    return Check(what, lambda judged: measures.share(judged.run, ks, start, end) >= least)


def reaches(ks: Sequence[int], start: int, within: int, hold: int = 10) -> Check:
    """One of ``ks`` is played ``hold`` times in a row, the first of them at most ``within`` steps after ``start``."""
    which = " or ".join(map(str, ks))
    what = f"K={which} within {within} steps of step {start}"
    return Check(what, lambda judged: measures.first(judged.run, ks, start, hold) <= within)


def near_oracle(least: float, start: int = 0, end: int | None = None) -> Check:
    """At least this share of the oracle's goodput."""
    what = f"{least:.3f} of the oracle's goodput {_span(start, end)}"
    return Check(what, lambda judged: judged.of_oracle(start, end) >= least)


def near_fixed(k: int, least: float, start: int = 0, end: int | None = None) -> Check:
    """At least this share of the goodput of a fixed K."""
    what = f"{least:.3f} of the goodput of K={k} {_span(start, end)}"
    return Check(what, lambda judged: judged.of_fixed(k, start, end) >= least)


def few_switches(most: int, start: int = 0, end: int | None = None) -> Check:
    """At most so many changes of K."""
    what = f"at most {most} switches {_span(start, end)}"
    return Check(what, lambda judged: measures.switches(judged.run, start, end) <= most)


def few_lasting(most: int, start: int = 0, end: int | None = None) -> Check:
    """At most so many changes of K that are no visits."""
    what = f"at most {most} lasting switches {_span(start, end)}"
    return Check(what, lambda judged: measures.lasting_switches(judged.run, start, end) <= most)


def believed(what: str, holds: Callable[[Controller], bool]) -> Check:
    """Something that must hold of what the controller believes at the end."""

    def ask(judged: Judged) -> bool:
        controller = getattr(judged.policy, "controller", None)
        return controller is None or holds(controller)

    return Check(what, ask)


def time_believed(batch: int, k: int, itl_ms: float, tolerance: float = 0.1) -> Check:
    """The step time of an arm is known to within ``tolerance`` of it."""

    def holds(controller: Controller) -> bool:
        itl = {belief.k: belief.itl_ms for belief in controller.belief(batch)}[k]
        return itl is not None and abs(itl / itl_ms - 1.0) <= tolerance

    return believed(
        f"the step time of K={k} at batch {batch} is believed to be {itl_ms:.1f} ms ±{tolerance:.0%}", holds
    )


def acceptance_believed(positions: Sequence[float], tolerance: float) -> Check:
    """Conditional acceptance of drafts that were there, for the first positions, is known to within ``tolerance``."""

    def holds(controller: Controller) -> bool:
        acceptance = controller._acceptance
        pairs = zip(positions, acceptance.alpha, acceptance.beta, strict=False)
        return all(abs(a / (a + b) - p) <= tolerance for p, a, b in pairs)

    what = ", ".join(f"{p:.2f}" for p in positions)
    return believed(f"acceptance per position is believed to be {what} ±{tolerance:.2f}", holds)


def counted(counter: str, times: int) -> Check:
    """A counter of the controller stands at ``times``."""
    return believed(
        f"the counter {counter} stands at {times}", lambda controller: controller.counters[counter] == times
    )


def _span(start: int, end: int | None) -> str:
    if end is None:
        return "overall" if start == 0 else f"from step {start}"
    return f"between steps {start} and {end - 1}"
