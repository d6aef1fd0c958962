"""The first screen: the verdict, what to paste, and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence

from adaptk.htmlpage import escaped, outside
from adaptk.report.borne import doubts
from adaptk.report.findings import Advice, Findings
from adaptk.report.page.parts import listed, pasted, said, sentence
from adaptk.report.words import NONE, count, duration, goes_on, plain, shortened, signed_interval

BADGES = {
    "change": "Change the schedule",
    "keep": "Keep the schedule",
    "undecided": "Not decided",
    "nothing": "Nothing to judge",
}


def top(findings: Findings) -> list[str]:
    """Everything above the first section."""
    advice = findings.advice
    return [
        f"<header>{kicker(findings)}</header>",
        *([said("Interrupted: this is what was found until then.", "warn")] if findings.cut_short else ()),
        f'<div class="verdict {advice.verdict}"><p class="badge">{BADGES[advice.verdict]}</p>',
        f"<h1>{sentence(advice.sentence)}</h1>",
        *_gain(advice),
        *map(_doubt, doubts(findings)),
        *_paste(advice),
        "</div>",
        _tiles(findings),
        '<div class="top">',
        listed(advice.next_steps, "What to do next"),
        listed(advice.rests_on, "What this rests on"),
        listed(advice.caveats, "To be kept in mind"),
        "</div>",
    ]


def kicker(findings: Findings) -> str:
    """Which recording this is about."""
    names = [outside(_short(source.path)) for source in findings.sources]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    modes = ", ".join(sorted({source.mode for source in findings.sources if source.mode}))
    mode = f" · recorded in mode {outside(shortened(modes, 30))}" if modes else ""
    return f'<p class="kicker quiet">adaptk report · {shown or "no trace"}{mode}</p>'


def _short(path: str) -> str:
    """The end of a path, without what would fill the screen."""
    return shortened(path.rstrip("/").rpartition("/")[2] or path, 60)


def _gain(advice: Advice) -> list[str]:
    if advice.gain is None or advice.schedule_new is None:
        return []
    return [
        f"<p><strong>{signed_interval(advice.gain)}</strong> tokens per second over all that was recorded, with the "
        "schedule below (90 % interval).</p>"
    ]


def _doubt(doubt: str) -> str:
    what, _, how = doubt.partition(": ")
    return f'<p class="doubt"><strong>{sentence(what)}:</strong> {sentence(how)}</p>'


def _paste(advice: Advice) -> list[str]:
    """The new schedule to copy; where there is none, the one in use."""
    if advice.schedule_new is not None:
        given = f"<p>Paste this into <code>--speculative-config</code>:</p>{pasted(advice.paste)}"
        return [given, _above(advice.schedule_new)]
    if not advice.schedule_now:
        return []
    tiers = ", ".join(f"[{lo}, {hi}, {k}]" for lo, hi, k in advice.schedule_now)
    return [f"<p>In use: {outside(advice.schedule_now_is)}</p>{pasted(f'[{tiers}]')}", _above(advice.schedule_now)]


def _above(schedule: Sequence[Sequence[int]]) -> str:
    said_so = goes_on(schedule)
    return said(f"{said_so[0].upper()}{said_so[1:]}.", "quiet small")


def _tiles(findings: Findings) -> str:
    """Key figures, each with a smaller one below."""
    seen = findings.overview
    span = duration(seen.span_s) if seen.span_s is not None else duration(seen.busy_s)
    tiles = [
        ("Recorded", span, f"{duration(seen.busy_s)} of work" if seen.span_s is not None else "of work"),
        ("Steps", count(seen.steps), f"{count(seen.timed_steps)} with a time"),
        ("Speed", NONE if seen.tokens_per_s is None else f"{plain(seen.tokens_per_s)} tok/s", "of all requests"),
        ("Requests per step", plain(seen.batch_mean), f"{count(seen.batch_most)} at most"),
    ]
    shown = "".join(
        f"<div><dt>{name}</dt><dd>{escaped(value)}</dd><dd>{escaped(more)}</dd></div>" for name, value, more in tiles
    )
    return f'<dl class="tiles">{shown}</dl>'
