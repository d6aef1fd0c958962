"""What an engine's page holds: each metric with its labels, and a made-up engine that has all of them."""

from __future__ import annotations

import time
from typing import NamedTuple

ENGINE = {"model_name": "some/model", "engine": "0"}
CELL = {"batch": "4-7", "k": "3"}


class Metric(NamedTuple):
    """A series of the made-up engine: its labels beside :data:`ENGINE`, and its value at minute 0 and growth.

    Time stamps are seconds since minute 0, which is where Prometheus' own tool begins to count.
    """

    labels: dict[str, str]
    value: float
    per_minute: float = 0.0


METRICS: dict[str, list[Metric]] = {
    "adaptk_build_info": [Metric({"version": "0.1.0", "vllm_version": "0.32.0"}, 1)],
    "adaptk_config_info": [Metric({"arms": "0,1,3,7", "table": "t", "runner": "V1", "baseline_schedule": ""}, 1)],
    "adaptk_mode": [Metric({"mode": mode}, mode == "on") for mode in ("on", "shadow", "off")],
    "adaptk_active": [Metric({}, 1)],
    "adaptk_chosen_k": [Metric({}, 3)],
    "adaptk_played_k": [Metric({}, 3)],
    "adaptk_batch_size": [Metric({}, 5)],
    "adaptk_last_step_timestamp_seconds": [Metric({}, 0, 60)],
    "adaptk_steps_total": [Metric(CELL, 0, 3000)],
    "adaptk_step_seconds_total": [Metric(CELL, 0, 57)],
    "adaptk_timed_steps_total": [Metric(CELL, 0, 2900)],
    "adaptk_tokens_total": [Metric(CELL, 0, 30_000)],
    "adaptk_decisions_total": [Metric({"k": "3", "reason": "exploit"}, 0, 3000)],
    "adaptk_switches_total": [Metric({"reason": "explore"}, 0, 6)],
    "adaptk_draft_reached_total": [Metric({"position": "1"}, 0, 15_000)],
    "adaptk_draft_accepted_total": [Metric({"position": "1"}, 0, 9_000)],
    "adaptk_acceptance_ratio": [Metric({"position": "1"}, 0.6)],
    "adaptk_acceptance_ratio_low": [Metric({"position": "1"}, 0.58)],
    "adaptk_acceptance_ratio_high": [Metric({"position": "1"}, 0.62)],
    "adaptk_acceptance_length_tokens": [Metric(CELL, 2.2)],
    "adaptk_believed_itl_seconds": [Metric(CELL, 0.019)],
    "adaptk_believed_itl_seconds_low": [Metric(CELL, 0.018)],
    "adaptk_believed_itl_seconds_high": [Metric(CELL, 0.020)],
    "adaptk_table_itl_seconds": [Metric(CELL, 0.0185)],
    "adaptk_drift_ratio": [Metric(CELL, 1.03)],
    "adaptk_goodput_tokens_per_second": [Metric(CELL, 115)],
    "adaptk_best_probability_ratio": [Metric(CELL, 0.9)],
    "adaptk_table_k": [Metric({"batch": CELL["batch"]}, 3)],
    "adaptk_reference_tokens_total": [
        Metric({"policy": policy}, 0, rate)
        for policy, rate in (
            ("played", 30_000),
            ("k0", 25_000),
            ("table", 29_000),
            ("adaptk", 30_000),
            ("vllm", 28_000),
        )
    ],
    "adaptk_exploration_allowed_seconds_total": [Metric({}, 0, 0.57)],
    "adaptk_exploration_spent_seconds_total": [Metric({}, 0, 0.2)],
    "adaptk_exploration_balance_seconds": [Metric({}, 30)],
    "adaptk_reference_unknown_tokens_total": [Metric({"policy": "k0"}, 0, 10)],
    "adaptk_alarms_total": [Metric({"kind": kind}, 0) for kind in ("acceptance", "time")],
    "adaptk_drafter_dead": [Metric({}, 0)],
    "adaptk_timing_untrusted": [Metric({}, 0)],
    "adaptk_weights_changes_total": [Metric({}, 0)],
    "adaptk_observations_dropped_total": [Metric({"cause": "no_time"}, 0, 100)],
    "adaptk_faults_total": [Metric({}, 0)],
    **{
        f"adaptk_{what}_seconds_{part}": [Metric({"le": le} if part == "bucket" else {}, 0, rate) for le, rate in parts]
        for what in ("decision", "learning")
        for part, parts in (
            ("bucket", (("1e-05", 2000), ("+Inf", 3000))),
            ("sum", (("", 0.05),)),
            ("count", (("", 3000),)),
        )
    },
    "adaptk_trace_rows_total": [Metric({}, 0, 3000)],
    "adaptk_trace_written_bytes_total": [Metric({}, 0, 900_000)],
    "adaptk_trace_dropped_rows_total": [Metric({}, 0)],
    "adaptk_trace_removed_rows_total": [Metric({}, 0)],
    "adaptk_trace_failures_total": [Metric({}, 0)],
    "adaptk_state_saves_total": [Metric({}, 0, 2)],
    "adaptk_state_failures_total": [Metric({}, 0)],
    "adaptk_state_timestamp_seconds": [Metric({}, 0, 60)],
    "adaptk_beliefs_timestamp_seconds": [Metric({}, 0, 60)],
}


def page() -> str:
    """The engine's page after its first minute, which has just passed."""
    began = time.time() - 60.0
    lines = [
        f"{name}{selector(ENGINE | sample.labels)} "
        f"{sample.value + sample.per_minute + (began if name.endswith('_timestamp_seconds') else 0.0)}"
        for name, samples in METRICS.items()
        for sample in samples
    ]
    return "\n".join(lines) + "\n"


def selector(labels: dict[str, str]) -> str:
    """As it stands behind a metric's name."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"
