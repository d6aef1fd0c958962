"""The steps of traces as columns, with a controller that reads along and says where it would have been alarmed."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptk.cascade import cascade_counts
from adaptk.controller import Controller
from adaptk.decision import Reason
from adaptk.evidence import delivering, most_and_sum, step_time
from adaptk.tablerows import MAX_BATCH, MAX_K
from adaptk.tracefile import TraceRow

REASONS = tuple(Reason)
_MOST = 2**31 - 1

Ints = NDArray[np.int64] | NDArray[np.int32]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Columns(NamedTuple):
    """One entry per step, shape ``(steps,)``, in the order of the files; -1 or NaN where unknown.

    ``asked`` are the drafts asked for when those verified here were made, ``made`` those made within the step's time.
    ``able`` counts requests that decoded and whose drafts count. ``chosen`` and ``reason`` are the decision's.
    ``succeeded`` and ``reached`` have shape ``(steps, positions)``: drafts accepted, and drafts whose predecessors all
    were. ``linked`` is false where the step before is not in the file.
    """

    source: Ints
    batch: Ints
    decodes: Ints
    able: Ints
    k: Ints
    asked: Ints
    made: Ints
    chosen: Ints
    reason: Ints
    prefill: Ints
    verified: Ints
    context: Floats  # mean tokens per request in the KV cache
    ms: Floats
    device: Bools  # whether ``ms`` is the worker's own time
    t_ms: Floats
    tokens: Ints
    waited: Bools
    lost: Bools  # the step's outcome never came
    linked: Bools
    succeeded: Ints
    reached: Ints

    def take(self, which: Any) -> Columns:
        """Some of the steps."""
        return Columns(*(values[which] for values in self))


class AlarmAt(NamedTuple):
    """An alarm: the step's number among all, and its kind."""

    step: int
    kind: str


class Sink:
    """Takes rows in and lets a controller see each."""

    def __init__(self, positions: int, controller: Controller) -> None:
        self.alarms: list[AlarmAt] = []
        self.restarts = 0
        self._positions = positions
        self._controller = controller
        names = [name for name in Columns._fields if name not in ("succeeded", "reached")]
        self._values: dict[str, array[Any]] = {name: array(_TYPES.get(name, "i")) for name in names}
        self._succeeded, self._reached = array("i"), array("i")
        self._source = 0
        self._seq: int | None = None
        self._k: int | None = None
        self._alarmed = (0, 0)

    def __len__(self) -> int:
        return len(self._values["k"])

    def begin(self, source: int) -> None:
        """The rows that follow are another file's."""
        if source:
            self._controller.note_engine_restarted()
        self._source, self._seq, self._k = source, None, None

    def take(self, row: TraceRow) -> None:
        """One more row; rows without requests count as none."""
        step, decision = row.step, row.decision
        if step.batch_size <= 0:
            return
        before = self._k
        if decision is not None:
            if self._seq is not None and decision.seq <= self._seq:
                self.restarts += 1
                self._controller.note_engine_restarted()
                before = None
            elif self._seq is not None and decision.seq != self._seq + 1:
                before = None  # rows were dropped: nobody knows what these drafts were asked to be
                self._controller.note_engine_restarted()
            self._seq = decision.seq
        self._k = step.k
        self._controller.choose(step.batch_size, step.context_tokens, step.decodes)
        self._controller.observe(step)
        self._look_for_alarms()
        decodes = step.batch_size if step.decodes is None else min(step.decodes, step.batch_size)
        most, drafts = most_and_sum(step.drafted)
        asked = step.asked if step.asked is not None else before
        succeeded, failed, _ = cascade_counts(step.drafted, step.accepted, self._positions)
        self._succeeded.extend(succeeded)
        self._reached.extend([a + b for a, b in zip(succeeded, failed, strict=True)])
        ms, _ = step_time(step)
        for name, value in {
            "source": self._source,
            "batch": step.batch_size,
            "decodes": decodes,
            "able": delivering(step, decodes),
            "k": step.k,
            "asked": most if asked is None else max(asked, most),
            "made": step.k if step.draft_k is None else step.draft_k,
            "chosen": -1 if decision is None else decision.k,
            "reason": -1 if decision is None else REASONS.index(decision.reason),
            "prefill": step.prefill_tokens,
            "verified": drafts if step.verified is None else step.verified,
            "tokens": _tokens(row, decodes),
        }.items():
            self._values[name].append(min(value, _MOST))
        context = None if step.context_tokens is None else step.context_tokens / step.batch_size
        self._values["context"].append(math.nan if context is None else context)
        self._values["ms"].append(math.nan if ms is None else ms)
        self._values["t_ms"].append(math.nan if step.t_ms is None or not math.isfinite(step.t_ms) else step.t_ms)
        self._values["device"].append(ms is not None and step.device_ms is not None and ms == step.device_ms)
        self._values["waited"].append(step.waited)
        self._values["lost"].append(len(step.drafted) == 0)
        self._values["linked"].append(asked is not None)

    def columns(self) -> Columns:
        """All that was taken in."""
        made: dict[str, Any] = {name: np.asarray(values) for name, values in self._values.items()}
        made |= {name: made[name].astype(bool) for name in _FLAGS}
        shape = (len(self), self._positions)
        for name, values in (("succeeded", self._succeeded), ("reached", self._reached)):
            made[name] = np.asarray(values, dtype=np.int32).reshape(shape)
        return Columns(**made)

    def _look_for_alarms(self) -> None:
        counters = self._controller.counters
        now = counters["acceptance_alarms"], counters["time_alarms"]
        if now != self._alarmed:
            kinds = ("acceptance", "time")
            self.alarms += [
                AlarmAt(len(self), kind) for kind, a, b in zip(kinds, now, self._alarmed, strict=True) if a > b
            ]
            self._alarmed = now


_FLAGS = ("device", "waited", "lost", "linked")
_TYPES: Mapping[str, str] = {"context": "d", "ms": "d", "t_ms": "d"} | dict.fromkeys(_FLAGS, "b")


def _tokens(row: TraceRow, decodes: int) -> int:
    """Tokens that counted, else one per decoding request and accepted draft."""
    step = row.step
    return decodes + sum(step.accepted) if step.emitted is None else sum(step.emitted)


def beyond(columns: Columns) -> Bools:
    """Steps with numbers that no table holds."""
    return np.asarray((columns.batch > MAX_BATCH) | (columns.k > MAX_K) | (columns.asked > MAX_K))
