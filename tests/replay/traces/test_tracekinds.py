"""Stretches of a trace and their acceptance."""

from __future__ import annotations

import numpy as np

from adaptk.replay.traces.tokenruns import Stream
from adaptk.replay.traces.tracekinds import FEWEST, TRIALS, WEIGHT, kinds


def stream(first: int, drafts: list[tuple[int, int, int]]) -> Stream:
    return Stream(first, 0, last=first + len(drafts), drafts=drafts)


def test_a_stretch_ends_when_drafts_were_asked_for_often_enough() -> None:
    one = [(3, 3, 1), (3, 0, 0)] * (TRIALS // 4)
    kind, _ = kinds([stream(0, one), stream(1, one), stream(2, one), stream(3, one)], 3)
    assert kind.tolist() == [0, 0, 1, 1]


def test_steps_without_drafts_asked_for_do_not_count() -> None:
    one = [(0, 0, 0)] * TRIALS
    assert kinds([stream(0, one), stream(1, one)], 3)[0].tolist() == [0, 0]


def test_requests_that_joined_together_are_one_stretch() -> None:
    one = [(3, 3, 1)] * TRIALS
    assert kinds([stream(0, one), stream(0, one)], 3)[0].tolist() == [0, 0]


def test_an_empty_engine_begins_a_new_stretch_sooner() -> None:
    one = [(3, 3, 1)] * FEWEST
    assert kinds([stream(0, one), stream(FEWEST + 1, one)], 3)[0].tolist() == [0, 1]
    assert kinds([stream(0, one), stream(FEWEST, one)], 3)[0].tolist() == [0, 0]
    assert kinds([stream(0, one[1:]), stream(FEWEST + 1, one)], 3)[0].tolist() == [0, 0]


def test_acceptance_of_each_stretch() -> None:
    """Position 1: 90 % and 20 %, by 1,000 drafts; what neighbours add is worth ``WEIGHT`` drafts of them."""
    good = [(2, 2, 1)] * 900 + [(2, 2, 0)] * 100
    poor = [(2, 2, 1)] * 200 + [(2, 2, 0)] * 800
    _, drafter = kinds([stream(0, good), stream(2000, poor)], 2)
    around = 0.2 + WEIGHT * (0.55 - 0.2) / (1000 + WEIGHT)
    assert drafter.acceptance[0, 0] == (900 + WEIGHT * around) / (1000 + WEIGHT)
    assert abs(drafter.acceptance[1, 0] - 0.2) < 0.01
    assert drafter.acceptance[:, 1].max() < 0.01
    assert drafter.supply is None


def test_a_position_that_nobody_drafted_has_the_one_before() -> None:
    _, drafter = kinds([stream(0, [(1, 1, 1), (1, 1, 0)] * 500)], 4)
    np.testing.assert_allclose(drafter.acceptance, 0.5)


def test_nothing_drafted_at_all() -> None:
    _, drafter = kinds([stream(0, [])], 3)
    np.testing.assert_allclose(drafter.acceptance, 0.7)


def test_drafts_that_did_not_come() -> None:
    """Asked for 3, none came in 60 % of the steps; those that came were all there."""
    _, drafter = kinds([stream(0, [(3, 3, 0)] * 400 + [(3, 0, 0)] * 600)], 3)
    assert drafter.supply is not None
    np.testing.assert_allclose(drafter.supply, [[0.4, 1.0, 1.0]], atol=0.01)
