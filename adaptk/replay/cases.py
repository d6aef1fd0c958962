"""Cases from people who run speculative decoding, as scenarios: times and loads here, drafters in ``draftcases``.

Where a case names nothing else: step times and acceptance of vLLM pull request 32374, its profile as the table, runner
V1, results without delay, 3 % lognormal noise.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from adaptk.controller import Controller
from adaptk.replay import measures
from adaptk.replay.casechecks import (
    believed,
    case,
    drafter,
    few_lasting,
    few_switches,
    mostly,
    near_fixed,
    near_oracle,
    reaches,
    time_believed,
)
from adaptk.replay.costs.p32374 import ACCEPTANCE, BATCHES, KS, public_surface
from adaptk.replay.draftcases import draft_cases
from adaptk.replay.measures import Judged
from adaptk.replay.noise import Compilation
from adaptk.replay.scenarios import Check, Scenario, script
from adaptk.replay.surface import CostSurface
from adaptk.table import GoodputTable


def CASES() -> tuple[Scenario, ...]:  # noqa: N802  # the constant that it would be if building it cost nothing
    """All cases, by the report that they were made from."""
    found = (
        *(_profile(batch, k) for batch, k in ((1, 3), (4, 3), (16, 3), (64, 1), (256, 0))),
        _tier_edge(),
        _joining_prefill(),
        _prefill_time(),
        _slow_boot(),
        _slow_shapes(),
        *_growing_context(),
        _rollouts(),
        _arms(),
        _preemptions(),
        _turns("C34a", 0.9, 3),
        _turns("C34b", 0.65, 0),
    )
    return tuple(sorted((*found, *draft_cases()), key=lambda scenario: scenario.name.partition("-")[0]))


def _profile(batch: int, best: int) -> Scenario:
    return case(
        f"P32374-{batch}",
        f"the table is right, nothing changes: K={best} stays at {batch}",
        script(1000, batch),
        [mostly((best,), 0.85)],
    )


def _tier_edge() -> Scenario:
    return case(
        "C01",
        "batch alternates 64, 65 at the edge of a schedule's tiers",
        script(400, lambda s: 64 + s % 2),
        [few_switches(4, 50), near_fixed(1, 0.97)],
        table=GoodputTable.from_schedule([[1, 64, 3], [65, 128, 1], [129, 512, 0]]),
        arms=(0, 1, 3),
    )


def _joining_prefill() -> Scenario:
    return case(
        "C02",
        "a prefill joins every third step and crosses a tier's edge",
        script(400, 4, joining=lambda s: (1, 512) if s % 3 == 0 else (0, 0)),
        [
            Check("K does not leave and return at three prefill chunks in a row", _no_flipping),
            time_believed(4, 2, public_surface().itl_ms(4, 2)),
        ],
        table=GoodputTable.from_schedule([[1, 4, 2], [5, 512, 0]]),
        arms=(0, 2),
    )


def _no_flipping(judged: Judged) -> bool:
    k, prefills = judged.run.k, np.flatnonzero(judged.run.prefill[1:-1]) + 1
    flips = (k[prefills] != k[prefills - 1]) & (k[prefills] != k[prefills + 1])
    return not np.any(flips[2:] & flips[1:-1] & flips[:-2])


def _prefill_time() -> Scenario:
    whole = public_surface()
    surface = replace(whole.stretched(level=10.0 / whole.itl_ms(32, 3)), prefill_ms=90.0 / 2048, mixed_ms=0.0)
    return case(
        "C03",
        "every seventh step carries 2,048 prompt tokens; batch 32",
        script(300, 32, joining=lambda s: (1, 2048) if s % 7 == 0 else (0, 0)),
        [mostly((3,), 0.97), time_believed(32, 3, 10.0)],
        surface=surface,
        table=surface.to_table(KS, ACCEPTANCE, BATCHES),
    )


SLOW_MS = 1525.0
"""What compiling a shape adds to a step."""


def _slow_boot() -> Scenario:
    return case(
        "C04-boot",
        "the first 12 steps after the start take 1.5 s; batch 8",
        script(400, 8, extra_ms=np.where(np.arange(400) < 12, SLOW_MS, 0.0)),
        [mostly((3,), 0.9, 150), _none_barred(8)],
    )


def _slow_shapes() -> Scenario:
    return case(
        "C04-shape",
        "the first 2 steps of every new shape take 1.5 s; batch 8",
        script(400, 8),
        [mostly((3,), 0.9, 150), _none_barred(8)],
        compilation=Compilation(SLOW_MS, 2),
    )


def _none_barred(batch: int) -> Check:
    truth = public_surface()

    def holds(controller: Controller) -> bool:
        times = ((belief.itl_ms, truth.itl_ms(batch, belief.k)) for belief in controller.belief(batch))
        return all(itl is not None and itl < 1.5 * real for itl, real in times)

    return believed("no arm is believed to be half as slow again as it is", holds)


def _growing_context() -> tuple[Scenario, ...]:
    """Step times from the reported tokens per second at batch 100, taking 0.7 of the drafts as accepted."""
    per_second = {400: (2711.7, 2139.8), 900: (1987.1, 1838.9), 1900: (1815.2, 1822.4), 4000: (1535.9, 1692.8)}
    tokens = {0: 100.0, 3: 100.0 * (1 + 0.7 + 0.7**2 + 0.7**3)}
    rows = [
        {"batch": 100, "k": k, "itl_ms": 1000.0 * tokens[k] / rates[k > 0], "context": context}
        for context, rates in per_second.items()
        for k in tokens
    ]
    whole = GoodputTable.from_rows(rows, acceptance=[0.7])
    short = GoodputTable.from_rows([{**row, "context": None} for row in rows[:2]], acceptance=[0.7])

    def grows(name: str, how: str, table: GoodputTable) -> Scenario:
        return case(
            name,
            f"context 400 to 8,000 turns K=0 to 3; {how}",
            script(1000, 100, context=lambda s: 400 if s < 500 else 8000),
            [mostly((0,), 0.95, 0, 500), reaches((3,), 500, within=150), few_lasting(3), few_switches(14)],
            text=drafter([0.7]),
            surface=CostSurface.from_table(whole, 100, 3),
            table=table,
            arms=(0, 3),
            changes=(500,),
        )

    return (
        grows("C12a-context", "the table has contexts", whole),
        grows("C12a-flat", "the table has one", short),
    )


def _rollouts() -> Scenario:
    """One drain, drawn once, three times over: each request ends with probability 0.004 per step."""
    lives = np.random.default_rng(13).geometric(0.004, 256)
    drain = [left for left in (int(np.sum(lives > s)) for s in range(int(lives.max()))) if left > 1] + [1]
    length = len(drain)
    refills = (length, 2 * length)
    return case(
        "C13",
        "rollouts drain from 256 to 1 and refill, accepting less",
        script(3 * length, 3 * drain, kind=lambda s: s // length),
        [near_oracle(1.0 / 1.05), *(reaches((0,), refill, within=5, hold=3) for refill in refills)],
        text=drafter([0.75], [0.6], [0.48]),
        changes=refills,
    )


def _arms() -> Scenario:
    steps, arms = 900, (0, 1, 3)

    def only_arms(judged: Judged) -> bool:
        return bool(np.isin(judged.run.k, arms).all())

    return case(
        "C21",
        "a schedule of 0, 1 and 3: no other K may be played",
        script(steps, lambda s: 1 + round(255 * min(s, steps - s) / (steps / 2))),
        [Check("only 0, 1 and 3 are played, exploring included", only_arms)],
        table=GoodputTable.from_schedule([[1, 16, 3], [17, 64, 1], [65, 512, 0]]),
        arms=arms,
    )


def _preemptions() -> Scenario:
    """Five preemptions in 20 steps, every 200 steps; what comes back computes 4,096 tokens anew."""
    whole = public_surface()
    surface = replace(whole.stretched(level=12.0 / whole.itl_ms(64, 1)), prefill_ms=68.0 / 4096, mixed_ms=0.0)
    episodes = range(200, 1000, 200)

    def tight(step: int) -> bool:
        return step >= episodes[0] and step % 200 < 20

    def raised(judged: Judged) -> bool:
        spans = [judged.run.k[start : start + 40] for start in episodes]
        return float(np.mean(np.concatenate(spans) > 1)) <= 0.05

    return case(
        "C24",
        "a full KV cache: preempted requests come back with prefills",
        script(
            1000,
            lambda s: 63 if tight(s) else 64,
            joining=lambda s: (1, 4096) if tight(s) and s % 4 == 0 else (0, 0),
            context=4000,
        ),
        [
            Check("K above 1 on at most 5% of the 40 steps from each first preemption", raised),
            few_lasting(2),
            *(few_switches(2, start, start + 40) for start in episodes),
            time_believed(64, 1, 12.0),
        ],
        surface=surface,
        table=surface.to_table(KS, ACCEPTANCE, BATCHES),
    )


def _turns(name: str, accepted: float, best: int) -> Scenario:
    """Batches 4 and 256 take turns every 300 steps."""
    returns, jumps = (600, 1200), (300, 900)

    def quick(judged: Judged) -> bool:
        return all(measures.recovery(judged.run, back) <= 20 for back in returns)

    right_there = [near_oracle(0.97, jump + 20, jump + 300) for jump in jumps]
    if best == 0:
        right_there += [mostly((0,), 0.9, jump, jump + 300) for jump in jumps]
    return case(
        name,
        f"batches 4 and 256 alternate; {accepted} accepted, K={best} best at 256",
        script(1500, lambda s: 256 if s // 300 % 2 else 4),
        [*right_there, Check("within 2% of the best 20 steps after each return to batch 4", quick)],
        text=drafter([accepted]),
        changes=(300, 600, 900, 1200),
    )
