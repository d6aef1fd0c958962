"""A sweep: which policies run in which scenarios, their rows, and pictures of some of the runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

from adaptk.replay import scenarios as known
from adaptk.replay.evaluate import Row, each, evaluate
from adaptk.replay.parallel import mapped
from adaptk.replay.registry import NO_DRAFTER, expand
from adaptk.replay.scenarios import Scenario
from adaptk.replay.traces.traced import RECORDED
from adaptk.replay.views.aggregate import Summary
from adaptk.replay.views.plots import Picture, story_pictures
from adaptk.replay.views.story import best_rival, story

GROUPS = ("all", "cases", "worlds", "core", "apart")
NO_RIVALS = ("oracle", "hindsight", "table", NO_DRAFTER, RECORDED)
"""What a story does not show as the best rival: it knows the future, is another engine, is shown anyway, or was made
for one trace.
"""

MOST_STORIES = 20


@dataclass
class Sweep:
    """The rows of a sweep, in order of scenario, seed and policy; ``cut_short`` where it was interrupted."""

    rows: list[Row] = field(default_factory=list)
    cut_short: bool = False


def chosen(names: Iterable[str]) -> list[Scenario]:
    """Scenarios by name or group, in order without repeats.

    Raises
    ------
    ValueError
        If a name is unknown.
    """
    found: dict[str, Scenario] = {}
    for name in names:
        group = _group(name.lower()) if name.lower() in GROUPS else [known.find(name)]
        found.update((scenario.name, scenario) for scenario in group)
    return list(found.values())


def planned(scenarios: Sequence[Scenario], names: Sequence[str]) -> dict[str, list[str]]:
    """Policies of each scenario; a fixed K is left out where it is no arm.

    Raises
    ------
    ValueError
        If a policy is unknown, or is a fixed K that no scenario has as an arm.
    """
    plan: dict[str, list[str]] = {}
    for scenario in scenarios:
        here = {f"fixed-{k}" for k in scenario.arms}
        wanted = expand(names, scenario.arms, tuple(scenario.own_policies))
        plan[scenario.name] = [name for name in wanted if not name.startswith("fixed-") or name in here]
    played = {name for here in plan.values() for name in here}
    for name in names:
        if name.startswith("fixed-") and name not in played:
            arms = sorted({k for scenario in scenarios for k in scenario.arms})
            raise ValueError(f"policy {name!r} is no arm of any scenario chosen: give one of {arms}")
    return plan


def collect(
    scenarios: Sequence[Scenario],
    plan: Mapping[str, Sequence[str]],
    seeds: int,
    jobs: int,
    done: Callable[[str], None],
) -> Sweep:
    """Run everything; after an interrupt, what was finished until then.

    ``done`` is called for each of :func:`pieces`.
    """
    sweep = Sweep()
    try:
        with closing(_lists(scenarios, plan, seeds, jobs)) as lists:
            for rows in lists:
                sweep.rows += rows
                done(f"{rows[0].scenario}, seed {rows[0].seed}" + (f": {rows[0].policy}" if len(rows) == 1 else ""))
    except KeyboardInterrupt:
        sweep.cut_short = True
    place = {name: {policy: i for i, policy in enumerate(plan[name])} for name in plan}
    rank = {name: i for i, name in enumerate(plan)}
    sweep.rows.sort(key=lambda row: (rank[row.scenario], row.seed, place[row.scenario][row.policy]))
    return sweep


def pieces(scenarios: Sequence[Scenario], plan: Mapping[str, Sequence[str]], seeds: int, jobs: int) -> int:
    """How many times :func:`collect` calls ``done``."""
    here = [len(plan[scenario.name]) for scenario in scenarios]
    return seeds * (sum(here) if jobs == 1 else sum(n > 0 for n in here))


def stories_of(scenarios: Sequence[Scenario], parts: Sequence[Summary]) -> list[Scenario]:
    """At most ``MOST_STORIES`` scenarios to look at closely: those in which adaptk is furthest from the oracle."""
    own = {part.scenario: part.oracle.value for part in parts if part.policy == "adaptk"}
    far = sorted(scenarios, key=lambda scenario: _last_if_unknown(own.get(scenario.name, math.nan)))[:MOST_STORIES]
    return [scenario for scenario in scenarios if scenario in far]


def illustrated(
    scenarios: Sequence[Scenario], parts: Sequence[Summary], jobs: int, done: Callable[[str], None]
) -> dict[str, list[Picture]]:
    """Pictures of the first seed of each scenario, with the best rival found in ``parts``.

    After an interrupt, those that were finished until then.
    """
    ratios = {
        scenario.name: {
            part.policy: part.oracle.value
            for part in parts
            if part.scenario == scenario.name and not math.isnan(part.oracle.value)
        }
        for scenario in scenarios
    }
    tasks = [(scenario, best_rival(ratios[scenario.name], NO_RIVALS)) for scenario in scenarios]
    found: dict[str, list[Picture]] = {}
    with suppress(KeyboardInterrupt):
        for name, pictures in mapped(_pictures, tasks, jobs):
            found[name] = pictures
            done(name)
    return found


def _pictures(scenario: Scenario, rival: str | None) -> tuple[str, list[Picture]]:
    return scenario.name, story_pictures(story(scenario, 0, rival))


def _lists(
    scenarios: Sequence[Scenario], plan: Mapping[str, Sequence[str]], seeds: int, jobs: int
) -> Generator[list[Row]]:
    """Finished rows. On one core policy by policy: an interrupt then loses one run at most."""
    scenarios = [scenario for scenario in scenarios if plan[scenario.name]]
    if jobs > 1 and scenarios:
        yield from evaluate(scenarios, lambda scenario: plan[scenario.name], range(seeds), jobs)
        return
    for scenario in scenarios:
        for seed in range(seeds):
            for row in each(scenario, plan[scenario.name], seed):
                yield [row]


def _group(name: str) -> list[Scenario]:
    members = {"all": None, "worlds": ("core", "apart")}.get(name, (name,))
    return [one for one in known.scenarios().values() if members is None or one.group in members]


def _last_if_unknown(value: float) -> float:
    return math.inf if math.isnan(value) else value
