"""Stretches of a recording as charts take them, and a chart for each trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from adaptk.report.findings import Bin, Findings, Timeline
from adaptk.report.page.parts import beside, figures, said
from adaptk.report.page.svg import Chart
from adaptk.report.words import shortened

MOST_TIMELINES = 8
_UNITS = ((7200.0, 3600.0, "h"), (300.0, 60.0, "min"), (0.0, 1.0, "s"))


def with_charts(parts: Sequence[str], findings: Findings, draw: Callable[[Timeline], Chart | None]) -> str:
    """Words, and a chart for each trace: beside them where there is one trace, else below with its name."""
    lines = findings.timelines
    if len(lines) <= 1:
        return beside(parts, [chart for line in lines if (chart := draw(line)) is not None])
    charts = []
    for line in lines[:MOST_TIMELINES]:
        chart = draw(line)
        if chart is not None:
            name = shortened(findings.sources[line.source].path, 80)
            charts.append(chart._replace(caption=f"{name}: {chart.caption}"))
    left_out = len(lines) - MOST_TIMELINES
    more = said(f"Drawn are {MOST_TIMELINES} of {len(lines)} traces.") if left_out > 0 else ""
    return "".join(parts) + figures(charts) + more


def joined(bins: Sequence[Bin], most: int) -> list[Bin]:
    """Neighbouring stretches put together until there are at most ``most``; a page must not grow with its trace."""
    each = -(-len(bins) // most) if bins else 1
    return list(bins) if each == 1 else [_sum(bins[i : i + each]) for i in range(0, len(bins), each)]


def _sum(bins: Sequence[Bin]) -> Bin:
    steps = sum(one.steps for one in bins)
    return Bin(
        start_s=bins[0].start_s,
        end_s=bins[-1].end_s,
        steps=steps,
        batch_mean=math.fsum(one.batch_mean * one.steps for one in bins) / max(steps, 1),
        batch_most=max(one.batch_most for one in bins),
        played=_added([one.played for one in bins]),
        chosen=_added([one.chosen for one in bins]),
        tokens=sum(one.tokens for one in bins),
        busy_s=math.fsum(one.busy_s for one in bins),
        prefill_tokens=sum(one.prefill_tokens for one in bins),
        reached=_added([one.reached for one in bins]),
        accepted=_added([one.accepted for one in bins]),
    )


def _added(lists: Sequence[Sequence[int]]) -> list[int]:
    return [sum(one[i] for one in lists if i < len(one)) for i in range(max(map(len, lists)))]


def axis_of(stretches: Sequence[Bin], clock: bool) -> tuple[float, str]:
    """Seconds in the axis's unit, and its label."""
    end = stretches[-1].end_s
    scale, unit = next((scale, unit) for least, scale, unit in _UNITS if end >= least or least == 0.0)
    return scale, f"{'time' if clock else 'time of work'}, {unit}"
