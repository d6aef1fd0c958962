"""What a report holds: plain values, found in one or several traces, for a page, a terminal or JSON.

Absent numbers are ``None``. Shares and gains are fractions of 1, times of a trace seconds since its first step began,
step times milliseconds, speeds tokens per second of all requests together. Intervals hold 90 %.
"""

from __future__ import annotations

from typing import Literal

import msgspec

SCHEMA_VERSION = 1

Verdict = Literal["change", "keep", "undecided", "nothing"]
"""``change``: another schedule is faster beyond doubt; ``keep``: none is, by as much as would matter; ``undecided``:
the trace does not tell; ``nothing``: there is nothing to judge (no step with a time, or no drafts)."""

Basis = Literal["measured", "near", "table", "shape", "nothing"]
"""What a step time rests on: ``measured`` there, at that K; ``near``: that K at neighbouring batch sizes; ``table``:
the seed table, corrected by what was seen at other K; ``shape``: a general rule of how step times grow, which is no
ground for advice; ``nothing``: no time at all."""


class Interval(msgspec.Struct, frozen=True):
    """A value between the bounds of its 90 % interval."""

    value: float
    low: float
    high: float


class Counted(msgspec.Struct, frozen=True):
    """How many of something, with what it is in words."""

    what: str
    number: int


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One trace.

    ``path`` is as it was given. ``mode`` is that in which the recording started; ``shadow`` also where the header does
    not say and other K were played than decided; it may have been switched later. ``schedule`` is the operator's own,
    ``table`` what the header says of the seed table. ``setup`` are the entries of the key, as text. ``skipped`` lines
    could not be read, ``restarts`` counts controllers that began anew within the file, ``clock_back`` the times the
    clock went backwards. ``span_s`` is from the start of the first step to the end of the last one, ``None`` without
    a clock.
    """

    path: str
    mode: str | None
    steps: int
    span_s: float | None
    schedule: list[list[int]] | None
    arms: list[int]
    table: str | None
    adaptk: str | None
    vllm: str | None
    setup: dict[str, str]
    skipped: int = 0
    restarts: int = 0
    clock_back: int = 0


class RangeAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one range of batch sizes, both ends included, requests of a step as vLLM's lookup counts them.

    ``k_now`` is the operator's K, ``k_new`` the advised one, the same where nothing is advised; ``k_best`` the K
    that is believed best, advised or not. ``gain`` is the speed of ``k_best`` over that of ``k_now``, less 1, over the
    steps recorded there, prompts included; ``None`` where nothing can be said, or both are the same. ``probability`` is
    that ``k_best`` is faster than ``k_now``. ``basis_now`` and ``basis_best`` say what the step times of the two rest
    on for the most part. ``most_lost`` is how much slower than the best K ``k_now`` is at most, at 95 %. ``steps`` and
    ``time_share`` (of the busy time) say how much was recorded there, 0 for batch sizes that were never seen. ``note``
    is a sentence, or empty.
    """

    first: int
    last: int
    k_now: int
    k_new: int
    k_best: int
    verdict: Verdict
    gain: Interval | None
    probability: float | None
    basis_now: Basis
    basis_best: Basis
    most_lost: float | None
    steps: int
    time_share: float
    note: str = ""


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What to change, if anything.

    ``sentence`` is the verdict for people; ``rests_on`` what was measured and what was inferred, ``caveats`` what else
    must be known, ``next_steps`` what to do where the trace does not tell: a sentence each. ``gain`` is that of the
    whole new schedule over the recorded traffic, ``None`` where there is none or nothing can be said; ``loss`` the same
    as a share of the new speed. ``paste`` is the entry for ``--speculative-config`` and ``paste_json`` the object with
    all that the trace knows of that configuration; both empty without a new schedule.
    """

    verdict: Verdict
    sentence: str
    schedule_now: list[list[int]]
    schedule_now_is: str
    schedule_new: list[list[int]] | None
    paste: str
    paste_json: str
    gain: Interval | None
    loss: Interval | None
    ranges: list[RangeAdvice]
    rests_on: list[str]
    caveats: list[str]
    next_steps: list[str]


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The whole recording in figures.

    ``busy_s`` is the time of all steps that have one, ``tokens_per_s`` counts tokens of those steps over it. ``played``
    and ``chosen`` are steps by K, as ``(K, steps)``: what the engine used, what the controller decided; ``reasons``
    those of the decisions. ``switches`` are changes of the K played.
    """

    steps: int
    timed_steps: int
    span_s: float | None
    busy_s: float
    tokens: int
    tokens_per_s: float | None
    batch_mean: float | None
    batch_median: float | None
    batch_most: int
    context_mean: float | None
    played: list[tuple[int, int]]
    chosen: list[tuple[int, int]]
    reasons: list[Counted]
    switches: int
    differing: int


