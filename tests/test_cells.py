from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk import cells as module
from adaptk.cells import CELL, CELLS, Cells, cell

ARMS = (0, 1, 3)
RETURN = 1000.0
SIZES = (8, 16, 64)


def fresh(edges: tuple[int, ...] = ()) -> Cells:
    return Cells(ARMS, RETURN, edges)


class TestEdges:
    def test_a_range_ends_at_a_power_of_two_and_at_three_quarters_of_one(self) -> None:
        """Counted out up to 96 tokens: the last number of tokens of each range."""
        ends = [a for a, b in pairwise(range(1, 98)) if cell(a) != cell(b)]
        assert ends == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96]

    @given(st.integers(3, 13))
    def test_every_octave_has_two_ranges(self, octave: int) -> None:
        top = 2**octave
        assert cell(top // 2 + 1) == cell(3 * top // 4) == cell(top) - 1
        assert cell(3 * top // 4 + 1) == cell(top) == cell(top // 2) + 2

    @given(st.integers(1, 2**24))
    def test_more_tokens_are_never_in_an_earlier_range(self, tokens: int) -> None:
        assert 0 <= cell(tokens) <= cell(tokens + 1) < CELLS

    def test_the_last_range_has_no_end(self) -> None:
        assert cell(2**13) < cell(2**14) == cell(2**24) == CELLS - 1

    @pytest.mark.parametrize(
        ("arm", "batch", "tokens"), [(0, 7, 7), (1, 7, 14), (2, 7, 28), (2, 6.01, 25), (0, 0.5, 1)]
    )
    def test_an_arm_is_where_the_tokens_of_its_step_are(self, arm: int, batch: float, tokens: int) -> None:
        assert fresh().at(arm, batch) == cell(tokens)

    def test_a_batch_that_went_through_its_logarithm_is_in_the_same_range(self) -> None:
        """All edges among them: rounding does not carry a step over one."""
        cells = fresh()
        for batch in range(1, 4097):
            through = math.exp(math.log(batch))
            assert [cells.at(arm, through) for arm in range(3)] == [cells.at(arm, batch) for arm in range(3)]

    @pytest.mark.parametrize(("batch", "at"), [(1, (0, 0, 0)), (4, (0, 0, 1)), (8, (0, 1, 2)), (9, (1, 2, 2))])
    def test_where_the_captured_sizes_are_known_they_are_the_edges(self, batch: int, at: tuple[int, ...]) -> None:
        assert tuple(fresh(SIZES).at(arm, batch) for arm in range(3)) == at

    def test_beyond_the_captured_sizes_the_usual_ranges_follow(self) -> None:
        """65 tokens are in a range of their own, behind all three sizes; so are 97, and 64 are not."""
        cells = fresh(SIZES)
        assert cells.at(0, 64) == 2
        assert cells.at(0, 65) == cells.at(0, 96) == len(SIZES) + cell(65)
        assert cells.at(0, 97) == len(SIZES) + cell(97) > cells.at(0, 96)
        assert cells.at(0, 10**6) == len(SIZES) + CELLS - 1
        cells.book(0, cells.at(0, 10**6), 1.0, 1.0, 1.0)  # there is room for it


class TestBooking:
    def test_one_booking_by_hand(self) -> None:
        """An offset of variance v that enters with share 1/2: gain v/2, mean gain * shift, v - gain^2 * narrowing."""
        cells = fresh()
        cells.book(2, 8, share=0.5, shift=3.0, narrowing=100.0)
        gain = CELL**2 / 2.0
        assert cells.mean[2][8] == pytest.approx(3.0 * gain)
        assert cells.variance(2, 8) == pytest.approx(CELL**2 - 100.0 * gain**2)
        assert cells.mean[2][9] == cells.mean[1][8] == 0.0
        assert cells.variance(2, 9) == cells.variance(1, 8) == CELL**2

    def test_what_two_explain_together_is_shared_out_by_their_variances(self) -> None:
        """A widened cell with four times the variance takes four times the shift."""
        cells = fresh()
        cells.widen(0, 8, 3.0 * CELL**2)
        for arm in (0, 1):
            cells.book(arm, 8, share=0.5, shift=2.0, narrowing=0.0)
        assert cells.mean[0][8] == pytest.approx(4.0 * cells.mean[1][8])

    def test_it_equals_the_posterior_of_one_gaussian(self) -> None:
        """Five observations with variance r of an offset alone: mean and variance of the normal conjugate pair."""
        cells, r = fresh(), 0.03**2
        values = (0.02, 0.05, 0.03, 0.04, 0.01)
        for y in values:
            total = cells.variance(1, 8) + r
            cells.book(1, 8, 1.0, (y - cells.mean[1][8]) / total, 1.0 / total)
        precision = 1.0 / CELL**2 + len(values) / r
        assert cells.variance(1, 8) == pytest.approx(1.0 / precision)
        assert cells.mean[1][8] == pytest.approx(sum(values) / r / precision)

    def test_no_booking_leaves_a_variance_of_nothing(self) -> None:
        cells = fresh()
        for _ in range(3):
            cells.book(0, 4, 1.0, 0.0, 1e9)
        assert cells.variance(0, 4) > 0.0


class TestWaiting:
    def test_a_variance_returns_to_the_prior(self) -> None:
        """After n steps the distance to the prior is exp(-n / RETURN) of what it was; the mean stays."""
        cells = fresh()
        cells.now = 50
        cells.book(1, 8, 1.0, 1.0, 0.9 / CELL**2)
        mean = cells.mean[1][8]
        assert cells.variance(1, 8) == pytest.approx(0.1 * CELL**2)
        for steps in (1, 700, 5000):
            cells.now = 50 + steps
            assert cells.variance(1, 8) == pytest.approx(CELL**2 * (1.0 - 0.9 * math.exp(-steps / RETURN)))
        assert cells.mean[1][8] == mean

    def test_the_clock_of_a_place_starts_anew_with_each_booking(self) -> None:
        """Booked after 700 steps: what had come back by then is the variance that the booking starts from."""
        cells = fresh()
        cells.book(1, 8, 1.0, 0.0, 0.9 / CELL**2)
        cells.now = 700
        between = cells.variance(1, 8)
        cells.book(1, 8, 1.0, 0.0, 0.5 / between)
        assert cells.variance(1, 8) == pytest.approx(0.5 * between)
        cells.now += 300
        assert cells.variance(1, 8) == pytest.approx(CELL**2 + (0.5 * between - CELL**2) * math.exp(-0.3))

    def test_what_was_widened_is_not_narrowed_by_waiting(self) -> None:
        cells = fresh()
        cells.widen(1, 8, 0.09)
        cells.now = 100_000
        assert cells.variance(1, 8) == pytest.approx(CELL**2 + 0.09)

    @given(st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 0.2), st.integers(0, 3000)), max_size=8))
    def test_waiting_never_makes_surer(self, steps: list[tuple[float, float, int]]) -> None:
        cells = fresh()
        for share, more, wait in steps:
            cells.book(0, 5, share, 0.1, 1.0 / (share * share * cells.variance(0, 5) + 1e-3))
            cells.widen(0, 5, more)
            before = cells.variance(0, 5)
            assert before >= more
            cells.now += wait
            assert cells.variance(0, 5) >= before - 1e-12


