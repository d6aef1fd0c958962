"""The samples of a page, by the name of their family: plain numbers from the sums and the controller's counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, get_args

from adaptk.belief import ArmBelief
from adaptk.decision import Reason
from adaptk.settings import Mode
from adaptk.vllm_plugin.metrics.beliefs import Beliefs
from adaptk.vllm_plugin.metrics.carried import ours
from adaptk.vllm_plugin.metrics.sums import MS, STEPS, TIMED, TOKENS, Cells, Histogram, Sums

if TYPE_CHECKING:
    from adaptk.vllm_plugin.steering import Steering

# Values of a metric's own labels, and the sample's value.
Rows = dict[str, list[tuple[tuple[str, ...], float | Histogram]]]

_CELLS = {
    "adaptk_steps_total": (STEPS, 1.0),
    "adaptk_timed_steps_total": (TIMED, 1.0),
    "adaptk_step_seconds_total": (MS, 1e-3),
    "adaptk_tokens_total": (TOKENS, 1.0),
}
_BELIEFS: Mapping[str, Callable[[ArmBelief], float | None]] = {
    "adaptk_acceptance_length_tokens": lambda b: b.al,
    "adaptk_believed_itl_seconds": lambda b: _seconds(b.itl_ms),
    "adaptk_believed_itl_seconds_low": lambda b: _seconds(b.itl_low),
    "adaptk_believed_itl_seconds_high": lambda b: _seconds(b.itl_high),
    "adaptk_table_itl_seconds": lambda b: _seconds(b.table_itl_ms),
    "adaptk_drift_ratio": lambda b: b.drift,
    "adaptk_goodput_tokens_per_second": lambda b: b.goodput,
    "adaptk_best_probability_ratio": lambda b: b.p_best,
}
# Counts of controllers that are shown as counters, and their unit in seconds where it is one of time.
_COUNTS: Mapping[str, tuple[str, tuple[str, ...], float]] = {
    "allowed_ms": ("adaptk_exploration_allowed_seconds_total", (), 1e-3),
    "spent_ms": ("adaptk_exploration_spent_seconds_total", (), 1e-3),
    "acceptance_alarms": ("adaptk_alarms_total", ("acceptance",), 1.0),
    "time_alarms": ("adaptk_alarms_total", ("time",), 1.0),
    "weights_changed": ("adaptk_weights_changes_total", (), 1.0),
}
_TRACE: Mapping[str, str] = {
    "adaptk_trace_rows_total": "rows",
    "adaptk_trace_written_bytes_total": "written_bytes",
    "adaptk_trace_dropped_rows_total": "dropped",
    "adaptk_trace_removed_rows_total": "removed_rows",
    "adaptk_trace_failures_total": "failed",
}


def bin_name(bits: int) -> str:
    """The label of the batch sizes of a bit length.

    Examples
    --------
    >>> [bin_name(bits) for bits in range(5)]
    ['0', '1', '2-3', '4-7', '8-15']
    """
    return str(bits) if bits < 2 else f"{1 << (bits - 1)}-{(1 << bits) - 1}"


def state_rows(steering: Steering) -> Rows:
    """Whether and how adaptk is at work."""
    mode, active = steering.mode, steering.active
    rows: Rows = {
        "adaptk_mode": [((name,), float(name == mode)) for name in get_args(Mode)],
        "adaptk_active": [((), float(active))],
        "adaptk_faults_total": [((), float(steering.faults))],
    }
    if not active:
        rows["adaptk_inactive_info"] = [((steering.reason or "",), 1.0)]
    writer, state = steering.writer, steering.state
    if writer is not None:
        rows |= {family: [((), float(getattr(writer, name)))] for family, name in _TRACE.items()}
    if state is not None:
        rows["adaptk_state_saves_total"] = [((), float(state.saves))]
        rows["adaptk_state_failures_total"] = [((), float(state.failures))]
        if state.saved_s is not None:
            rows["adaptk_state_timestamp_seconds"] = [((), round(state.saved_s, 3))]
    return rows


def step_rows(sums: Sums, cells: Cells) -> Rows:
    """What the steps add up to, and the last one."""
    rows: Rows = {
        "adaptk_decisions_total": [
            ((str(k), str(reason)), float(n)) for (k, reason), (n,) in sorted(sums.decided.copy().items())
        ],
        "adaptk_decision_seconds": [((), sums.deciding)],
        "adaptk_learning_seconds": [((), sums.learning)],
    }
    if rows["adaptk_decisions_total"]:
        switched = dict(sums.switched)
        reasons = [reason for reason in Reason if reason is not Reason.FALLBACK]
        rows["adaptk_switches_total"] = [((reason.value,), float(switched.get(reason, 0))) for reason in reasons]
    by_bin: dict[tuple[int, int], list[float]] = {}
    for (bits, k, _, _), cell in sorted(cells.items()):
        before = by_bin.get((bits, k), [0.0] * len(cell))
        by_bin[bits, k] = [old + new for old, new in zip(before, cell, strict=True)]
    for name, (place, unit) in _CELLS.items():
        rows[name] = [((bin_name(bits), str(k)), unit * cell[place]) for (bits, k), cell in by_bin.items()]
    drafts = sums.drafts.totals()
    positions = range(1, len(drafts) // 2 + 1)
    accepted, rejected = drafts[: len(positions)], drafts[len(positions) :]
    rows["adaptk_draft_accepted_total"] = [((str(j),), float(n)) for j, n in zip(positions, accepted, strict=True)]
    rows["adaptk_draft_reached_total"] = [
        ((str(j),), float(a + r)) for j, a, r in zip(positions, accepted, rejected, strict=True)
    ]
    record, chosen = sums.record, sums.chosen_k
    if record is not None:
        rows["adaptk_played_k"] = [((), float(record.k))]
        rows["adaptk_batch_size"] = [((), float(record.batch_size))]
        if record.t_ms is not None:
            finished = time.time() - (time.perf_counter() - record.t_ms / 1000.0)
            rows["adaptk_last_step_timestamp_seconds"] = [((), round(finished, 3))]
    if chosen is not None:
        rows["adaptk_chosen_k"] = [((), float(chosen))]
    return rows


def count_rows(steering: Steering, sums: Sums, most: dict[str, float]) -> Rows:
    """What the controller, the reader of outputs and the steering count; ``most`` keeps each from falling."""
    totals = {**sums.carried.totals(), "unmatched": steering.unmatched - steering.lost}
    for name, count in totals.items():
        # The ledger forgets what it cannot save up, and of a step that is being given up only one part may be counted.
        totals[name] = most[name] = max(count, most.get(name, 0.0))
    rows: Rows = {}
    for name, (family, labels, unit) in _COUNTS.items():
        if name in totals:
            rows.setdefault(family, []).append((labels, unit * totals[name]))
    causes: dict[str, float] = {**sums.dropped, "unmatched": totals["unmatched"]}
    if steering.collector is not None:
        causes |= {"clamped": steering.collector.clamped, "gone": steering.collector.ignored}
    unlearnt = {name.partition(".")[2]: n for name, n in totals.items() if name.startswith("unlearnt.")}
    rows["adaptk_observations_dropped_total"] = [((cause,), float(n)) for cause, n in (causes | unlearnt).items()]
    own = ours(steering.controller)
    if own is not None:
        ledger = own.ledger
        rows["adaptk_exploration_balance_seconds"] = [((), 1e-3 * (ledger["allowed_ms"] - ledger["spent_ms"]))]
        rows["adaptk_drafter_dead"] = [((), float(own.drafter_dead))]
        rows["adaptk_timing_untrusted"] = [((), float(not own.timing_trusted))]
    return rows


def belief_rows(beliefs: Beliefs) -> Rows:
    """What is believed, and what other policies would have emitted."""
    mirror = beliefs.mirror
    if mirror is None:
        return {}
    rows: Rows = {"adaptk_beliefs_timestamp_seconds": [((), round(beliefs.taken_s, 3))]}
    for j, position in enumerate(beliefs.positions, start=1):
        for suffix, value in (("", position.mean), ("_low", position.low), ("_high", position.high)):
            rows.setdefault(f"adaptk_acceptance_ratio{suffix}", []).append(((str(j),), value))
    for bits, (_, by_k, table_k) in sorted(beliefs.bins.items()):
        for name, read in _BELIEFS.items():
            values = [((bin_name(bits), str(k)), read(belief)) for k, belief in by_k.items()]
            rows.setdefault(name, []).extend((labels, value) for labels, value in values if value is not None)
        if table_k is not None:
            rows.setdefault("adaptk_table_k", []).append(((bin_name(bits),), float(table_k)))
    reference = beliefs.reference
    told = beliefs.policies()
    rows["adaptk_reference_tokens_total"] = [((policy,), reference.tokens[policy]) for policy in told]
    rows["adaptk_reference_unknown_tokens_total"] = [((policy,), reference.unknown[policy]) for policy in told]
    return rows


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000.0
