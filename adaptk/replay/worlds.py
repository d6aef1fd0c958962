"""Long worlds: 10,000 steps and more of what goes wrong in the field, one thing at a time.

Those of this file are the core; ``apart`` has those that are hard on the statistics themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from adaptk.replay.apart import APART
from adaptk.replay.arrivals import Fixed, Lognormal, Pareto, bad_tenant, bursts, closed_loop, open_loop, rollouts
from adaptk.replay.costs.calibrated import DENSE_ARMS, MOE_ARMS
from adaptk.replay.costs.p32374 import ACCEPTANCE, public_surface
from adaptk.replay.drafter import EAGLE3, Drafter, profiles
from adaptk.replay.longworlds import (
    ARMS,
    CLOSE,
    DEEP,
    NEAR,
    SAFE,
    SHORT_CONTEXT,
    STEPS,
    USUAL,
    Load,
    dense,
    long_world,
    scripted,
    wave,
)
from adaptk.replay.measures import lasting_switches
from adaptk.replay.noise import Drift
from adaptk.replay.presets import Preset, preset
from adaptk.replay.scenarios import Check, Scenario, script
from adaptk.replay.simulator import Engine, World
from adaptk.replay.surface import CAPTURE_SIZES
from adaptk.replay.workload import Requests, Script
from adaptk.table import GoodputTable

CALM = Check(
    "at most 1 lasting switch per 1,000 steps",
    lambda judged: 1000.0 * lasting_switches(judged.run) <= len(judged.run.k),
)


def WORLDS() -> tuple[Scenario, ...]:  # noqa: N802 - the counterpart of CASES
    """All long worlds, the core first."""
    core = (
        *_right_tables(),
        *_wrong_tables(),
        *_costs(),
        *_staircases(),
        *_changing(),
        _tenants(),
        *_training(),
        _azure(),
        *_seed_figures(),
    )
    return (*core, *APART())


def _right_tables() -> list[Scenario]:
    moe = preset("b200-moe")
    moe_drafter = Drafter(profiles([0.6]))
    # A drafter that reads the target's states and loses touch while nothing is drafted.
    cold = Drafter(profiles(ACCEPTANCE, k_max=5), cold=0.6, cold_steps=30.0)
    return [
        dense("dense-wave", "a dense model, batch 2 to 256 and back; the table is right", wave(2, 256, 3000)),
        long_world(
            "moe-hill",
            "a mixture of experts: best K low, high, low; right table",
            scripted(moe.surface, moe_drafter, wave(1, 512, 4000)),
            moe.surface,
            [0.6],
            DEEP,
        ),
        *(
            dense(
                f"calm-{batch}",
                f"nothing changes, the table is right; batch {batch}",
                _steady(batch),
                known={"checks": (CLOSE, SAFE, CALM)},
            )
            for batch in (1, 8, 64)
        ),
        dense(
            "cold-drafter",
            "drafts are poor for 30 steps after K=0; batch 224 and 12 in turn",
            lambda rng: script(STEPS, lambda s: 224 if (s // 500) % 2 else 12),
            drafter=cold,
            known={"checks": (NEAR,)},
        ),
    ]


def _steady(batch: int) -> Load:
    return lambda rng: script(STEPS, batch)


def _wrong_tables() -> list[Scenario]:
    cheap = {"table": public_surface().to_table(ARMS, ACCEPTANCE)}
    return [
        dense(
            "table-x1.5",
            "drafts cost 1.5 times what the table says; batch 2 to 256",
            wave(2, 256, 3000),
            public_surface().stretched(1.5),
            known=cheap,
        ),
        dense(
            "table-other-drafter",
            "the table is of a far better drafter; batch 2 to 256",
            wave(2, 256, 3000),
            drafter=[0.35, 0.3, 0.25],
            known={"table": public_surface().to_table(ARMS, EAGLE3[:5])},
        ),
        dense(
            "table-half",
            "drafts cost twice what the table says: K=0 is best, it says 1",
            wave(104, 160, 3000),
            public_surface().stretched(2.0),
            known=cheap,
        ),
        dense(
            "table-double",
            "drafts cost half of what the table says: K=3 is best, it says 0",
            wave(180, 240, 3000),
            public_surface().stretched(0.5),
            known=cheap,
        ),
    ]


def _costs() -> list[Scenario]:
    large = preset("h200-70b")
    steps, ends = (0, 3000, 6000, 9000, 12_000), (1.0, 2.2, 0.8, 1.6, 1.0)
    contended = Drift(steps, (1.0, 1.2, 1.0, 1.3, 1.0), ends, linear=True)
    cliff = public_surface().padded([size for size in CAPTURE_SIZES if size <= 256], eager=1.6)
    grows = script(
        STEPS, lambda s: 96, context=lambda s: SHORT_CONTEXT + 24_000.0 * abs(2.0 * ((s / 6000.0) % 1.0) - 1.0)
    )
    return [
        dense(
            "time-drift", "what drafts cost drifts by 0.8 to 2.2; batch 4 to 128", wave(4, 128, 2500), drift=contended
        ),
        dense(
            "padding-cliff",
            "padded graphs, a cliff at 256 tokens, neither in the table",
            wave(24, 256, 3000),
            cliff,
            known={"table": public_surface().to_table(ARMS, ACCEPTANCE)},
        ),
        long_world(
            "context-growth",
            "a 70B model, context 512 to 24,512 tokens; batch 96",
            scripted(large.surface, Drafter(profiles(large.acceptance)), lambda rng: grows),
            large.surface,
            large.acceptance,
            DEEP,
        ),
    ]


def _staircases() -> list[Scenario]:
    """Few captured sizes, none of them a power of two beyond 16: steps of up to 24 % between neighbouring batches."""
    sizes = (1, 2, 4, 8, 16, 24, 40, 56, 80, 104, 144, 184, 248, 312, 392, 512)
    stairs = public_surface().padded(sizes)
    grid = stairs.itl_grid()
    # Rows where each K's stairs end; beyond the largest graph, every second batch.
    ends = {k: sorted({*(size // (k + 1) for size in sizes), *range(512 // (k + 1), 257, 2)} - {0}) for k in ARMS}
    rows = [{"batch": b, "k": k, "itl_ms": float(grid[b, k])} for k in ARMS for b in ends[k] if b <= 256]
    named = GoodputTable.from_rows(rows, ACCEPTANCE, {"staircase": True})

    def climbs(rng: np.random.Generator) -> Script:
        """Batch 1 to 200 steadily, with jitter, then 12 sizes that hold for 500 steps each."""
        rising = np.linspace(1, 200, STEPS // 2) * np.exp(0.05 * rng.standard_normal(STEPS // 2))
        held = np.repeat(np.exp(rng.uniform(math.log(4), math.log(200), 12)), STEPS // 24)
        return script(STEPS, np.clip(np.rint(np.concatenate((rising, held))), 1, 200).astype(int).tolist())

    return [
        dense(
            "staircase-named", "16 captured sizes, in the table; batch 1 to 200", climbs, stairs, known={"table": named}
        ),
        dense("staircase-unnamed", "16 captured sizes, the table knows powers of two; batch 1 to 200", climbs, stairs),
    ]


def _changing() -> list[Scenario]:
    kinds = [[min(a * f, 0.95) for a in ACCEPTANCE] for f in np.linspace(0.2, 1.45, 12)]

    def by_hour(rng: np.random.Generator) -> Script:
        return script(STEPS, lambda s: 24, kind=lambda s: round(5.5 + 5.5 * math.sin(2.0 * math.pi * s / 4000.0)))

    turns, jumps = tuple(range(1500, STEPS, 1500)), tuple(range(2000, STEPS, 2000))
    dearer = Drift((0, *jumps), [1.0] * 6, [1.0, 2.5] * 3)
    return [
        dense(
            "acceptance-drift",
            "acceptance goes slowly up and down sevenfold; batch 24",
            by_hour,
            drafter=Drafter(profiles(*kinds, k_max=5)),
        ),
        dense(
            "acceptance-turns",
            "acceptance is good and bad for 1,500 steps in turn; batch 48",
            lambda rng: script(STEPS, 48, kind=lambda s: s // 1500 % 2),
            drafter=Drafter(profiles(EAGLE3, [0.15], k_max=5)),
            acceptance=EAGLE3[:5],
            known={"changes": turns},
        ),
        dense(
            "cost-turns",
            "drafts cost 1 and 2.5 times as much for 2,000 steps in turn; batch 96",
            _steady(96),
            drafter=EAGLE3[:5],
            drift=dearer,
            known={"changes": jumps},
        ),
    ]


def _tenants() -> Scenario:
    """A tenant whose text the drafter does not know sends most or half of the requests, three times."""
    drafter = Drafter(profiles(EAGLE3, [0.15], k_max=5))

    def world(seed: int) -> World:
        rng = np.random.default_rng([seed, 2])
        kind = np.zeros(TENANT_REQUESTS, dtype=np.int64)
        for share, start, stop in ((0.9, 600, 1200), (0.5, 1500, 1900), (1.0, 2400, 2900)):
            kind = bad_tenant(kind, np.arange(TENANT_REQUESTS), share, 1, rng, start, stop)
        load = closed_loop(TENANT_REQUESTS, Lognormal(200.0, 0.8, 2000), Lognormal(240.0, 0.7, 1500), rng, kind)
        return World(public_surface(), drafter, load, 60_000, Engine(48, 4096), USUAL, seed=seed)

    return long_world(
        "tenants",
        "a tenant with text unknown to the drafter comes and goes; batch 48",
        world,
        public_surface(),
        EAGLE3[:5],
    )


TENANT_REQUESTS = 4000


def _training() -> list[Scenario]:
    p = preset("h100-8b")
    fading = Drafter(profiles(*[[0.75 * 0.93**r] for r in range(14)]))
    renewed = Drafter(profiles(*[[0.8 * 0.75 ** (r % 4)] for r in range(16)]))

    def drains(drafter: Drafter, rounds: int, tail: Pareto) -> Callable[[int], World]:
        def world(seed: int) -> World:
            load = rollouts(rounds, 256, Fixed(256), tail, np.random.default_rng([seed, 2]))
            return World(p.surface, drafter, load, 60_000, Engine(256), USUAL, seed=seed)

        return world

    return [
        long_world(
            "rl-drain",
            "rollouts with heavy tails; acceptance falls 7 % a round",
            drains(fading, 14, Pareto(64, 0.9, most=3072)),
            p.surface,
            [0.75],
            DEEP,
        ),
        long_world(
            "rl-weights",
            "acceptance falls 25 % a round; the drafter is retrained",
            drains(renewed, 16, Pareto(96, 1.1, most=2048)),
            p.surface,
            [0.8],
            DEEP,
        ),
    ]


def _azure() -> Scenario:
    p = preset("h100-8b")
    drafter = Drafter(profiles(EAGLE3, [0.35, 0.3, 0.25]), mix=np.array([[0.8, 0.2], [0.2, 0.8]]), segment=48)

    def load(seed: int) -> Requests:
        rng = np.random.default_rng([seed, 2])
        # Three quarters of the seconds of Azure's 2023 code trace are empty, its fullest has 67 requests; prompts and
        # answers as in the conversation trace (mean 1,155 and 211 tokens, sigma of the logarithm 0.99 and 0.86).
        arrivals = bursts(6000, 1.0, 60.0, 6.0, 2.0, rng)
        requests = open_loop(arrivals, Lognormal(1155.0, 0.99, 8000), Lognormal(211.0, 0.86, 1000), rng)
        kind = (np.arange(len(requests)) // 1500) % 2
        return Requests(requests.arrival_ms, requests.prompt, requests.output, kind.astype(np.int64))

    def world(seed: int) -> World:
        return World(p.surface, drafter, load(seed), 60_000, Engine(256, 4096, 400_000), USUAL, seed=seed)

    return long_world(
        "azure-bursts",
        "an open loop shaped on Azure's traces, chunks, a KV limit",
        world,
        p.surface,
        EAGLE3,
        DEEP,
        # The oracle knows what text each request is at; the best table in hindsight, which does not, has about 0.99.
        checks=(NEAR, SAFE),
    )


def _seed_figures() -> list[Scenario]:
    """The published shapes that adaptk set out from, at fixed batch sizes; calibrated, not measured."""
    dense, moe = preset("dense-100b-calibrated"), preset("moe-calibrated")

    def steady(p: Preset, batch: int) -> Callable[[int], World]:
        return scripted(p.surface, Drafter(profiles(p.acceptance, k_max=5)), _steady(batch))

    return [
        *(
            long_world(
                f"seed-dense-{batch}",
                f"dense 100B at batch {batch}, calibrated: K=3 loses to none",
                steady(dense, batch),
                dense.surface,
                dense.acceptance,
                DENSE_ARMS,
            )
            for batch in (128, 256)
        ),
        long_world(
            "seed-moe-24",
            "a mixture at batch 24, calibrated: K=5 gains nothing over 3",
            steady(moe, 24),
            moe.surface,
            moe.acceptance,
            MOE_ARMS,
        ),
    ]
