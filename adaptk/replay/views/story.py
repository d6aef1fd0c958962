"""One seed of a scenario looked at closely: K over time, regret, and what adaptk believes beside the truth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptk.belief import ArmBelief
from adaptk.replay import measures
from adaptk.replay.evaluate import Bench, Evaluated
from adaptk.replay.policies.adaptive import Adaptive
from adaptk.replay.registry import GREEDY
from adaptk.replay.scenarios import Scenario
from adaptk.replay.simulator import Run
from adaptk.replay.workload import Script

Array = NDArray[np.float64]

BINS = 300
"""Pieces that the course of a run is cut into for a figure."""

LAST = 20  # steps of one batch size at the end, whose truth belief is held against


class Visits(NamedTuple):
    """Which K a policy played when: a point for each K of each piece, and its share of that piece's steps.

    Each has shape ``(points,)``.
    """

    at: Array
    k: NDArray[np.int64]
    share: Array


class Curve(NamedTuple):
    """Values over the course of a run, each of shape ``(points,)``."""

    at: Array
    value: Array


class Arm(NamedTuple):
    """What is believed, true and tabulated of one arm at one batch size; ``None``: the table has none."""

    belief: ArmBelief
    true_al: float
    true_itl_ms: float
    table_al: float | None
    table_itl_ms: float | None


@dataclass(frozen=True)
class Story:
    """What one seed of a scenario looked like.

    ``axis`` names what ``at`` counts: steps where the load is scripted, else seconds of the engine's clock. ``regret``
    is cumulative, milliseconds. ``arms`` is empty where no step decoded.
    """

    scenario: str
    seed: int
    axis: str
    batch: Curve
    visits: dict[str, Visits]
    regret: dict[str, Curve]
    arms_batch: int
    arms: list[Arm]


def story(scenario: Scenario, seed: int, rival: str | None = None) -> Story:
    """Run oracle, table, adaptk, greedy adaptk and ``rival`` in the world of ``seed``, and keep what figures show."""
    bench = Bench(scenario, seed)
    names = dict.fromkeys(["oracle", "table", "adaptk", GREEDY, *([rival] if rival else [])])
    runs = {name: bench.run(name) for name in names}
    scripted = isinstance(bench.world.load, Script)
    own = runs["adaptk"]
    batch, arms = _arms(own, bench) if np.any(own.run.decodes > 0) else (0, [])
    return Story(
        scenario=scenario.name,
        seed=seed,
        axis="step" if scripted else "engine time, s",
        batch=_batch(own.run, _course(own.run, scripted)),
        visits={name: visits(runs[name].run.k, _course(runs[name].run, scripted), runs[name].run.decodes > 0)
                for name in ("oracle", "table", "adaptk")},
        regret={name: _regret(one.run, _course(one.run, scripted)) for name, one in runs.items()},
        arms_batch=batch,
        arms=arms,
    )  # fmt: skip


def visits(ks: NDArray[np.int64], course: Array, counted: NDArray[np.bool_], bins: int = BINS) -> Visits:
    """The K played in each of ``bins`` pieces of the course, and how often; short visits are not lost.

    Examples
    --------
    >>> found = visits(np.array([3, 3, 1, 1]), np.arange(4.0), np.ones(4, dtype=bool), bins=1)
    >>> found.k.tolist(), found.share.tolist()
    ([1, 3], [0.5, 0.5])
    """
    places, width = _pieces(course, bins)
    pairs, counts = np.unique(np.stack([places[counted], ks[counted]]), axis=1, return_counts=True)
    of_piece = np.bincount(places[counted], minlength=bins)
    return Visits((pairs[0] + 0.5) * width, pairs[1], counts / of_piece[pairs[0]])


def best_rival(oracle_ratios: Mapping[str, float], left_out: Iterable[str]) -> str | None:
    """The policy with the highest ratio that is neither adaptk in any form nor among ``left_out``."""
    out = set(left_out)
    rivals = {name: value for name, value in oracle_ratios.items() if name not in out and not name.startswith("adaptk")}
    return max(rivals, key=lambda name: rivals[name], default=None)


def _course(run: Run, scripted: bool) -> Array:
    return np.arange(len(run.k), dtype=float) if scripted else run.clock / 1000.0


def _pieces(course: Array, bins: int) -> tuple[NDArray[np.int64], float]:
    """The piece that each step lies in, and how long a piece is."""
    width = max(float(course[-1]), 1e-9) / bins
    return np.minimum((course / width).astype(np.int64), bins - 1), width


def _batch(run: Run, course: Array) -> Curve:
    """Mean number of requests in the step, in the pieces that have steps."""
    places, width = _pieces(course, BINS)
    steps = np.bincount(places, minlength=BINS)
    total = np.bincount(places, weights=run.batch, minlength=BINS)
    held = np.flatnonzero(steps)
    middles = np.asarray((held + 0.5) * width, dtype=np.float64)
    return Curve(middles, total[held] / steps[held])


def _regret(run: Run, course: Array) -> Curve:
    lost = np.cumsum(measures.regret_ms(run), dtype=np.float64)
    kept = np.unique(np.linspace(0, len(lost) - 1, 1500).astype(np.int64))
    return Curve(course[kept], lost[kept])


def _arms(own: Evaluated, bench: Bench) -> tuple[int, list[Arm]]:
    """Belief at the end against the truth of the last steps with the middle batch of the last quarter."""
    run, policy, table = own.run, own.policy, bench.scenario.table
    assert isinstance(policy, Adaptive)
    decoding = np.flatnonzero(run.decodes > 0)
    last = decoding[-max(1, len(decoding) // 4) :]
    middle = int(np.sort(run.decodes[last])[len(last) // 2])
    like = last[run.decodes[last] == middle][-LAST:]
    length, itl = run.length[like].mean(axis=0), run.itl[like].mean(axis=0)
    return middle, [
        Arm(
            belief=belief,
            true_al=float(length[belief.k]),
            true_itl_ms=float(itl[belief.k]),
            table_al=None if table is None or table.acceptance is None else table.acceptance_length(belief.k),
            table_itl_ms=belief.table_itl_ms,
        )
        for belief in policy.controller.belief(middle)
    ]
