"""Long worlds: 10,000 steps and more of what goes wrong in the field, one thing at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from adaptk.replay.arrivals import Fixed, Lognormal, Pareto, bursts, open_loop, rollouts
from adaptk.replay.costs.calibrated import DENSE_ARMS, MOE_ARMS
from adaptk.replay.drafter import EAGLE3, Drafter, profiles
from adaptk.replay.noise import Drift, Noise
from adaptk.replay.presets import Preset, preset
from adaptk.replay.scenarios import Check, Scenario, script
from adaptk.replay.simulator import Engine, World
from adaptk.replay.surface import CAPTURE_SIZES, CostSurface
from adaptk.replay.workload import Requests, Script
from adaptk.table import GoodputTable

STEPS = 12_000
USUAL = Noise(0.03, correlation=0.3, stalls=0.002, stall_factor=5.0)
ARMS = (0, 1, 3, 5)
DEEP = (0, 1, 3, 7)
SHORT_CONTEXT = 512.0

NEAR = Check("0.97 of the oracle", lambda judged: judged.of_oracle() >= 0.97)
SAFE = Check("0.99 of the static table", lambda judged: judged.of_table() >= 0.99)
SAFE_K0 = Check("0.99 of in-engine K=0", lambda judged: judged.of_fixed(0) >= 0.99)


def WORLDS() -> tuple[Scenario, ...]:  # noqa: N802 - the counterpart of CASES
    """All long worlds."""
    return (*_dense(), _cold(), *_wrong_tables(), *_costs(), *_disturbed(), *_training(), _azure(), *_seed_figures())


def _scenario(
    name: str,
    about: str,
    world: Callable[[int], World],
    truth: CostSurface,
    acceptance: Sequence[float],
    arms: tuple[int, ...],
    table: GoodputTable | str | None = "right",
    checks: tuple[Check, ...] = (NEAR, SAFE),
    changes: tuple[int, ...] = (),
) -> Scenario:
    """A world with what may be known of it: by default the table is right at the start."""
    startup = truth.to_table(arms, acceptance, context=SHORT_CONTEXT)
    seed = startup if isinstance(table, str) else table
    return Scenario(name, about, world, seed, startup, arms, checks, changes)


def _scripted(
    surface: CostSurface, drafter: Drafter, load: Callable[[np.random.Generator], Script], **more: object
) -> Callable[[int], World]:
    def world(seed: int) -> World:
        made = load(np.random.default_rng([seed, 2]))
        return World(surface, drafter, made, len(made), seed=seed, **{"noise": USUAL, **more})  # type: ignore[arg-type]

    return world


def _wave(low: int, high: int, period: int) -> Callable[[np.random.Generator], Script]:
    """Batch sizes that rise and fall between two values, evenly in their logarithm, with jitter."""

    def load(rng: np.random.Generator) -> Script:
        phase = np.abs(2.0 * ((np.arange(STEPS) / period) % 1.0) - 1.0)
        size = np.exp(math.log(low) + phase * math.log(high / low) + 0.05 * rng.standard_normal(STEPS))
        return script(STEPS, np.clip(np.rint(size), 1, high).astype(int).tolist())

    return load


def _dense() -> list[Scenario]:
    p = preset("p32374")
    drafter = Drafter(profiles(p.acceptance, k_max=5))
    moe = preset("b200-moe")
    moe_acceptance = [0.6]
    moe_drafter = Drafter(profiles(moe_acceptance))
    kinds = [[a * f for a in p.acceptance] for f in np.linspace(0.2, 1.45, 12)]
    drifting = Drafter(profiles(*[[min(a, 0.95) for a in kind] for kind in kinds], k_max=5))

    def by_hour(rng: np.random.Generator) -> Script:
        return script(STEPS, lambda s: 24, kind=lambda s: round(5.5 + 5.5 * math.sin(2.0 * math.pi * s / 4000.0)))

    return [
        _scenario(
            "dense-wave",
            "a dense model, batch 2 to 256 and back; the table is right",
            _scripted(p.surface, drafter, _wave(2, 256, 3000)),
            p.surface,
            p.acceptance,
            ARMS,
        ),
        _scenario(
            "moe-hill",
            "a mixture of experts: best K low, high, low; right table",
            _scripted(moe.surface, moe_drafter, _wave(1, 512, 4000)),
            moe.surface,
            moe_acceptance,
            DEEP,
        ),
        _scenario(
            "acceptance-drift",
            "acceptance goes slowly up and down sevenfold; batch 24",
            _scripted(p.surface, drifting, by_hour),
            p.surface,
            p.acceptance,
            ARMS,
        ),
    ]


def _cold() -> Scenario:
    """A drafter that reads the target's states and loses touch while nothing is drafted."""
    p = preset("p32374")
    drafter = Drafter(profiles(p.acceptance, k_max=5), cold=0.6, cold_steps=30.0)
    return _scenario(
        "cold-drafter",
        "drafts are poor for 30 steps after K=0; batch 224 and 12 in turn",
        _scripted(p.surface, drafter, lambda rng: script(STEPS, lambda s: 224 if (s // 500) % 2 else 12)),
        p.surface,
        p.acceptance,
        ARMS,
        checks=(NEAR,),
    )


def _wrong_tables() -> list[Scenario]:
    p = preset("p32374")
    drafter = Drafter(profiles(p.acceptance, k_max=5))
    dearer = p.surface.stretched(1.5)
    cheap = p.surface.to_table(ARMS, p.acceptance)
    deep = p.surface.to_table(ARMS, EAGLE3[:5])
    shallow = Drafter(profiles([0.35, 0.3, 0.25], k_max=5))
    return [
        _scenario(
            "table-x1.5",
            "drafts cost 1.5 times what the table says; batch 2 to 256",
            _scripted(dearer, drafter, _wave(2, 256, 3000)),
            dearer,
            p.acceptance,
            ARMS,
            cheap,
        ),
        _scenario(
            "table-other-drafter",
            "the table is of a far better drafter; batch 2 to 256",
            _scripted(p.surface, shallow, _wave(2, 256, 3000)),
            p.surface,
            [0.35, 0.3, 0.25],
            ARMS,
            deep,
        ),
    ]


def _costs() -> list[Scenario]:
    p, large = preset("p32374"), preset("h200-70b")
    drafter = Drafter(profiles(p.acceptance, k_max=5))
    steps, ends = (0, 3000, 6000, 9000, 12_000), (1.0, 2.2, 0.8, 1.6, 1.0)
    contended = Drift(steps, (1.0, 1.2, 1.0, 1.3, 1.0), ends, linear=True)
    cliff = p.surface.padded([size for size in CAPTURE_SIZES if size <= 256], eager=1.6)
    smooth = p.surface.to_table(ARMS, p.acceptance)
    grows = script(
        STEPS, lambda s: 96, context=lambda s: SHORT_CONTEXT + 24_000.0 * abs(2.0 * ((s / 6000.0) % 1.0) - 1.0)
    )
    return [
        _scenario(
            "time-drift",
            "what drafts cost drifts by 0.8 to 2.2; batch 4 to 128",
            _scripted(p.surface, drafter, _wave(4, 128, 2500), drift=contended),
            p.surface,
            p.acceptance,
            ARMS,
        ),
        _scenario(
            "padding-cliff",
            "padded graphs, a cliff at 256 tokens, neither in the table",
            _scripted(cliff, drafter, _wave(24, 256, 3000)),
            cliff,
            p.acceptance,
            ARMS,
            smooth,
        ),
        _scenario(
            "context-growth",
            "a 70B model, context 512 to 24,512 tokens; batch 96",
            _scripted(large.surface, Drafter(profiles(large.acceptance)), lambda rng: grows),
            large.surface,
            large.acceptance,
            DEEP,
        ),
        _steep(p),
    ]


def _steep(p: Preset) -> Scenario:
    steep = p.surface.steep_first(4.0)
    drafter = Drafter(profiles(p.acceptance, k_max=5))
    return _scenario(
        "steep-first-draft",
        "no table, the first draft costs fourfold; batch 2 to 64",
        _scripted(steep, drafter, _wave(2, 64, 3000)),
        steep,
        p.acceptance,
        ARMS,
        None,
        (NEAR, SAFE_K0),
    )


def _disturbed() -> list[Scenario]:
    p = preset("p32374")
    drafter = Drafter(profiles(p.acceptance, k_max=5))
    dearer = p.surface.stretched(3.0)
    cheap = p.surface.to_table(ARMS, p.acceptance)

    def mixed(share: float) -> Callable[[np.random.Generator], Script]:
        def load(rng: np.random.Generator) -> Script:
            joins, chunk = rng.random(STEPS) < share, rng.integers(64, 1024, STEPS)
            return script(STEPS, lambda s: 48, joining=lambda s: (1, int(chunk[s])) if joins[s] else (0, 0))

        return load

    def steady(rng: np.random.Generator) -> Script:
        return script(STEPS, lambda s: 64 if (s // 2000) % 2 == 0 else 12)

    def short(rng: np.random.Generator) -> Script:
        return script(STEPS, 16, output=6.0)

    made = [
        _scenario(
            f"mixed-{percent}",
            f"{percent} % of the steps carry prompts; drafts cost 3x the table",
            _scripted(dearer, drafter, mixed(percent / 100.0)),
            dearer,
            p.acceptance,
            ARMS,
            cheap,
        )
        for percent in (100, 70)
    ]
    for percent in (20, 50):
        noise = USUAL._replace(stalls=percent / 100.0, stall_factor=2.5)
        made.append(
            _scenario(
                f"contaminated-{percent}",
                f"{percent} % of the steps take 2.5 times as long, nobody says why",
                _scripted(p.surface, drafter, steady, noise=noise),
                p.surface,
                p.acceptance,
                ARMS,
            )
        )
    accepting = Drafter(profiles([0.9], k_max=7))
    small = preset("h100-8b").surface
    return [
        *made,
        _scenario(
            "short-outputs",
            "answers of 6 tokens: drafts behind the end are wasted",
            _scripted(small, accepting, short),
            small,
            [0.9],
            DEEP,
        ),
    ]


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
        _scenario(
            "rl-drain",
            "rollouts with heavy tails; acceptance falls 7 % a round",
            drains(fading, 14, Pareto(64, 0.9, most=3072)),
            p.surface,
            [0.75],
            DEEP,
        ),
        _scenario(
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

    return _scenario(
        "azure-bursts",
        "an open loop shaped on Azure's traces, chunks, a KV limit",
        world,
        p.surface,
        EAGLE3,
        DEEP,
    )


def _seed_figures() -> list[Scenario]:
    """The published shapes that adaptk set out from, at fixed batch sizes; calibrated, not measured."""
    dense, moe = preset("dense-100b-calibrated"), preset("moe-calibrated")

    def steady(p: Preset, batch: int) -> Callable[[int], World]:
        return _scripted(p.surface, Drafter(profiles(p.acceptance, k_max=5)), lambda rng: script(STEPS, batch))

    return [
        *(
            _scenario(
                f"seed-dense-{batch}",
                f"dense 100B at batch {batch}, calibrated: K=3 loses to none",
                steady(dense, batch),
                dense.surface,
                dense.acceptance,
                DENSE_ARMS,
            )
            for batch in (128, 256)
        ),
        _scenario(
            "seed-moe-24",
            "a mixture at batch 24, calibrated: K=5 gains nothing over 3",
            steady(moe, 24),
            moe.surface,
            moe.acceptance,
            MOE_ARMS,
        ),
    ]
