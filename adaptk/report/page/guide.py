"""What was recorded, and how to read the page."""

from __future__ import annotations

from collections.abc import Sequence

from adaptk.htmlpage import escaped, outside
from adaptk.report.findings import Findings, Source
from adaptk.report.page.parts import listed, section
from adaptk.report.words import count, duration, shortened

_MOST_SOURCES = 16
_LONGEST = 300  # of a fact, in characters
TERMS = (
    ("K", "Drafts that a step asks for per request. K=0: no drafts, though the drafter is loaded."),
    ("Speed, gain", "Tokens per second of all requests together. A gain of 6 % means 6 % more of them in the same "
                    "time; a schedule that loses 6 % has 6 % fewer than it could have."),
    ("90 % interval", "The true value lies between the two bounds with a probability of 90 %, if the model of step "
                      "times and acceptance holds. A change is advised only where the whole interval speaks for it."),
    ("Step time", "Wall time of a whole step, milliseconds: the inter-token latency of a request that decodes in it."),
    ("Acceptance length", "Tokens that a request gains in a step on average, the one that needs no draft included."),
    ("What step times rest on", "Measured: steps of that K at these batch sizes. Nearby: steps of that K at other "
                                "batch sizes. Table: the seed table, corrected by what was seen at other K. A guess: a "
                                "general rule of how step times grow, which is no ground for advice."),
    ("Recorded", "What the engine really did. In mode shadow adaptk decides and records, but the engine goes on as if "
                 "it were not there."),
    ("Simulation", "An engine and a load made from this trace. It says what would be likely, not what was measured."),
    ("Oracle", "A policy that is told step times and chances of acceptance before each step, and plays the K that "
               "they make fastest. It looks one step ahead: another policy may be faster by luck, or by what K does to "
               "later steps; the page says so where one is."),
)  # fmt: skip


def recording(findings: Findings) -> str:
    """Where the figures come from."""
    shown = "".join(map(_source, findings.sources[:_MOST_SOURCES]))
    more = len(findings.sources) - _MOST_SOURCES
    rest = f"<p>And {more} traces more.</p>" if more > 0 else ""
    return section("recording", "The recording", [shown, rest, listed(findings.notes)])


def guide() -> str:
    """The terms."""
    terms = "".join(f"<dt>{escaped(name)}</dt><dd>{escaped(about)}</dd>" for name, about in TERMS)
    return section("guide", "How to read this", [f"<dl>{terms}</dl>"])


def _source(source: Source) -> str:
    facts: list[tuple[str, str]] = [
        ("trace", source.path),
        ("mode", source.mode or "not recorded"),
        ("length", f"{count(source.steps)} steps, {duration(source.span_s)}"),
        ("versions", f"adaptk {source.adaptk or 'unknown'}, vLLM {source.vllm or 'unknown'}"),
        ("K to choose among", ", ".join(map(str, source.arms)) or "not recorded"),
        ("your schedule", _tiers(source.schedule)),
        ("seed table", source.table or "none"),
        *source.setup.items(),
        *_troubles(source),
    ]
    pairs = "".join(
        f"<dt>{outside(shortened(name, 60))}</dt><dd>{outside(shortened(value, _LONGEST))}</dd>"
        for name, value in facts
    )
    return f'<dl class="setup">{pairs}</dl>'


def _tiers(schedule: Sequence[Sequence[int]] | None) -> str:
    if not schedule:
        return "none"
    return ", ".join(f"K={k} at {lo} to {hi}" for lo, hi, k in schedule)


def _troubles(source: Source) -> list[tuple[str, str]]:
    found = [
        ("lines that could not be read", source.skipped),
        ("restarts within it", source.restarts),
        ("times the clock went back", source.clock_back),
    ]
    return [(name, count(number)) for name, number in found if number]
