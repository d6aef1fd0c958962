"""A metrics page (Prometheus text or OpenMetrics) to snapshots, one an engine."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from adaptk.live.snapshot import Cell, CellBelief, Counts, PositionBelief, Snapshot
from adaptk.quoted import printable

_Labels = Mapping[str, str]
_Key = Callable[[_Labels], Any]
_MOST_DRAFTS = 100_000
# What a page may hold that somebody else serves: far more than an engine has to say, and little enough to be read and
# shown within a blink.
MOST_LINES = 50_000
MOST_ENGINES = 1_000
_MOST_KEYS = 4_096  # that one field of an engine is told by
_LONGEST = 8_192  # signs of a line
_LONGEST_KEPT = 512  # ... whose labels are kept for the next page


class PageError(ValueError):
    """A page says nothing of adaptk; the message says what it may be."""


def _small(value: str | float) -> int:
    """A number of drafts or a position; what is beyond all of them is not understood."""
    number = int(value)
    if not 0 <= number <= _MOST_DRAFTS:
        raise ValueError
    return number


def _cell(labels: _Labels) -> Cell:
    return Cell(labels["batch"], _small(labels["k"]))


def _label(name: str) -> _Key:
    return lambda labels: labels[name]


def _position(labels: _Labels) -> int:
    return _small(labels["position"])


def _as(key: str) -> _Key:
    return lambda _: key


_COUNTERS: Mapping[str, tuple[str, _Key]] = {
    "adaptk_steps_total": ("steps", _cell),
    "adaptk_timed_steps_total": ("timed_steps", _cell),
    "adaptk_step_seconds_total": ("seconds", _cell),
    "adaptk_tokens_total": ("tokens", _cell),
    "adaptk_decisions_total": ("decisions", lambda labels: (_small(labels["k"]), labels["reason"])),
    "adaptk_switches_total": ("switches", _label("reason")),
    "adaptk_draft_reached_total": ("reached", _position),
    "adaptk_draft_accepted_total": ("accepted", _position),
    "adaptk_reference_tokens_total": ("reference", _label("policy")),
    "adaptk_reference_unknown_tokens_total": ("unknown", _label("policy")),
    "adaptk_exploration_allowed_seconds_total": ("exploration", _as("allowed")),
    "adaptk_exploration_spent_seconds_total": ("exploration", _as("spent")),
    "adaptk_alarms_total": ("alarms", _label("kind")),
    "adaptk_observations_dropped_total": ("dropped", _label("cause")),
    "adaptk_weights_changes_total": ("events", _as("weights_changes")),
    "adaptk_faults_total": ("events", _as("faults")),
    "adaptk_trace_dropped_rows_total": ("events", _as("trace_dropped_rows")),
    "adaptk_decision_seconds_sum": ("clocked", _as("sum")),
    "adaptk_decision_seconds_count": ("clocked", _as("count")),
}
_BELIEFS: Mapping[str, str] = {
    "adaptk_acceptance_length_tokens": "al",
    "adaptk_believed_itl_seconds": "itl",
    "adaptk_believed_itl_seconds_low": "itl_low",
    "adaptk_believed_itl_seconds_high": "itl_high",
    "adaptk_table_itl_seconds": "table_itl",
    "adaptk_drift_ratio": "drift",
    "adaptk_goodput_tokens_per_second": "goodput",
    "adaptk_best_probability_ratio": "p_best",
}
_POSITIONS: Mapping[str, str] = {
    "adaptk_acceptance_ratio": "ratio",
    "adaptk_acceptance_ratio_low": "low",
    "adaptk_acceptance_ratio_high": "high",
}
_NUMBERS: Mapping[str, tuple[str, Callable[[float], Any]]] = {
    "adaptk_active": ("active", bool),
    "adaptk_batch_size": ("batch", float),
    "adaptk_chosen_k": ("chosen_k", _small),
    "adaptk_played_k": ("played_k", _small),
    "adaptk_exploration_balance_seconds": ("balance", float),
    "adaptk_last_step_timestamp_seconds": ("last_step_at", float),
    "adaptk_beliefs_timestamp_seconds": ("beliefs_at", float),
    "adaptk_drafter_dead": ("drafter_dead", bool),
    "adaptk_timing_untrusted": ("timing_untrusted", bool),
}
_WORDS: Mapping[str, Mapping[str, str]] = {
    "adaptk_build_info": {"version": "version", "vllm_version": "vllm_version"},
    "adaptk_config_info": {"arms": "arms", "table": "table", "runner": "runner", "baseline": "baseline_schedule"},
    "adaptk_inactive_info": {"inactive_reason": "reason"},
}


def snapshots(text: str) -> tuple[Snapshot, ...]:
    """The engines of a page, in its order.

    Lines that cannot be understood are left out and counted, as is a last line without an end: a page may break off.

    Raises
    ------
    PageError
        If the page says nothing of adaptk.
    ModuleNotFoundError
        If prometheus_client is not installed; the message says what to install.

    Examples
    --------
    >>> page = 'adaptk_batch_size{model_name="m",engine="0"} 12\\n# EOF\\n'
    >>> [(seen.model, seen.engine, seen.batch) for seen in snapshots(page)]
    [('m', '0', 12.0)]
    """
    if find_spec("prometheus_client") is None:
        raise ModuleNotFoundError("prometheus_client is not installed, metrics need it: pip install 'adaptk[tools]'")
    made: dict[tuple[str, str, str], _Builder] = {}
    skipped = 0
    for number, line in enumerate(_lines(text)):
        if number >= MOST_LINES or len(made) > MOST_ENGINES:
            most = f"{MOST_LINES} lines about adaptk, or {MOST_ENGINES} engines"
            raise PageError(f"its page has more than {most}: name ports of single engines")
        parsed = _sample(line[:-1]) if line.endswith("\n") and len(line) <= _LONGEST else None
        if parsed is None:
            skipped += 1
        else:
            name, labels, value = parsed
            who = (labels.get("model_name", ""), labels.get("engine", ""), labels.get("instance", ""))
            skipped += not made.setdefault(who, _Builder()).take(name, labels, value)
    if not made:
        raise PageError(_stranger(text))
    return tuple(builder.snapshot(*who, skipped) for who, builder in made.items())


def _lines(text: str) -> Iterator[str]:
    """Those about adaptk, each with its end if it has one."""
    at = 0 if text.startswith("adaptk_") else text.find("\nadaptk_") + 1 or None
    while at is not None:
        end = text.find("\n", at) + 1 or len(text)
        yield text[at:end]
        at = text.find("\nadaptk_", end - 1) + 1 or None


def _stranger(text: str) -> str:
    if "vllm:" in text:
        return "is vLLM's own metrics page: name adaptk's port (ADAPTK_METRICS_PORT of the server)"
    if not text.strip():
        return "its page is empty"
    return "its page holds no adaptk metrics: name the server's ADAPTK_METRICS_PORT"


class _Builder:
    """Collects the samples of one engine."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._counts: defaultdict[str, dict[Any, float]] = defaultdict(dict)
        self._cells: defaultdict[Cell, dict[str, float]] = defaultdict(dict)
        self._positions: defaultdict[int, dict[str, float]] = defaultdict(dict)
        self._table_k: dict[str, int] = {}

    def take(self, name: str, labels: _Labels, value: float) -> bool:
        """Take a sample in; whether its labels could be understood. A value that is no number says nothing."""
        if not math.isfinite(value):
            return True
        try:
            self._place(name, labels, value)
        except (KeyError, ValueError):
            return False
        return True

    def _place(self, name: str, labels: _Labels, value: float) -> None:
        if name in _COUNTERS:
            field, key = _COUNTERS[name]
            self._counts[field][_known(self._counts[field], key(labels))] = max(value, 0.0)
        elif name in _BELIEFS:
            self._cells[_known(self._cells, _cell(labels))][_BELIEFS[name]] = value
        elif name in _POSITIONS:
            self._positions[_known(self._positions, _position(labels))][_POSITIONS[name]] = value
        elif name in _NUMBERS:
            field, read = _NUMBERS[name]
            self._fields[field] = read(value)
        elif name in _WORDS:
            self._fields.update({field: labels.get(label, "") for field, label in _WORDS[name].items()})
        elif name == "adaptk_table_k":
            self._table_k[_known(self._table_k, labels["batch"])] = _small(value)
        elif name == "adaptk_mode" and value > 0.0:
            self._fields["mode"] = labels["mode"]

    def snapshot(self, model: str, engine: str, instance: str, skipped: int) -> Snapshot:
        """What was collected."""
        return Snapshot(
            model=model,
            engine=engine,
            instance=instance,
            table_k=self._table_k,
            cells={cell: CellBelief(**values) for cell, values in self._cells.items()},
            positions={position: PositionBelief(**values) for position, values in self._positions.items()},
            counts=Counts(**self._counts),
            skipped=skipped,
            **self._fields,
        )