class Bin(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of consecutive steps, from second ``start_s`` to ``end_s`` (of busy time, where there is no clock).

    ``played`` and ``chosen`` are steps per K, in the order of ``Timeline.ks``. ``reached`` and ``accepted`` are drafts
    per position whose predecessors were all accepted, and those accepted of them, shape ``(positions,)``.
    """

    start_s: float
    end_s: float
    steps: int
    batch_mean: float
    batch_most: int
    played: list[int]
    chosen: list[int]
    tokens: int
    busy_s: float
    prefill_tokens: int
    reached: list[int]
    accepted: list[int]

    @property
    def tokens_per_s(self) -> float | None:
        """Speed of the steps that have a time."""
        return self.tokens / self.busy_s if self.busy_s > 0.0 else None


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """A change that the residuals gave away: ``kind`` is ``acceptance`` or ``time``, ``step`` counts from 0."""

    step: int
    at_s: float
    kind: str


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """One trace over time; ``source`` is its index in ``Findings.sources``. ``clock``: whether seconds are its own."""

    source: int
    clock: bool
    ks: list[int]
    bins: list[Bin]
    alarms: list[Alarm]


class TimeShare(msgspec.Struct, frozen=True, kw_only=True):
    """Where time went: ``kind`` is one of ``decode``, ``mixed``, ``prefill``, ``waited``, ``untimed``, ``idle``.

    Shares are of their sum.
    """

    kind: str
    label: str
    steps: int
    seconds: float
    share: float


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Acceptance of one draft position, 1 being the first, given that all before were accepted.

    ``ratio`` is ``accepted`` over ``reached`` in the trace, ``believed`` what holds at its end, ``table`` the seed's.
    """

    position: int
    reached: int
    accepted: int
    ratio: Interval | None
    believed: Interval | None
    table: float | None


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """Belief about one K in one range of decoding requests, at the mean batch and context seen there.

    ``measured_ms`` is the median time of the ``timed`` steps of that K alone (no prompt, K unchanged), ``steps`` counts
    all in which it was played. ``ratio`` is ``itl_ms`` over ``table_ms``. ``best_probability`` is that this K is the
    best there, ``None`` where its time rests on nothing better than a shape.
    """

    first: int
    last: int
    batch: float
    k: int
    steps: int
    timed: int
    measured_ms: float | None
    itl_ms: Interval | None
    table_ms: float | None
    ratio: Interval | None
    acceptance_length: Interval
    goodput: float | None
    best_probability: float | None
    basis: Basis


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """What exploring took: ``explored_s`` is the time of the ``explored_steps``.

    ``cost_s`` is how much longer that was than the K last thought best would have needed for the same tokens, as now
    believed; ``share`` is that of the busy time. ``None`` where it cannot be said; ``about`` says why, or where the
    figures are from.
    """

    explored_steps: int
    explored_s: float
    cost_s: float | None
    share: float | None
    about: str


class PolicyValue(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy would have reached, by name: ``schedule``, ``advised``, ``table``, ``adaptk``, ``fixed-3``, ...

    ``tokens_per_s`` is ``None`` where it cannot be said, ``reason`` then says why. ``over_recorded`` is speed over that
    of what was recorded, by the same method. ``effective_steps`` of an off-policy estimate, ``oracle_ratio`` of a
    simulated one.
    """

    policy: str
    about: str
    tokens_per_s: Interval | None
    over_recorded: Interval | None
    effective_steps: float | None = None
    oracle_ratio: float | None = None
    reason: str = ""


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """The trace as a world in which policies were tried.

    ``steps`` of the trace were replayed, the last ones, in ``seeds`` worlds. ``measured_tokens_per_s`` is that of these
    steps, to be compared with the recorded policy's, simulated. ``notes`` say what was assumed. Where nothing could be
    simulated, ``policies`` is empty and ``reason`` says why and what to do.
    """

    steps: int
    seeds: int
    measured_tokens_per_s: float | None
    policies: list[PolicyValue]
    notes: list[str]
    reason: str = ""
    cut_short: bool = False


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """All of a report. ``notes`` are of the reading; ``cut_short``: interrupted, this is what was there by then."""

    adaptk: str
    sources: list[Source]
    advice: Advice
    overview: Overview
    timelines: list[Timeline]
    time: list[TimeShare]
    acceptance: list[Position]
    dropped: list[Counted]
    cells: list[Cell]
    off_policy: list[PolicyValue]
    simulation: Simulation | None
    notes: list[str]
    ledger: Ledger | None = None
    cut_short: bool = False
    schema_version: int = SCHEMA_VERSION


def to_json(findings: Findings) -> bytes:
    """One JSON document, indented; numbers that are none are ``null``."""
    return msgspec.json.format(msgspec.json.encode(findings), indent=2) + b"\n"


def from_json(data: bytes | str) -> Findings:
    """Read what :func:`to_json` wrote.

    Raises
    ------
    ValueError
        If it is no such document.
    """
    try:
        findings = msgspec.json.decode(data, type=Findings)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"findings cannot be read ({error}): give what adaptk report --json wrote") from None
    if findings.schema_version != SCHEMA_VERSION:
        raise ValueError(
            f"findings have schema_version {findings.schema_version}, this adaptk reads {SCHEMA_VERSION}: "
            "make them anew with adaptk report --json"
        )
    return findings
