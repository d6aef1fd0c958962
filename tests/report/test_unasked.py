"""Drafts that were not asked for, filled in from what the first positions were worth at that time."""

from __future__ import annotations

import numpy as np
import pytest

from adaptk.report.unasked import Unasked

ABLE = np.full((20, 1), 1000.0)
GOOD_TEXT = np.arange(20) % 4 < 2  # two blocks of good text, two of bad
ODDS = np.where(GOOD_TEXT, 4.0, 0.5)[:, None]  # of both positions
RATE = ODDS / (1.0 + ODDS)


def test_nothing_is_changed_where_all_was_asked() -> None:
    filled = Unasked(ABLE).fill(RATE * ABLE, ABLE)
    assert np.array_equal(filled.good, RATE * ABLE)
    assert np.array_equal(filled.tried, ABLE)
    assert filled.unsure.tolist() == [0.0]


def test_a_second_draft_at_good_texts_alone_is_not_taken_for_all() -> None:
    """The first draft was asked for everywhere; the second where text was good: 0.8 there, a third elsewhere."""
    lacking = Unasked(ABLE)
    first = lacking.fill(RATE * ABLE, ABLE)
    tried = np.where(GOOD_TEXT[:, None], first.good, 0.0)
    filled = lacking.fill(RATE * tried, tried)
    seen = (RATE * tried).sum() / tried.sum()
    truth = (RATE * first.good).sum() / first.good.sum()
    assert seen - truth > 0.1
    assert filled.good.sum() / filled.tried.sum() == pytest.approx(truth, abs=0.02)
    assert filled.unsure[0] > 0.02


def test_blocks_without_any_draft_are_like_those_around_them() -> None:
    """K=0 for one block in good text that lasts: its acceptance is its neighbours', not that of the whole."""
    rate = np.where(np.arange(20) < 10, 0.8, 0.2)[:, None]
    tried = ABLE.copy()
    tried[4] = 0.0
    filled = Unasked(ABLE).fill(rate * tried, tried)
    assert filled.good[4, 0] / filled.tried[4, 0] > 0.7
