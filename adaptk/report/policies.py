"""What other policies would have done: valued off-policy where the recording allows, and tried in a simulation."""

from __future__ import annotations

import math
import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import compress, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptk.report.columns import Bools
from adaptk.report.findings import Interval, PolicyValue, Simulation
from adaptk.report.loads import Baseline
from adaptk.report.reading import Recording
from adaptk.schedule import scheduled_k
from adaptk.table import GoodputTable
from adaptk.tracefile import TraceError, iter_trace

if TYPE_CHECKING:
    from adaptk.replay.evaluate import Row
    from adaptk.replay.scenarios import Scenario

STEPS = 12_000  # of a trace that are replayed, the last ones
SEEDS, FEWEST_SEEDS = 5, 2
BUDGET_S = 20.0  # after which no further world is begun
_ROWS, _ENTRIES = 40_000, 2_000_000  # of a trace that are valued off-policy, steps and requests in them, the last ones
_NEEDED = ("numba", "scipy")
_INSTALL = "pip install 'adaptk[tools]'"

Schedule = Sequence[Sequence[int]]


def off_policy(
    recording: Recording,
    base: Baseline,
    steered: Bools,
    advised: Schedule | None,
    lenient: bool,
) -> list[PolicyValue]:
    """Value fixed K and schedules by the propensities of the steps ``steered``; where that cannot be, say why."""
    columns = recording.columns
    targets = _targets(recording, base, advised)
    decided = columns.chosen >= 0
    if not decided.any():
        return [_refused(name, about, "the trace holds no decisions") for name, (about, _) in targets.items()]
    if not steered.any():
        why = "in shadow the engine's own K is played, not one that chance decided"
        return [_refused(name, about, why) for name, (about, _) in targets.items()]
    if find_spec("scipy") is None:
        return [_refused(name, about, f"scipy is not installed: {_INSTALL}") for name, (about, _) in targets.items()]
    own = [steered[source.first : source.last] for source in recording.sources]
    longest = max(range(len(own)), key=lambda i: int(own[i].sum()))
    most = max(min(int(_ENTRIES / max(float(columns.batch.mean()), 1.0)), _ROWS), 1000)
    served = (row for row in iter_trace(recording.sources[longest].path, lenient) if row.step.batch_size > 0)
    rows = list(deque(compress(served, own[longest].tolist()), maxlen=most))
    speed = _recorded_speed(rows)
    return [_valued(name, about, rows, play, speed) for name, (about, play) in targets.items()]


def simulated(
    recording: Recording,
    base: Baseline,
    advised: Schedule | None,
    lenient: bool,
    tick: Callable[[float], None],
) -> Simulation:
    """Replay the longest trace under a few policies, in as many worlds as ``BUDGET_S`` allows."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        return _unsimulated(f"{' and '.join(missing)} must be installed: {_INSTALL}")
    from adaptk.replay.traces.traced import traced_scenario

    longest = max(range(len(recording.sources)), key=lambda i: recording.sources[i].last - recording.sources[i].first)
    table = recording.table if recording.table is not None and recording.table.has_times else None
    try:
        path = recording.sources[longest].path
        traced = traced_scenario(path, table, None if table is None else recording.arms, lenient, STEPS)
    except TraceError as error:
        return _unsimulated(_advised_option(str(error).removeprefix(f"{path}: ")))
    if len(traced.scenario.arms) < 2:
        only = f"only K={traced.scenario.arms[0]} was played, which does not tell what another K costs"
        return _unsimulated(_advised_option(f"{only}: give a table of step times"))
    scenario = _with_schedules(traced.scenario, base, advised)
    names = list(_policies(scenario))
    tick(0.1)
    rows, cut_short = _run(scenario, names, lambda share: tick(0.1 + 0.9 * share))
    about = _policies(scenario)
    values = [_simulated_value(name, about[name], rows) for name in names if any(row.policy == name for row in rows)]
    values += [
        PolicyValue(
            policy=f"fixed-{k}",
            about=f"K={k} at every step",
            tokens_per_s=None,
            over_recorded=None,
            reason=_why_not(k, traced.notes),
        )
        for k in recording.arms
        if k not in scenario.arms
    ]
    return Simulation(
        steps=min(STEPS, recording.sources[longest].last - recording.sources[longest].first),
        seeds=len({row.seed for row in rows}),
        measured_tokens_per_s=traced.measured_tokens_per_s,
        policies=values,
        notes=[f"{note[0].upper()}{note[1:]}." for note in traced.notes],
        cut_short=cut_short,
    )


def _why_not(k: int, notes: Sequence[str]) -> str:
    """Why a K is not simulated."""
    told = (note for note in notes if note.startswith(f"K={k} "))
    return _advised_option(next(told, f"K={k} was never played: it is not simulated; give a table of step times"))


def _targets(recording: Recording, base: Baseline, advised: Schedule | None) -> dict[str, tuple[str, Any]]:
    """What is valued: name -> (in words, what it plays in a row)."""
    targets: dict[str, tuple[str, Any]] = {"schedule": (base.told, _plays(base.schedule))}
    if advised is not None:
        targets["advised"] = ("the schedule advised here", _plays(advised))
    table = recording.table
    if table is not None and table.has_times:
        targets["table"] = (
            "the best K of the table",
            lambda row: table.best_k(row.step.batch_size, arms=recording.arms),
        )
    for k in recording.arms:
        targets[f"fixed-{k}"] = (f"K={k} at every step", lambda row, k=k: k)
    return targets


def _plays(schedule: Schedule) -> Callable[[Any], int]:
    triples = tuple((first, last, k) for first, last, k in schedule)
    return lambda row: scheduled_k(triples, max(row.step.batch_size, 1))


def _valued(name: str, about: str, rows: Sequence[Any], play: Any, own: float | None) -> PolicyValue:
    from adaptk.replay.offpolicy import SupportError, self_normalised

    try:
        found = self_normalised(rows, play)
    except (SupportError, ValueError) as error:
        return _refused(name, about, _why(str(error)))
    if math.isnan(found.low):
        return _refused(name, about, "too few steps in which it could have been played")
    speed = Interval(found.tokens_per_s, found.low, found.high)
    ratio = None if own is None else Interval(*(each / own for each in (speed.value, speed.low, speed.high)))
    return PolicyValue(
        policy=name, about=about, tokens_per_s=speed, over_recorded=ratio, effective_steps=found.effective_steps
    )


def _recorded_speed(rows: Sequence[Any]) -> float | None:
    """Tokens per second of the same rows: each decision's outcome stands in the row that follows."""
    from adaptk.replay.offpolicy import ms_of, tokens_of

    outcomes = [(tokens_of(after.step), ms) for _, after in pairwise(rows) if (ms := ms_of(after.step)) is not None]
    total = sum(ms for _, ms in outcomes)
    return 1000.0 * sum(tokens for tokens, _ in outcomes) / total if total > 0.0 else None


