"""What the steps of one engine add up to: plain numbers, written by the engine's thread and read by any."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any

from adaptk.cascade import cascade_counts
from adaptk.evidence import LONGEST_MS, SHORTEST_MS
from adaptk.vllm_plugin.metrics.carried import Carried, ours
from adaptk.vllm_plugin.metrics.positions import Positions

if TYPE_CHECKING:
    from adaptk.controller import Controller
    from adaptk.decision import Decision
    from adaptk.peek import Peek
    from adaptk.step import StepRecord
    from adaptk.vllm_plugin.collect import Collector
    from adaptk.vllm_plugin.steering import Policy

# Upper edges of the histograms of adaptk's own time, seconds; the last bucket has none.
BOUNDS = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2)
# Places in a cell.
STEPS, TIMED, MS, TOKENS, DECODES, REQUESTS, CONTEXT = range(7)
# Which steps are added up together: bit length of the number of decoding requests, so that bins are powers of two; and,
# of the drafts that the step verified, drafts per request that were in force, that the controller had chosen, and that
# vLLM would have used. Steps of prompts only have 0s.
Place = tuple[int, int, int, int]
Cells = dict[Place, list[float]]
_PROMPTS: Place = (0, 0, 0, 0)
_MOST_IN_FLIGHT = 16  # records among which the one is looked for that made a step's drafts


class Histogram:
    """Seconds, counted by ``BOUNDS``."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum_s = 0.0

    def take(self, seconds: float) -> None:
        """Count one value."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum_s += seconds


class Sums:
    """Accumulators on the path of every step: no lock, no output, no object of a metrics library.

    One thread writes. Another one may read at any time: what it finds of a step that is being added may be a part of
    it, and never falls.

    Parameters
    ----------
    k_max
        Draft positions of the engine.
    collector
        The reader of vLLM's outputs.
    """

    def __init__(self, k_max: int, collector: Collector | None = None) -> None:
        self.cells: Cells = {}
        self.drafts = Positions(k_max)
        self.decided: dict[tuple[int, str], list[int]] = {}  # by K and reason, a list of one number
        self.switched: dict[str, int] = {}  # by the reason of the new K
        self.dropped = dict.fromkeys(("lost", "no_time", "bad_time", "graph_missed"), 0)
        self.deciding, self.learning = Histogram(), Histogram()
        self.carried = Carried()
        self.record: StepRecord | None = None  # of the last finished step
        self.chosen_k: int | None = None  # by the controller, for that step
        self.steps = 0  # taken in
        self.wanted = False  # whether a reader waits for what the controller believes
        self.peek: Peek | None = None  # ... and what it was given last, after so many steps
        self.peeked_after = -1
        self._k_max = k_max
        self._collector = collector
        self._misses = 0
        # K in force, chosen and vLLM's own, of the last records.
        self._past: deque[tuple[int, int, int]] = deque([(0, 0, 0)], maxlen=_MOST_IN_FLIGHT)
        self._counted: Any = None  # by the controller, of the last step with drafts
        self._reason: str | None = None  # of the last decision
        self._turned = [0]  # how often that K was chosen for that reason
        self._observer: Policy | None = None
        self._own: Controller | None = None  # the same, where it is adaptk's

    def observe(self, controller: Policy, record: StepRecord, vllms_k: int) -> Decision | None:
        """Let the controller learn from a step, and add it up."""
        if controller is not self._observer:
            self._observer, self._own = controller, ours(controller)
            self._counted = None if self._own is None else self._own.counted  # of a step of which this is no part
            self.carried.learning(controller)
        started = perf_counter()
        decision = controller.observe(record)
        self.learning.take(perf_counter() - started)
        self._add(record, decision, vllms_k)
        return decision

    def copied(self) -> Cells:
        """The cells as they are now, for another thread."""
        return {at: cell.copy() for at, cell in self.cells.copy().items()}

    def hand_over(self, controller: Policy | None) -> None:
        """Copy what the controller believes for the reader, if it is one whose beliefs can be copied."""
        own = ours(controller)
        self.peek = None if own is None else own.peek()
        self.peeked_after = self.steps
        self.wanted = False

    def _add(self, record: StepRecord, decision: Decision | None, vllms_k: int) -> None:
        self.steps += 1
        made = self._past[-1]
        if record.asked is not None and record.asked != made[0]:
            made = self._made_by(record.asked)
        now = record.k
        if decision is not None:
            now = decision.k
            reason = decision.reason
            if now != self.chosen_k or reason is not self._reason:
                self._turn(now, reason)
            self._turned[0] += 1
        self._past.append((record.k, now, vllms_k))
        drafted = record.drafted
        if not drafted:
            self.dropped["lost"] += 1
            return
        self.record = record
        requests, decodes = record.batch_size, record.decodes
        if decodes is None or decodes > requests:
            decodes = requests
        at = (decodes.bit_length(), *made) if decodes else _PROMPTS
        cell = self.cells.get(at)
        if cell is None:
            cell = self.cells[at] = [0.0] * 7
        cell[STEPS] += 1
        elapsed = record.elapsed_ms
        if elapsed is not None and SHORTEST_MS <= elapsed <= LONGEST_MS:
            cell[TIMED] += 1
            cell[MS] += elapsed
            cell[TOKENS] += sum(record.emitted or ())
        else:
            self._untimed(elapsed)
        cell[DECODES] += decodes
        if record.context_tokens is not None:
            cell[REQUESTS] += requests
            cell[CONTEXT] += record.context_tokens
        self._add_drafts(record)

    def _made_by(self, k: int) -> tuple[int, int, int]:
        """The record whose drafts a step verifies that is not the one before: a pipeline's, or of another controller.

        The last one with that K; where there is none, no more is known than its K.
        """
        return next((past for past in reversed(self._past) if past[0] == k), (k, k, self._past[-1][2]))

    def _turn(self, k: int, reason: str) -> None:
        """Another K is chosen from now on, or the same one for another reason."""
        if k != self.chosen_k:
            if self.chosen_k is not None:
                self.switched[reason] = self.switched.get(reason, 0) + 1
            self.chosen_k = k
        self._reason = reason
        self._turned = self.decided.setdefault((k, reason), [0])

    def _add_drafts(self, record: StepRecord) -> None:
        """Add what each draft position showed; a controller that has counted it already is asked."""
        own = self._own
        if own is None:
            if not any(record.drafted):
                return
            hits, misses, _ = cascade_counts(record.drafted, record.accepted, self._k_max)
        else:
            counted = own.counted
            if counted is None or counted is self._counted:  # of an earlier step: this one had no drafts
                return
            self._counted = counted
            hits, misses = counted
            if len(hits) != self._k_max:  # the engine may have played a K beyond the controller's
                hits, misses, _ = cascade_counts(record.drafted, record.accepted, self._k_max)
        self.drafts.take(hits, misses)

    def _untimed(self, elapsed_ms: float | None) -> None:
        """Count why a step's time is none."""
        misses = 0 if self._collector is None else self._collector.misses.count
        cause = "bad_time" if elapsed_ms is not None else "no_time" if misses == self._misses else "graph_missed"
        self._misses = misses
        self.dropped[cause] += 1
