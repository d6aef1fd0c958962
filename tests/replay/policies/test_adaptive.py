"""adaptk in the replay is the controller itself; an ablation lacks what it says it lacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adaptk.controller import Controller
from adaptk.decision import Reason
from adaptk.planner import PROBE
from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.policies.adaptive import Adaptive
from adaptk.replay.policies.base import Policy
from adaptk.replay.scenarios import script
from adaptk.replay.simulator import Run, World, simulate
from adaptk.table import GoodputTable
from tests.replay.handmade import setup, surface, world

ARMS = (0, 1, 3, 7)
# The table says 0.7, 0.6, 0.5 and the surface's times; the truth is worse text and dearer drafts, then better ones.
KS = Drafter(profiles([0.4, 0.3], [0.9]))


def wrong(seed: int = 0, **more: Any) -> World:
    return world(
        script(1500, lambda s: (2, 6)[s // 40 % 2], kind=lambda s: s // 750), KS, seed=seed,
        surface=surface().stretched(1.6), **more,
    )  # fmt: skip


def reasons(run: Run) -> list[Reason]:
    return [row.decision.reason for row in run.rows if row.decision is not None]


def acceptance(policy: Adaptive) -> list[float]:
    return [belief.al for belief in policy.controller.belief(4)]


def times(policy: Adaptive) -> list[float]:
    return [float(t) for t in policy.controller._latency.log_times(4, [float(k) for k in ARMS], None)]


@pytest.mark.parametrize("delay", [0, 1])
def test_adaptk_is_the_controller(delay: int) -> None:
    at = wrong(engine={"delay": delay})
    own = simulate(at, Adaptive(setup(seed=5)))
    assert own.k.tolist() == simulate(at, Controller(setup().table, arms=ARMS, seed=5)).k.tolist()
    assert len(set(own.k.tolist())) > 2
    assert own.k.tolist() != simulate(at, Adaptive(setup(seed=6))).k.tolist()


def test_what_is_called_exploring_is_what_was_decided_so() -> None:
    run = simulate(wrong(), Adaptive(setup()), record=True)
    assert [reason is Reason.EXPLORE for reason in reasons(run)] == run.exploring.tolist()
    assert run.exploring.any()


def test_frozen_acceptance_is_the_tables_for_ever() -> None:
    policy = Adaptive(setup(), acceptance=False)
    before, until = acceptance(policy), times(policy)
    simulate(wrong(), policy)
    assert acceptance(policy) == before == pytest.approx([1.0, 1.7, 2.33, 1 + 0.7 + 0.42 + 0.21 * 1.9375], rel=0.01)
    assert times(policy) != until
    assert policy.controller.counters["acceptance_alarms"] == 0


def test_frozen_times_are_the_tables_for_ever() -> None:
    policy = Adaptive(setup(), time=False)
    before, until = times(policy), acceptance(policy)
    simulate(wrong(), policy)
    assert times(policy) == before
    assert np.exp(before) == pytest.approx([surface().itl_ms(4, k) for k in ARMS], rel=1e-6)
    assert acceptance(policy) != until
    assert policy.controller.counters["time_alarms"] == 0


def test_with_both_frozen_it_is_the_table_once_a_new_load_has_settled() -> None:
    policy = Adaptive(setup(), acceptance=False, time=False, draws=False)
    at = wrong()
    run = simulate(at, policy)
    table = setup().startup
    settled = np.arange(1500) % 40 >= 16
    static = np.array([table.best_k(int(b), arms=ARMS) for b in run.batch])
    assert run.k[settled].tolist() == static[settled].tolist()
    assert len(set(static.tolist())) > 1


def test_greedy_visits_nothing_but_probes_and_runner_ups_after_a_change() -> None:
    """Probes and such visits last three steps (``PROBE``), those that a draw asks for four (``VISIT``)."""
    lasted: dict[bool, set[int]] = {}
    for draws in (True, False):
        run = simulate(wrong(), Adaptive(setup(), draws=draws), record=True)
        edges = np.flatnonzero(np.diff(np.concatenate(([0], run.exploring.astype(int), [0]))))
        lasted[draws] = {int(b - a) for a, b in zip(edges[::2], edges[1::2], strict=True)}
    assert 4 in lasted[True]
    assert lasted[False] <= {1, 2, 3}  # shorter where the load moved away


def test_greedy_never_leaves_what_it_believes_best_in_a_quiet_world() -> None:
    """Drafts are accepted here and K above 0 is best, so that no probe is called for, but for the look at the start."""
    at = world(script(1500, 4), Drafter(profiles([0.7, 0.6, 0.5])))
    greedy = simulate(at, Adaptive(setup(), draws=False), record=True)
    assert greedy.exploring.sum() == PROBE
    assert Reason.EXPLORE in reasons(simulate(at, Adaptive(setup()), record=True))


def test_greedy_still_probes_blindly_from_k0() -> None:
    """Where a probe costs little: drafts add a fifth to a step."""
    cheap = surface().stretched(0.2)
    at = world(script(3000, 8), Drafter(profiles([0.05])), surface=cheap)
    table = cheap.to_table(ARMS, [0.05])
    run = simulate(at, Adaptive(setup()._replace(table=table), draws=False))
    assert 0.9 < np.mean(run.k == 0) < 1.0
    assert run.exploring.any()


def test_without_a_ledger_everything_is_affordable_and_more_is_spent() -> None:
    spent = {}
    for ledger in (True, False):
        policy = Adaptive(setup(), ledger=ledger)
        run = simulate(wrong(), policy)
        own = policy.controller._planner.ledger
        spent[ledger] = int(run.exploring.sum())
        assert own.affords(1e12) is not ledger
        assert own.affords_probe(1e12) is not ledger
    assert spent[False] > spent[True]


@pytest.mark.parametrize("acceptance_learnt", [True, False])
@pytest.mark.parametrize("time_learnt", [True, False])
@pytest.mark.parametrize("draws", [True, False])
@pytest.mark.parametrize("ledger", [True, False])
@pytest.mark.parametrize("seed_table", ["times", "schedule", "none"])
def test_every_ablation_runs_on_every_seed(
    acceptance_learnt: bool, time_learnt: bool, draws: bool, ledger: bool, seed_table: str
) -> None:
    table = {"times": setup().startup, "schedule": GoodputTable.from_schedule([[1, 4, 3], [5, 8, 1]]), "none": None}
    policy: Policy = Adaptive(setup()._replace(table=table[seed_table]), acceptance_learnt, time_learnt, draws, ledger)
    at = world(script(300, lambda s: 1 + s // 50), Drafter(profiles([0.6])), engine={"runner": 2, "delay": 1})
    run = simulate(at, policy)
    assert len(run.k) == 300
    assert set(run.k.tolist()) <= set(ARMS)
