"""Cases from users' reports that are about the drafter: how much is accepted, and how many drafts there are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from adaptk.replay.casechecks import (
    acceptance_believed,
    case,
    counted,
    drafter,
    few_lasting,
    mostly,
    near_fixed,
    near_oracle,
    public_table,
    reaches,
)
from adaptk.replay.costs.p32374 import KS, public_surface
from adaptk.replay.scenarios import Check, Scenario, script
from adaptk.replay.simulator import Engine
from adaptk.replay.surface import CostSurface
from adaptk.table import GoodputTable


def draft_cases() -> tuple[Scenario, ...]:
    """All of them."""
    return (
        _credit("C05-async", "known a step late", Engine(delay=1)),
        _credit("C05-v2", "late on runner V2", Engine(delay=1, runner=2)),
        _off_and_on(),
        _climb(),
        _transitions(),
        _deep(),
        _few_drafts(),
        _dead(),
        _thinning(),
        _bad_tenant(1),
        _bad_tenant(16),
    )


def _credit(name: str, how: str, engine: Engine) -> Scenario:
    """Batches 4 and 256 take turns, so that 5 and 0 drafts do; the table has acceptance wrong."""
    spell, steps = 20, 800
    small = np.arange(steps) // spell % 2 == 0

    def share(wanted: int, of_small: bool) -> Check:
        at = np.flatnonzero(small == of_small)
        at = at[at >= 2 * spell]
        what = f"K={wanted} on 80% of the steps at batch {4 if of_small else 256}"
        return Check(what, lambda judged: float(np.mean(judged.run.k[at] == wanted)) >= 0.8)

    return case(
        name,
        f"best K alternates 5, 0 with the batch, {how}",
        script(steps, lambda s: 4 if small[s] else 256),
        [share(5, True), share(0, False), acceptance_believed([0.75] * 5, 0.1)],
        text=drafter([0.75]),
        table=public_table([0.5], (0, 5)),
        arms=(0, 5),
        engine=engine,
    )


def _off_and_on() -> Scenario:
    return case(
        "C08",
        "acceptance 0.05, where K=0 is right, jumps to 0.85",
        script(600, 8, kind=lambda s: int(s >= 300)),
        [reaches((3, 5), 300, within=100), near_fixed(0, 0.98, 0, 300)],
        text=drafter([0.05], [0.85]),
        table=public_table([0.05]),
        changes=(300,),
    )


def _climb() -> Scenario:
    rows = [{"batch": b, "k": k, "itl_ms": 10.0 + 0.1 * k} for b in (1, 64) for k in (0, 1, 3, 7)]
    table = GoodputTable.from_rows(rows, acceptance=[0.2, 0.05])
    return case(
        "C10",
        "the table says K=1, but drafts are cheap and K=7 is best",
        script(400, 8),
        [reaches((7,), 0, within=300)],
        text=drafter([0.95]),
        surface=CostSurface.from_table(table, 64, 7),
        table=table,
        arms=(0, 1, 3, 7),
    )


def _transitions() -> Scenario:
    starts = range(0, 1800, 300)
    return case(
        "C14",
        "acceptance alternates 0.35, 0.9 every 300 steps; batch 8",
        script(1800, 8, kind=lambda s: s // 300 % 2),
        [near_oracle(0.95), *(few_lasting(2, start, start + 300) for start in starts)],
        text=drafter([0.35], [0.9]),
        changes=tuple(starts[1:]),
    )


def _deep() -> Scenario:
    goodput = {0: 1.0, 1: 1.7, 3: 2.4, 7: 2.8}
    rows = [{"batch": 4, "k": k, "itl_ms": 10.0 * sum(0.8**j for j in range(k + 1)) / g} for k, g in goodput.items()]
    table = GoodputTable.from_rows(rows, acceptance=[0.8])
    return case(
        "C15",
        "nothing changes, the largest K is best: it must stay",
        script(3000, 4),
        [near_fixed(7, 0.98)],
        text=drafter([0.8]),
        surface=CostSurface.from_table(table, 4, 7),
        table=table,
        arms=(0, 1, 3, 7),
    )


def _free_drafts() -> CostSurface:
    """The public engine with a drafter that costs nothing, as looking n-grams up."""
    surface = public_surface()
    return replace(surface, draft_ms=np.zeros_like(surface.draft_ms))


def _few_drafts() -> Scenario:
    lookup = drafter([0.8], [0.8], supply=np.array([[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0] * 7]))
    return case(
        "C19",
        "n-gram lookup: 12 of 16 requests have no draft at all",
        script(600, 16, others=lambda s: 12, other_kind=1),
        [near_oracle(0.97), acceptance_believed([0.8], 0.08)],
        text=lookup,
        surface=_free_drafts(),
        table=_free_drafts().to_table(KS, [0.8]),
    )


def _dead() -> Scenario:
    return case(
        "C26",
        "the drafter dies: nothing is accepted from step 500 on",
        script(1500, 8, kind=lambda s: int(s >= 500)),
        [reaches((0,), 500, within=30, hold=3), near_fixed(0, 0.99, 530), counted("drafter_dead", 1)],
        text=drafter([0.8], [0.0]),
        changes=(500,),
    )


def _thinning() -> Scenario:
    supply = np.array([[1.0, 1.0, 11 / 95, 1.0, 1.0, 1.0, 1.0]])
    return case(
        "C27",
        "the drafter returns 2 drafts, seldom 5; all are accepted",
        script(600, 8),
        [near_oracle(0.97, 100), acceptance_believed([1.0] * 5, 0.03)],
        text=drafter([1.0], supply=supply),
        surface=_free_drafts(),
        table=_free_drafts().to_table(KS, None),
    )


def _bad_tenant(requests: int) -> Scenario:
    kept = mostly((3,), 0.95, 200, 500) if requests == 1 else reaches((3,), 500, within=50)
    who = "one request" if requests == 1 else f"{requests} requests"
    return case(
        f"C29-{requests}",
        f"of {who} in 32 nothing is accepted, steps 200-499",
        script(800, 32, others=lambda s: requests if 200 <= s < 500 else 0, other_kind=1),
        [kept, near_oracle(0.97, 550)],
        text=drafter([0.8], [0.0]),
        arms=(0, 1, 3),
        changes=(200, 500),
    )
