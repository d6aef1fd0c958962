"""How many drafts were accepted, by position: over the whole, and over time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from adaptk.htmlpage import table
from adaptk.report.findings import Findings, Position, Timeline
from adaptk.report.page.overtime import lines_over_time
from adaptk.report.page.parts import said, section
from adaptk.report.page.stretches import axis_of, joined, with_charts
from adaptk.report.page.svg import Chart
from adaptk.report.words import count, ratio, ratio_interval

_MOST_LINES = 8
_MOST_POINTS = 60
_DRAFTS_A_POINT = 100


def acceptance(findings: Findings) -> str:
    """How many drafts were accepted, by position, over the whole and over time."""
    known = [each for each in findings.acceptance if each.reached or each.believed is not None]
    if not known:
        return ""
    return section(
        "acceptance",
        "Acceptance by position",
        [
            said("Share of drafts accepted at each position, given that all before it were accepted: this does not "
                 "depend on K."),
            with_charts([_positions(known)], findings, _acceptance_chart),
        ],
    )  # fmt: skip


def _acceptance_chart(line: Timeline) -> Chart | None:
    drafts = sum(each.reached[0] for each in line.bins if each.reached)
    stretches = joined(line.bins, min(_MOST_POINTS, max(drafts // _DRAFTS_A_POINT, 1)))
    positions = max((len(each.reached) for each in stretches), default=0)
    series = []
    for j in range(min(positions, _MOST_LINES)):
        values = [
            each.accepted[j] / each.reached[j] if j < len(each.reached) and each.reached[j] >= 20 else math.nan
            for each in stretches
        ]
        if not all(map(math.isnan, values)):
            series.append((f"position {j + 1}", values))
    if not series or len(stretches) < 2:
        return None
    scale, axis = axis_of(stretches, line.clock)
    at = [(each.start_s + each.end_s) / 2.0 / scale for each in stretches]
    some = ", where there are enough drafts" if positions > len(series) else ""
    return lines_over_time(at, series, axis, "share accepted", f"Acceptance by position over time{some}.")


def _positions(known: Sequence[Position]) -> str:
    head = ["position", "drafts", "accepted, 90 % interval", "believed at the end", "table"]
    rows = [
        [
            str(each.position),
            count(each.reached),
            ratio_interval(each.ratio),
            ratio_interval(each.believed),
            ratio(each.table),
        ]
        for each in known
    ]
    tabled = any(each.table is not None for each in known)
    return table(head if tabled else head[:-1], [row if tabled else row[:-1] for row in rows])
