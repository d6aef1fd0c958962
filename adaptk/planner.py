"""Which arm is played next: the best one known, or a priced visit to another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from adaptk.acceptance import AcceptancePosterior
from adaptk.arithmetic import vanishing_is_zero
from adaptk.decision import Reason
from adaptk.guard import Ledger, Patience, place
from adaptk.latency import LatencyPosterior
from adaptk.settings import Settings
from adaptk.thompson import Outlook, goodput_draws, outlook, winners

Array = npt.NDArray[np.float64]

BLOCK = 32  # chooses per draw
CLIMB_BLOCK = 8  # chooses between looks at the price of the first drafting arm
VISIT = 4  # steps of an excursion; the first only pays for the change of shape, three make an observation
PROBE = 3  # steps of a blind probe from K=0
CONFIRM = 8  # chooses until the win of a visit, or a change, is looked at again
PROBE_SHARE = 0.8  # of the blocks in which a blind probe is affordable
DRAWS = 16  # of everything uncertain, at the start of a block
HORIZON = 200  # steps over which a better arm would pay
# What another arm must promise before it is switched to, log units: this, and so many standard deviations of the
# promise up to a limit; without these once the batch size has moved by a factor.
MARGIN = math.log(1.004)
LEAD, MOST_LEAD = 0.5, math.log(1.02)
MOVED = 1.1
FLIP = math.log(1.02)  # what an arm must gain over a stair that the smoothed batch size has not climbed yet
NEWS = 0.03  # log units of step time that need not wait for the end of a block
# Standard deviations that an arm must be better by where no table says what it takes, and where another engine's does.
CAUTION, CAUTION_SHAPED = 0.4, 0.2
PESSIMISM = 0.5  # standard deviations of step time added to the price of a visit
_KEPT_PLANS = 4096
_MEAN = np.full(DRAWS, 1.0 / DRAWS)  # weights of the draws in a mean
_EXPLOIT, _EXPLORE, _HOLD = Reason.EXPLOIT, Reason.EXPLORE, Reason.HOLD  # an enumeration's attributes are slow


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
        self.covered: Callable[[int, int], bool] | None = None  # whether the engine has prepared for (batch, K)
        self._prepared: dict[int, list[int]] = {}
        self._plan: dict[int, _Plan] = {}
        self._lead = [MARGIN] * len(self.arms)
        self._settled = 1  # batch size at which the running arm last was the best
        self._context_octave = -1  # not known yet
        self._chances: list[float] = []  # probabilities of what the next steps play, the last one first
        self._block_left = 0
        self._visit_left = 0
        self._visit_alarms = 0
        self._retime = self._changed = False
        self._first_look = latency.prior.timed  # how far off the table is at one arm says little of the others
        self._steps = 0
        self._refused = False

    def next(
        self, batch: int, context: float | None, regime_changed: bool, exact: int | None = None
    ) -> tuple[int, Reason, float]:
        """Index of the arm for the step now being scheduled, why, and the probability with which it was played.

        ``batch`` is smoothed; ``exact`` is the one of this step, which matters where step times jump between the two.
        """
        if self.climbing and not self.latency.level_known:
            self.arm = self._permitted[0]
            return self.arm, _HOLD, 1.0
        if regime_changed:
            self.cancel_visit()
        self._refused = False
        if regime_changed and self.arm >= 0 and not self.climbing and self._block_left > 0:
            self.replan()
            # What is known must do until the new load has shown itself; but loads that keep jumping are explored too.
            self._block_left = max(1, min(self._block_left, CONFIRM))
        elif self._block_left <= 0:
            self._begin_block(batch, context)
        elif abs(self.latency.moved) > NEWS:
            self.replan()  # what the running arm turned out to take need not wait for the end of the block
        self._block_left -= 1
        self._steps += 1
        if self._visit_left > 0 and self.visiting not in self._planned(batch, context).allowed:
            self.cancel_visit()  # the load crept to where the visited arm is beyond the operator's limit
        propensity = self._chances.pop() if self._chances else 1.0
        if self._visit_left > 0:
            self._visit_left -= 1
            return self.visiting, _EXPLORE, propensity
        arm, reason = self.best(batch, context)
        if exact is not None and exact != batch and self._climbs(batch, exact):
            plan = self._planned(exact, context)
            if plan.scores[plan.winner] > plan.scores[arm] + FLIP or arm not in plan.allowed:
                return plan.winner, plan.reason, propensity
        if reason is _EXPLOIT:
            if self._refused:
                reason = Reason.GUARD
            elif not self.latency.contamination.trusted:
                reason = _HOLD
        return arm, reason, propensity

    def _climbs(self, batch: int, exact: int) -> bool:
        """Whether step times may jump between two batch sizes; where nothing was measured that would be a guess."""
        return self.latency.prior.timed and self.latency.stair(exact) != self.latency.stair(batch)

    def best(self, batch: int, context: float | None) -> tuple[int, Reason]:
        """The planned arm; the running one is held while no other's lead over it is more than chance."""
        plan = self._planned(batch, context)
        if plan.winner != self.arm:
            # Where the load has moved on, another arm is no flapping.
            moved = max(batch, self._settled) > MOVED * min(batch, self._settled)
            lead = MARGIN if moved else self._lead[plan.winner]
            if self.arm in plan.allowed and plan.scores[plan.winner] < plan.scores[self.arm] + lead:
                return self.arm, _HOLD
            self.arm = plan.winner
        self._settled = batch
        return plan.winner, plan.reason

    @property
    def visit_scheduled(self) -> bool:
        """Whether steps of a visit are still to be played."""
        return self._visit_left > 0

    @vanishing_is_zero
    def judge(self, batch: int, context: float | None) -> None:
        """All steps of the visit have come back: replan, and remember whether it was worth it."""
        visited = self.visiting
        self.visiting = -1
        self.replan()
        self._look(batch, context)
        now, _ = self.best(batch, context)
        if now == visited:
            self.patience.succeeded(visited, place(batch, context))
            self._block_left = min(self._block_left, CONFIRM)  # a few lucky samples must not carry a whole block
            # A surprise may have been the engine's, not the arm's.
            self._retime = self._retime or self.latency.alarms > self._visit_alarms
        else:
            self.patience.failed(visited, place(batch, context))

    def replan(self) -> None:
        """Take up what was learnt since the block began."""
        self.acceptance.settle()
        self.latency.moved = 0.0
        self._plan.clear()

    def change_detected(self, of_time: bool) -> None:
        """Draw anew at the next step; what failed before may work now."""
        self._retime = self._retime or of_time
        self._changed = True
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
        self._visit_left = 0
        self._chances.clear()
        self.visiting = -1

    def allowed(self, batch: int, context: float | None) -> list[int]:
        """Indices of the arms within the operator's limits at this batch size."""
        return self._allowed(batch, self.latency.log_times(batch, self.acceptance.widths(self.arms), context))

    def cover(self, covered: Callable[[int, int], bool] | None) -> None:
        """Play an arm that the engine has not prepared for only at batch sizes for which it has prepared none."""
        self.covered = covered
        self._prepared.clear()
        self.limits_changed()

    def playable(self, batch: int) -> list[int]:
        """Arms not below ``min_k`` that the engine has prepared for at this batch size; where it has for none, all."""
        covered = self.covered
        if covered is None:
            return self._permitted
        found = self._prepared.get(batch)
        if found is None:
            found = [i for i in self._permitted if covered(batch, self.arms[i])] or self._permitted
            if len(self._prepared) >= _KEPT_PLANS:
                self._prepared.clear()
            self._prepared[batch] = found
        return found

    def instead(self, batch: int, exact: int, context: float | None) -> int:
        """The best arm prepared for at the ``exact`` batch size, where the one planned for the smoothed one is not."""
        plan = self._planned(batch, context)
        playable = self.playable(exact)
        return max([i for i in plan.allowed if i in playable] or playable, key=plan.scores.__getitem__)

    @vanishing_is_zero
    def _begin_block(self, batch: int, context: float | None) -> None:
        self._block_left = CONFIRM if self._changed else BLOCK  # what a change is like shows only by and by
        self._changed = False
        self.patience.tick()
        self.latency.tick(self._steps)
        self._steps = 0
        self.replan()
        if self.climbing:
            self._climb(batch, context)
            return
        octave = place(batch, context)[1]
        self._retime = self._retime or octave != self._context_octave >= 0
        self._context_octave = octave
        view, scores = self._look(batch, context)
        base, _ = self.best(batch, context)
        if not self.latency.contamination.trusted:
            self._chances.clear()  # no visit could tell anything
        elif self.visiting < 0 and not (
            (self._retime or self._first_look) and self._visit_runner_up(base, self._plan[batch], view)
        ):
            self._draw(base, batch, context, view, scores)

    def _look(self, batch: int, context: float | None) -> tuple[Outlook, Array]:
        """Draw everything uncertain, and say what lead over the running arm is more than chance."""
        view = outlook(self.acceptance, self.latency, batch, context)
        self._keep_plan(batch, view.lengths, view.log_times, view.covariance)
        now = self.acceptance.lengths_now(self.arms, batch)  # what a visit would find
        view = Outlook(now, view.log_times, view.covariance, batch)
        lengths, log_times = goodput_draws(self.acceptance, self.arms, view, DRAWS, self._rng, visit=True)
        scores = np.log(lengths, out=lengths)
        scores -= log_times
        if self.arm >= 0:
            ahead = scores - scores[:, self.arm : self.arm + 1]
            means, squares = _MEAN.dot(ahead).tolist(), _MEAN.dot(ahead * ahead).tolist()
            variances = [max(0.0, square - mean * mean) for mean, square in zip(means, squares, strict=True)]
            self._lead = [MARGIN + min(LEAD * math.sqrt(v), MOST_LEAD) for v in variances]
        return view, scores

    def _climb(self, batch: int, context: float | None) -> None:
        """The cheapest arm has set the scale: visit the next one once its price allows, then the posterior decides."""
        self._block_left = CLIMB_BLOCK
        if len(self._permitted) == 1:
            self.climbing = False
            return
        view = outlook(self.acceptance, self.latency, batch, context)
        allowed = self._allowed(batch, view.log_times)
        if len(allowed) > 1 and self.ledger.affords(_price(view, allowed[1], allowed[0], VISIT)):
            self.climbing = False
            self.arm = allowed[0]
            self._visit(allowed[1], VISIT, 1.0)

    def _visit_runner_up(self, base: int, plan: _Plan, view: Outlook) -> bool:
        """After a change of time seen at one arm: was it that arm's, or the engine's? The next best arm tells."""
        others = [i for i in plan.allowed if i != base]
        if not others:
            self._retime = self._first_look = False
            return False
        runner_up = max(others, key=plan.scores.__getitem__)
        price = _price(view, runner_up, base, PROBE, pessimism=0.0)
        if self._first_look and not self._retime and price > math.exp(view.log_times[base]):
            self._first_look = False  # no more than a step for what nothing has given cause for
        if not self.ledger.affords(price) or not (self._retime or self._first_look):
            return False
        self._retime = self._first_look = False
        self._visit(runner_up, PROBE, 1.0)
        return True

    def _draw(self, base: int, batch: int, context: float | None, view: Outlook, scores: Array) -> None:
        """Visit the arm that one of the draws prefers, or probe the drafter, or stay."""
        allowed = self._allowed(batch, view.log_times)
        drawn = winners(scores, allowed).tolist()
        pick = drawn[int(self._rng.integers(DRAWS))]
        shares = {
            arm: drawn.count(arm) / DRAWS
            for arm in set(drawn) - {base}
            if self._may_visit(arm, base, batch, context, view, scores)
        }
        self._refused = pick != base and pick not in shares
        stay = 1.0 - sum(shares.values())
        probe = self._blind_probe(base, allowed, view)
        probed = PROBE_SHARE * stay if probe >= 0 else 0.0
        if pick in shares:
            self._visit(pick, VISIT, shares[pick])
        elif probe >= 0 and self._rng.random() < PROBE_SHARE:
            self.ledger.begin_probe(_price(view, probe, base, PROBE))
            self._visit(probe, PROBE, shares.get(probe, 0.0) + probed)
            self._chances.insert(0, stay)
        else:
            self._chances = [stay] * (VISIT - PROBE) + [stay - probed] * PROBE
        if pick == probe and pick in shares:
            self._chances[-PROBE:] = [shares[pick] + probed] * PROBE  # a probe would have played it as well

    def _may_visit(self, arm: int, base: int, batch: int, context: float | None, view: Outlook, scores: Array) -> bool:
        """Whether the arm's wait is over and a visit costs no more than the ledger has and than it can be worth."""
        if not self.patience.allows(arm, place(batch, context)):
            return False
        price = _price(view, arm, base, VISIT)
        if not self.ledger.affords(price):
            return False
        leads = (scores[:, arm] - scores[:, base]).tolist()
        gain = sum([math.expm1(lead) for lead in leads if lead > 0.0]) / DRAWS
        return price <= HORIZON * math.exp(view.log_times[base]) * gain

    def _blind_probe(self, base: int, allowed: Sequence[int], view: Outlook) -> int:
        """The cheapest drafting arm, where K=0 is played and shows nothing of the drafter; -1 where not affordable."""
        above = [i for i in allowed if i > base]
        if self.arms[base] > 0 or not above:
            return -1
        return above[0] if self.ledger.affords_probe(_price(view, above[0], base, PROBE)) else -1

    def _visit(self, arm: int, steps: int, propensity: float) -> None:
        self.visiting, self._visit_left = arm, steps
        self._chances = [propensity] * steps
        self._visit_alarms = self.latency.alarms

    def _planned(self, batch: int, context: float | None) -> _Plan:
        return self._plan.get(batch) or self._make_plan(batch, context)

    @vanishing_is_zero
    def _make_plan(self, batch: int, context: float | None) -> _Plan:
        widths = self.acceptance.widths(self.arms)
        times = self.latency.log_times(batch, widths, context)
        guessed = self.latency.prior.guessed
        covariance = self.latency.covariance(batch, widths, context) if guessed else None
        return self._keep_plan(batch, self.acceptance.lengths(self.arms, batch), times, covariance)

    def _keep_plan(
        self, batch: int, lengths: Sequence[float], times: Sequence[float], covariance: Array | None
    ) -> _Plan:
        scores = [math.log(n) - t for n, t in zip(lengths, times, strict=True)]
        allowed = self._allowed(batch, times)
        if covariance is not None and self.latency.prior.guessed:
            scores = self._cautious(scores, allowed[0], covariance)
        if self.climbing:
            allowed = allowed[:1]  # at every batch size: the deeper arms have not been priced yet
        winner = max(allowed, key=scores.__getitem__)
        free = winner if len(allowed) == len(scores) else max(range(len(scores)), key=scores.__getitem__)
        reason = _EXPLOIT
        if free != winner:
            reason = Reason.MIN_K if free < self._permitted[0] else Reason.GUARD
        if len(self._plan) >= _KEPT_PLANS:
            self._plan.clear()
        plan = self._plan[batch] = _Plan(winner, scores, allowed, reason)
        return plan

    def _cautious(self, scores: list[float], base: int, covariance: Array) -> list[float]:
        """Scores without a table of this engine: what is only guessed must not beat the cheapest arm by its mean."""
        caution = CAUTION_SHAPED if self.latency.prior.shaped else CAUTION
        own = covariance.diagonal() + covariance[base, base] - 2.0 * covariance[base]
        return [score - caution * math.sqrt(max(0.0, v)) for score, v in zip(scores, own.tolist(), strict=True)]

    def _allowed(self, batch: int, times: Sequence[float]) -> list[int]:
        """Arms within the operator's limits; the cheapest one where none is. Without any time no arm is too slow."""
        playable = self.playable(batch)
        if self._max_log_itl == math.inf or not self.latency.level_known:
            return playable
        within = [i for i in playable if times[i] <= self._max_log_itl]
        return within or [min(playable, key=times.__getitem__)]

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-safe."""
        return {
            "ledger": self.ledger.snapshot(),
            "patience": self.patience.snapshot(),
            "chances": list(self._chances),
            "plan": [[b, p.winner, list(p.scores), list(p.allowed), p.reason.value] for b, p in self._plan.items()],
            **{name: getattr(self, name) for name in _STATE},
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over the state of a ``snapshot``."""
        self.ledger.load(data["ledger"])
        self.patience.load(data["patience"])
        self._chances = list(data["chances"])
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
    "_block_left",
    "_visit_left",
    "_visit_alarms",
    "_retime",
    "_changed",
    "_first_look",
    "_steps",
    "_lead",
    "_context_octave",
    "_settled",
)
