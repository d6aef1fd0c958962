"""What ``adaptk report`` says on the terminal: on one screen, 80 columns wide; all the rest stands on the page."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from adaptk.report.borne import doubts
from adaptk.report.findings import Advice, Findings, RangeAdvice
from adaptk.report.words import (
    BASES,
    VERDICTS,
    batches,
    duration,
    gained,
    goes_on,
    plain,
    plural,
    share,
    signed_interval,
)
from adaptk.textlines import WIDTH, Column, Line, table, wrapped

MOST_LINES = 20
_RANGES = 3  # for which room is kept
_FEWEST_RANGES = 2  # below which no table of them is begun, where there are more


def report_lines(findings: Findings, files: Sequence[str] = ()) -> list[Line]:
    """The verdict, what to paste, then as many ranges and words as there is room for.

    Parameters
    ----------
    findings
        What was found.
    files
        A line for each file that was written, which come last.
    """
    advice = findings.advice
    begin = [Line("Interrupted: this is what was found until then.", "title")] if findings.cut_short else []
    begin += [Line(text, "title") for text in wrapped(advice.sentence)]
    begin += [Line(text) for sentence in [*_gain(advice), *doubts(findings)] for text in wrapped(sentence)]
    end = [Line(text) for text in wrapped(_recorded(findings))] + [Line(file) for file in files]
    paste = [Line(""), *_paste(advice)] if advice.schedule_new is not None else []
    room = MOST_LINES - len(begin) - len(paste) - len(end) - 1
    kept = min(len(advice.ranges), _RANGES) + 3  # for a table, with its blank, head, and what it leaves out
    notes = _notes([*advice.next_steps[:1], *advice.caveats], room - kept)
    return [*begin, *_apart(_ranges(advice.ranges, room - len(notes) - 1)), *paste, *_apart([*notes, *end])]


def _notes(sentences: Sequence[str], room: int) -> list[Line]:
    """Those for which there is room."""
    lines: list[Line] = []
    for sentence in sentences:
        first, *rest = textwrap.wrap(sentence, WIDTH - 2, break_on_hyphens=False) or [""]
        if len(lines) + 1 + len(rest) <= room:
            lines += [Line(f"- {first}"), *(Line(f"  {text}") for text in rest)]
    return lines


def _apart(lines: list[Line]) -> list[Line]:
    return [Line(""), *lines] if lines else []


def _gain(advice: Advice) -> list[str]:
    if advice.gain is None or advice.schedule_new is None:
        return []
    return [f"{signed_interval(advice.gain)} tokens per second over all that was recorded (90 % interval)."]


def _paste(advice: Advice) -> list[Line]:
    # JSON may be broken at any blank, here between two ranges: what is pasted stays what it is.
    kept = re.sub(r", (?!\[)", ",\0", advice.paste)
    pieces = [piece.replace("\0", " ") for piece in textwrap.wrap(kept, WIDTH - 2, break_long_words=False)]
    return [
        Line("Paste this into --speculative-config:"),
        *(Line(f"  {piece}", "own") for piece in pieces),
        Line(f"  ({goes_on(advice.schedule_new or [])})"),
    ]


def _ranges(ranges: Sequence[RangeAdvice], room: int) -> list[Line]:
    """A table of at most ``room`` lines: where there are more ranges, of those that took the most time."""
    most = room - 1 - (len(ranges) > room - 1)
    if not ranges or most < min(len(ranges), _FEWEST_RANGES):
        return []
    shown = sorted(sorted(ranges, key=lambda each: -each.time_share)[:most], key=lambda each: each.first)
    columns = [
        Column("K", 7, lambda i: _k(shown[i])),
        Column("best", 4, lambda i: str(shown[i].k_best)),
        Column("gain, 90 %", 20, lambda i: gained(shown[i])),
        Column("time", 7, lambda i: share(shown[i].time_share)),
        Column("verdict", 11, lambda i: VERDICTS[shown[i].verdict]),
        Column("step times from", 17, lambda i: _from(shown[i]), left=True),
    ]
    names = [batches(each.first, each.last) for each in shown]
    left_out = len(ranges) - len(shown)
    more = [Line(f"{plural(left_out, 'more range stands', 'more ranges stand')} in the report.")] if left_out else []
    return [*table(names, columns, of="batch"), *more]


def _k(each: RangeAdvice) -> str:
    return str(each.k_now) if each.k_now == each.k_new else f"{each.k_now} > {each.k_new}"


def _from(each: RangeAdvice) -> str:
    return " / ".join(dict.fromkeys([BASES[each.basis_now], BASES[each.basis_best]]))


def _recorded(findings: Findings) -> str:
    seen = findings.overview
    span = duration(seen.span_s) if seen.span_s is not None else f"{duration(seen.busy_s)} of work"
    speed = "" if seen.tokens_per_s is None else f", {plain(seen.tokens_per_s)} tokens per second"
    of = "" if len(findings.sources) == 1 else f" in {plural(len(findings.sources), 'trace')}"
    return f"Recorded: {plural(seen.steps, 'step')}{of} over {span}{speed}."
