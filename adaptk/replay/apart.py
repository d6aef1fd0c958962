"""Long worlds that are hard on the statistics: noise, loads and feedback that break what estimators usually assume."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from adaptk.replay.arrivals import Lognormal, closed_loop, open_loop, poisson
from adaptk.replay.costs.p32374 import ACCEPTANCE, public_surface
from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.longworlds import (
    ARMS,
    DEEP,
    NEAR,
    SAFE_K0,
    STEPS,
    USUAL,
    Load,
    dense,
    long_world,
    scripted,
    wave,
    wave_sizes,
)
from adaptk.replay.presets import preset
from adaptk.replay.scenarios import Scenario, script
from adaptk.replay.simulator import Engine, World
from adaptk.replay.workload import Script


def APART() -> tuple[Scenario, ...]:  # noqa: N802 - the counterpart of CASES
    """All worlds that are judged apart."""
    return (*_no_tables(), *_mixed(), *_noisy(), *_delayed(), _short(), *_lasting())


def _no_tables() -> list[Scenario]:
    known = {"table": None, "checks": (NEAR, SAFE_K0), "group": "apart"}
    return [
        dense("no-table", "no table, a dense model; batch 2 to 256", wave(2, 256, 3000), known=known),
        dense(
            "steep-first-draft",
            "no table, the first draft costs fourfold; batch 2 to 64",
            wave(2, 64, 3000),
            public_surface().steep_first(4.0),
            known=known,
        ),
    ]


def _mixed() -> list[Scenario]:
    """Prompts in many steps, while drafts cost more than the table says."""
    known = {"table": public_surface().to_table(ARMS, ACCEPTANCE), "group": "apart"}

    def joining(sizes: Sequence[int], shares: Sequence[float], rng: np.random.Generator) -> Script:
        joins, chunk = rng.random(STEPS) < np.asarray(shares), rng.integers(64, 1024, STEPS)
        return script(STEPS, sizes, joining=lambda s: (1, int(chunk[s])) if joins[s] else (0, 0))

    def alike(share: float) -> Load:
        return lambda rng: joining([48] * STEPS, [share] * STEPS, rng)

    def follows(rng: np.random.Generator) -> Script:
        """Where batches are small and K is high, most steps carry prompts; where they are large, few do."""
        sizes = wave_sizes(4, 128, 2500, rng)
        return joining(sizes, [0.9 if size < 24 else 0.1 for size in sizes], rng)

    return [
        *(
            dense(
                f"mixed-{percent}",
                f"{percent} % of the steps carry prompts; drafts cost 3x the table",
                alike(percent / 100.0),
                public_surface().stretched(3.0),
                known=known,
            )
            for percent in (100, 70)
        ),
        dense(
            "mixed-follows-k",
            "prompts join where K is high; drafts cost 2x the table",
            follows,
            public_surface().stretched(2.0),
            known=known,
        ),
    ]


def _noisy() -> list[Scenario]:
    known = {"group": "apart"}

    def steady(rng: np.random.Generator) -> Script:
        return script(STEPS, lambda s: 64 if (s // 2000) % 2 == 0 else 12)

    return [
        *(
            dense(
                f"contaminated-{percent}",
                f"{percent} % of the steps take 2.5 times as long, nobody says why",
                steady,
                noise=USUAL._replace(stalls=percent / 100.0, stall_factor=2.5),
                known=known,
            )
            for percent in (20, 50)
        ),
        dense(
            "autocorrelated",
            "step times wander by 5 %, correlation 0.98; batch 2 to 256",
            wave(2, 256, 3000),
            noise=USUAL._replace(sigma=0.05, correlation=0.98),
            known=known,
        ),
    ]


def _delayed() -> list[Scenario]:
    return [
        dense(
            f"delayed-v{runner}",
            f"results come two steps late, model runner V{runner}; batch 2 to 256",
            wave(2, 256, 1000),
            engine=Engine(runner=runner, delay=2),
            known={"group": "apart"},
        )
        for runner in (1, 2)
    ]


def _short() -> Scenario:
    small = preset("h100-8b").surface
    return long_world(
        "short-outputs",
        "answers of 6 tokens: drafts behind the end are wasted; batch 48",
        scripted(small, Drafter(profiles([0.9], k_max=7)), lambda rng: script(STEPS, 48, output=6.0)),
        small,
        [0.9],
        DEEP,
        group="apart",
    )


LASTING = tuple(np.linspace(0.2, 0.95, 16).tolist())
"""Acceptance of the requests of the lasting worlds, each for life and at every position."""


def _lasting() -> list[Scenario]:
    """Every request has an acceptance of its own for life: the batch's mean wanders as requests come and go."""
    drafter = Drafter(profiles(*[[a] for a in LASTING], k_max=5))
    mean = float(np.mean(LASTING))

    def load(requests: int, per_s: float | None) -> Callable[[int], World]:
        def world(seed: int) -> World:
            rng = np.random.default_rng([seed, 2])
            kind = rng.integers(len(LASTING), size=requests)
            prompt, output = Lognormal(96.0, 0.6, 1000), Lognormal(300.0, 0.7, 2000)
            if per_s is None:
                made = closed_loop(requests, prompt, output, rng, kind)
            else:
                made = open_loop(poisson(requests, per_s, rng), prompt, output, rng, kind)
            return World(
                public_surface(), drafter, made, 60_000, Engine(32 if per_s is None else 128), USUAL, seed=seed
            )

        return world

    return [
        long_world(
            "lasting-closed",
            "requests differ in acceptance for life, 0.2 to 0.95; batch 32",
            load(2800, None),
            public_surface(),
            [mean],
            group="apart",
        ),
        long_world(
            "lasting-open",
            "the same by the clock, the table expects 0.3; batch about 24 to 56",
            load(3200, 22.0),
            public_surface(),
            [mean],
            table=public_surface().to_table(ARMS, [LASTING[2]]),
            group="apart",
        ),
    ]
