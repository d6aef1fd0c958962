"""Which arm is played next: the best one known, or a priced visit to another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from adaptk.acceptance import AcceptancePosterior
from adaptk.decision import Reason
from adaptk.guard import Ledger, Patience
from adaptk.latency import LatencyPosterior
from adaptk.settings import Settings
from adaptk.thompson import Outlook, goodput_draws, outlook, winners

Array = npt.NDArray[np.float64]

BLOCK = 32  # chooses per draw
CLIMB_BLOCK = 8  # chooses between looks at the price of the first drafting arm
VISIT = 4  # steps of an excursion; the first only pays for the change of shape, three make an observation
PROBE = 3  # steps of a blind probe from K=0
CONFIRM = 8  # chooses until the win of a visit is looked at again
PROBE_SHARE = 0.8  # of the blocks in which a blind probe is affordable
DRAWS = 16
HORIZON = 200  # steps over which a better arm would pay
MARGIN = math.log(1.004)  # what another arm must promise before it is switched to
PESSIMISM = 0.5  # standard deviations of step time added to the price of a visit
_KEPT_PLANS = 4096


class _Plan(NamedTuple):
    """The best arm at one batch size, every arm's log goodput, the arms allowed, and the reason."""

    winner: int
    scores: list[float]
    allowed: list[int]
    reason: Reason


