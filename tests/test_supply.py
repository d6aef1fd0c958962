"""What is believed of the drafter's supply before the first step."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.acceptance import SEED_WEIGHT, UNKNOWN_WEIGHT, AcceptancePosterior
from adaptk.supply import LEAST, TABLE_TRIALS, Supply, given_before
from adaptk.table import GoodputTable
from adaptk.tabledrafts import DEFAULT_ACCEPTANCE

falling = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8).map(lambda shares: sorted(shares, reverse=True))


def test_shares_of_all_steps_become_shares_of_those_before() -> None:
    """0.5, then 0.2 of 0.5; then the last share goes on, so that nothing more is lost."""
    assert given_before([0.5, 0.2], 4) == pytest.approx([0.5, 0.4, 1.0, 1.0])
    assert given_before(None, 2) == [1.0, 1.0]
    assert given_before([0.5], 0) == []


def test_behind_a_position_without_drafts_nothing_is_known() -> None:
    assert given_before([0.5, 0.0, 0.0], 3) == [0.5, 0.0, 1.0]


def test_it_starts_where_the_table_is_with_a_modest_weight() -> None:
    supply = Supply(3, [0.5, 0.4])
    assert supply.means() == pytest.approx([0.5, 0.8, 1.0])
    assert supply.steady == pytest.approx([0.5, 0.8, 1.0])
    assert not supply.complete
    assert [a + b for a, b in zip(supply.alpha[:2], supply.beta[:2], strict=True)] == pytest.approx([TABLE_TRIALS] * 2)
    for _ in range(20):
        supply.observe([16, 16, 16], 3, 16)
    assert min(supply.means()) > 0.9  # the table was wrong


@pytest.mark.parametrize("shares", [None, [1.0], [1.0, 1.0]])
def test_a_drafter_that_always_delivers_is_no_other_than_one_of_which_nothing_is_said(
    shares: list[float] | None,
) -> None:
    assert Supply(3, shares).snapshot() == Supply(3).snapshot()
    one, other = AcceptancePosterior(3, [0.7, 0.5], shares), AcceptancePosterior(3, [0.7, 0.5])
    assert one.snapshot() == other.snapshot()


@given(falling)
def test_a_snapshot_of_what_was_seeded_is_taken_over(shares: list[float]) -> None:
    """Also whether a draft was ever missing, which is not written down."""
    one, other = Supply(4, shares), Supply(4)
    other.load(one.snapshot())
    assert other.snapshot() == one.snapshot()
    assert other.means() == one.means()
    assert other.complete == one.complete


def test_acceptance_of_drafts_that_are_there_is_the_tables_without_its_missing_drafts() -> None:
    """0.4 of the steps had an accepted first draft and half of them a draft: 0.8 of the drafts were accepted."""
    posterior = AcceptancePosterior(3, [0.4, 0.72, 0.6], [0.5, 0.4])
    assert posterior.alpha == pytest.approx([0.8 * SEED_WEIGHT, 0.9 * SEED_WEIGHT, 0.6 * SEED_WEIGHT])
    assert posterior.accepted_share == pytest.approx(0.8)
    assert posterior.means() == pytest.approx([0.4, 0.72, 0.6])


@given(falling, st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_impossible_pairs_are_bounded(shares: list[float], acceptance: list[float]) -> None:
    """More accepted than there were drafts, or of none at all: a number that a Beta can have."""
    posterior = AcceptancePosterior(8, acceptance, shares)
    assert all(0.0 < a < SEED_WEIGHT and math.isfinite(a) for a in posterior.alpha)
    assert np.all(np.isfinite(posterior.lengths(range(9))))


def test_acceptance_of_a_drafter_that_finds_nothing_is_unknown() -> None:
    posterior = AcceptancePosterior(2, [0.0], [0.0])
    assert posterior.accepted_share == pytest.approx(DEFAULT_ACCEPTANCE)
    assert posterior.lengths((0, 1, 2)) == pytest.approx([1.0, 1.0, 1.0], abs=0.01)


def test_a_table_of_which_acceptance_is_unknown_assumes_it_of_drafts_that_are_there() -> None:
    posterior = AcceptancePosterior(2, None, [0.5])
    assert posterior.accepted_share == pytest.approx(DEFAULT_ACCEPTANCE)
    assert posterior.means()[0] == pytest.approx(0.5 * DEFAULT_ACCEPTANCE)


def test_another_engines_acceptance_weighs_as_little_as_a_guess() -> None:
    posterior = AcceptancePosterior(2, [0.6], trusted=False)
    assert posterior.alpha == pytest.approx([0.6 * UNKNOWN_WEIGHT] * 2)


@given(falling, st.lists(st.floats(0.05, 0.9), min_size=1, max_size=8))
def test_widths_and_lengths_are_the_tables(shares: list[float], real: list[float]) -> None:
    """Where drafts that are there are accepted as in the table, to within what the least parameter of a Beta costs."""
    given_ = given_before(shares, 8)
    acceptance = [p * real[min(j, len(real) - 1)] for j, p in enumerate(given_)]
    table = GoodputTable.from_schedule([[1, 8, 8]], acceptance, supply=shares)
    posterior = AcceptancePosterior(8, acceptance, shares)
    ks = range(9)
    slack = 9 * LEAST / TABLE_TRIALS * 8
    assert posterior.widths(ks) == pytest.approx([table.width(k) for k in ks], abs=slack)
    assert posterior.lengths(ks) == pytest.approx([table.acceptance_length(k) for k in ks], abs=2 * slack)