def _known(held: Mapping[Any, Any], key: Any) -> Any:
    """The key, if there is room for it."""
    if len(held) >= _MOST_KEYS and key not in held:
        raise ValueError
    return key


def _sample(line: str) -> tuple[str, _Labels, float] | None:
    """Name, labels and value of a line; ``None`` if it is broken."""
    if " # " in line:  # an exemplar, with braces of its own
        return _parsed(line)
    end = line.rfind("}") + 1 or line.find(" ")
    series = _series(line[:end]) if end <= _LONGEST_KEPT else _read_series(line[:end])
    rest = line[end:].split(None, 1)
    if series is None or not rest:
        return None
    try:
        return *series, float(rest[0])
    except ValueError:
        return None


def _read_series(text: str) -> tuple[str, _Labels] | None:
    parsed = _parsed(f"{text} 0")
    return None if parsed is None else parsed[:2]


# The parser takes some 70 microseconds a line, and the same series come with every page of every engine.
_series = lru_cache(maxsize=1 << 16)(_read_series)


def _parsed(line: str) -> tuple[str, _Labels, float] | None:
    from prometheus_client.parser import text_string_to_metric_families

    try:
        ((sample,),) = (family.samples for family in text_string_to_metric_families(line))
    except (ValueError, IndexError):
        return None
    return sample.name, {printable(key): printable(text) for key, text in sample.labels.items()}, float(sample.value)