def test_a_widening_adds_to_what_is_believed_now() -> None:
    cells = fresh()
    cells.book(1, 8, 1.0, 0.0, 0.9 / CELL**2)
    cells.now = 700
    before = cells.variance(1, 8)
    cells.widen(1, 8, 0.04)
    assert cells.variance(1, 8) == pytest.approx(before + 0.04)
    assert cells.seen[1][8] == 700


def test_what_is_forgotten_is_as_new() -> None:
    """But for the clock, which others read too."""
    cells = fresh(SIZES)
    cells.now = 40
    cells.book(1, 8, 1.0, 1.0, 0.9 / CELL**2)
    cells.widen(2, 5, 0.04)
    cells.forget()
    assert cells.snapshot() == fresh(SIZES).snapshot() | {"now": 40}


@pytest.mark.parametrize("edges", [(), SIZES])
def test_it_survives_json(edges: tuple[int, ...]) -> None:
    cells, other = fresh(edges), fresh(edges)
    cells.now = 40
    cells.book(1, 8, 1.0, 1.0, 0.9 / CELL**2)
    cells.widen(2, 5, 0.04)
    cells.now = 300
    other.load(json.loads(json.dumps(cells.snapshot(), allow_nan=False)))
    for one in (cells, other):
        one.book(1, 8, 0.5, 2.0, 10.0)
        one.now += 100
    assert other.snapshot() == cells.snapshot()
    assert other.variance(2, 5) == cells.variance(2, 5)


def test_a_snapshot_is_no_longer_tied_to_the_cells() -> None:
    cells = fresh()
    then = json.dumps(cells.snapshot())
    taken = cells.snapshot()
    cells.book(1, 8, 1.0, 1.0, 0.9 / CELL**2)
    cells.widen(1, 8, 0.1)
    assert json.dumps(taken) == then


def test_places_remembered_are_bounded_and_forgetting_them_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT", 10)
    cells = fresh()
    for batch in range(1, 200):
        assert cells.at(2, batch) == cell(4 * batch)
        assert len(cells._index) <= 10