class Planner:
    """Turns the posteriors into a plan K*(batch) per block, and decides on visits.

    A plan holds the arm with the highest believed goodput for each batch size and stays for a block of ``BLOCK``
    chooses. At the start of a block everything uncertain is drawn ``DRAWS`` times; one draw, taken at random, may send
    the controller on a visit of ``VISIT`` steps to the arm that it prefers, if the ledger affords the price and the
    arm's wait is over. The probability of what was played is the share of the draws that would have led there.

    Parameters
    ----------
    climbing
        Start at the cheapest arm and work upward, because nothing is known of this engine.
    """

    def __init__(
        self,
        acceptance: AcceptancePosterior,
        latency: LatencyPosterior,
        settings: Settings,
        rng: np.random.Generator,
        climbing: bool,
    ) -> None:
        self.acceptance = acceptance
        self.latency = latency
        self.ledger = Ledger(settings.budget)
        self.patience = Patience()
        self.arms = latency.arms
        self.arm = -1
        self.visiting = -1
        self.climbing = climbing
        self._rng = rng
        self._max_log_itl = math.log(settings.max_itl_ms) if settings.max_itl_ms else math.inf
        self._permitted = [i for i, k in enumerate(self.arms) if k >= settings.min_k]
        self._plan: dict[int, _Plan] = {}
        self._propensity = 1.0
        self._chance_left = 0
        self._block_left = 0
        self._visit_left = 0
        self._visit_alarms = 0
        self._retime = False
        self._steps = 0
        self._refused = False

    def next(self, batch: int, context: float | None, regime_changed: bool) -> tuple[int, Reason, float]:
        """Index of the arm for the step now being scheduled, why, and the probability with which it was played."""
        if self.climbing and not self.latency.level_known:
            self.arm = self._permitted[0]
            return self.arm, Reason.HOLD, 1.0
        if regime_changed:
            self.cancel_visit()
        self._refused = False
        if regime_changed and self.arm >= 0 and not self.climbing:
            self.replan()
            # What is known must do until the new load has shown itself; but loads that keep jumping are explored too.
            self._block_left = max(1, min(self._block_left, CONFIRM))
        elif self._block_left <= 0:
            self._begin_block(batch, context)
        self._block_left -= 1
        self._steps += 1
        if self._visit_left > 0 and self.visiting not in self._planned(batch, context).allowed:
            self.cancel_visit()  # the load crept to where the visited arm is beyond the operator's limit
        propensity, self._chance_left = (self._propensity if self._chance_left > 0 else 1.0), self._chance_left - 1
        if self._visit_left > 0:
            self._visit_left -= 1
            return self.visiting, Reason.EXPLORE, propensity
        arm, reason = self.best(batch, context)
        return arm, Reason.GUARD if self._refused and reason is Reason.EXPLOIT else reason, propensity

    def best(self, batch: int, context: float | None) -> tuple[int, Reason]:
        """The planned arm; the running one is held while no other promises more than the margin."""
        plan = self._planned(batch, context)
        if plan.winner != self.arm:
            if self.arm in plan.allowed and plan.scores[plan.winner] < plan.scores[self.arm] + MARGIN:
                return self.arm, Reason.HOLD
            self.arm = plan.winner
        return plan.winner, plan.reason

    @property
    def visit_scheduled(self) -> bool:
        """Whether steps of a visit are still to be played."""
        return self._visit_left > 0

    def judge(self, batch: int, context: float | None) -> None:
        """All steps of the visit have come back: replan, and remember whether it was worth it."""
        visited = self.visiting
        self.visiting = -1
        self.replan()
        now, _ = self.best(batch, context)
        if now == visited:
            self.patience.succeeded(visited, batch)
            self._block_left = min(self._block_left, CONFIRM)  # a few lucky samples must not carry a whole block
            # A surprise may have been the engine's, not the arm's.
            self._retime = self._retime or self.latency.alarms > self._visit_alarms
        else:
            self.patience.failed(visited, batch)

    def replan(self) -> None:
        """Take up what was learnt since the block began."""
        self.acceptance.settle()
        self._plan.clear()

    def change_detected(self, of_time: bool) -> None:
        """Draw anew at the next step; what failed before may work now."""
        self._retime = self._retime or of_time
        self.patience.forgive()
        self._block_left = 0
        self._plan.clear()

    def limits_changed(self) -> None:
        """Other limits than those that the plan was made under: plan anew at the next step."""
        self.cancel_visit()
        self._block_left = 0
        self._plan.clear()

    def cancel_visit(self) -> None:
        """The load moved away: the visit would be judged on another batch size."""
        self._visit_left = self._chance_left = 0
        self.visiting = -1

    def allowed(self, batch: int, context: float | None) -> list[int]:
        """Indices of the arms within the operator's limits at this batch size."""
        return self._allowed(self.latency.log_times(batch, self.acceptance.widths(self.arms), context))

    def _begin_block(self, batch: int, context: float | None) -> None:
        self._block_left = BLOCK
        self.patience.tick()
        self.latency.tick(self._steps)
        self._steps = 0
        self.replan()
        if self.climbing:
            self._climb(batch, context)
            return
        base, _ = self.best(batch, context)
        if self.visiting < 0:
            view = outlook(self.acceptance, self.latency, batch, context)
            if not (self._retime and self._visit_runner_up(base, self._plan[batch], view)):
                self._draw(base, batch, view)

    def _climb(self, batch: int, context: float | None) -> None:
        """The cheapest arm has set the scale: visit the next one once its price allows, then the posterior decides."""
        self._block_left = CLIMB_BLOCK
        if len(self._permitted) == 1:
            self.climbing = False
            return
        view = outlook(self.acceptance, self.latency, batch, context)
        allowed = self._allowed(view.log_times)
        if len(allowed) > 1 and self.ledger.affords(_price(view, allowed[1], allowed[0], VISIT)):
            self.climbing = False
            self.arm = allowed[0]
            self._visit(allowed[1], VISIT, 1.0)

    def _visit_runner_up(self, base: int, plan: _Plan, view: Outlook) -> bool:
        """After a change of time seen at one arm: was it that arm's, or the engine's? The next best arm tells."""
        others = [i for i in plan.allowed if i != base]
        if not others:
            self._retime = False
            return False
        runner_up = max(others, key=plan.scores.__getitem__)
        if not self.ledger.affords(_price(view, runner_up, base, PROBE, pessimism=0.0)):
            return False
        self._retime = False
        self._visit(runner_up, PROBE, 1.0)
        return True

    def _draw(self, base: int, batch: int, view: Outlook) -> None:
        """Draw everything uncertain; visit the arm that one of the draws prefers, or probe the drafter, or stay."""
        lengths, log_times = goodput_draws(self.acceptance, self.arms, view, DRAWS, self._rng)
        scores = np.log(lengths) - log_times
        allowed = self._allowed(view.log_times)
        drawn = winners(scores, allowed).tolist()
        pick = drawn[int(self._rng.integers(DRAWS))]
        shares = {
            arm: drawn.count(arm) / DRAWS
            for arm in set(drawn) - {base}
            if self._may_visit(arm, base, batch, view, scores)
        }
        self._refused = pick != base and pick not in shares
        stay = 1.0 - sum(shares.values())
        probe = self._blind_probe(base, allowed, view)
        probed = PROBE_SHARE * stay if probe >= 0 else 0.0
        if pick in shares:
            self._visit(pick, VISIT, shares[pick] + (probed if pick == probe else 0.0))
        elif probe >= 0 and self._rng.random() < PROBE_SHARE:
            self.ledger.begin_probe(_price(view, probe, base, PROBE))
            self._visit(probe, PROBE, shares.get(probe, 0.0) + probed)
        else:
            self._propensity, self._chance_left = stay - probed, VISIT

    def _may_visit(self, arm: int, base: int, batch: int, view: Outlook, scores: Array) -> bool:
        """Whether the arm's wait is over and a visit costs no more than the ledger has and than it can be worth."""
        if not self.patience.allows(arm, batch):
            return False
        price = _price(view, arm, base, VISIT)
        gain = float(np.mean(np.exp(np.maximum(scores[:, arm] - scores[:, base], 0.0)))) - 1.0
        return price <= HORIZON * math.exp(view.log_times[base]) * gain and self.ledger.affords(price)

    def _blind_probe(self, base: int, allowed: Sequence[int], view: Outlook) -> int:
        """The cheapest drafting arm, where K=0 is played and shows nothing of the drafter; -1 where not affordable."""
        above = [i for i in allowed if i > base]
        if self.arms[base] > 0 or not above:
            return -1
        return above[0] if self.ledger.affords_probe(_price(view, above[0], base, PROBE)) else -1

    def _visit(self, arm: int, steps: int, propensity: float) -> None:
        self.visiting, self._visit_left = arm, steps
        self._propensity, self._chance_left = propensity, steps
        self._visit_alarms = self.latency.alarms

    def _planned(self, batch: int, context: float | None) -> _Plan:
        return self._plan.get(batch) or self._make_plan(batch, context)

    def _make_plan(self, batch: int, context: float | None) -> _Plan:
        times = self.latency.log_times(batch, self.acceptance.widths(self.arms), context)
        scores = [math.log(n) - t for n, t in zip(self.acceptance.lengths(self.arms), times, strict=True)]
        allowed = self._allowed(times)
        if self.climbing:
            allowed = allowed[:1]  # at every batch size: the deeper arms have not been priced yet
        winner = max(allowed, key=scores.__getitem__)
        free = max(range(len(scores)), key=scores.__getitem__)
        reason = Reason.EXPLOIT
        if free != winner:
            reason = Reason.MIN_K if free < self._permitted[0] else Reason.GUARD
        if len(self._plan) >= _KEPT_PLANS:
            self._plan.clear()
        plan = self._plan[batch] = _Plan(winner, scores, allowed, reason)
        return plan

    def _allowed(self, times: Sequence[float]) -> list[int]:
        """Arms within the operator's limits; the cheapest one where none is. Without any time no arm is too slow."""
        if self._max_log_itl == math.inf or not self.latency.level_known:
            return self._permitted
        within = [i for i in self._permitted if times[i] <= self._max_log_itl]
        return within or [min(self._permitted, key=times.__getitem__)]

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-safe."""
        return {
            "ledger": self.ledger.snapshot(),
            "patience": self.patience.snapshot(),
            "plan": [[batch, p.winner, p.scores, p.allowed, p.reason.value] for batch, p in self._plan.items()],
            **{name: getattr(self, name) for name in _STATE},
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over the state of a ``snapshot``."""
        self.ledger.load(data["ledger"])
        self.patience.load(data["patience"])
        self._plan = {b: _Plan(w, list(s), list(a), Reason(r)) for b, w, s, a, r in data["plan"]}
        for name in _STATE:
            setattr(self, name, data[name])


def _price(view: Outlook, arm: int, base: int, steps: int, pessimism: float = PESSIMISM) -> float:
    """Milliseconds that a visit is expected to cost; half a step more, for the one that verifies its last drafts."""
    return view.excess_ms(arm, base, pessimism) * (steps + 0.5)


_STATE = (
    "arm",
    "visiting",
    "climbing",
    "_propensity",
    "_chance_left",
    "_block_left",
    "_visit_left",
    "_visit_alarms",
    "_retime",
    "_steps",
)
