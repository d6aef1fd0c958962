"""The loop that joins posteriors, plan and ledger: choose K, observe the step."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from operator import index
from time import time
from typing import Any

import numpy as np

from adaptk.acceptance import AcceptancePosterior, PositionBelief
from adaptk.alone import one_at_a_time, under_way
from adaptk.arithmetic import vanishing_is_zero
from adaptk.arms import resolve_arms
from adaptk.batch import LoadTracker
from adaptk.belief import ArmBelief, arm_beliefs
from adaptk.continuity import COUNTERS, begin_from, restored, taken
from adaptk.corrected import corrected_table
from adaptk.decision import Decision, Reason
from adaptk.evidence import delivering, drafter_dead, most_and_sum, step_time, whole_count
from adaptk.latency import LatencyPosterior
from adaptk.peek import Peek
from adaptk.planner import Planner
from adaptk.prefill import PrefillCost
from adaptk.prior import StepTimePrior
from adaptk.quoted import shown
from adaptk.settings import Settings
from adaptk.snapshot import Identity, read_identity
from adaptk.step import LARGEST_COUNT, StepRecord
from adaptk.table import GoodputTable
from adaptk.thompson import worth_ms
from adaptk.waits import Waits

MOST_OPEN = 64  # decisions without an observation that are remembered
STALLED = 2.0  # of a visit's step, believed times that are charged at most
STALL = 5.0  # steps longer than this multiple of the usual are no income of the ledger
_EXPLORE = Reason.EXPLORE  # looked up once: an enumeration's attributes are slow
UNSETTLED = 32  # steps with drafts after a change of weights in which the plan follows each step, not each block
FULL_SUPPLY = 0.8  # a drafter that returns drafts this often and has none now is not itself
# Why a step's time was not learnt from although it was known.
UNLEARNT = ("switching", "no_arm", "extra_drafts", "no_drafts", "waiting", "prefill")


class Controller:
    """Picks the number of draft tokens per request for every engine step.

    For one thread at a time: an engine that chooses on one thread and observes on another, or asks what is believed on
    a third, guards each call with a lock of its own. A call while another one is under way is refused with a
    ``RuntimeError`` and changes nothing; a child forked in the middle of a call needs a controller of its own.

    Parameters
    ----------
    table
        Offline goodput table, or ``None``; then it starts at the cheapest arm and climbs.
    trusted
        Whether the table is of this engine. One that is not, being of another model, device or version, is a weak
        prior: of it the shape alone is believed, and widely; it starts at the cheapest arm and climbs.
    arms
        Numbers of drafts that may be chosen; beats ``settings.arms``. Default: (0, 1, 3, 7) cut at ``k_max``, ``k_max``
        itself, and what a table made from a schedule prescribes.
    settings
        ``min_k``, ``max_itl_ms``, ``budget``, ``arms`` and ``seed`` are used; the rest is for the engine's adapter.
    seed
        Seed of the draws; beats ``settings.seed``. The same seed and calls give the same decisions.
    k_max
        Most drafts that the engine can make; default: the largest K of the table.
    capture_sizes
        Tokens that the engine pads its steps to, where that is known: step times jump between them. Default: unknown.
    identity
        What it is for, as ``{"model": ..., "drafter": ..., "device": ...}``; goes into snapshots. Default: unknown.

    Raises
    ------
    ValueError
        If there are no arms, an arm is negative, repeated or above a given ``k_max``, ``min_k`` is above every arm, a
        capture size is no positive number, ``seed`` is no whole number of at least 0, or ``identity`` is no mapping
        from text to plain values.
    TypeError
        If ``table`` is no ``GoodputTable`` or ``settings`` are no ``Settings``.

    Examples
    --------
    >>> table = GoodputTable.from_schedule([[1, 64, 3], [65, 512, 0]])
    >>> Controller(table, seed=0).choose(batch_size=8)
    3
    """

    def __init__(
        self,
        table: GoodputTable | None,
        arms: Sequence[int] | None = None,
        settings: Settings | None = None,
        seed: int | None = None,
        *,
        k_max: int | None = None,
        capture_sizes: Sequence[int] = (),
        identity: Identity | None = None,
        trusted: bool = True,
    ) -> None:
        if table is not None and not isinstance(table, GoodputTable):
            raise TypeError(
                f"table is {shown(table)}: use GoodputTable.load(path), .from_rows(...) or .from_schedule(...)"
            )
        if settings is not None and not isinstance(settings, Settings):
            raise TypeError(f"settings is {shown(settings)}: give Settings(...), as Settings(min_k=1)")
        self._busy = False
        self.table = table
        self.trusted = trusted or table is None
        self.settings = settings = settings or Settings()
        self.identity = read_identity(identity)
        self.arms = resolve_arms(table, arms if arms is not None else settings.arms, k_max)
        if settings.min_k > self.arms[-1]:
            raise ValueError(
                f"min_k is {shown(settings.min_k)}: no arm of {shown(self.arms)} is as large; lower min_k or add an arm"
            )
        self.counters = dict.fromkeys(COUNTERS, 0)
        prior = StepTimePrior(table, self.arms, capture_sizes, self.trusted)
        seeds = (None, None) if table is None else (table.acceptance, table.supply)
        self._acceptance = AcceptancePosterior(self.arms[-1], *seeds, trusted=self.trusted)
        self._latency = LatencyPosterior(prior)
        self._prefill = PrefillCost(prior)
        self._waits = Waits(False if prior.timed and self.trusted else None)
        self._rng = np.random.default_rng(settings.seed if seed is None else _seed(seed))
        self._planner = Planner(self._acceptance, self._latency, settings, self._rng, climbing=prior.guessed)
        self._load = LoadTracker()
        self._index = {k: i for i, k in enumerate(self.arms)}
        self._open: deque[Decision] = deque(maxlen=MOST_OPEN)
        self._seq, self._last_k = 0, -1
        self._asked: int | None = None
        self._usual_ms, self._dead, self._explored = 0.0, False, False
        self._visit_end, self._judge, self._unsettled = -1, False, 0
        self.unlearnt = dict.fromkeys(UNLEARNT, 0)  # since it was made: steps whose time was no arm's, by cause

    @property
    def capture_sizes(self) -> tuple[int, ...]:
        """Tokens that steps are padded to, rising."""
        return self._latency.prior.capture_sizes

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """Drafts per request for the step now being scheduled.

        Parameters
        ----------
        batch_size
            Requests scheduled, prefills included. 0 gives 0 and counts as no decision.
        context_tokens
            Tokens in the KV cache, summed over these requests; ``None`` where unknown.
        decodes
            Requests among them that decode, where that is known; 0 and more than ``batch_size`` count as unknown.

        Raises
        ------
        ValueError
            If one of them is no whole number, of whatever type, or ``batch_size`` is negative.
        """
        if type(batch_size) is not int or not 0 < batch_size <= LARGEST_COUNT:
            batch_size = whole_count(batch_size, "batch_size", 0)
            if batch_size == 0:
                return 0
        if context_tokens is not None and (type(context_tokens) is not int or not 0 <= context_tokens < LARGEST_COUNT):
            context_tokens = whole_count(context_tokens, "context_tokens")
        if decodes is not None and type(decodes) is not int:
            decodes = whole_count(decodes, "decodes")
        if self._busy:
            raise under_way("choose")
        self._busy = True
        try:
            return self._decide(batch_size, context_tokens, decodes)
        finally:
            self._busy = False

    def _decide(self, batch_size: int, context_tokens: int | None, decodes: int | None) -> int:
        """As ``choose``, of a batch that is not empty."""
        planner, load = self._planner, self._load
        decoding = decodes if decodes is not None and 0 < decodes < batch_size else batch_size
        regime_changed = load.update(decoding, context_tokens, batch_size)
        if regime_changed:
            self._forget_visit()
        elif self._judge:
            self._judge = False
            planner.judge(load.batch, load.context)
        arm, reason, propensity = planner.next(load.batch, load.context, regime_changed, decoding)
        if planner.covered is not None and arm not in planner.playable(batch_size):
            if reason is _EXPLORE:
                planner.cancel_visit()
            arm, reason, propensity = planner.instead(load.batch, batch_size, load.context), Reason.GUARD, 1.0
        k = self.arms[arm]
        if reason is _EXPLORE:
            self.counters["explored"] += 1
            if not planner.visit_scheduled:
                self._visit_end = self._seq
        if k != self._last_k:
            self.counters["switches"] += self._last_k >= 0
            self._last_k = k
        self._open.append(Decision(seq=self._seq, k=k, propensity=propensity, reason=reason, arms=self.arms))
        self._seq += 1
        return k

    def observe(self, record: StepRecord) -> Decision | None:
        """Learn from a finished step; the decision that it was scheduled with.

        The n-th observation belongs to the n-th choice; its drafts stem from the choice before. Never raises on a
        record that could be constructed, unless another call is under way.
        """
        if record.batch_size <= 0:
            return None
        if self._busy:
            raise under_way("observe")
        self._busy = True
        try:
            return self._learn(record)
        finally:
            self._busy = False

    def _learn(self, record: StepRecord) -> Decision | None:
        """As ``observe``, from a step that had requests."""
        decision = self._open.popleft() if self._open else None
        self.counters["steps"] += 1
        asked, self._asked = self._asked if record.asked is None else record.asked, record.k
        decodes = record.decodes
        if decodes is None or decodes > record.batch_size:
            decodes = record.batch_size
        most, drafts = most_and_sum(record.drafted)
        asked = most if asked is None or asked < most else asked
        acceptance, time_alarms = self._acceptance, self._latency.alarms
        changed = acceptance.observe(
            record.drafted, record.accepted, asked, delivering(record, decodes), record.emitted, decodes
        )
        if changed:
            self.counters["acceptance_alarms"] += 1
        if asked > 0:
            dead = drafter_dead(self._dead, acceptance.accepted_share)
            if dead is not self._dead:
                self.counters["drafter_dead"] += dead
                self._dead = dead
        elapsed, refused = step_time(record)
        if refused:
            self.counters["times_refused"] += refused
        if elapsed is not None and decodes > 0:
            self._observe_time(record, decision, elapsed, asked, decodes, drafts)
        if decision is not None and decision.seq > self._visit_end >= 0:
            self._latency.flush()  # the drafts of the visit's last step have come back with this one
            self._visit_end, self._judge = -1, True
        if self._unsettled and most > 0:
            self._unsettled -= 1
            self._planner.replan()
        new_time = self._latency.alarms > time_alarms
        if changed or new_time:
            self.counters["time_alarms"] += new_time
            self._planner.change_detected(of_time=new_time)
        return decision

    @one_at_a_time
    @vanishing_is_zero
    def belief(self, batch_size: int, context_tokens: int | None = None) -> list[ArmBelief]:
        """What is believed of each arm at a batch size; ``context_tokens`` as in ``choose``.

        Raises
        ------
        ValueError
            If one of them is no whole number, of whatever type, or ``batch_size`` is not positive.
        """
        batch_size = whole_count(batch_size, "batch_size", 1)
        tokens = None if context_tokens is None else whole_count(context_tokens, "context_tokens")
        context = self._load.context if tokens is None else tokens / batch_size
        allowed = self._planner.allowed(batch_size, context)
        return arm_beliefs(self._acceptance, self._latency, self.table, batch_size, context, allowed)

    @one_at_a_time
    @vanishing_is_zero
    def positions(self) -> list[PositionBelief]:
        """What is believed of the conditional acceptance of each draft position."""
        return self._acceptance.positions()

    @one_at_a_time
    @vanishing_is_zero
    def corrected_table(self) -> GoodputTable:
        """The seed table as now believed; the seed itself where no time was ever seen and it has none."""
        return corrected_table(self.table, self._acceptance, self._latency, self._load.context)

    @one_at_a_time
    def limit_to_graphs(self, covered: Callable[[int, int], bool] | None) -> None:
        """Play no arm for which the engine has captured no graph at a batch size where it has for another one.

        Where it has for none, all arms may be played. That is the engine's, not what is believed of it: a snapshot does
        not hold it.

        Parameters
        ----------
        covered
            Whether there is a graph for steps of that batch size and number of drafts, as ``covered(64, 3)``; always
            the same answer for the same numbers. ``None``: no such limit, as at first.

        Examples
        --------
        >>> table = GoodputTable.from_schedule([[1, 512, 3]])
        >>> controller = Controller(table, arms=(0, 1, 3), seed=0)
        >>> controller.limit_to_graphs(lambda batch, k: batch * (k + 1) <= 512)
        >>> controller.choose(batch_size=100), controller.choose(batch_size=200), controller.choose(batch_size=600)
        (3, 1, 3)
        """
        self._planner.cover(covered)

    @property
    def ledger(self) -> dict[str, float]:
        """Milliseconds that exploring was allowed to cost and has cost."""
        return {name: getattr(self._planner.ledger, name) for name in ("allowed_ms", "spent_ms")}

    @property
    def drafter_dead(self) -> bool:
        """Whether the first drafts are hardly ever accepted."""
        return self._dead

    @property
    def timing_trusted(self) -> bool:
        """Whether enough steps take as long as they should for arms to be told apart by their time."""
        return self._latency.contamination.trusted

    @property
    def counted(self) -> tuple[list[int], list[int]] | None:
        """Drafts accepted and rejected by position, in the last step that could have had drafts; not to be changed.

        Each shape ``(k_max,)``. It is another object after each such step; ``None`` before the first one.
        """
        return self._acceptance.counted

    @one_at_a_time
    def peek(self) -> Peek:
        """A copy of what is believed now; between two calls, on the thread that makes them."""
        acceptance, latency = self._acceptance.snapshot(), self._latency.snapshot()
        return Peek(self, acceptance, latency, self._load.context, self._planner.covered, time())

    @one_at_a_time
    def believe(self, peek: Peek) -> None:
        """Believe what a controller of the same making did when it was copied; what it plays next is left undefined."""
        self._acceptance.load(peek.acceptance)
        self._latency.load(peek.latency)
        self._load.context = peek.context
        if peek.covered is not self._planner.covered:
            self._planner.cover(peek.covered)

    @one_at_a_time
    def note_weights_changed(self) -> None:
        """The weights of the target or the drafter were replaced, as between the rounds of reinforcement learning.

        Acceptance widens at once, a visit under way is broken off, the next step draws anew, arms that failed may be
        tried again, and for a while the plan follows every step. Step times are kept.
        """
        self.counters["weights_changed"] += 1
        self._unsettled = UNSETTLED
        self._acceptance.note_weights_changed()
        self._forget_visit()
        self._planner.change_detected(of_time=False)

    @one_at_a_time
    def note_engine_restarted(self) -> None:
        """The engine began anew: the steps in flight are lost, and none of their drafts will be verified."""
        self._open.clear()
        self._asked, self._explored = None, False
        self._forget_visit()

    @one_at_a_time
    def note_long_pause(self) -> None:
        """So much time passed since the last step that step times may be others: they widen as a prior is wide.

        Told again and again they widen no further than to five times a prior's variance.
        """
        self._latency.widen()

    @one_at_a_time
    def snapshot(self) -> dict[str, Any]:
        """Everything needed to go on elsewhere, the random state and open decisions included: plain data, JSON-safe."""
        return taken(self)

    @classmethod
    def restore(
        cls,
        snapshot: Mapping[str, Any],
        table: GoodputTable | None,
        settings: Settings | None = None,
        *,
        identity: Identity | None = None,
        as_prior: bool = False,
    ) -> Controller:
        """A controller that goes on where ``snapshot`` was taken, around the same table, as if it had never stopped.

        Limits in ``settings`` default to the snapshot's; others are obeyed from the first step on, and ``seed`` is not
        used. Parts of ``identity`` that the snapshot names too must be the same; what only one names is taken over. Of
        a snapshot of an older version the beliefs are kept, what was under way is not, and what is new starts fresh.
        Where the engine was restarted in between, call ``note_engine_restarted`` before the first step.

        With ``as_prior`` it begins anew from what was believed, as a weak prior, also with another table or identity.
        Acceptance widens as after ``note_weights_changed``; step times widen by the table's uncertainty, or are left
        out if the table is another. All else is forgotten; without a table, or around the same one that was not
        trusted, it climbs. Another table is trusted.

        Raises
        ------
        ValueError
            If the snapshot is incomplete, of an unknown version, changed since it was taken, of other arms than
            ``settings`` name, or, unless ``as_prior``, of another table or identity.
        """
        return restored(cls, snapshot, table, settings, identity, as_prior)

    @one_at_a_time
    def begin_from(self, snapshot: Mapping[str, Any], *, times: bool = True) -> bool:
        """Take over, before the first step, what a snapshot believed of acceptance, and of step times if it can.

        As ``restore`` with ``as_prior``, for a controller whose arms, limits or engine are others than the snapshot's.
        Step times are deviations from a table at given arms: they go along where all of that is the same.

        Parameters
        ----------
        snapshot
            As ``snapshot`` gave it; the largest of its arms must be the largest here.
        times
            False: not the step times in any case, as of another machine.

        Returns
        -------
        bool
            Whether step times were taken over.

        Raises
        ------
        ValueError
            If the snapshot cannot be read, or is of another largest number of drafts.
        """
        return begin_from(self, snapshot, times)

    def _observe_time(
        self, record: StepRecord, decision: Decision | None, elapsed: float, asked: int, decodes: int, drafts: int
    ) -> None:
        """Book a step's time where it is one arm's."""
        usual = self._usual_ms or elapsed
        elapsed_capped = elapsed if elapsed < STALL * usual else STALL * usual
        self._usual_ms = usual + 0.05 * (elapsed_capped - usual)
        self._planner.ledger.earn(elapsed_capped, self._usual_ms)
        waits, waited = self._waits, record.waited
        own = waits.see(waited, elapsed)
        self._latency.extra_ms = extra = waits.extra_ms
        exploring = decision is not None and decision.reason is _EXPLORE and decision.k == record.k
        if exploring or self._explored:
            self._spend(record, min(own + extra, elapsed_capped), asked, decodes)
        self._explored = exploring
        made = record.k if record.draft_k is None else record.draft_k
        verified = drafts if record.verified is None else record.verified
        arm = self._index.get(asked)
        if made != asked or arm is None or verified > (asked + 0.01) * decodes:
            self._latency.flush()  # two arms in one step, or drafts that nobody asked for: neither's time
            self.unlearnt["switching" if made != asked else "no_arm" if arm is None else "extra_drafts"] += 1
            return
        if verified == 0 and asked > 0 and self._acceptance.drafted_share > FULL_SUPPLY:
            self.unlearnt["no_drafts"] += 1
            return
        prompt = record.prefill_tokens
        if waits.share > 0.0:
            believed = self._own_ms(arm, decodes) + prompt * self._prefill.ms_per_token
            seen = believed if self._latency.level_known else None
            if not waits.learn(waited, arm, decodes, prompt, elapsed, seen):
                self.unlearnt["waiting"] += 1
                return
            own = waits.own_ms(waited, elapsed)
        if prompt and self._prefill.alike(prompt):
            self._prefill.compare(prompt, own, self._own_ms(arm, decodes))
        usable = self._prefill.usable_ms(arm, decodes, prompt, own)
        if usable is None:
            self.unlearnt["prefill"] += 1
        else:
            context = None if record.context_tokens is None else record.context_tokens / record.batch_size
            self._latency.add(arm, decodes, verified / decodes, usable, context)
            self.counters["timing_untrusted"] = self._latency.contamination.distrusted

    def _own_ms(self, arm: int, decodes: int) -> float:
        """Milliseconds that a step of an arm is believed to take without prompt tokens, of the first class of waits."""
        times = self._latency.log_times(decodes, self._acceptance.widths(self.arms), self._load.context)
        return math.exp(times[arm]) - self._latency.extra_ms

    def _spend(self, record: StepRecord, elapsed: float, asked: int, decodes: int) -> None:
        """Book what a visit's step cost beyond the time that the planned arm would have taken for the same tokens."""
        planner, arm = self._planner, self._index.get(asked)
        if arm is None or planner.arm < 0 or record.prefill_tokens:
            return
        lengths = self._acceptance.lengths(self.arms, decodes)
        times = self._latency.log_times(decodes, self._acceptance.widths(self.arms), self._load.context)
        taken = min(elapsed, STALLED * math.exp(times[arm]))  # a stall is nobody's exploring
        planner.ledger.spend(taken - worth_ms(lengths, times, arm, planner.arm))

    def _forget_visit(self) -> None:
        """Break the visit off: its last step is not to end another one."""
        self._visit_end, self._judge = -1, False
        self._planner.cancel_visit()


def _seed(seed: int) -> int:
    """What the draws may start from."""
    try:
        whole = index(seed)
    except TypeError:
        whole = -1
    if whole < 0:
        raise ValueError(f"seed is {shown(seed)}: give a whole number of at least 0")
    return whole
