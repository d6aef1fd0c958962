"""What the timing commands make of what they measured: orders, ratios, intervals and lines. No engine is started."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from adaptk.report.findings import RangeAdvice
from tests.benchmarks import presence, report_advice, serve_load
from tests.benchmarks.pairs import ratio
from tests.benchmarks.presence_engine import Job, Turn
from tests.report.made_up import made_up


def test_turns_alternate_and_stay_paired() -> None:
    """Each job is done by both, one after the other; who goes first alternates; warm turns are not kept."""
    done: list[tuple[str, int]] = []

    def by(name: str, seconds: float) -> Turn:
        done.append((name, len(done)))
        return Turn(seconds, 60, 0.0, seconds)

    jobs = [Job(seed, 8, 8) for seed in range(7)]
    pairs = presence.take_turns(jobs, lambda job: by("on", 2.0), lambda job: by("off", 1.0))
    assert [name for name, _ in done[:6]] == ["on", "off", "off", "on", "on", "off"]
    assert len(pairs) == 7 - presence.WARM
    assert {(on.seconds, off.seconds) for on, off in pairs} == {(2.0, 1.0)}


def test_intervals_of_a_ratio_hold_the_truth_as_often_as_they_say() -> None:
    """300 times 30 pairs on a drifting machine with stalls: the median's interval, whose noise is symmetric in the log.

    An interval by order statistics covers at least what is asked for.
    """
    rng, hits, means = np.random.default_rng(1), 0, 0
    for _ in range(300):
        drift = np.exp(0.1 * rng.standard_normal(30).cumsum())
        noise = np.exp(0.01 * rng.standard_normal((2, 30)) + 0.5 * (rng.random((2, 30)) < 0.05))
        found = ratio((0.995 * drift * noise[0]).tolist(), (drift * noise[1]).tolist())
        hits += found.low <= 0.995 <= found.high
        means += found.mean_low <= 0.995 <= found.mean_high
    assert hits / 300 > 0.95 - 3 * math.sqrt(0.05 * 0.95 / 300)
    assert means / 300 > 0.95 - 3 * math.sqrt(0.05 * 0.95 / 300)


@pytest.mark.parametrize(
    ("low", "high", "said"), [(0.992, 1.001, "is below 1%"), (0.97, 0.985, "is above 1%"), (0.985, 0.999, "is open")]
)
def test_the_verdict_goes_by_the_interval(low: float, high: float, said: str) -> None:
    """Not by the middle."""
    middle = (low + high) / 2
    assert said in presence._verdict(ratio([1.0], [1.0])._replace(low=low, high=high, median=middle))


def test_stages_rise_and_fall_and_servers_alternate() -> None:
    """Both servers at each stage, with the same prompts; enough requests to fill it."""
    asked = []

    class Bench:
        def run(self, address: str, adaptk: str, at_once: int, requests: int, seed: int) -> serve_load.Stage:
            asked.append((address, at_once, requests, seed))
            return serve_load.Stage(at_once, adaptk, 1.0, 64.0, 20.0, 30.0, None, 0)

    servers = {"on": "a", "off": "b"}
    rows = list(serve_load.stages(Bench(), servers, rounds=1, quick=False))  # type: ignore[arg-type]
    assert [row.at_once for row in rows[::2]] == list(serve_load.STAGES)
    assert [row.adaptk for row in rows[:4]] == ["off", "on", "on", "off"]
    for one, other in zip(asked[::2], asked[1::2], strict=True):
        assert one[1:] == other[1:]
        assert one[2] >= one[1]


def test_what_is_said_of_a_load() -> None:
    """Lines of at most 80 columns, and on over off of each figure."""
    off = serve_load.Stage(32, "off", 2.0, 128.0, 200.0, 400.0, 0.31, 0)
    on = off._replace(adaptk="on", requests_per_s=2.2, tokens_per_s=140.8, tpot_ms=180.0, accepted=None)
    assert serve_load.line(off).split() == ["32", "off", "2.000", "128.0", "200.0", "400.0", "31", "%"]
    assert max(len(serve_load.line(row)) for row in (on, off)) <= 80
    said = serve_load.compared([on, off, off, on])
    assert "requests_per_s, on over off: 1.100 [1.100,1.100]" in said
    assert "tpot_ms, on over off: 0.900 [0.900,0.900]" in said


def test_prompts_are_many_and_of_the_length_that_is_taken() -> None:
    """More than the largest stage asks for, so that none need come twice in it."""
    found = serve_load.prompts()
    assert len(found) == len({*found}) >= 3 * max(serve_load.STAGES)


@pytest.mark.parametrize("part", report_advice.STEPS)
def test_advice_is_held_against_the_truth(part: str) -> None:
    """One short trace of each part goes through; a line says how it fared in at most 100 columns."""
    outcome = report_advice.tried(next(report_advice.cases(part, 1, 300)))
    assert 0 <= outcome.held <= outcome.intervals
    assert len(report_advice.line(part, [outcome])) <= 100


def test_a_false_advice_is_counted() -> None:
    """Held against a world in which nothing can be saved, each range that is to be changed is false."""
    range_ = msgspec.convert(
        {"first": 1, "last": 8, "k_now": 3, "k_new": 1, "k_best": 1, "verdict": "change", "probability": 0.99}
        | {"gain": {"value": 0.1, "low": 0.05, "high": 0.15}, "basis_now": "measured", "basis_best": "measured"}
        | {"most_lost": None, "steps": 300, "time_share": 1.0},
        RangeAdvice,
    )
    findings = made_up()
    findings = msgspec.structs.replace(findings, advice=msgspec.structs.replace(findings.advice, ranges=[range_]))
    outcome = report_advice.against(next(report_advice.cases("wandering", 1)), findings, None)
    assert (outcome.advised, outcome.slower, outcome.intervals, outcome.held) == (1, (0.0,), 1, 0)
