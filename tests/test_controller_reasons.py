"""Every decision says truly why it was made."""

from __future__ import annotations

import pytest

from adaptk import Controller, Decision, GoodputTable, Reason, Settings
from adaptk.planner import MARGIN
from tests.publicengine import PUBLIC, decided, world
from tests.restless import Restless

CONFIGS = [
    Settings(),
    Settings(budget=0.3),
    Settings(min_k=1, budget=0.1),
    Settings(min_k=4),
    Settings(max_itl_ms=12.0, budget=0.1),
    Settings(max_itl_ms=0.5, min_k=1),
    Settings(budget=1e-6),
]


class Watched(Controller):
    """Compares each decision with the plan that it was made from: of the smoothed batch size, or of the step's own."""

    seen: set[Reason]

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        k = super().choose(batch_size, context_tokens, decodes)
        decision, load = self._open[-1], self._load
        fits = [self._fits(decision, batch) for batch in {load.batch, batch_size}]
        assert any(fits), decision
        self.seen = getattr(self, "seen", set()) | {decision.reason}
        return k

    def _fits(self, decision: Decision, batch: int) -> bool:
        planner = self._planner
        plan, arm = planner._planned(batch, self._load.context), self.arms.index(decision.k)
        free = max(range(len(self.arms)), key=plan.scores.__getitem__)
        true = {
            Reason.EXPLORE: arm == planner.visiting,
            Reason.EXPLOIT: arm == plan.winner == free,
            Reason.MIN_K: arm == plan.winner and self.arms[free] < self.settings.min_k,
            Reason.GUARD: arm == plan.winner and (free not in plan.allowed or planner._refused),
            Reason.HOLD: planner.climbing or arm != plan.winner or not planner.latency.contamination.trusted,
            Reason.FALLBACK: False,
        }
        return true[decision.reason]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("table", [PUBLIC, None], ids=["table", "no table"])
def test_the_reason_fits_the_plan(config: Settings, table: GoodputTable | None) -> None:
    """1,500 restless steps, with and without a table; ``fallback`` is left to the engine's adapter."""
    controller = Watched(table, k_max=5, settings=config, seed=1)
    Restless(controller, seed=1).run(1500)
    expected = {Reason.EXPLOIT, Reason.HOLD, Reason.GUARD}
    if config.budget > 0.01:
        expected.add(Reason.EXPLORE)
    if config.min_k:
        expected.add(Reason.MIN_K)
    assert len(controller.seen & expected) >= 2


def test_min_k_where_a_smaller_arm_would_be_best() -> None:
    """At batch 256 K=0 is best; with ``min_k=1`` the steps at K=1 are due to that, most of them."""
    controller = Controller(PUBLIC, settings=Settings(min_k=1), seed=0)
    decisions = decided(world(400, 256, 0.6), controller)
    barred = [d.k for d in decisions if d.reason is Reason.MIN_K]
    assert len(barred) > 300
    assert set(barred) == {1}


def test_guard_where_the_ledger_refuses_a_visit() -> None:
    """Hardly any budget where the table is unsure: the blocks' first steps say guard, none says explore."""
    refused, free = (Controller(PUBLIC, settings=Settings(budget=b), seed=0) for b in (1e-9, 1.0))
    reasons = [[d.reason for d in decided(world(600, 16, 0.62), controller)] for controller in (refused, free)]
    assert Reason.GUARD in reasons[0]
    assert Reason.EXPLORE not in reasons[0]
    assert Reason.EXPLORE in reasons[1]


def test_hold_where_another_arm_is_hardly_better() -> None:
    """K=1 and K=3 within 0.4 % of each other: whichever runs is kept, the worse one for that reason."""
    rows = [{"batch": 8, "k": k, "itl_ms": t} for k, t in ((0, 10.0), (1, 11.0), (3, 14.15))]
    table = GoodputTable.from_rows(rows, acceptance=[0.7, 0.5, 0.4])
    reasons = {}
    for arm in (1, 2):
        controller = Controller(table, seed=0)
        controller.choose(8)
        scores = controller._planner._planned(8, None).scores
        assert 0.0 < abs(scores[1] - scores[2]) < MARGIN
        controller._planner.arm = arm
        assert controller.choose(8) == controller.arms[arm]
        reasons[arm] = controller._open[-1].reason
    better = 1 if scores[1] > scores[2] else 2
    assert reasons == {better: Reason.EXPLOIT, 3 - better: Reason.HOLD}


def test_hold_while_the_level_of_step_times_is_not_known() -> None:
    """Without a table, before the first time has been seen."""
    controller = Controller(None, k_max=3, seed=0)
    assert controller.choose(8) == 0
    assert controller._open[-1].reason is Reason.HOLD
