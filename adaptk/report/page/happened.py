"""What happened: the load and K over time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from adaptk.htmlpage import escaped, table
from adaptk.report.findings import Alarm, Bin, Findings, Overview, Timeline
from adaptk.report.page.overtime import Load, Panel, over_time
from adaptk.report.page.parts import listed, section
from adaptk.report.page.stretches import axis_of, joined, with_charts
from adaptk.report.page.svg import Chart
from adaptk.report.words import count, duration, plain, plural, share

_MOST_STRETCHES = 240
_MOST_ALARMS = 6  # that are told one by one


def happened(findings: Findings) -> str:
    """Load, K and speed over time, in words and charts."""
    if not findings.overview.steps:
        return ""
    words = [_words(findings.overview), _by_k(findings.overview), *_noticed(findings)]
    return section("happened", "What happened", [with_charts(words, findings, _load_chart)])


def _words(seen: Overview) -> str:
    reasons = ", ".join(f"{escaped(each.what)} {count(each.number)}" for each in seen.reasons if each.number)
    context = "" if seen.context_mean is None else f" of {plain(seen.context_mean)} tokens on average"
    sentences = [
        f"{plural(seen.steps, 'step')} in {duration(seen.busy_s)} of work emitted {plural(seen.tokens, 'token')}, "
        f"at a median of {plain(seen.batch_median)} requests{context}. K changed {plural(seen.switches, 'time')}.",
    ]
    if seen.differing:
        sentences.append(f"adaptk would have used another K in {plural(seen.differing, 'step')}.")
    if reasons:
        sentences.append(f"Reasons of its decisions, in steps: {reasons}.")
    return f"<p>{' '.join(sentences)}</p>"


def _by_k(seen: Overview) -> str:
    """Steps by K: used, and chosen where adaptk chose at all."""
    played, chosen = dict(seen.played), dict(seen.chosen)
    head = ["K", "steps in which it was used", "share", "in which adaptk chose it"]
    rows = [
        [str(k), count(played.get(k, 0)), share(played.get(k, 0) / max(sum(played.values()), 1)),
         count(chosen.get(k, 0))]
        for k in sorted({*played, *chosen})
    ]  # fmt: skip
    told = any(chosen.values())
    return table(head if told else head[:-1], [row if told else row[:-1] for row in rows]) if rows else ""


def _noticed(findings: Findings) -> list[str]:
    """The alarms one by one, or in a sentence for each kind where there are many."""
    told = []
    for line in findings.timelines:
        where = f" in {findings.sources[line.source].path}" if len(findings.timelines) > 1 else ""
        if len(line.alarms) <= _MOST_ALARMS:
            told += [f"After {duration(alarm.at_s)}: {_change(alarm)}{where}." for alarm in line.alarms]
            continue
        for kind in dict.fromkeys(alarm.kind for alarm in line.alarms):
            those = [alarm for alarm in line.alarms if alarm.kind == kind]
            ends = f"first after {duration(those[0].at_s)}, last after {duration(those[-1].at_s)}"
            told.append(f"{_change(those[0]).capitalize()} {plural(len(those), 'time')}{where}: {ends}.")
    return ["<h3>Changes that were noticed</h3>", listed(told)] if told else []


def _change(alarm: Alarm) -> str:
    return {"acceptance": "acceptance changed", "time": "step times changed"}.get(alarm.kind, alarm.kind)


def _load_chart(line: Timeline) -> Chart | None:
    stretches = joined(line.bins, _MOST_STRETCHES)
    if not stretches:
        return None
    scale, axis = axis_of(stretches, line.clock)
    load = Load(
        edges=[*(each.start_s / scale for each in stretches), stretches[-1].end_s / scale],
        batch=[each.batch_mean if each.steps else math.nan for each in stretches],
        most=[each.batch_most if each.steps else math.nan for each in stretches],
        speed=[_or_nan(each.tokens_per_s) for each in stretches],
    )
    panels = [Panel("K that the engine used", _shares(line.ks, stretches, [each.played for each in stretches]))]
    if any(each.played != each.chosen and sum(each.chosen) for each in stretches):
        chosen = [each.chosen for each in stretches]
        panels.append(Panel("K that adaptk chose", _shares(line.ks, stretches, chosen)))
    marks = [(alarm.at_s / scale, _change(alarm)) for alarm in line.alarms]
    return over_time(load, panels, axis, marks if len(marks) <= _MOST_ALARMS else ())


def _shares(ks: Sequence[int], stretches: Sequence[Bin], counts: Sequence[Sequence[int]]) -> dict[int, Sequence[float]]:
    totals = [max(sum(of), 1) for of in counts]
    shares = {k: [of[i] / total for of, total in zip(counts, totals, strict=True)] for i, k in enumerate(ks)}
    return {k: of for k, of in shares.items() if any(of)}


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
