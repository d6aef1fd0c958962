"""Whether a simulation bears the headline out."""

from __future__ import annotations

import msgspec
import pytest

from adaptk.report.borne import beyond_oracle, doubts
from adaptk.report.findings import Findings, Interval, PolicyValue, Simulation, Verdict
from tests.report.made_up import made_up

change = msgspec.structs.replace


def value(policy: str, over: float, wide: float = 0.003) -> PolicyValue:
    around = Interval(over, over - wide, over + wide)
    return PolicyValue(policy=policy, about="", tokens_per_s=around, over_recorded=around)


def simulated(verdict: Verdict = "change", most_lost: float | None = 0.004, **speeds: float) -> Findings:
    """Findings of one range whose simulation has these speeds, over what was recorded."""
    made = made_up(4)
    ranges = [change(made.advice.ranges[0], most_lost=most_lost)]
    values = [value(name.replace("_", "-"), over) for name, over in speeds.items()]
    simulation = Simulation(steps=1, seeds=2, measured_tokens_per_s=1.0, policies=values, notes=[])
    return change(made, advice=change(made.advice, verdict=verdict, ranges=ranges), simulation=simulation)


@pytest.mark.parametrize(
    ("advised", "told"),
    [(0.95, "is slower than yours (-5.0 %"), (1.001, "is no faster than yours (+0.1 %"), (1.02, "")],
)
def test_a_change_must_be_faster_there_too(advised: float, told: str) -> None:
    said = doubts(simulated(schedule=1.0, advised=advised))
    assert len(said) == bool(told)
    assert told in "".join(said)


def test_where_nothing_can_be_compared_nothing_is_doubted() -> None:
    """No simulation, one without the two schedules, or a verdict that claims nothing."""
    assert doubts(change(made_up(4), simulation=None)) == []
    assert doubts(simulated(advised=0.5)) == []
    assert doubts(simulated(schedule=1.0)) == []
    assert doubts(simulated("undecided", None, schedule=1.0, fixed_0=2.0)) == []


@pytest.mark.parametrize("verdict", ["keep", "undecided"])
def test_a_bound_on_the_loss_must_hold_there_too(verdict: Verdict) -> None:
    """The fastest policy that can be had counts, not the oracle, nor what was recorded."""
    said = doubts(simulated(verdict, schedule=1.0, fixed_0=1.1, fixed_1=1.2, oracle=1.5, recorded=1.4))
    assert said == [
        "The simulation does not bear this out: there fixed-1 is faster than your schedule (+20.0 % [+19.7, +20.3] "
        "against what was recorded, yours 0.0 % [-0.3, +0.3])."
    ]
    assert doubts(simulated(verdict, schedule=1.0, fixed_0=1.015, oracle=1.5)) == []
    assert doubts(simulated(verdict, 0.3, schedule=1.0, fixed_0=1.2)) == []


def test_an_oracle_that_is_beaten_is_remarked() -> None:
    """Whether by chance or not, and not where the two are equal."""
    oracle = value("oracle", 1.0)
    assert beyond_oracle([oracle, value("fixed-1", 1.0), value("fixed-3", 0.9)]) == ""
    assert beyond_oracle([value("fixed-1", 1.0)]) == ""
    assert "fixed-1. It looks one step ahead" in beyond_oracle([oracle, value("fixed-1", 1.1)])
    assert "fixed-1. The intervals overlap" in beyond_oracle([oracle, value("fixed-1", 1.004)])
