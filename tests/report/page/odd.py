"""Findings that are hard to show, and some that are drawn at once."""

from __future__ import annotations

from typing import Any

import msgspec

from adaptk.report.findings import Advice, Findings, Interval, Overview, PolicyValue, Simulation
from tests.report.made_up import made_up

change = msgspec.structs.replace
HOSTILE = "</title><script>alert(1)</script>\"'>\u202etxt.\x00\ud800 $x$ " + "very-long-name" * 40


def undrawn(**changes: Any) -> Findings:
    """Findings without what takes time to draw."""
    made = made_up()
    advice = change(made.advice, ranges=[])
    return change(made, **{"advice": advice, "timelines": [], "off_policy": [], "simulation": None, **changes})


def empty() -> Findings:
    """What is found in a trace without a row."""
    advice = Advice(
        verdict="nothing", sentence="The trace has no steps.", schedule_now=[], schedule_now_is="", schedule_new=None,
        paste="", paste_json="", gain=None, loss=None, ranges=[], rests_on=[], caveats=[], next_steps=["Record one."],
    )  # fmt: skip
    overview = Overview(
        steps=0, timed_steps=0, span_s=None, busy_s=0.0, tokens=0, tokens_per_s=None, batch_mean=None,
        batch_median=None, batch_most=0, context_mean=None, played=[], chosen=[], reasons=[], switches=0, differing=0,
    )  # fmt: skip
    return Findings(
        adaptk="0.1.0", sources=[], advice=advice, overview=overview, timelines=[], time=[], acceptance=[], dropped=[],
        cells=[], off_policy=[], simulation=None, notes=[],
    )  # fmt: skip


def hostile() -> Findings:
    """Findings in which all text that may come from a file or a user is made to break out."""
    made = made_up()
    source = change(
        made.sources[0], path=f"/tmp/{HOSTILE}", table=HOSTILE, mode=HOSTILE, adaptk=HOSTILE, vllm=HOSTILE,
        setup={HOSTILE: HOSTILE, "model": "מודל"},
    )  # fmt: skip
    advice = change(
        made.advice, sentence=HOSTILE, paste=HOSTILE, paste_json=HOSTILE, rests_on=[HOSTILE], caveats=[HOSTILE],
        next_steps=[HOSTILE], schedule_now_is=HOSTILE,
        ranges=[change(made.advice.ranges[0], note=HOSTILE), *made.advice.ranges[1:]],
    )  # fmt: skip
    value = PolicyValue(policy=HOSTILE, about=HOSTILE, tokens_per_s=Interval(1.0, 0.9, 1.1),
                        over_recorded=Interval(1.0, 0.9, 1.1))  # fmt: skip
    simulation = Simulation(steps=1, seeds=1, measured_tokens_per_s=None, policies=[value, value], notes=[HOSTILE],
                            reason=HOSTILE)  # fmt: skip
    return change(
        made, adaptk=HOSTILE, sources=[source], advice=advice, simulation=simulation, off_policy=[value],
        notes=[HOSTILE], dropped=[change(made.dropped[0], what=HOSTILE)],
        time=[change(made.time[0], label=HOSTILE)],
    )  # fmt: skip
