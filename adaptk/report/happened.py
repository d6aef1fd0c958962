"""What happened in a recording: figures, a time line, and where time went."""

from __future__ import annotations

import math

import numpy as np

from adaptk.report.columns import REASONS, Bools, Columns, Floats, Ints
from adaptk.report.findings import (
    Alarm,
    Bin,
    Counted,
    Overview,
    Source,
    Timeline,
    TimeShare,
)
from adaptk.report.reading import Recording, SourceFacts
from adaptk.report.steered import told

BINS = 240  # of a time line, at most
_LEAST_IN_BIN = 4  # steps
_LEAST_PAUSE = 5.0  # milliseconds between two steps that count as a pause
_PAUSE = 10.0  # times the usual step: what lies beyond between two updates was idling


def overview(columns: Columns, sources: list[Source]) -> Overview:
    """Figures of all traces together."""
    n = len(columns.k)
    timed = ~np.isnan(columns.ms)
    busy = float(columns.ms[timed].sum()) / 1000.0
    tokens = int(columns.tokens[timed].sum())
    spans = [source.span_s for source in sources if source.span_s is not None]
    context = columns.context[~np.isnan(columns.context)]
    decided = columns.chosen >= 0
    reasons = np.bincount(columns.reason[columns.reason >= 0], minlength=len(REASONS)).tolist()
    return Overview(
        steps=n,
        timed_steps=int(timed.sum()),
        span_s=sum(spans) if spans else None,
        busy_s=busy,
        tokens=int(columns.tokens.sum()),
        tokens_per_s=tokens / busy if busy > 0.0 else None,
        batch_mean=float(columns.batch.mean()) if n else None,
        batch_median=float(np.median(columns.batch)) if n else None,
        batch_most=int(columns.batch.max()) if n else 0,
        context_mean=float(context.mean()) if len(context) else None,
        played=_counted(columns.k),
        chosen=_counted(columns.chosen[decided]),
        reasons=[Counted(reason.value, count) for reason, count in zip(REASONS, reasons, strict=True) if count],
        switches=int(np.sum((np.diff(columns.k) != 0) & (np.diff(columns.source) == 0))) if n else 0,
        differing=int(np.sum(decided & (columns.chosen != columns.k))),
    )


def described(facts: SourceFacts, columns: Columns, steered: Bools) -> Source:
    """One file in words and figures; ``columns`` are its own, ``steered`` the steps in which adaptk's K was played."""
    header = facts.header
    decided = columns.chosen >= 0
    clock = _clock(columns)
    span = float(clock[-1] - clock[0]) / 1000.0 + _first_ms(columns) / 1000.0 if clock is not None else None
    ks = {k for k, _ in _counted(columns.k)}
    return Source(
        path=facts.path,
        mode=told(steered, decided, header.mode),
        steps=len(columns.k),
        span_s=span,
        schedule=header.schedule,
        arms=list(header.arms) or sorted(ks | {k for k, _ in _counted(columns.chosen[decided])}),
        table=header.table,
        adaptk=header.adaptk,
        vllm=header.vllm,
        setup={name: str(value)[:200] for name, value in header.key.items() if _plain(value)},
        skipped=facts.skipped,
        restarts=facts.restarts,
        clock_back=int(np.sum(np.diff(columns.t_ms[~np.isnan(columns.t_ms)]) < 0)),
    )


