"""adaptk itself in the replay, and its ablations."""

from __future__ import annotations

from adaptk.acceptance import AcceptancePosterior
from adaptk.controller import Controller
from adaptk.decision import Decision
from adaptk.guard import Ledger
from adaptk.latency import LatencyPosterior
from adaptk.planner import Planner
from adaptk.replay.policies.base import Setup
from adaptk.settings import Settings
from adaptk.step import StepRecord


class Adaptive:
    """adaptk's controller, or an ablation of it.

    Parameters
    ----------
    acceptance, time
        Whether acceptance and step time are learnt from live steps; where not, the table's stand for good.
    draws
        Thompson sampling; without it the arm with the best means is played, beside blind probes from K=0.
    ledger
        The budget on exploring; without it every visit is affordable.
    """

    def __init__(
        self, setup: Setup, acceptance: bool = True, time: bool = True, draws: bool = True, ledger: bool = True
    ) -> None:
        self.controller = Controller(setup.table, arms=setup.arms, settings=Settings(), seed=setup.seed)
        self.arms = self.controller.arms
        self.exploring = False
        self._explored = 0
        _ablate(self.controller, acceptance, time, draws, ledger)
        self._choose = self.controller.choose
        self._observe = self.controller.observe
        self._counters = self.controller.counters

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """As ``Controller.choose``."""
        k = self._choose(batch_size, context_tokens, decodes)
        explored = self._counters["explored"]
        self.exploring, self._explored = explored != self._explored, explored
        return k

    def observe(self, record: StepRecord) -> Decision | None:
        """As ``Controller.observe``."""
        return self._observe(record)


class _FrozenAcceptance(AcceptancePosterior):
    """Acceptance as the table has it."""

    def observe(self, *_: object, **__: object) -> bool:
        return False


class _FrozenLatency(LatencyPosterior):
    """Step times as the table has them; the level counts as known, so that nothing waits for it."""

    def add(self, *_: object) -> bool:
        self.level_known = True
        return False


class _NoLedger(Ledger):
    """Affords everything."""

    def affords(self, price: float) -> bool:
        return True

    def affords_probe(self, price: float) -> bool:
        return True


class _GreedyPlanner(Planner):
    """Plays the means: the draw is taken, so that probes and visits after a change remain, but sends nobody away."""

    def _may_visit(self, *_: object) -> bool:
        return False


def _ablate(controller: Controller, acceptance: bool, time: bool, draws: bool, ledger: bool) -> None:
    """Put the parts of an ablation in place of the controller's own."""
    if acceptance and time and draws and ledger:
        return
    own, table = controller._planner, controller.table
    if not acceptance:
        controller._acceptance = _FrozenAcceptance(controller.arms[-1], table.acceptance if table is not None else None)
    if not time:
        controller._latency = _FrozenLatency(controller._latency.prior)
    planner = (Planner if draws else _GreedyPlanner)(
        controller._acceptance, controller._latency, controller.settings, controller._rng, climbing=own.climbing
    )
    if not ledger:
        planner.ledger = _NoLedger(controller.settings.budget)
    controller._planner = planner
