from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.batch import LoadTracker


def follow(batches: list[int], tracker: LoadTracker | None = None) -> tuple[list[int], list[bool]]:
    """The batch sizes that decisions look at, and where another regime was seen."""
    tracker = LoadTracker() if tracker is None else tracker
    seen, jumps = [], []
    for batch in batches:
        jumps.append(tracker.update(batch, None, batch))
        seen.append(tracker.batch)
    return seen, jumps


@pytest.mark.parametrize("edge", [2, 16, 64, 128])
def test_one_request_more_or_less_does_not_flip_it(edge: int) -> None:
    """Alternating around the edge of a tier it settles on one side within ten steps and stays there."""
    seen, jumps = follow([edge + step % 2 for step in range(300)])
    assert len(set(seen[10:])) == 1
    assert sum(jumps) == 1


@pytest.mark.parametrize(("before", "after"), [(64, 90), (64, 45), (16, 256), (128, 1)])
def test_a_jump_of_many_requests_is_followed_at_once(before: int, after: int) -> None:
    """More than 1.4 times and at least 8 requests."""
    seen, jumps = follow([before] * 20 + [after])
    assert seen[-2:] == [before, after]
    assert jumps[-1]
    assert not any(jumps[1:-1])


def test_the_joining_of_one_prefill_is_not() -> None:
    """2 of 4 requests more for one step: another regime only if it lasts."""
    seen, jumps = follow([4] * 20 + [6] + [4] * 20)
    assert set(seen) == {4}
    assert sum(jumps) == 1


def test_a_small_jump_that_lasts_is_followed_at_its_second_step() -> None:
    seen, jumps = follow([4] * 20 + [6, 6])
    assert seen[-2:] == [4, 6]
    assert jumps[-2:] == [False, True]


def test_a_slow_drain_is_followed_without_jumps() -> None:
    """A request less every 8 steps, from 64 down to 16: never more than 5 % or one request behind."""
    drain = [64 - step // 8 for step in range(8 * 48)]
    seen, jumps = follow(drain)
    assert sum(jumps) == 1
    assert all(abs(a - b) <= max(1.0, 0.05 * b) for a, b in zip(seen, drain, strict=True))


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=50))
def test_it_is_always_within_what_was_seen(batches: list[int]) -> None:
    seen, jumps = follow(batches)
    assert all(min(batches) <= batch <= max(batches) for batch in seen)
    assert jumps[0]


@given(st.integers(1, 1000), st.lists(st.integers(1, 1000), max_size=20))
def test_a_steady_load_is_known_exactly_in_the_end(batch: int, before: list[int]) -> None:
    """To within the rounding that keeps it from flickering."""
    seen, _ = follow([*before, *[batch] * 60])
    assert abs(seen[-1] - batch) <= 0.6


def test_a_context_change_of_a_third_is_another_regime() -> None:
    tracker = LoadTracker()
    answers = [tracker.update(8, 8 * context, 8) for context in (1000, 1100, 1250, 1400, 1500, 1700, 1000)]
    assert answers == [True, False, False, True, False, False, True]
    assert tracker.context == 1000.0


def test_an_unknown_context_changes_nothing() -> None:
    tracker = LoadTracker()
    tracker.update(8, 8000, 8)
    assert not tracker.update(8, None, 8)
    assert tracker.context == 1000.0


def test_it_survives_json_in_the_middle_of_a_jump() -> None:
    tracker, other = LoadTracker(), LoadTracker()
    for batch in (4, 5, 4, 7):
        tracker.update(batch, 1000, batch)
    other.load(json.loads(json.dumps(tracker.snapshot())))
    later = [7, 7, 6, 30, 31]
    assert follow(later, other) == follow(later, tracker)
    assert other.snapshot() == tracker.snapshot()
