"""Rows of many seeds as one summary per scenario and policy, and one per policy over all scenarios."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import NamedTuple

from adaptk.replay.evaluate import Row
from adaptk.replay.intervals import Interval, bootstrap_ratio

UNKNOWN = Interval(math.nan, math.nan, math.nan)


class Summary(NamedTuple):
    """One policy in one scenario over its seeds.

    ``oracle`` and ``table`` are geometric means of the rows' ratios with 90 % bootstrap intervals over seeds; NaN where
    no seed has a positive ratio. ``recovery_steps`` is the median with "never" above every number, ``None`` where that
    is never. The other figures are medians; those that an engine without drafter lacks are NaN for it. ``passed``
    counts seeds, ``None`` where nothing was checked; ``failed`` says in how many seeds each check did not hold.
    ``unfinished`` is the sum over seeds.
    """

    scenario: str
    policy: str
    seeds: int
    oracle: Interval
    table: Interval
    tokens_per_s: float
    switches_per_1000: float
    explore_ms: float
    passed: int | None
    failed: dict[str, int]
    p50_ms: float
    p99_ms: float
    recovery_steps: float | None
    below_k0: float
    regret_ms: float
    unfinished: int
    latency_ms: float | None


class Worst(NamedTuple):
    """The scenario in which a policy's ratio is lowest."""

    ratio: Interval
    scenario: str


class Overall(NamedTuple):
    """One policy over all scenarios that it ran in, every scenario with the same weight.

    ``oracle`` and ``table`` are geometric means over scenarios; their intervals are over seeds, so that they hold for
    these scenarios and say nothing of others. ``passed`` of ``judged`` pairs of scenario and seed hold their checks.
    """

    policy: str
    scenarios: int
    oracle: Interval
    table: Interval
    worst_by_oracle: Worst
    worst_by_table: Worst
    passed: int
    judged: int


def summaries(rows: Iterable[Row]) -> list[Summary]:
    """One summary per scenario and policy: scenarios in order of appearance, in each the highest oracle ratio first."""
    groups: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        groups[row.scenario][row.policy].append(row)
    return [one for policies in groups.values() for one in sorted(map(_summary, policies.values()), key=_rank)]


def overall(rows: Sequence[Row]) -> list[Overall]:
    """One entry per policy, those that ran in most scenarios first, among equals the highest oracle ratio first."""
    by_policy: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_policy[row.policy].append(row)
    return sorted((_overall(own) for own in by_policy.values()), key=lambda o: (-o.scenarios, *_rank(o)))


def ratio(values: Iterable[float]) -> Interval:
    """Geometric mean of the positive, finite ``values`` with its interval; ``UNKNOWN`` where there are none."""
    usable = [value for value in values if 0.0 < value < math.inf]
    return bootstrap_ratio(usable) if usable else UNKNOWN


def paired(rows: Iterable[Row], policy: str, other: str, figure: Callable[[Row], float | None]) -> Interval:
    """A figure of ``policy`` over that of ``other`` on the same seed of one scenario, as :func:`ratio` takes it."""
    values = {(row.policy, row.seed): figure(row) for row in rows if row.policy in (policy, other)}
    pairs = [(values.get((policy, seed)), values.get((other, seed))) for seed in sorted({seed for _, seed in values})]
    return ratio(mine / theirs for mine, theirs in pairs if mine is not None and theirs)


def _summary(rows: Sequence[Row]) -> Summary:
    recovered = median(math.inf if row.recovery_steps is None else row.recovery_steps for row in rows)
    judged = [row.passed for row in rows if row.passed is not None]
    latencies = [row.latency_ms for row in rows if row.latency_ms is not None]
    return Summary(
        scenario=rows[0].scenario,
        policy=rows[0].policy,
        seeds=len(rows),
        oracle=ratio(row.oracle_ratio for row in rows),
        table=ratio(row.table_ratio for row in rows),
        tokens_per_s=median(row.tokens_per_s for row in rows),
        switches_per_1000=median(row.switches_per_1000 for row in rows),
        explore_ms=median(row.explore_ms for row in rows),
        passed=sum(judged) if judged else None,
        failed=dict(Counter(what for row in rows for what in row.failed)),
        p50_ms=median(row.p50_ms for row in rows),
        p99_ms=median(row.p99_ms for row in rows),
        recovery_steps=recovered if math.isfinite(recovered) else None,
        below_k0=median(row.below_k0 for row in rows),
        regret_ms=median(row.regret_ms for row in rows),
        unfinished=sum(row.unfinished for row in rows),
        latency_ms=median(latencies) if latencies else None,
    )


def _overall(rows: Sequence[Row]) -> Overall:
    parts = summaries(rows)
    judged = [part for part in parts if part.passed is not None]
    return Overall(
        policy=rows[0].policy,
        scenarios=len(parts),
        oracle=over_scenarios({(row.scenario, row.seed): row.oracle_ratio for row in rows}),
        table=over_scenarios({(row.scenario, row.seed): row.table_ratio for row in rows}),
        worst_by_oracle=worst(Worst(part.oracle, part.scenario) for part in parts),
        worst_by_table=worst(Worst(part.table, part.scenario) for part in parts),
        passed=sum(part.passed or 0 for part in judged),
        judged=sum(part.seeds for part in judged),
    )


def over_scenarios(ratios: dict[tuple[str, int], float]) -> Interval:
    """Geometric mean over scenarios per seed, then over the seeds that every scenario has.

    Where a sweep was cut short and there is no such seed, the mean over scenarios of what there is, without interval.
    """
    usable = {key: value for key, value in ratios.items() if 0.0 < value < math.inf}
    names = {name for name, _ in usable}
    seeds = sorted({seed for _, seed in usable})
    whole = [seed for seed in seeds if all((name, seed) in usable for name in names)]
    if whole:
        return ratio(_geometric_mean([usable[name, seed] for name in names]) for seed in whole)
    if not usable:
        return UNKNOWN
    means = [_geometric_mean([value for (own, _), value in usable.items() if own == name]) for name in names]
    return Interval(_geometric_mean(means), math.nan, math.nan)


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def worst(parts: Iterable[Worst]) -> Worst:
    """The lowest that is known; ``UNKNOWN`` without a scenario where none is."""
    known = [part for part in parts if not math.isnan(part.ratio.value)]
    return min(known, key=lambda part: part.ratio.value, default=Worst(UNKNOWN, ""))


def _rank(one: Summary | Overall) -> tuple[float, str]:
    value = one.oracle.value
    return (math.inf if math.isnan(value) else -value, one.policy)
