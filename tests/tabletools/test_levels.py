"""Levels of context: of one table, and of two."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.tabletools.levels import ALIKE, between_levels, same_levels
from tests.tabletools.measured import of_levels, public_table

LEVELS = st.lists(st.floats(0.0, 1e6), max_size=6, unique=True)


@pytest.mark.parametrize(
    ("first", "second", "pairs"),
    [
        ([80.0], [88.8], [(80.0, 88.8)]),
        ([80.0], [89.0], []),
        ([0.0], [0.0], [(0.0, 0.0)]),
        ([0.0], [0.5], []),
        ([100.0, 105.0], [105.0], [(105.0, 105.0)]),
        ([100.0, 105.0], [104.0, 109.0], [(105.0, 104.0)]),
        ([], [80.0], []),
    ],
)
def test_pairs(first: list[float], second: list[float], pairs: list[tuple[float, float]]) -> None:
    """Up to a tenth apart; the nearest are taken first, each only once, and none across another."""
    assert same_levels(first, second) == pairs


@given(LEVELS, LEVELS)
def test_equal_levels_are_always_a_pair(first: list[float], second: list[float]) -> None:
    """No level is in two pairs, none is further apart than it may be, and both sides rise."""
    pairs = same_levels(first, second)
    assert {(level, level) for level in {*first} & {*second}} <= {*pairs}
    for side in zip(*pairs, strict=True):
        assert list(side) == sorted({*side})
    assert all(abs(one - other) <= ALIKE * max(one, other) for one, other in pairs)


def test_between_levels() -> None:
    """Not at one, nor beyond them, where the last one answers."""
    table = of_levels(512, 4096)
    assert [between_levels(table, context) for context in (None, 1.0, 512.0, 600.0, 9999.0)] == [
        False, False, False, True, False,
    ]  # fmt: skip
    assert not between_levels(public_table(), 512.0)
