"""Where adaptk stands: the figures of a release over the long worlds, from the rows of many seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from adaptk.replay.evaluate import Row
from adaptk.replay.intervals import Interval
from adaptk.replay.scenarios import Scenario
from adaptk.replay.views.aggregate import Worst, over_scenarios, ratio, worst
from adaptk.replay.views.terminal import interval, share
from adaptk.replay.views.terminal import ratio as shown
from adaptk.textlines import Column, Line, number, table, wrapped

OWN = "adaptk"
RIGHT = 0.995
"""A table counts as right where the static table itself has this much of the oracle."""


class Standing(NamedTuple):
    """One policy over some worlds.

    ``oracle`` is its geometric mean over the oracle and ``against`` adaptk's over it, both of equal weight per world
    with intervals over paired seeds; ``low_*`` are the lowest world of the one and of the other, ``low_seed`` is the
    lowest single run. ``recovery`` holds the median and the 90th percentile of the steps to recover, infinite for
    never, and the share of changes without recovery; ``calm`` lasting switches per 1,000 steps and the share of time in
    visits where nothing changes; ``over_k0`` and ``early`` the time lost under K=0, of the whole and of the beginning:
    mean over worlds, and highest world. NaN where there is nothing to tell of.
    """

    policy: str
    oracle: Interval
    low: Worst
    low_seed: Worst
    against: Interval
    low_against: Worst
    recovery: tuple[float, float, float]
    calm: tuple[float, float]
    over_k0: tuple[float, float]
    early: tuple[float, float]


def standings(rows: Sequence[Row]) -> list[Standing]:
    """Every policy that ran in as many worlds as adaptk did, the nearest to the oracle first."""
    by_policy = {
        name: [row for row in rows if row.policy == name] for name in dict.fromkeys(row.policy for row in rows)
    }
    own = by_policy.get(OWN, [])
    whole = {row.scenario for row in own}
    found = [_standing(their, own) for their in by_policy.values() if {row.scenario for row in their} == whole]
    return sorted(found, key=lambda one: -one.oracle.value)


def _standing(rows: Sequence[Row], own: Sequence[Row]) -> Standing:
    theirs = {(row.scenario, row.seed): row.oracle_ratio for row in rows}
    paired = {(row.scenario, row.seed): row.oracle_ratio / theirs[row.scenario, row.seed]
              for row in own if theirs.get((row.scenario, row.seed), 0.0) > 0.0}  # fmt: skip
    runs = [Worst(Interval(row.oracle_ratio, math.nan, math.nan), f"{row.scenario}, seed {row.seed}") for row in rows]
    recoveries = [math.inf if steps is None else float(steps) for row in rows for steps in row.recoveries]
    calm = [row for row in rows if row.scenario.startswith("calm-")]
    return Standing(
        policy=rows[0].policy,
        oracle=over_scenarios(theirs),
        low=_lowest(theirs),
        low_seed=worst(runs),
        against=over_scenarios(paired),
        low_against=_lowest(paired),
        recovery=_percentiles(recoveries),
        calm=(_mean(row.lasting_per_1000 for row in calm), _mean(row.in_visits for row in calm)),
        over_k0=_by_world(rows, lambda row: row.over_k0),
        early=_by_world(rows, lambda row: row.over_k0_early),
    )


def standing_lines(rows: Sequence[Row], scenarios: Iterable[Scenario]) -> list[Line]:
    """The core worlds together and the worlds apart one by one; nothing where adaptk ran in fewer than two of the core.

    Other scenarios are left out.
    """
    group = {scenario.name: scenario.group for scenario in scenarios}
    core, apart = ([row for row in rows if group[row.scenario] == name] for name in ("core", "apart"))
    own = [row for row in core if row.policy == OWN]
    if len({row.scenario for row in own}) < 2:
        return []
    found = standings(core)
    mine = next(one for one in found if one.policy == OWN)
    names = [one.policy for one in found]
    worlds, seeds = len({row.scenario for row in core}), len({row.seed for row in own})
    lines = [*_said(f"adaptk in {worlds} worlds, {seeds} seeds: geometric means, intervals over paired seeds", "title")]
    lines += table(names, [
        Column("oracle [90 %]", 19, lambda i: interval(found[i].oracle)),
        Column("world", 5, lambda i: shown(found[i].low.ratio.value)),
        Column("run", 5, lambda i: shown(found[i].low_seed.ratio.value)),
        Column("adaptk over it", 19, lambda i: "" if found[i] is mine else interval(found[i].against)),
        Column("world", 5, lambda i: "" if found[i] is mine else shown(found[i].low_against.ratio.value)),
    ])  # fmt: skip
    lines += _said(f"world, run: the lowest. adaptk's are {mine.low.scenario} and {mine.low_seed.scenario}."
                   f"{_where_right(core)}")  # fmt: skip
    lines += [Line(""), *table(names, [
        Column("p50", 5, lambda i: number(found[i].recovery[0], 5, 0)),
        Column("p90", 5, lambda i: number(found[i].recovery[1], 5, 0)),
        Column("never", 6, lambda i: share(found[i].recovery[2])),
        Column("calm/1k", 7, lambda i: number(found[i].calm[0], 7, 2)),
        Column("visits", 6, lambda i: share(found[i].calm[1])),
        Column(">K=0", 6, lambda i: share(found[i].over_k0[0])),
        Column("most", 6, lambda i: share(found[i].over_k0[1])),
        Column("early", 6, lambda i: share(found[i].early[0])),
        Column("most", 6, lambda i: share(found[i].early[1])),
    ])]  # fmt: skip
    lines += _said(
        "p50, p90, never: steps from a change until within 3 % of the best for 20 steps, before the next change. "
        "calm/1k, visits: lasting switches per 1,000 steps and time in visits where nothing changes. >K=0, early: "
        "time lost under in-engine K=0, of all and of the first 3,000 steps: mean, and the world with most."
    )
    return lines + _apart(apart)


def _apart(rows: Sequence[Row]) -> list[Line]:
    """The worlds that are judged apart, a line for each."""
    names = list(dict.fromkeys(row.scenario for row in rows if row.policy == OWN))
    if not names:
        return []
    parts = [standings([row for row in rows if row.scenario == name]) for name in names]
    mine = [next(one for one in found if one.policy == OWN) for found in parts]
    others = [
        [one for one in found if not one.policy.startswith(OWN) and one.policy not in ("oracle", "hindsight")]
        for found in parts
    ]

    def best(i: int) -> str:
        return f"{shown(others[i][0].oracle.value)} {others[i][0].policy}" if others[i] else "-"

    columns = [
        Column("oracle [90 %]", 19, lambda i: interval(mine[i].oracle)),
        Column("run", 5, lambda i: shown(mine[i].low_seed.ratio.value)),
        Column(">K=0", 6, lambda i: share(mine[i].over_k0[0])),
        Column("early", 6, lambda i: share(mine[i].early[0])),
        Column("best other", 23, best, left=True),
    ]
    return [Line(""), Line("adaptk in the worlds judged apart", "title"), *table(names, columns, "world")]


def _where_right(rows: Sequence[Row]) -> str:
    """adaptk over the static table in the worlds in which that is next to the oracle."""
    table_of = {name: ratio(row.oracle_ratio for row in rows if (row.policy, row.scenario) == ("table", name)).value
                for name in dict.fromkeys(row.scenario for row in rows)}  # fmt: skip
    right = {name for name, value in table_of.items() if value >= RIGHT}
    ratios = {(row.scenario, row.seed): row.table_ratio for row in rows if row.policy == OWN and row.scenario in right}
    if not ratios:
        return ""
    low = _lowest(ratios)
    return (f" Over the table where that has {RIGHT} of the oracle ({len(right)} of {len(table_of)}): "
            f"{interval(over_scenarios(ratios))}, lowest {shown(low.ratio.value)} in {low.scenario}.")  # fmt: skip


def _lowest(ratios: dict[tuple[str, int], float]) -> Worst:
    names = dict.fromkeys(name for name, _ in ratios)
    return worst(Worst(ratio(value for (own, _), value in ratios.items() if own == name), name) for name in names)


def _percentiles(steps: Sequence[float]) -> tuple[float, float, float]:
    """Median, 90th percentile (the value that so many do not exceed) and share of what is infinite."""
    if not steps:
        return math.nan, math.nan, math.nan
    rising = sorted(steps)
    at = (rising[math.ceil(share * len(rising)) - 1] for share in (0.5, 0.9))
    return (*at, sum(map(math.isinf, rising)) / len(rising))  # type: ignore[return-value]


def _by_world(rows: Iterable[Row], figure: Callable[[Row], float]) -> tuple[float, float]:
    """Mean over worlds of the mean over seeds, and the highest world."""
    worlds: dict[str, list[float]] = {}
    for row in rows:
        worlds.setdefault(row.scenario, []).append(figure(row))
    means = [fmean(values) for values in worlds.values()]
    return fmean(means), max(means)


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return fmean(known) if known else math.nan


def _said(text: str, style: str = "") -> list[Line]:
    return [Line(line, style) for line in wrapped(text)]
