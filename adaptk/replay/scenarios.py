"""Named scenarios: a world, what policies are seeded with, and what must hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from adaptk.replay.measures import Judged
from adaptk.replay.policies.base import Policy, Setup
from adaptk.replay.simulator import World
from adaptk.replay.workload import Script
from adaptk.table import GoodputTable


class Check(NamedTuple):
    """One thing that must hold of a run, in words and as a function of it."""

    what: str
    holds: Callable[[Judged], bool]


@dataclass(frozen=True)
class Scenario:
    """A world to try policies in.

    Parameters
    ----------
    name
        Identifier; that of the report where it was made from one.
    about
        One line.
    world
        The world of a seed.
    table
        What policies are seeded with; ``None``: nothing.
    startup
        What a profiling run at the engine's start would measure.
    arms
        The K that may be chosen.
    checks
        What must hold of a run to pass.
    changes
        Steps at which the world changes, from which recovery is counted.
    own_policies
        Policies that only this scenario has, by name: the one that was recorded in a trace.
    group
        ``"cases"``; ``"core"`` or ``"apart"`` for long worlds, apart those that are hard on the statistics themselves
        and judged less strictly; ``""`` for what is none of these.
    """

    name: str
    about: str
    world: Callable[[int], World]
    table: GoodputTable | None
    startup: GoodputTable
    arms: tuple[int, ...]
    checks: tuple[Check, ...]
    changes: tuple[int, ...] = ()
    own_policies: Mapping[str, Callable[[Setup], Policy]] = field(default_factory=dict)
    group: str = ""


def script(
    steps: int,
    decodes: int | Sequence[int] | Callable[[int], int],
    kind: int | Callable[[int], int] = 0,
    joining: Callable[[int], tuple[int, int]] | None = None,
    context: float | Callable[[int], float] | None = None,
    others: Callable[[int], int] | None = None,
    **more: Any,
) -> Script:
    """A script from numbers or functions of the step.

    ``joining`` gives the requests that compute prompt tokens and how many tokens; ``others`` how many requests of the
    batch have text of kind ``other_kind``; ``more`` are further fields of ``Script``.
    """
    at = range(steps)
    zeros = np.zeros(steps, dtype=np.int64)
    prompts = np.array([joining(s) for s in at], dtype=np.int64) if joining else np.zeros((steps, 2), dtype=np.int64)
    if context is None:
        contexts = np.full(steps, -1.0)
    else:
        contexts = np.array([context(s) for s in at] if callable(context) else [context] * steps, dtype=float)
    if callable(decodes):
        batch = [decodes(s) for s in at]
    else:
        batch = [decodes] * steps if isinstance(decodes, int) else list(decodes)[:steps]
    return Script(
        decodes=np.array(batch, dtype=np.int64),
        joining=prompts[:, 0],
        prompt_tokens=prompts[:, 1],
        context=contexts,
        kind=np.array([kind(s) for s in at] if callable(kind) else [kind] * steps, dtype=np.int64),
        others=np.array([others(s) for s in at], dtype=np.int64) if others else zeros,
        **more,
    )


@cache
def scenarios() -> dict[str, Scenario]:
    """All scenarios by name: the cases from users' reports, then the long worlds."""
    from adaptk.replay.cases import CASES
    from adaptk.replay.worlds import WORLDS

    return {scenario.name: scenario for scenario in (*CASES(), *WORLDS())}


def find(name: str) -> Scenario:
    """A scenario by its name, whatever its case.

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    known = {key.lower(): value for key, value in scenarios().items()}
    if name.lower() not in known:
        import difflib

        begun = [key for key in known if key.startswith(name.lower())]
        near = begun or difflib.get_close_matches(name.lower(), known, n=1)
        meant = " or ".join(known[key].name for key in near[:4])
        hint = f"did you mean {meant}?" if near else "adaptk replay --list names them"
        raise ValueError(f"scenario {name!r} is unknown: {hint}")
    return known[name.lower()]
