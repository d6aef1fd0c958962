"""What would change, range by range of batch sizes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from adaptk.htmlpage import table
from adaptk.report.findings import Advice, RangeAdvice
from adaptk.report.page.charts import Bar, forest, schedules
from adaptk.report.page.parts import figures, pasted, said, section
from adaptk.report.page.svg import Chart
from adaptk.report.words import BASES, VERDICTS, batches, gained, share

_HUES = {"change": "orange", "keep": "green", "undecided": "grey", "nothing": "grey"}
_MOST_BARS = 14


def change(advice: Advice) -> str:
    """The section; empty where nothing is known of any range."""
    if not advice.ranges:
        return ""
    return section(
        "change",
        "By batch size",
        [
            said("Gain of the K believed best over the present one, over the steps recorded at these batch sizes, "
                 "prompts included. A batch counts all requests of a step, as vLLM's schedule does."),
            _table(advice.ranges),
            _remarks(advice.ranges),
            figures(_charts(advice)),
            *_whole(advice),
        ],
    )  # fmt: skip


def _table(ranges: Sequence[RangeAdvice]) -> str:
    head = ["batch", "K", "gain, 90 % interval", "verdict", "time there", "believed best", "probability that it is "
            "faster", "step times from"]  # fmt: skip
    rows = []
    for each in ranges:
        bases = dict.fromkeys([BASES[each.basis_now], BASES[each.basis_best]])
        rows.append([
            batches(each.first, each.last),
            str(each.k_now) if each.k_new == each.k_now else f"{each.k_now} → {each.k_new}",
            gained(each),
            VERDICTS[each.verdict],
            share(each.time_share),
            f"K={each.k_best}",
            share(each.probability),
            " / ".join(bases),
        ])  # fmt: skip
    return table(head, rows)


def _remarks(ranges: Sequence[RangeAdvice]) -> str:
    """Each remark once, behind the batch sizes that it is of."""
    of: dict[str, list[str]] = {}
    for each in ranges:
        if each.note:
            of.setdefault(each.note, []).append(batches(each.first, each.last))
    return said(" ".join(f"{', '.join(where)}: {note}" for note, where in of.items()), "quiet small") if of else ""


def _charts(advice: Advice) -> list[Chart]:
    tiers = [("now", advice.schedule_now)] if advice.schedule_now else []
    if advice.schedule_new is not None:
        tiers.append(("advised", advice.schedule_new))
    weights = [(each.first, each.last, each.time_share) for each in advice.ranges]
    ks = {k for _, tier in tiers for _, _, k in tier}
    made = [schedules(tiers, weights)] if len(ks) > 1 else []
    told = [each for each in advice.ranges if each.gain is not None]
    told = sorted(sorted(told, key=lambda each: -each.time_share)[:_MOST_BARS], key=lambda each: each.first)
    bars = []
    for each in told:
        if each.gain is not None:
            name = f"{batches(each.first, each.last)}: K={each.k_now} → {each.k_best}"
            values = (100.0 * each.gain.value, 100.0 * each.gain.low, 100.0 * each.gain.high)
            bars.append(Bar(name, *values, _HUES[each.verdict]))
    if bars:
        about = "Gain by batch size from the K in use to the one believed best, with 90 % intervals."
        made.append(forest(bars, "tokens per second, % more", about, zero=0.0))
    return made


def _whole(advice: Advice) -> list[str]:
    """The option with all that the trace knows; left out for a drafter that is no model.

    That has options of its own, the lengths of an n-gram's match for one, which no trace holds: without them it would
    be another drafter.
    """
    if not advice.paste_json or advice.schedule_new is None or '"model": ' not in advice.paste_json:
        return []
    option = f"--speculative-config {shlex.quote(advice.paste_json)}"
    return [
        "<h3>The whole option, as far as the trace knows it</h3>",
        said("Keep what else your own has.", "quiet small"),
        pasted(option),
    ]
