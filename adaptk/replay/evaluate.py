"""Evaluation: policies over scenarios and seeds, paired, as flat rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from adaptk.replay import measures
from adaptk.replay.measures import NEVER, Judged
from adaptk.replay.parallel import mapped
from adaptk.replay.policies.base import Policy, Setup
from adaptk.replay.policies.bounds import Oracle
from adaptk.replay.policies.static import FixedK, as_configured
from adaptk.replay.registry import HINDSIGHT, NO_DRAFTER, entry
from adaptk.replay.scenarios import Scenario
from adaptk.replay.simulator import Run, World, simulate
from adaptk.replay.workload import Requests

EARLY = 3000
"""Steps of the beginning, in which a policy that knows nothing has its dearest lessons."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One policy in one scenario with one seed.

    Parameters
    ----------
    scenario, policy, seed, arms
        What was run.
    tokens_per_s
        Tokens emitted over the time from the first step to the end of the last one. A scripted load has the same steps
        for every policy, but not the same tokens: there each step counts with the tokens expected of the oracle in it,
        and the time to draft and verify in proportion, so that nobody gains by lingering where all are fast.
    oracle_ratio
        ``tokens_per_s`` over the oracle's on the same seed; in a closed loop with the noise of step times left out. In
        an open loop, where all emit what arrives: time that the best arm of each step would have needed for what was
        expected of it, over the time expected of the policy, prompts in both. 1 is perfect. The oracle looks one step
        ahead: where what is played now costs later, another policy can have more (seen: 8 % with a drafter that goes
        cold at K=0, 12 % where every shape is compiled, 1 % in a closed loop of long prompts and short answers).
        NaN where nothing is emitted.
    table_ratio
        The same against the static table, or against the largest K where there is no table. Above 1: better.
    switches_per_1000
        Changes of K per 1,000 steps.
    explore_ms
        Expected milliseconds lost against the oracle in steps that the policy itself calls exploration.
    passed
        Whether all checks of the scenario hold, ``None`` where it has none or the engine has no drafter; ``failed``
        names those that do not.
    p50_ms, p99_ms
        Quantiles of the step time, milliseconds.
    recovery_steps
        Steps from the first change of the world until K is within 2 % of the best for 20 steps; ``None`` where nothing
        changes or it does not recover.
    recoveries
        For each change of the world, steps until K is within 3 % of the best for 20 steps; ``None`` where it is not
        before the next change or the end.
    lasting_per_1000
        Changes of K per 1,000 steps, leaving out visits: at most 8 steps elsewhere that return.
    in_visits
        Share of the time in such visits.
    below_k0
        Share of the time in steps whose expected goodput is below that of in-engine K=0.
    over_k0, over_k0_early
        Expected time that steps took beyond what in-engine K=0 would have taken for the same tokens, as a share of
        that; gains elsewhere are not set against it. Of the whole run and of its first 3,000 steps.
    regret_ms
        Expected milliseconds lost against the best arm of each step. This, ``explore_ms`` and what is said of K=0 are
        NaN for an engine without drafter.
    steps, tokens, time_ms
        Length of the run.
    unfinished
        Requests that had not ended when the simulation did.
    latency_ms
        Mean over finished requests of the time since arrival per token of the answer, milliseconds; ``None`` where
        requests do not arrive by the clock.
    """

    scenario: str
    policy: str
    seed: int
    arms: tuple[int, ...]
    tokens_per_s: float
    oracle_ratio: float
    table_ratio: float
    switches_per_1000: float
    explore_ms: float
    passed: bool | None
    failed: list[str]
    p50_ms: float
    p99_ms: float
    recovery_steps: int | None
    recoveries: list[int | None]
    lasting_per_1000: float
    in_visits: float
    below_k0: float
    over_k0: float
    over_k0_early: float
    regret_ms: float
    steps: int
    tokens: int
    time_ms: float
    unfinished: int
    latency_ms: float | None


class Evaluated(msgspec.Struct, frozen=True):
    """A row with the run and the policy behind it, for whoever wants to look closer."""

    row: Row
    run: Run
    policy: Policy


class Bench:
    """One world of a scenario, with the oracle's run that every policy is held against."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario, self.seed = scenario, seed
        self.world = scenario.world(seed)
        self.setup = Setup(scenario.table, scenario.startup, scenario.arms, seed)
        self.oracle = simulate(self.world, Oracle(self.setup))

    def run(self, name: str, record: bool = False) -> Evaluated:
        """Run one policy.

        Raises
        ------
        ValueError
            If the policy is unknown, or needs something that the scenario lacks.
        """
        if name == NO_DRAFTER:
            return self._run_without_drafter(record)
        policy = self._hindsight() if name == HINDSIGHT else self._make(name)
        run = simulate(self.world, policy, record=record, arms=self.setup.arms)
        judged = Judged(run, policy, self.table_k(run))
        failed = [check.what for check in self.scenario.checks if not check.holds(judged)]
        by_step = measures.regret_ms(run)
        worse = measures.rate_of(run, run.k) < measures.rate_of(run, 0)
        row = self._row(
            name,
            policy,
            run,
            self._ratios(run),
            passed=not failed if self.scenario.checks else None,
            failed=failed,
            explore_ms=float(by_step[run.exploring].sum()),
            regret_ms=float(by_step.sum()),
            below_k0=float(run.elapsed[worse].sum() / run.elapsed.sum()),
            over_k0=measures.over_k0(run),
            over_k0_early=measures.over_k0(run, EARLY),
            recovery_steps=self._recovery(run),
            recoveries=self._recoveries(run),
        )
        return Evaluated(row, run, policy)

    def table_k(self, run: Run) -> NDArray[np.int64]:
        """The K that the static table plays at each step of a run, the largest arm where there is no table."""
        static = as_configured(self.setup)
        return np.array([static.choose(int(b)) for b in run.batch], dtype=np.int64)

    def _make(self, name: str) -> Policy:
        own = self.scenario.own_policies.get(name)
        return own(self.setup) if own is not None else entry(name).make(self.setup, self.oracle)

    def _hindsight(self) -> Policy:
        """The best of the table made from the oracle's steps, the engine's own, and the constant ones.

        What answers are left to come depends on what was played before, which the oracle's steps do not show.
        """
        constant = (FixedK(self.setup, k) for k in self.setup.arms)
        tables: list[Policy] = [self._make(HINDSIGHT), as_configured(self.setup), *constant]
        return max(tables, key=lambda table: self._ratios(simulate(self.world, table, arms=self.setup.arms))[0])

    @cached_property
    def table(self) -> Run:
        """The run of the static table, or of the largest K where there is no table."""
        return simulate(self.world, as_configured(self.setup), arms=self.setup.arms)

    def _run_without_drafter(self, record: bool) -> Evaluated:
        setup = self.setup._replace(arms=(0,))
        world = replace(self.world, surface=self.world.surface.without_drafter())
        policy = FixedK(setup, 0)
        run = simulate(world, policy, record=record)
        if self._open:
            # On its own trajectory there is no drafter to compare with: take the engine at K=0 that has one.
            idle = simulate(self.world, FixedK(setup, 0), arms=(0, *(k for k in self.setup.arms if k > 0)))
            quicker = float(measures.expected_ms(idle).sum() / measures.expected_ms(run).sum())
            by_oracle, by_table = self._ratios(idle)
            ratios = by_oracle * quicker, by_table * quicker
        else:
            ratios = self._ratios(run)
        row = self._row(
            NO_DRAFTER,
            policy,
            run,
            ratios,
            passed=None,
            failed=[],
            explore_ms=math.nan,
            regret_ms=math.nan,
            below_k0=math.nan,
            over_k0=math.nan,
            over_k0_early=math.nan,
            recovery_steps=None,
            recoveries=[],
        )
        return Evaluated(row, run, policy)

    def _row(self, name: str, policy: Policy, run: Run, ratios: tuple[float, float], **more: Any) -> Row:
        steps = len(run.k)
        return Row(
            scenario=self.scenario.name,
            policy=name,
            seed=self.seed,
            arms=policy.arms,
            tokens_per_s=self._tokens_per_s(run),
            oracle_ratio=ratios[0],
            table_ratio=ratios[1],
            switches_per_1000=1000.0 * measures.switches(run) / steps,
            lasting_per_1000=1000.0 * measures.lasting_switches(run) / steps,
            in_visits=measures.time_in_visits(run),
            p50_ms=float(np.median(run.elapsed)),
            p99_ms=float(np.quantile(run.elapsed, 0.99)),
            steps=steps,
            tokens=int(run.tokens.sum()),
            time_ms=float(run.clock[-1]),
            unfinished=0 if run.scripted else int(np.isnan(run.ended_ms).sum()),
            latency_ms=_latency(self.world, run) if self._open else None,
            **more,
        )

    @property
    def _open(self) -> bool:
        return isinstance(self.world.load, Requests) and self.world.load.open_loop

    def _ratios(self, run: Run) -> tuple[float, float]:
        """Against the oracle and against the static table."""
        if self._open:
            best, static = measures.best_rate(run), measures.rate_of(run, self.table_k(run))
            return measures.efficiency(run, best, prompts=True), measures.efficiency(run, static, prompts=True)
        mine, oracle, table = (self._pace(each) for each in (run, self.oracle, self.table))
        return (mine / oracle, mine / table) if oracle > 0 and table > 0 else (math.nan, math.nan)

    def _pace(self, run: Run) -> float:
        """Tokens per second; in a closed loop without the noise of step times."""
        if run.scripted:
            return self._tokens_per_s(run)
        return 1000.0 * float(run.tokens.sum() / measures.expected_ms(run).sum())

    def _tokens_per_s(self, run: Run) -> float:
        work = self.oracle.decodes * measures.expected_length(self.oracle) if run.scripted else None
        return measures.tokens_per_s(run, work)

    def _recovery(self, run: Run) -> int | None:
        changes = [at for at in self.scenario.changes if at < len(run.k)]
        steps = measures.recovery(run, changes[0]) if changes else NEVER
        return None if steps == NEVER else steps

    def _recoveries(self, run: Run) -> list[int | None]:
        changes = [at for at in self.scenario.changes if at < len(run.k)]
        found = [measures.recovery(run, at, 0.97, end=end) for at, end in pairwise([*changes, len(run.k)])]
        return [None if steps == NEVER else steps for steps in found]


