"""Differences of counts over time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adaptk.live.rates import SPACING_S, WINDOW_S, History
from adaptk.live.snapshot import Cell, Counts

_CELL = Cell("1", 3)


def _counts(steps: float, **others: dict[str, float]) -> Counts:
    return Counts(steps={_CELL: steps}, **others)


def test_one_page_says_nothing_of_rates() -> None:
    """Two do, over the time between them."""
    history = History()
    assert history.recent() is None
    history.add(10.0, _counts(100.0))
    assert history.recent() is None
    history.add(12.0, _counts(150.0, reference={"k0": 8.0}))
    span = history.recent()
    assert span is not None
    assert (span.seconds, span.counts.steps, span.counts.reference) == (2.0, {_CELL: 50.0}, {"k0": 8.0})
    assert span.rate(span.counts.steps) == 25.0


def test_the_span_is_the_last_minute() -> None:
    """And at most one space between kept points longer."""
    history = History()
    for second in range(500):
        history.add(float(second), _counts(10.0 * second))
        span = history.recent()
        if second >= WINDOW_S + SPACING_S:
            assert span is not None
            assert WINDOW_S <= span.seconds < WINDOW_S + SPACING_S
            assert span.counts.steps[_CELL] == 10.0 * span.seconds


def test_a_restart_begins_anew() -> None:
    """Counters that went back are of a new process: nothing is taken from the one before."""
    history = History()
    history.add(0.0, _counts(1000.0))
    history.add(10.0, _counts(2000.0))
    history.add(20.0, _counts(30.0))
    assert history.recent() is None
    history.add(30.0, _counts(50.0))
    span = history.recent()
    assert span is not None
    assert (span.seconds, span.counts.steps[_CELL]) == (10.0, 20.0)


def test_counters_that_were_away_for_a_page_do_not_leap() -> None:
    """A page without a family is no restart, and the family's return is not its whole count in one go."""
    history = History()
    history.add(0.0, _counts(100.0, reference={"k0": 1000.0}))
    history.add(10.0, Counts(steps={_CELL: 200.0}))
    history.add(20.0, _counts(300.0, reference={"k0": 1001.0}))
    span = history.recent()
    assert span is not None
    assert (span.counts.steps[_CELL], span.counts.reference) == (200.0, {"k0": 1.0})


def test_a_page_of_the_same_moment_changes_nothing() -> None:
    """No time, no rate."""
    history = History()
    history.add(5.0, _counts(1.0))
    history.add(5.0, _counts(2.0))
    assert history.recent() is None


@given(st.lists(st.tuples(st.floats(0.01, 100.0), st.floats(0.0, 1e9), st.booleans()), max_size=40))
def test_no_rate_is_ever_negative(pages: list[tuple[float, float, bool]]) -> None:
    """Whatever comes: restarts, gaps, bursts."""
    history, at = History(), 0.0
    for wait, value, whole in pages:
        at += wait
        history.add(at, _counts(value) if whole else Counts())
        span = history.recent()
        if span is not None:
            assert span.seconds > 0.0
            assert all(count >= 0.0 for count in span.counts.steps.values())
