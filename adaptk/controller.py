"""The loop that joins posteriors, plan and ledger: choose K, observe the step."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adaptk.acceptance import AcceptancePosterior
from adaptk.arms import resolve_arms
from adaptk.batch import LoadTracker
from adaptk.belief import ArmBelief, arm_beliefs
from adaptk.corrected import corrected_table
from adaptk.decision import Decision, Reason
from adaptk.latency import LatencyPosterior
from adaptk.planner import Planner
from adaptk.prefill import PrefillCost
from adaptk.prior import StepTimePrior
from adaptk.settings import Settings
from adaptk.snapshot import check_shape, fingerprint, random_state, set_random_state
from adaptk.step import LARGEST_COUNT, StepRecord
from adaptk.table import GoodputTable
from adaptk.thompson import worth_ms

SNAPSHOT_VERSION = 1
SHORTEST_MS, LONGEST_MS = 1e-3, 1e8  # a step's time is taken to lie between
MOST_OPEN = 64  # decisions without an observation that are remembered
STALL = 5.0  # steps longer than this multiple of the usual are no income of the ledger
DEAD, REVIVED = 0.01, 0.05  # acceptance of the first draft below which a drafter counts as dead, above which no more
FULL_SUPPLY = 0.8  # a drafter that returns drafts this often and has none now is not itself


class Controller:
    """Picks the number of draft tokens per request for every engine step.

    Parameters
    ----------
    table
        Offline goodput table, or ``None``; then it starts at the cheapest arm and climbs.
    arms
        Numbers of drafts that may be chosen; beats ``settings.arms``. Default: (0, 1, 3, 7) cut at ``k_max``, ``k_max``
        itself, and what a table made from a schedule prescribes.
    settings
        ``min_k``, ``max_itl_ms``, ``budget``, ``arms`` and ``seed`` are used; the rest is for the engine's adapter.
    seed
        Seed of the draws; beats ``settings.seed``. The same seed and calls give the same decisions.
    k_max
        Most drafts that the engine can make; default: the largest K of the table.

    Raises
    ------
    ValueError
        If there are no arms, an arm is negative, repeated or above a given ``k_max``, or ``min_k`` is above every arm.

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
    ) -> None:
        settings = Settings() if settings is None else settings
        if table is not None and not isinstance(table, GoodputTable):
            raise TypeError(f"table is {table!r}: use GoodputTable.load(path), .from_rows(...) or .from_schedule(...)")
        self.table = table
        self.settings = settings
        self.arms = resolve_arms(table, arms if arms is not None else settings.arms, k_max)
        if settings.min_k > self.arms[-1]:
            raise ValueError(f"min_k is {settings.min_k}: no arm of {self.arms} is as large; lower min_k or add an arm")
        self.counters = {
            "steps": 0,
            "switches": 0,
            "explored": 0,
            "acceptance_alarms": 0,
            "time_alarms": 0,
            "times_refused": 0,
            "drafter_dead": 0,
        }
        prior = StepTimePrior(table, self.arms)
        self._acceptance = AcceptancePosterior(self.arms[-1], table.acceptance if table is not None else None)
        self._latency = LatencyPosterior(prior)
        self._prefill = PrefillCost(prior)
        self._rng = np.random.default_rng(settings.seed if seed is None else seed)
        self._planner = Planner(self._acceptance, self._latency, settings, self._rng, climbing=table is None)
        self._load = LoadTracker()
        self._index = {k: i for i, k in enumerate(self.arms)}
        self._open: deque[Decision] = deque(maxlen=MOST_OPEN)
        self._seq = 0
        self._last_k = -1
        self._asked: int | None = None
        self._usual_ms = 0.0
        self._visit_end = -1
        self._judge = False
        self._dead = False
        self._explored = False

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
            If ``batch_size`` is negative.
        """
        if batch_size <= 0:
            if batch_size < 0:
                raise ValueError(f"batch_size is {batch_size}: give the number of scheduled requests, at least 0")
            return 0
        planner, load = self._planner, self._load
        if type(batch_size) is not int or batch_size > LARGEST_COUNT:
            batch_size = _count(batch_size)
        if context_tokens is not None and (type(context_tokens) is not int or not 0 <= context_tokens < LARGEST_COUNT):
            context_tokens = _count(context_tokens)
        decoding = int(decodes) if decodes is not None and 0 < decodes < batch_size else batch_size
        regime_changed = load.update(decoding, context_tokens, batch_size)
        if regime_changed:
            self._forget_visit()
        elif self._judge:
            self._judge = False
            planner.judge(load.batch, load.context)
        arm, reason, propensity = planner.next(load.batch, load.context, regime_changed)
        k = self.arms[arm]
        if reason is Reason.EXPLORE:
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
        record that could be constructed.
        """
        if record.batch_size <= 0:
            return None
        decision = self._open.popleft() if self._open else None
        self.counters["steps"] += 1
        asked, self._asked = self._asked, record.k
        decodes = record.batch_size if record.decodes is None else min(record.decodes, record.batch_size)
        most = max(record.drafted, default=0)
        asked = most if asked is None or asked < most else asked
        time_alarms = self._latency.alarms
        changed = self._acceptance.observe(
            record.drafted, record.accepted, asked, _delivering(record, decodes), record.emitted
        )
        if changed:
            self.counters["acceptance_alarms"] += 1
        if asked > 0:
            self._watch_drafter()
        elapsed = self._time(record.elapsed_ms)
        if record.device_ms is not None:
            elapsed = self._time(record.device_ms) or elapsed
        if elapsed is not None and decodes > 0:
            self._observe_time(record, decision, elapsed, asked, decodes)
        if decision is not None and decision.seq > self._visit_end >= 0:
            # The drafts of the visit's last step have come back with this one.
            self._latency.flush()
            self._visit_end, self._judge = -1, True
        new_time = self._latency.alarms > time_alarms
        if changed or new_time:
            self.counters["time_alarms"] += new_time
            self._planner.change_detected(of_time=new_time)
        return decision

    def belief(self, batch_size: int, context_tokens: int | None = None) -> list[ArmBelief]:
        """What is believed of each arm at a batch size; ``context_tokens`` as in ``choose``.

        Raises
        ------
        ValueError
            If ``batch_size`` is not positive.
        """
        if batch_size <= 0:
            raise ValueError(f"batch_size is {batch_size}: give at least 1")
        context = self._load.context if context_tokens is None else context_tokens / batch_size
        allowed = self._planner.allowed(batch_size, context)
        return arm_beliefs(self._acceptance, self._latency, self.table, batch_size, context, allowed)

    def corrected_table(self) -> GoodputTable:
        """The seed table as now believed; the seed itself where no time was ever seen and it has none."""
        return corrected_table(self.table, self._acceptance, self._latency, self._load.context)

    @property
    def ledger(self) -> dict[str, float]:
        """Milliseconds that exploring was allowed to cost and has cost."""
        ledger = self._planner.ledger
        return {"allowed_ms": ledger.allowed_ms, "spent_ms": ledger.spent_ms}

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to go on elsewhere, the random state and open decisions included: plain data, JSON-safe."""
        return {
            "schema_version": SNAPSHOT_VERSION,
            "arms": list(self.arms),
            "table": fingerprint(self.table),
            "random": random_state(self._rng),
            "acceptance": self._acceptance.snapshot(),
            "latency": self._latency.snapshot(),
            "prefill": self._prefill.snapshot(),
            "planner": self._planner.snapshot(),
            "load": self._load.snapshot(),
            "open": [[d.seq, d.k, d.propensity, d.reason.value] for d in self._open],
            "counters": dict(self.counters),
            "settings": {name: getattr(self.settings, name) for name in _LIMITS},
            **{name: getattr(self, name) for name in _STATE},
        }

    @classmethod
    def restore(
        cls, snapshot: Mapping[str, Any], table: GoodputTable | None, settings: Settings | None = None
    ) -> Controller:
        """A controller that goes on where ``snapshot`` was taken, around the same table.

        ``settings`` default to those of the snapshot.

        Raises
        ------
        ValueError
            If the snapshot is of another version, incomplete, taken around another table (what it holds are deviations
            from that), or of other arms than ``settings`` name.
        """
        if not isinstance(snapshot, Mapping):
            raise ValueError(f"snapshot is a {type(snapshot).__name__}: give the mapping, from JSON by json.loads")
        version = snapshot.get("schema_version")
        if version != SNAPSHOT_VERSION:
            raise ValueError(
                f"snapshot schema_version is {version!r}, this adaptk reads {SNAPSHOT_VERSION}: start without it"
            )
        if snapshot.get("table") != fingerprint(table):
            raise ValueError("snapshot was taken around another table: give that table, or start without the snapshot")
        try:
            arms = tuple(snapshot["arms"])
            taken_with = Settings(**{name: snapshot["settings"][name] for name in _LIMITS})
            if settings is not None and settings.arms is not None and settings.arms != arms:
                raise ValueError(f"snapshot is of arms {arms}, settings say {settings.arms}: start without it")
            controller = cls(table, arms=arms, settings=settings or taken_with)
            own = controller.snapshot()
            limits = own.pop("settings")
            check_shape("snapshot", own, snapshot)
            controller._take(snapshot)
        except (KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
            raise ValueError(f"snapshot is incomplete ({error!r}): start without it") from None
        if limits != snapshot["settings"]:
            controller._forget_visit()
            controller._planner.limits_changed()
        return controller

    def _take(self, snapshot: Mapping[str, Any]) -> None:
        set_random_state(self._rng, snapshot["random"])
        self._acceptance.load(snapshot["acceptance"])
        self._latency.load(snapshot["latency"])
        self._prefill.load(snapshot["prefill"])
        self._planner.load(snapshot["planner"])
        self._load.load(snapshot["load"])
        self._open.clear()
        for seq, k, propensity, reason in snapshot["open"]:
            self._open.append(Decision(seq=seq, k=k, propensity=propensity, reason=Reason(reason), arms=self.arms))
        self.counters = dict(snapshot["counters"])
        for field in _STATE:
            setattr(self, field, snapshot[field])

    def _observe_time(
        self, record: StepRecord, decision: Decision | None, elapsed: float, asked: int, decodes: int
    ) -> None:
        """Book a step's time where it is one arm's."""
        usual = self._usual_ms or elapsed
        elapsed_capped = min(elapsed, STALL * usual)
        self._usual_ms = usual + 0.05 * (elapsed_capped - usual)
        self._planner.ledger.earn(elapsed_capped, self._usual_ms)
        exploring = decision is not None and decision.reason is Reason.EXPLORE and decision.k == record.k
        if exploring or self._explored:
            self._spend(record, elapsed_capped, asked, decodes)
        self._explored = exploring
        made = record.k if record.draft_k is None else record.draft_k
        verified = sum(record.drafted) if record.verified is None else record.verified
        arm = self._index.get(asked)
        if made != asked or arm is None or verified > (asked + 0.01) * decodes:
            self._latency.flush()  # two arms in one step, or drafts that nobody asked for: neither's time
            return
        if verified == 0 and asked > 0 and self._acceptance.drafted_share > FULL_SUPPLY:
            return
        usable = self._prefill.usable_ms(arm, decodes, record.prefill_tokens, elapsed)
        if usable is not None:
            context = None if record.context_tokens is None else record.context_tokens / record.batch_size
            self._latency.add(arm, decodes, verified / decodes, usable, context)

    def _spend(self, record: StepRecord, elapsed: float, asked: int, decodes: int) -> None:
        """Book what a visit's step cost beyond the time that the planned arm would have taken for the same tokens."""
        planner, arm = self._planner, self._index.get(asked)
        if arm is None or planner.arm < 0 or record.prefill_tokens:
            return
        lengths = self._acceptance.lengths(self.arms)
        times = self._latency.log_times(decodes, self._acceptance.widths(self.arms), self._load.context)
        planner.ledger.spend(elapsed - worth_ms(lengths, times, arm, planner.arm))

    def _forget_visit(self) -> None:
        """The visit was broken off: its last step is not to end another one."""
        self._visit_end, self._judge = -1, False

    def _time(self, value: float | None) -> float | None:
        """Milliseconds that can be believed; ``None`` where unknown or no time, which is counted."""
        if value is None:
            return None
        if SHORTEST_MS <= value <= LONGEST_MS:
            return float(value)
        if 0.0 < value < math.inf:
            return LONGEST_MS if value > LONGEST_MS else SHORTEST_MS
        self.counters["times_refused"] += 1
        return None

    def _watch_drafter(self) -> None:
        """Count a drafter whose first drafts are no longer accepted, once until it recovers."""
        share = self._acceptance.accepted_share
        if self._dead:
            self._dead = share <= REVIVED
        elif share < DEAD:
            self._dead = True
            self.counters["drafter_dead"] += 1


_LIMITS = ("min_k", "max_itl_ms", "budget")
_STATE = ("_seq", "_last_k", "_asked", "_usual_ms", "_visit_end", "_judge", "_dead", "_explored")


def _count(value: int) -> int:
    return min(max(int(value), 0), LARGEST_COUNT)


def _delivering(record: StepRecord, decodes: int) -> int:
    """Decoding requests that are not gone: one that gave no token had no drafts that anyone could count.

    A prompt that goes on gives no token either, and is not among the decodes.
    """
    if record.emitted is None:
        return decodes
    return min(decodes, max(record.batch_size - record.emitted.count(0), 0))