def _latency(world: World, run: Run) -> float | None:
    """Mean milliseconds per token since arrival of the requests that ended."""
    assert isinstance(world.load, Requests)
    done = np.isfinite(run.ended_ms)
    if not done.any():
        return None
    waited = run.ended_ms[done] - world.load.arrival_ms[done]
    return float(np.mean(waited / world.load.output[done]))


def evaluate(
    scenarios: Sequence[Scenario],
    policies: Callable[[Scenario], Sequence[str]],
    seeds: Iterable[int],
    jobs: int = 1,
) -> Iterator[list[Row]]:
    """The rows of every scenario and seed, a list for each pair as it is done.

    Parameters
    ----------
    policies
        Names of the policies to run in a scenario.
    jobs
        Processes, as in :func:`adaptk.replay.parallel.mapped`.

    Raises
    ------
    ValueError
        If a policy is unknown.
    """
    seeds = list(seeds)
    tasks = [(scenario, list(policies(scenario)), seed) for scenario in scenarios for seed in seeds]
    yield from mapped(judge, tasks, jobs)


def judge(scenario: Scenario, policies: Sequence[str], seed: int) -> list[Row]:
    """The rows of one world."""
    return list(each(scenario, policies, seed))


def each(scenario: Scenario, policies: Sequence[str], seed: int) -> Iterator[Row]:
    """The rows of one world, each as it is done."""
    bench = Bench(scenario, seed)
    return (bench.run(name).row for name in policies)
