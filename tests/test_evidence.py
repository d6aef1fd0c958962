"""What is believed of a step's record, against the plain definitions."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk import StepRecord
from adaptk.evidence import LONGEST_MS, SHORTEST_MS, delivering, drafter_dead, most_and_sum, step_time, whole_count


def record(elapsed: float | None = 9.0, device: float | None = None, emitted: list[int] | None = None) -> StepRecord:
    drafted = [0] * len(emitted) if emitted else [0]
    return StepRecord(
        batch_size=len(drafted),
        elapsed_ms=elapsed,
        device_ms=device,
        k=0,
        drafted=drafted,
        accepted=drafted,
        emitted=emitted,
    )


@pytest.mark.parametrize(
    ("elapsed", "device", "time", "refused"),
    [
        (9.0, None, 9.0, 0),
        (None, None, None, 0),
        (9.0, 7.0, 7.0, 0),
        (None, 7, 7.0, 0),
        (math.nan, None, None, 1),
        (9.0, math.inf, 9.0, 1),
        (0.0, -1.0, None, 2),
        (-math.inf, 7.0, 7.0, 1),
        (SHORTEST_MS, LONGEST_MS, LONGEST_MS, 0),
        (1e-9, None, None, 1),
        (1e300, None, None, 1),
        (9.0, 5e-324, 9.0, 1),
    ],
)
def test_the_time_of_a_step(elapsed: float | None, device: float | None, time: float | None, refused: int) -> None:
    """The device's is preferred; what is no time, or no step can take, is counted and left out."""
    got = step_time(record(elapsed, device))
    assert got == (time, refused)
    assert got[0] is None or type(got[0]) is float


@given(st.lists(st.integers(0, 5), max_size=8))
def test_most_and_sum_are_those_of_the_list(drafted: list[int]) -> None:
    """Also where all are alike, which takes a shorter way."""
    assert most_and_sum(drafted) == (max(drafted, default=0), sum(drafted))
    assert most_and_sum(drafted[:1] * 6) == (max(drafted[:1], default=0), sum(drafted[:1] * 6))


@given(st.none() | st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(0, 8))
def test_requests_that_gave_no_token_deliver_nothing(emitted: list[int] | None, decodes: int) -> None:
    """At most the decoding ones; without ``emitted`` all of them."""
    step = record(emitted=emitted)
    decodes = min(decodes, step.batch_size)
    giving = step.batch_size if emitted is None else sum(tokens > 0 for tokens in emitted)
    assert delivering(step, decodes) == min(decodes, giving)


@pytest.mark.parametrize(("gone", "deliver"), [(None, 3), (0, 3), (1, 2), (3, 0), (9, 0)])
def test_a_record_can_say_how_many_are_gone(gone: int | None, deliver: int) -> None:
    """A prompt's own token would otherwise stand for one of a request that is gone."""
    step = StepRecord(
        batch_size=4, elapsed_ms=9.0, k=1, drafted=[1, 1, 0, 0], accepted=[0, 0, 0, 0], emitted=[1, 1, 0, 1], gone=gone
    )
    assert delivering(step, 3) == deliver


def test_a_dead_drafter_must_recover_visibly() -> None:
    """Dead below 1 % of the first drafts accepted, until above 5 %."""
    states, dead = [], False
    for share in (0.5, 0.02, 0.009, 0.02, 0.05, 0.051, 0.02):
        dead = drafter_dead(dead, share)
        states.append(dead)
    assert states == [False, False, True, True, True, False, False]


def test_a_count_is_whole_and_within_reach() -> None:
    """However absurd, it is an int that overflows nowhere."""
    assert [whole_count(value, "batch_size") for value in (-5, 7, 10**30, -1e30)] == [0, 7, 10**12, 0]


@given(st.integers() | st.floats() | st.decimals(-(10**40), 10**40) | st.fractions())
def test_a_count_is_that_number_or_none(value: Any) -> None:
    """Of any numeric type: the same number as far as there is a whole one, else an error that names it."""
    if math.isnan(value) or math.isinf(value) or (abs(value) < 10**12 and value != int(value)):
        with pytest.raises(ValueError, match=r"^decodes is "):
            whole_count(value, "decodes")
        return
    count = whole_count(value, "decodes")
    assert type(count) is int
    assert count == min(max(value, 0), 10**12)
