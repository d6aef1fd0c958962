"""Checks that cases share, on runs and beliefs made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from adaptk.replay import casechecks
from adaptk.replay.costs.p32374 import ACCEPTANCE, BATCHES, ITL_MS, KS
from adaptk.replay.measures import Judged
from adaptk.replay.scenarios import Check
from adaptk.replay.simulator import Run


def played(ks: list[int], controller: Any = None) -> Judged:
    """A run of these K, where K=1 has goodput 2, K=0 and K=3 have 1, with a policy that has this controller."""
    steps = len(ks)
    zeros, ones = np.zeros(steps, dtype=np.int64), np.ones(steps, dtype=np.int64)
    length = np.tile([1.0, 2.0, 2.0, 3.0], (steps, 1))
    run = Run(
        arms=(0, 1, 3),
        k=np.array(ks, dtype=np.int64),
        batch=ones,
        decodes=ones,
        tokens=ones,
        prefill=zeros,
        context=zeros,
        elapsed=np.ones(steps),
        clock=np.arange(1.0, steps + 1.0),
        length=length,
        itl=np.tile([1.0, 1.0, 2.0, 3.0], (steps, 1)),
        length_now=length,
        compiled=np.zeros(steps),
        noise=np.ones(steps),
        prompt_ms=np.zeros(steps),
        extra_ms=np.zeros(steps),
        scripted=True,
        exploring=np.zeros(steps, dtype=bool),
        ended_ms=np.zeros(0),
        preempted=0,
    )
    policy: Any = SimpleNamespace(controller=controller) if controller else SimpleNamespace()
    return Judged(run, policy, ones)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (casechecks.mostly((1, 3), 0.75), [0, 1, 3, 3], [0, 0, 1, 3]),
        (casechecks.mostly((1,), 0.5, 2), [0, 0, 0, 1], [1, 1, 0, 0]),
        (casechecks.mostly((1,), 1.0, 1, 3), [0, 1, 1, 0], [1, 1, 0, 1]),
        (casechecks.reaches((3,), 1, within=2, hold=2), [3, 0, 0, 3, 3], [3, 3, 0, 0, 0, 3, 3]),
        (casechecks.near_oracle(0.65), [1, 1, 3], [1, 3, 3]),
        (casechecks.near_oracle(1.0, 1), [0, 1, 1], [1, 1, 0]),
        (casechecks.near_fixed(0, 1.0), [0, 3, 1], []),
        (casechecks.near_fixed(1, 0.9, 0, 2), [1, 1, 0], [1, 0, 1]),
        (casechecks.few_switches(2, 1), [0, 1, 1, 3, 1], [0, 1, 0, 3, 1]),
        (casechecks.few_lasting(1), [0] * 9 + [1] * 9 + [3] * 8 + [1] * 9, [0] * 9 + [1] * 9 + [3] * 9 + [1] * 9),
    ],
)
def test_of_what_is_played(check: Check, good: list[int], bad: list[int]) -> None:
    assert check.holds(played(good))
    assert not bad or not check.holds(played(bad))


def controller(itl_ms: float | None = 10.0, accepted: float = 0.5, dead: int = 1) -> Any:
    return SimpleNamespace(
        belief=lambda batch: [SimpleNamespace(k=0, itl_ms=5.0), SimpleNamespace(k=3, itl_ms=itl_ms)],
        _acceptance=SimpleNamespace(alpha=[5.0, 10 * accepted], beta=[5.0, 10 - 10 * accepted]),
        counters={"drafter_dead": dead},
    )


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        (casechecks.time_believed(4, 3, 10.0), controller(itl_ms=11.1)),
        (casechecks.time_believed(4, 3, 10.0), controller(itl_ms=None)),
        (casechecks.acceptance_believed([0.5, 0.5], 0.05), controller(accepted=0.4)),
        (casechecks.counted("drafter_dead", 1), controller(dead=2)),
    ],
)
def test_of_what_is_believed(check: Check, wrong: Any) -> None:
    assert check.holds(played([0], controller()))
    assert check.holds(played([0])), "who has no controller is not asked"
    assert not check.holds(played([0], wrong)), check.what


def test_public_table_is_the_profile() -> None:
    table = casechecks.public_table()
    assert [[table.itl_ms(b, k) for k in KS] for b in BATCHES] == [pytest.approx(row) for row in ITL_MS]
    assert table.acceptance == ACCEPTANCE