def _why(error: str) -> str:
    """In few words, why a policy cannot be valued."""
    lacking = re.findall(r"(K=\d+) in (\d+) of (\d+) steps that", error)
    if lacking:
        return "; ".join(f"{k} could not have been played in {int(n):,} of {int(of):,} steps" for k, n, of in lacking)
    if "effective steps" in error:
        return "chance decided too few of the steps"
    return error.split(": simulate")[0]


def _refused(name: str, about: str, why: str) -> PolicyValue:
    return PolicyValue(policy=name, about=about, tokens_per_s=None, over_recorded=None, reason=why)


def _unsimulated(why: str) -> Simulation:
    return Simulation(steps=0, seeds=0, measured_tokens_per_s=None, policies=[], notes=[], reason=why)


def _advised_option(text: str) -> str:
    text = text.replace("give a table of step times", "give one with --table")
    return f"{text[0].upper()}{text[1:].rstrip('.')}."


def _with_schedules(scenario: Scenario, base: Baseline, advised: Schedule | None) -> Scenario:
    """The scenario with the operator's schedule and the advised one among its own policies."""
    from adaptk.replay.policies.static import StaticTable

    own = dict(scenario.own_policies)
    for name, schedule in (("schedule", base.schedule), ("advised", advised)):
        if schedule is not None and all(k in scenario.arms for _, _, k in schedule):
            table = GoodputTable.from_schedule([list(entry) for entry in schedule])
            own[name] = partial(StaticTable, table=table)
    return replace(scenario, own_policies=own)


def _policies(scenario: Scenario) -> Mapping[str, str]:
    """What is tried, in words."""
    from adaptk.replay.traces.traced import RECORDED

    told = {
        RECORDED: "what was played",
        "schedule": "what you have, at every step",
        "advised": "the schedule advised here",
    }
    found = {name: told[name] for name in told if name in scenario.own_policies}
    if scenario.table is not None and scenario.table.has_times:
        found["table"] = "the best K of the table"
    found |= {f"fixed-{k}": f"K={k} at every step" for k in scenario.arms}
    return found | {"adaptk": "adaptk, on", "oracle": "plays the best K of each step, which nobody knows"}


def _run(scenario: Scenario, names: Sequence[str], tick: Callable[[float], None]) -> tuple[list[Row], bool]:
    """Rows of all policies, world by world; an interrupt loses the world that it came in, unless it was the first."""
    from adaptk.replay.evaluate import each

    rows: list[Row] = []
    began = time.monotonic()
    try:
        for seed in range(SEEDS):
            spent = time.monotonic() - began
            if seed >= FEWEST_SEEDS and spent * (seed + 1) / seed > BUDGET_S:
                break
            world = []
            for number, row in enumerate(each(scenario, names, seed), start=1):
                world.append(row)
                tick(min((seed + number / len(names)) / SEEDS, 1.0))
            rows += world
    except KeyboardInterrupt:
        return rows, True
    return rows, False


def _simulated_value(name: str, about: str, rows: Sequence[Row]) -> PolicyValue:
    from adaptk.replay.intervals import bootstrap_ratio
    from adaptk.replay.traces.traced import RECORDED

    mine = {row.seed: row for row in rows if row.policy == name}
    recorded = {row.seed: row for row in rows if row.policy == RECORDED}
    speed = _interval(bootstrap_ratio([row.tokens_per_s for row in mine.values()]))
    ratios = [row.tokens_per_s / recorded[seed].tokens_per_s for seed, row in mine.items() if seed in recorded]
    oracle = [row.oracle_ratio for row in mine.values()]
    return PolicyValue(
        policy=name,
        about=about,
        tokens_per_s=speed,
        over_recorded=_interval(bootstrap_ratio(ratios)) if ratios else None,
        oracle_ratio=float(np.mean(oracle)) if np.isfinite(oracle).all() else None,
    )


def _interval(found: Any) -> Interval:
    """An interval; of one world alone, its ends are its value."""
    low, high = (found.value if math.isnan(end) else end for end in (found.low, found.high))
    return Interval(found.value, low, high)
