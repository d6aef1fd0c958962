"""What is to be said of a replay's figures in words, the same on the terminal and in the report."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from adaptk.replay.evaluate import Row
from adaptk.replay.intervals import Interval
from adaptk.replay.registry import NO_DRAFTER
from adaptk.replay.scenarios import Scenario
from adaptk.replay.views.aggregate import Summary, paired, ratio
from adaptk.replay.workload import Requests

ONE_SEED = "One seed: no interval, differences may be luck."
LATE = 0.1
"""Share of the time of arrivals that an engine may run on behind the last one before it counts as not keeping up."""


def baseline(scenario: Scenario) -> str:
    """The policy that stands for the engine as it is: the static table, or the largest K where there is no table."""
    return f"fixed-{scenario.arms[-1]}" if scenario.table is None else "table"


def closely(scenarios: Iterable[Scenario]) -> set[str]:
    """The policies whose worst scenario is of interest: adaptk, and the baseline of most of the scenarios."""
    others = [baseline(scenario) for scenario in scenarios]
    return {"adaptk", max(others, key=others.count, default="table")}


def engine(scenario: Scenario) -> str:
    """On which engine the step times of a scenario are."""
    return f"engine: {scenario.world(0).surface.name}"


def verdict(scenario: Scenario, rows: Iterable[Row]) -> str:
    """adaptk against the baseline in one sentence; empty where one of them did not run.

    Tokens per second, and milliseconds per token where requests arrive by the clock: geometric means over paired seeds
    with 90 % intervals, as differences in percent. Elsewhere tokens per second are compared as the table ratio does.
    """
    own = [row for row in rows if row.scenario == scenario.name]
    other = baseline(scenario)
    if not {"adaptk", other} <= {row.policy for row in own}:
        return ""
    waiting = paired(own, "adaptk", other, lambda row: row.latency_ms)
    if math.isnan(waiting.value):
        speed, more = ratio(row.table_ratio for row in own if row.policy == "adaptk"), ""
    else:
        speed, more = paired(own, "adaptk", other, lambda row: row.tokens_per_s), f", ms/tok {percent(waiting)}"
    against = "the static table" if other == "table" else other
    return f"adaptk against {against}: tok/s {percent(speed)}{more}"


def percent(value: Interval) -> str:
    """A ratio as a difference in percent, with its interval where it has one.

    Examples
    --------
    >>> percent(Interval(1.05, 1.0312, 1.06))
    '+5.0 % [+3.1,+6.0]'
    """
    middle, low, high = (f"{100.0 * (each - 1.0):+z.1f}" for each in value)
    return f"{middle} %" + ("" if math.isnan(value.low) else f" [{low},{high}]")


def remarks(scenarios: Sequence[Scenario], rows: Sequence[Row], parts: Sequence[Summary]) -> list[str]:
    """What a reader must know before comparing the figures; ``parts`` are summaries of ``rows``."""
    ran = {row.scenario for row in rows}
    here = [scenario for scenario in scenarios if scenario.name in ran]
    said = [ONE_SEED] if len({row.seed for row in rows}) == 1 else []
    said += _no_drafter(here, rows)
    for scenario in here:
        own = [part for part in parts if part.scenario == scenario.name]
        of = f"{scenario.name}: " if len(scenarios) > 1 else ""
        table = [f"no table: the table column is relative to {baseline(scenario)}."] if scenario.table is None else []
        late = _pace(scenario, [row for row in rows if row.scenario == scenario.name])
        said += [of + note for note in (*table, *late, *_unfinished(own))]
    return said


def _unfinished(parts: Iterable[Summary]) -> list[str]:
    return [
        f"{part.policy} did not finish {part.unfinished} request{'s' * (part.unfinished > 1)}"
        + (f" in {part.seeds} seeds" if part.seeds > 1 else "")
        + ": its figures are not comparable."
        for part in parts
        if part.unfinished
    ]


def _no_drafter(scenarios: Iterable[Scenario], rows: Iterable[Row]) -> list[str]:
    """Where the price of a loaded drafter is not known."""
    ran = {row.scenario for row in rows if row.policy == NO_DRAFTER}
    among = [scenario for scenario in scenarios if scenario.name in ran]
    free = [scenario.name for scenario in among if not scenario.world(0).surface.draft_ms[:, 0].any()]
    if not free:
        return []
    where = "here" if len(free) == len(among) else f"in {', '.join(free)}"
    if len(free) < len(among) and len(free) > 4:
        where = f"in {len(free)} of {len(among)} scenarios"
    return [f"{NO_DRAFTER}: the price of a loaded drafter at K=0 is not known {where} and taken as 0."]


def _pace(scenario: Scenario, rows: Sequence[Row]) -> list[str]:
    """Whether the engine keeps up with the arrivals, under which policies, and what that means for the figures."""
    if not any(row.latency_ms is not None for row in rows):
        return []
    last = {seed: _last_arrival_s(scenario, seed) for seed in {row.seed for row in rows}}
    behind = {name: _median_of(rows, name, lambda row: row.time_ms / 1000.0 - last[row.seed])
              for name in dict.fromkeys(row.policy for row in rows)}  # fmt: skip
    span = median(last.values())
    late = [name for name, seconds in behind.items() if seconds > LATE * span]
    if not late:
        most = max(behind.values())
        return [
            f"The engine keeps up under every policy (it ends at most {most:.1f} s after the last arrival at "
            f"{span:.0f} s): tok/s is set by the arrivals, ms/tok is what to compare."
        ]
    most = max(behind[name] for name in late)
    who = "any policy" if len(late) == len(behind) else ", ".join(late)
    rest = "" if len(late) == len(behind) else " Under the others tok/s is set by the arrivals: compare ms/tok."
    return [
        f"The engine does not keep up under {who}: it ends up to {most:.0f} s after the last arrival at {span:.0f} s, "
        f"and ms/tok is mostly time in the queue (a log's arrivals slow down with --rate).{rest}"
    ]


def _last_arrival_s(scenario: Scenario, seed: int) -> float:
    load = scenario.world(seed).load
    return float(load.arrival_ms[-1]) / 1000.0 if isinstance(load, Requests) else 0.0


def _median_of(rows: Iterable[Row], policy: str, figure: Callable[[Row], float]) -> float:
    return median(figure(row) for row in rows if row.policy == policy)