def timeline(number: int, columns: Columns, recording: Recording, first: int) -> Timeline:
    """One file over time, in bins of equally many steps; ``first`` is the number of its first step among all."""
    n = len(columns.k)
    clock = _clock(columns)
    ks = sorted({*recording.arms, *(k for k, _ in _counted(columns.k))})
    ends = (_filled(clock) - clock[0] + _first_ms(columns) if clock is not None else _busy(columns)) / 1000.0
    starts = np.maximum(ends - np.nan_to_num(columns.ms) / 1000.0, 0.0)
    count = min(BINS, max(n // _LEAST_IN_BIN, 1)) if n else 0
    edges = np.linspace(0, n, count + 1).astype(int)
    bins = [_bin(columns.take(slice(a, b)), float(starts[a]), float(ends[b - 1]), ks)
            for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]  # fmt: skip
    alarms = [
        Alarm(step=alarm.step - first, at_s=float(ends[min(alarm.step - first, n - 1)]), kind=alarm.kind)
        for alarm in recording.alarms
        if first <= alarm.step < first + n
    ]
    return Timeline(source=number, clock=clock is not None, ks=ks, bins=bins, alarms=alarms)


def time_shares(parts: list[Columns]) -> list[TimeShare]:
    """Where the time of all files went."""
    sums = {kind: [0, 0.0] for kind in _KINDS}
    for columns in parts:
        timed = ~np.isnan(columns.ms)
        decodes, prompt = columns.decodes > 0, columns.prefill > 0
        waited = timed & columns.waited
        for kind, which in {
            "decode": timed & decodes & ~prompt & ~waited,
            "mixed": timed & decodes & prompt & ~waited,
            "prefill": timed & ~decodes & ~waited,
            "waited": waited,
        }.items():
            sums[kind][0] += int(which.sum())
            sums[kind][1] += float(columns.ms[which].sum())
        untimed, idle, pauses = _unseen(columns)
        sums["untimed"][0] += int((~timed).sum())
        sums["untimed"][1] += untimed
        sums["idle"][0] += pauses
        sums["idle"][1] += idle
    total = sum(ms for _, ms in sums.values()) or 1.0
    return [
        TimeShare(kind=kind, label=_KINDS[kind], steps=int(steps), seconds=ms / 1000.0, share=ms / total)
        for kind, (steps, ms) in sums.items()
        if steps or ms
    ]


_KINDS = {
    "decode": "decoding alone",
    "mixed": "decoding and prompts",
    "prefill": "prompts alone",
    "waited": "waited for a grammar",
    "untimed": "steps without a time",
    "idle": "idle between steps",
}


def _bin(columns: Columns, start: float, end: float, ks: list[int]) -> Bin:
    timed = ~np.isnan(columns.ms)
    return Bin(
        start_s=start,
        end_s=max(start, end),
        steps=len(columns.k),
        batch_mean=float(columns.batch.mean()),
        batch_most=int(columns.batch.max()),
        played=[int(np.sum(columns.k == k)) for k in ks],
        chosen=[int(np.sum(columns.chosen == k)) for k in ks],
        tokens=int(columns.tokens[timed].sum()),
        busy_s=float(columns.ms[timed].sum()) / 1000.0,
        prefill_tokens=int(columns.prefill.sum()),
        reached=columns.reached.sum(axis=0).tolist(),
        accepted=columns.succeeded.sum(axis=0).tolist(),
    )


def _clock(columns: Columns) -> Floats | None:
    """The steps' clock, milliseconds, if there is one that never goes back."""
    known = columns.t_ms[~np.isnan(columns.t_ms)]
    if len(known) < max(1, len(columns.t_ms) // 2) or np.isnan(columns.t_ms[0]) or np.isnan(columns.t_ms[-1]):
        return None
    return None if (np.diff(known) < 0.0).any() else columns.t_ms


def _filled(clock: Floats) -> Floats:
    """The clock, with what is missing from the steps around it."""
    known = ~np.isnan(clock)
    return np.asarray(np.interp(np.arange(len(clock)), np.flatnonzero(known), clock[known]))


def _busy(columns: Columns) -> Floats:
    return np.cumsum(np.nan_to_num(columns.ms))


def _first_ms(columns: Columns) -> float:
    return 0.0 if math.isnan(columns.ms[0]) else float(columns.ms[0])


def _unseen(columns: Columns) -> tuple[float, float, int]:
    """Milliseconds of the steps without a time, those between steps, and how many pauses these were."""
    clock = _clock(columns) if len(columns.k) else None
    if clock is None or len(clock) < 2:
        return 0.0, 0.0, 0
    gaps = np.diff(_filled(clock))
    taken = columns.ms[1:]
    timed = ~np.isnan(taken)
    usual = float(np.median(taken[timed])) if timed.any() else math.inf
    untimed = np.minimum(gaps[~timed], _PAUSE * usual)
    rest = np.concatenate([np.maximum(gaps[timed] - taken[timed], 0.0), gaps[~timed] - untimed])
    return float(untimed.sum()), float(rest.sum()), int(np.sum(rest > _LEAST_PAUSE))


def _counted(values: Ints) -> list[tuple[int, int]]:
    ks, counts = np.unique(values, return_counts=True)
    return list(zip(ks.tolist(), counts.tolist(), strict=True))


def _plain(value: object) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)
