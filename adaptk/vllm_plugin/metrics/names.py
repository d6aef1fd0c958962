"""Every metric that an engine serves: its name, kind, labels and meaning."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Metric(NamedTuple):
    """One family; ``labels`` beside ``BASE``, which all of them carry."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    labels: tuple[str, ...]
    help: str


# As vLLM labels its own, so that the two can be joined.
BASE = ("model_name", "engine")
_BIN = ("batch", "k")

METRICS: tuple[Metric, ...] = (
    Metric("adaptk_build_info", "gauge", ("version", "vllm_version"), "Versions of adaptk and of vLLM."),
    Metric(
        "adaptk_config_info",
        "gauge",
        ("arms", "table", "runner", "baseline_schedule"),
        "What adaptk chooses from: arms (K), seed table (its name, schedule or none), vLLM's model runner, and the "
        "operator's schedule as [[first batch, last batch, K], ...].",
    ),
    Metric("adaptk_mode", "gauge", ("mode",), "1 for the mode that is in force: on, shadow or off."),
    Metric("adaptk_active", "gauge", (), "1 while adaptk is at work; 0 leaves K to vLLM for good."),
    Metric("adaptk_inactive_info", "gauge", ("reason",), "Why adaptk is not active, where it is not."),
    Metric("adaptk_chosen_k", "gauge", (), "K that the controller chose last, drafts per request."),
    Metric("adaptk_played_k", "gauge", (), "K that the engine used last, drafts per request."),
    Metric("adaptk_batch_size", "gauge", (), "Requests in the last step."),
    Metric("adaptk_last_step_timestamp_seconds", "gauge", (), "When the last step was finished, unix time."),
    Metric(
        "adaptk_steps_total",
        "counter",
        _BIN,
        "Finished steps by decoding requests and K of the drafts that they verified; batch 0: prompts only.",
    ),
    Metric("adaptk_timed_steps_total", "counter", _BIN, "Steps whose time is known, as adaptk_steps_total."),
    Metric("adaptk_step_seconds_total", "counter", _BIN, "Time of the timed steps, prompts in them included."),
    Metric("adaptk_tokens_total", "counter", _BIN, "Tokens that the timed steps emitted."),
    Metric("adaptk_decisions_total", "counter", ("k", "reason"), "Choices of the controller whose steps came back."),
    Metric("adaptk_switches_total", "counter", ("reason",), "Changes of the chosen K by the reason of the new one."),
    Metric(
        "adaptk_draft_reached_total",
        "counter",
        ("position",),
        "Drafts verified at a position whose predecessors were all accepted.",
    ),
    Metric("adaptk_draft_accepted_total", "counter", ("position",), "Of adaptk_draft_reached_total, the accepted."),
    Metric("adaptk_acceptance_ratio", "gauge", ("position",), "Believed acceptance of a draft that was reached."),
    Metric("adaptk_acceptance_ratio_low", "gauge", ("position",), "Lower end of its 90 % interval."),
    Metric("adaptk_acceptance_ratio_high", "gauge", ("position",), "Upper end of its 90 % interval."),
    Metric(
        "adaptk_acceptance_length_tokens",
        "gauge",
        _BIN,
        "Believed tokens per request and step; like all beliefs by batch, at the batch size and context of late there.",
    ),
    Metric("adaptk_believed_itl_seconds", "gauge", _BIN, "Believed time of a step without prompts."),
    Metric("adaptk_believed_itl_seconds_low", "gauge", _BIN, "Lower end of its 90 % interval."),
    Metric("adaptk_believed_itl_seconds_high", "gauge", _BIN, "Upper end of its 90 % interval."),
    Metric("adaptk_table_itl_seconds", "gauge", _BIN, "The same time by the seed table."),
    Metric("adaptk_drift_ratio", "gauge", _BIN, "Believed step time over the table's."),
    Metric("adaptk_goodput_tokens_per_second", "gauge", _BIN, "Believed tokens per request and second."),
    Metric("adaptk_best_probability_ratio", "gauge", _BIN, "Probability that this K is the best of those allowed."),
    Metric("adaptk_table_k", "gauge", ("batch",), "K that the seed table or schedule would play there."),
    Metric(
        "adaptk_reference_tokens_total",
        "counter",
        ("policy",),
        "Tokens that a policy would have emitted in the time of the timed steps, as believed when they were counted; "
        "played: those that were emitted.",
    ),
    Metric(
        "adaptk_reference_unknown_tokens_total",
        "counter",
        ("policy",),
        "Part of adaptk_reference_tokens_total that was taken over as emitted, as nothing was believed of a K.",
    ),
    Metric("adaptk_exploration_allowed_seconds_total", "counter", (), "What exploring was allowed to cost."),
    Metric("adaptk_exploration_spent_seconds_total", "counter", (), "What exploring has cost."),
    Metric("adaptk_exploration_balance_seconds", "gauge", (), "What exploring may still cost now."),
    Metric("adaptk_alarms_total", "counter", ("kind",), "Changes that were detected, of acceptance or of step time."),
    Metric("adaptk_drafter_dead", "gauge", (), "1 while hardly any first draft is accepted."),
    Metric("adaptk_timing_untrusted", "gauge", (), "1 while too many steps are slow for no visible reason."),
    Metric("adaptk_weights_changes_total", "counter", (), "Replacements of weights that the controller was told of."),
    Metric(
        "adaptk_observations_dropped_total",
        "counter",
        ("cause",),
        "Steps, their times, or requests (clamped, gone) that were not learnt from.",
    ),
    Metric("adaptk_faults_total", "counter", (), "Faults of adaptk; the first one ends its work."),
    Metric("adaptk_decision_seconds", "histogram", (), "Time of choosing K, per step."),
    Metric("adaptk_learning_seconds", "histogram", (), "Time of learning from a step, mostly while a model runs."),
    Metric("adaptk_trace_rows_total", "counter", (), "Rows that were written to the trace."),
    Metric("adaptk_trace_written_bytes_total", "counter", (), "Bytes that were written to the trace."),
    Metric("adaptk_trace_dropped_rows_total", "counter", (), "Rows that did not reach the trace."),
    Metric("adaptk_trace_removed_rows_total", "counter", (), "Rows of old files that made way for new ones."),
    Metric("adaptk_trace_failures_total", "counter", (), "Failures of encoding or writing rows of the trace."),
    Metric("adaptk_state_saves_total", "counter", (), "How often the state was saved."),
    Metric("adaptk_state_failures_total", "counter", (), "Failures to save the state; each is tried again."),
    Metric("adaptk_state_timestamp_seconds", "gauge", (), "When the state in its file was saved, unix time."),
    Metric("adaptk_beliefs_timestamp_seconds", "gauge", (), "When what is believed was copied, unix time."),
)
BY_NAME = {metric.name: metric for metric in METRICS}
