"""Evaluation: policies over scenarios and seeds, paired, as flat rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from adaptk.replay import measures
from adaptk.replay.measures import NEVER, Judged
from adaptk.replay.policies.base import Policy, Setup
from adaptk.replay.policies.bounds import Oracle
from adaptk.replay.policies.static import FixedK, StaticTable
from adaptk.replay.registry import NO_DRAFTER, entry
from adaptk.replay.scenarios import Scenario
from adaptk.replay.simulator import Run, World, simulate
from adaptk.replay.workload import Requests


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One policy in one scenario with one seed.

    Parameters
    ----------
    scenario, policy, seed, arms
        What was run.
    tokens_per_s
        Tokens emitted over the time from the first step to the end of the last one. A scripted load has the same steps
        for every policy, but not the same tokens: there each step counts with the tokens expected of the oracle in it,
        and its time in proportion, so that nobody gains by lingering where all are fast.
    oracle_ratio
        Time that the oracle would have needed for the expected tokens of each step, over the time expected of the
        policy, prompt tokens in neither. 1 is perfect. Where shapes must be compiled, that counts, as far as it is more
        than in the oracle's own run. For an engine without drafter: its goodput over the oracle's.
    table_ratio
        The same against the static table, or against the largest K where there is no table. Above 1: better.
    switches_per_1000
        Changes of K per 1,000 steps.
    explore_ms
        Expected milliseconds lost against the oracle in steps that the policy itself calls exploration.
    passed
        Whether all checks of the scenario hold; ``failed`` names those that do not.
    p50_ms, p99_ms
        Quantiles of the step time, milliseconds.
    recovery_steps
        Steps from the first change of the world until K is within 2 % of the best for 20 steps; ``None`` where nothing
        changes or it does not recover.
    below_k0
        Share of the time in steps whose expected goodput is below that of in-engine K=0.
    regret_ms
        Expected milliseconds lost against the oracle.
    steps, tokens, time_ms
        Length of the run.
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
    passed: bool
    failed: list[str]
    p50_ms: float
    p99_ms: float
    recovery_steps: int | None
    below_k0: float
    regret_ms: float
    steps: int
    tokens: int
    time_ms: float
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
        alone = name == NO_DRAFTER
        setup = self.setup._replace(arms=(0,)) if alone else self.setup
        world = replace(self.world, surface=self.world.surface.without_drafter()) if alone else self.world
        own = self.scenario.own_policies.get(name)
        policy = own(setup) if own is not None else entry(name).make(setup, self.oracle)
        run = simulate(world, policy, record=record, arms=setup.arms)
        return Evaluated(self._row(name, run, policy, world), run, policy)

    def table_k(self, run: Run) -> NDArray[np.int64]:
        """The K that the static table plays at each step of a run, the largest arm where there is no table."""
        static = self.static()
        return np.array([static.choose(int(b)) for b in run.batch], dtype=np.int64)

    def static(self) -> Policy:
        """What the engine would have done by itself: the static table, or the largest K where there is no table."""
        if self.scenario.table is None:
            return FixedK(self.setup, self.setup.arms[-1])
        return StaticTable(self.setup)

    def _row(self, name: str, run: Run, policy: Policy, world: World) -> Row:
        if name == NO_DRAFTER:
            by_oracle, by_table = self._without_drafter(run)
            failed, below, regret, lost = ["made for engines with a drafter"], 0.0, 0.0, 0.0
        else:
            judged = Judged(run, policy, self.table_k(run))
            by_oracle, by_table = self._relative(judged)
            failed = [check.what for check in self.scenario.checks if not check.holds(judged)]
            by_step = measures.regret_ms(run)
            regret, lost = float(by_step.sum()), float(by_step[run.exploring].sum())
            worse = measures.rate_of(run, run.k) < measures.rate_of(run, 0)
            below = float(run.elapsed[worse].sum() / run.elapsed.sum())
        steps = len(run.k)
        return Row(
            scenario=self.scenario.name,
            policy=name,
            seed=self.seed,
            arms=policy.arms,
            tokens_per_s=self._tokens_per_s(run),
            oracle_ratio=by_oracle,
            table_ratio=by_table,
            switches_per_1000=1000.0 * measures.switches(run) / steps,
            explore_ms=lost,
            passed=not failed,
            failed=failed,
            p50_ms=float(np.median(run.elapsed)),
            p99_ms=float(np.quantile(run.elapsed, 0.99)),
            recovery_steps=self._recovery(run) if name != NO_DRAFTER else None,
            below_k0=below,
            regret_ms=regret,
            steps=steps,
            tokens=int(run.tokens.sum()),
            time_ms=float(run.clock[-1]),
            latency_ms=_latency(world, run),
        )

    def _relative(self, judged: Judged) -> tuple[float, float]:
        """Efficiency against oracle and table, over what these have against themselves: below 1 if they compile."""
        by_oracle, by_table = judged.of_oracle(), judged.of_table()
        if self.world.compilation.steps:
            policy = self.static()
            table = simulate(self.world, policy)
            by_table /= Judged(table, policy, self.table_k(table)).of_table()
            by_oracle /= measures.efficiency(self.oracle, measures.best_rate(self.oracle))
        return by_oracle, by_table

    def _tokens_per_s(self, run: Run) -> float:
        if isinstance(self.world.load, Requests):
            return _rate(run)
        work = self.oracle.decodes * measures.expected_length(self.oracle)
        mine = run.decodes * measures.expected_length(run)
        pace = np.divide(work, mine, out=np.ones(len(mine)), where=mine > 0)
        return 1000.0 * float(work.sum()) / float((pace * run.elapsed).sum())

    def _recovery(self, run: Run) -> int | None:
        changes = [at for at in self.scenario.changes if at < len(run.k)]
        steps = measures.recovery(run, changes[0]) if changes else NEVER
        return None if steps == NEVER else steps

    def _without_drafter(self, run: Run) -> tuple[float, float]:
        """An engine without drafter against the oracle and the table of the engine with one."""
        oracle = self.oracle
        if isinstance(self.world.load, Requests):
            # By the time that the engine was busy: in an open loop all emit what arrives.
            table = simulate(self.world, self.static())
            pace = [float(r.tokens.sum() / r.elapsed.sum()) for r in (run, oracle, table)]
            return pace[0] / pace[1], pace[0] / pace[2]
        best, table_rate = measures.best_rate(oracle), measures.rate_of(oracle, self.table_k(oracle))
        return measures.efficiency(run, best), measures.efficiency(run, table_rate)


def _rate(run: Run) -> float:
    return 1000.0 * float(run.tokens.sum()) / float(run.clock[-1])


def _latency(world: World, run: Run) -> float | None:
    if not isinstance(world.load, Requests) or not world.load.open_loop:
        return None
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
        Processes; with more than one the lists come in any order. Another joblib backend (Dask, Ray) is used where the
        caller has entered ``joblib.parallel_config``.

    Raises
    ------
    ValueError
        If a policy is unknown.
    """
    tasks = [(scenario, list(policies(scenario)), seed) for scenario in scenarios for seed in seeds]
    if jobs == 1:
        for task in tasks:
            yield judge(*task)
        return
    from joblib import Parallel, delayed

    parallel: Any = Parallel(n_jobs=jobs, return_as="generator_unordered")
    yield from parallel(delayed(judge)(*task) for task in tasks)


def judge(scenario: Scenario, policies: Sequence[str], seed: int) -> list[Row]:
    """The rows of one world."""
    bench = Bench(scenario, seed)
    return [bench.run(name).row for name in policies]
