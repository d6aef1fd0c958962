"""What the demo's figures are made of, checked against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.demo import measure
from adaptk.demo.measure import Row, Run, Spread, Step, Turn


def _turn(policy: str, phase: str, round_: int, steps: list[tuple[float, int]]) -> Turn:
    return Turn(policy, phase, round_, Run([Step(ms, tokens, 2) for ms, tokens in steps], "digest"))


def _row(policy: str, phase: str, round_: int, tokens: int, seconds: float, dropped: int = 0) -> Row:
    return Row(
        policy=policy,
        phase=phase,
        round=round_,
        tokens_per_s=tokens / seconds,
        steps=10,
        dropped=dropped,
        tokens=tokens,
        seconds=seconds,
    )


def test_limit_is_one_for_all_policies_of_a_phase() -> None:
    """The median is taken over the steps of every policy and round together."""
    turns = [
        _turn("k0", "copy", 0, [(10.0, 1)] * 3),
        _turn("k7", "copy", 1, [(30.0, 1)] * 2),
        _turn("k0", "chat", 0, [(100.0, 1)]),
    ]
    assert measure.limits(turns) == {"copy": 50.0, "chat": 500.0}


def test_steps_beyond_the_limit_lose_their_time_and_their_tokens() -> None:
    """3 tokens in 30 ms remain; the step of exactly the limit stays in."""
    (row,) = measure.rows([_turn("k0", "copy", 0, [(10.0, 1), (10.0, 1), (10.0, 1), (50.1, 100)])])
    assert (row.steps, row.dropped, row.tokens) == (3, 1, 3)
    assert row.tokens_per_s == pytest.approx(100.0)
    (row,) = measure.rows([_turn("k0", "copy", 0, [(10.0, 1), (10.0, 1), (10.0, 1), (50.0, 1)])])
    assert row.dropped == 0


def test_a_turn_that_was_slow_from_end_to_end_counts_as_it_was() -> None:
    """Its steps are all beyond five times the median, which the other policy's many steps set; it has no others."""
    quick, slow = measure.rows([_turn("k0", "copy", 0, [(10.0, 1)] * 5), _turn("none", "copy", 0, [(100.0, 1)] * 2)])
    assert (quick.steps, quick.dropped) == (5, 0)
    assert (slow.steps, slow.dropped, slow.tokens) == (2, 0, 2)
    assert slow.tokens_per_s == pytest.approx(10.0)


def test_overall_is_a_ratio_of_sums_and_needs_every_phase() -> None:
    """100 tokens in 1 s and 100 in 3 s are 50 a second, not the mean of 100 and 33."""
    parts = [_row("k0", "a", 0, 100, 1.0, 2), _row("k0", "b", 0, 100, 3.0, 1), _row("k0", "a", 1, 100, 1.0)]
    (row,) = measure.overall(parts, ("a", "b"))
    assert (row.phase, row.round, row.tokens_per_s, row.dropped, row.steps) == ("overall", 0, 50.0, 3, 20)


def test_ratios_are_paired_by_round() -> None:
    """A round that one of the two lacks gives no ratio."""
    parts = [
        _row("adaptk", "a", 0, 200, 1.0),
        _row("adaptk", "a", 1, 100, 1.0),
        _row("adaptk", "a", 2, 900, 1.0),
        _row("k0", "a", 1, 50, 1.0),
        _row("k0", "a", 0, 400, 1.0),
    ]
    assert measure.paired_ratios(parts, "a", "adaptk", "k0") == [0.5, 2.0]
    assert measure.paired_ratios(parts, "b", "adaptk", "k0") == []


def test_best_goes_by_the_median() -> None:
    """One lucky round does not make a policy the best."""
    parts = [_row("k0", "a", i, tokens, 1.0) for i, tokens in enumerate((10, 10, 99))]
    parts += [_row("k1", "a", i, 11, 1.0) for i in range(3)]
    assert measure.best(parts, "a", ("k0", "k1")) == "k1"
    assert measure.best(parts, "b", ("k0", "k1")) is None


@pytest.mark.parametrize(
    ("n", "low", "high", "coverage"),
    [
        (1, 0, 0, 0.0),
        (4, 0, 3, 1 - 2 / 16),
        (5, 0, 4, 1 - 2 / 32),
        (7, 0, 6, 1 - 2 / 128),
        (8, 1, 6, 1 - 2 * 9 / 256),
        (10, 1, 8, 1 - 2 * 11 / 1024),
    ],
)
def test_interval_is_the_tabulated_pair_of_order_statistics(n: int, low: int, high: int, coverage: float) -> None:
    """Ranks of the sign-test interval for the median, as printed in tables of nonparametric statistics."""
    got = measure.spread([float(i) for i in reversed(range(n))])
    assert got == Spread((n - 1) / 2, low, high, pytest.approx(coverage))


@given(st.lists(st.floats(0.1, 10.0), min_size=5, max_size=40))
def test_interval_holds_the_median_and_90_percent(values: list[float]) -> None:
    """From five rounds on the interval always reaches the confidence that is printed."""
    got = measure.spread(values)
    assert min(values) <= got.low <= got.median <= got.high <= max(values)
    assert got.coverage >= 0.9
    assert math.isfinite(got.coverage)


def test_no_values_are_refused() -> None:
    """There is no median of nothing."""
    with pytest.raises(ValueError, match="values is empty"):
        measure.spread([])
