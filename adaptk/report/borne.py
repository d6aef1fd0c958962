"""Whether the simulation bears out what the headline says, in sentences."""

from __future__ import annotations

from adaptk.report.findings import Findings, Interval, PolicyValue
from adaptk.report.words import signed_interval

OPERATORS, ADVISED, ORACLE = "schedule", "advised", "oracle"
_AT_LEAST = 0.005  # of the speed: less is no difference
_SEEN = 1e-4  # of the speed: less is equal in a table
_RIGHT = 0.02  # what a schedule that is called right may lose


def doubts(findings: Findings) -> list[str]:
    """Where the simulation says the contrary of the verdict; empty where it agrees, or there is none.

    A change is not borne out where the advised schedule is not faster than the operator's there; a schedule that loses
    little, where another policy that can be had is faster than that, its whole interval above the operator's.
    """
    told = _told(findings)
    own = told.get(OPERATORS)
    if own is None:
        return []
    advice = findings.advice
    if advice.verdict == "change":
        advised = told.get(ADVISED)
        if advised is None or advised.value > own.value * (1.0 + _AT_LEAST):
            return []
        how = "slower" if advised.value < own.value * (1.0 - _AT_LEAST) else "no faster"
        against = f"{_change(advised)} against what was recorded, yours {_change(own)}"
        return [
            f"The simulation does not bear this out: there the advised schedule is {how} than yours ({against}). "
            "Try it on a part of the traffic first."
        ]
    bounds = [each.most_lost for each in advice.ranges if each.most_lost is not None]
    if not bounds:  # nothing is claimed
        return []
    others = {name: over for name, over in told.items() if name not in (OPERATORS, ADVISED, ORACLE, "recorded")}
    limit = max(_RIGHT, *bounds)
    faster = {
        name: over for name, over in others.items()
        if over.low > own.high and 1.0 - own.value / over.value > limit
    }  # fmt: skip
    if not faster:
        return []
    best = max(faster, key=lambda name: faster[name].value)
    return [
        f"The simulation does not bear this out: there {best} is faster than your schedule ({_change(faster[best])} "
        f"against what was recorded, yours {_change(own)})."
    ]


def beyond_oracle(values: list[PolicyValue]) -> str:
    """What is to be said where a policy is faster than the oracle; empty where none is."""
    speeds = {each.policy: each.over_recorded for each in values if each.over_recorded is not None}
    oracle = speeds.get(ORACLE)
    if oracle is None:
        return ""
    faster = [name for name, over in speeds.items() if over.value > oracle.value * (1.0 + _SEEN)]
    if not faster:
        return ""
    clear = [name for name in faster if speeds[name].low > oracle.high]
    names = ", ".join(faster)
    if clear:
        why = "it looks one step ahead, and K also decides which requests meet in later steps"
    else:
        why = "the intervals overlap, so that it may be chance; or K decides which requests meet in later steps"
    return f"Faster than the oracle here: {names}. {why[0].upper()}{why[1:]}."


def _told(findings: Findings) -> dict[str, Interval]:
    if findings.simulation is None:
        return {}
    return {
        each.policy: each.over_recorded
        for each in findings.simulation.policies
        if each.over_recorded is not None
    }  # fmt: skip


def _change(over: Interval) -> str:
    return signed_interval(Interval(over.value - 1.0, over.low - 1.0, over.high - 1.0))
