"""Cost surfaces: what they say, from tables and to tables, and what is made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptk.replay.casechecks import public_table
from adaptk.replay.costs.p32374 import BATCHES, ITL_MS, KS
from adaptk.replay.surface import CAPTURE_SIZES, CostSurface
from adaptk.table import GoodputTable, TableError
from tests.replay.handmade import draft_ms, surface, verify_ms
from tests.strategies import rows_of, timed_tables


def leveled(*added: float, contexts: tuple[float, ...] = (100.0, 300.0, 1300.0)) -> CostSurface:
    """``surface()`` with these milliseconds more at each level."""
    plain = surface()
    return CostSurface("levels", np.array(contexts), np.stack([plain.verify_ms[0] + a for a in added]), plain.draft_ms)


def test_a_step_takes_what_verifying_and_drafting_take() -> None:
    at = surface()
    assert at.itl_ms(3, 2) == verify_ms(3, 2) + draft_ms(3, 2)
    assert (at.max_batch, at.k_max) == (8, 7)
    assert at.itl_grid().shape == (9, 8)


@pytest.mark.parametrize(
    ("context", "added"),
    [(None, 0.0), (0.0, 0.0), (100.0, 0.0), (150.0, 1.0), (300.0, 4.0), (800.0, 1.0), (1300.0, -2.0), (1e9, -2.0)],
)
def test_context_is_linear_between_levels_and_held_beyond(context: float | None, added: float) -> None:
    assert leveled(0.0, 4.0, -2.0).itl_ms(2, 3, context) == pytest.approx(surface().itl_ms(2, 3) + added)


@pytest.mark.parametrize(("batch", "k"), [(0, 1), (9, 1), (1, -1), (1, 8)])
def test_questions_beyond_the_surface_are_refused(batch: int, k: int) -> None:
    with pytest.raises(ValueError, match=f"batch {batch}, k {k}: give 1 to 8 and 0 to 7"):
        surface().itl_ms(batch, k)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"contexts": np.array([1.0, 2.0])}, "contexts"),
        ({"contexts": np.array([1.0]), "draft_ms": np.zeros((9, 7))}, r"draft_ms has shape \(9, 7\)"),
        ({"verify_ms": np.full((1, 9, 8), -1.0)}, "verify_ms holds"),
        ({"verify_ms": np.full((1, 9, 8), np.nan)}, "verify_ms holds"),
        ({"verify_ms": np.zeros((1, 9, 8))}, "verify_ms is 0"),
        ({"draft_ms": np.full((9, 8), np.inf)}, "draft_ms holds"),
    ],
)
def test_impossible_times_are_refused(change: dict[str, Any], message: str) -> None:
    plain = surface()
    fields = {"contexts": plain.contexts, "verify_ms": plain.verify_ms, "draft_ms": plain.draft_ms}
    with pytest.raises(ValueError, match=message):
        CostSurface("wrong", **{**fields, **change})


def test_falling_levels_are_refused() -> None:
    with pytest.raises(ValueError, match="rising levels"):
        leveled(0.0, 1.0, contexts=(300.0, 100.0))


def test_a_table_of_the_surface_has_its_times_where_it_has_rows() -> None:
    table = surface().to_table((0, 1, 3, 7), [0.7, 0.5])
    assert table.batches == (1, 2, 4, 8)
    assert table.ks == (0, 1, 3, 7)
    assert table.acceptance == (0.7, 0.5)
    assert all(row.itl_ms == surface().itl_ms(row.batch, row.k) for row in table.rows)
    assert table.contexts == ()


def test_a_table_can_have_the_levels_of_context_or_one_of_them() -> None:
    at = leveled(0.0, 4.0, -2.0)
    whole = at.to_table((0, 3), None, with_contexts=True)
    assert whole.contexts == (100.0, 300.0, 1300.0)
    for context in (100.0, 200.0, 1300.0, 5000.0):
        assert whole.itl_ms(4, 3, context) == pytest.approx(at.itl_ms(4, 3, context))
    assert at.to_table((0, 3), None, context=300.0).itl_ms(4, 3) == at.itl_ms(4, 3, 300.0)


def test_the_public_table_taken_for_the_truth_says_what_it_says() -> None:
    at = CostSurface.from_table(public_table(), 256, 5)
    for batch, line in zip(BATCHES, ITL_MS, strict=True):
        for k, ms in zip(KS, line, strict=True):
            assert at.itl_ms(batch, k) == pytest.approx(ms)
    assert at.itl_ms(40, 2) == pytest.approx(public_table().itl_ms(40, 2) or 0.0)


@settings(max_examples=60)
@given(timed_tables(), st.floats(0.0, 1.0))
def test_any_table_taken_for_the_truth_says_what_it_says(table: GoodputTable, share: float) -> None:
    at = CostSurface.from_table(table, 12, 4, draft_share=share)
    for level in table.contexts or (None,):
        assert at.itl_grid(level)[1:] == pytest.approx(table.itl_grid(range(1, 13), range(5), level), rel=1e-9)
    assert np.all(at.verify_ms >= 0)
    assert np.all(at.draft_ms[:, 0] == 0)
    assert np.all(at.verify_ms[:, 0] == at.verify_ms[:, :1, 0])  # of prompt tokens alone: no drafts


def test_what_a_table_pays_for_drafting_is_the_share_that_is_asked_for() -> None:
    at = CostSurface.from_table(public_table(), 256, 5, draft_share=0.25)
    assert at.draft_ms[64, 3] == pytest.approx(0.25 * (13.498 - 7.774))
    assert at.verify_ms[0, 64, 3] == pytest.approx(7.774 + 0.75 * (13.498 - 7.774))


def test_a_staircase_stays_one() -> None:
    table = GoodputTable.from_rows(rows_of({4: {0: 5.0}, 8: {0: 9.0}}), meta={"staircase": True})
    at = CostSurface.from_table(table, 10, 0)
    assert at.itl_grid()[1:, 0].tolist() == [5.0] * 4 + [9.0] * 4 + [10.0, 11.0]


def test_a_schedule_has_no_times_to_take_for_the_truth() -> None:
    with pytest.raises(TableError, match="no step times"):
        CostSurface.from_table(GoodputTable.from_schedule([[1, 8, 3]]), 8, 3)


def test_stretching_moves_what_drafts_add() -> None:
    at = surface().stretched(k_factor=3.0, level=2.0)
    idle = surface().itl_ms(4, 0)
    for k in (0, 1, 7):
        assert at.itl_ms(4, k) == pytest.approx(2.0 * (idle + 3.0 * (surface().itl_ms(4, k) - idle)))
    assert at.prefill_ms == surface().prefill_ms


def test_a_steep_first_draft_leaves_later_ones_what_they_were() -> None:
    steep, plain = surface().steep_first(4.0).itl_grid(), surface().itl_grid()
    assert np.diff(steep)[:, 0] == pytest.approx(4.0 * np.diff(plain)[:, 0])
    assert np.diff(steep)[:, 1:] == pytest.approx(np.diff(plain)[:, 1:])
    assert np.all(steep[:, 0] == plain[:, 0])


def test_padding_makes_a_staircase_in_tokens() -> None:
    at = surface(max_batch=16).padded([4, 8, 16], eager=1.5)
    verify = at.verify_ms[0]
    # At K=1 a batch of 2, 4 and 8 fills 4, 8 and 16 tokens; 3 is padded to 4; beyond 8 there is no graph.
    assert verify[1:9, 1].tolist() == [verify_ms(b, 1) for b in (2, 2, 4, 4, 8, 8, 8, 8)]
    assert verify[9:, 1].tolist() == [1.5 * verify_ms(b, 1) for b in range(9, 17)]
    assert verify[3, 2] == pytest.approx(verify_ms(1, 2) + (16 / 3 - 1) * 5.0)  # nine tokens padded to sixteen
    assert np.all(verify[0] == surface().verify_ms[0, 0])
    assert np.all(at.draft_ms == surface(max_batch=16).draft_ms)


def test_padding_costs_never_less_and_nothing_at_a_captured_size() -> None:
    plain = surface(max_batch=64)
    at = plain.padded()
    assert np.all(at.verify_ms >= plain.verify_ms - 1e-9)
    captured = [(b, k) for b in range(1, 65) for k in range(8) if b * (k + 1) in CAPTURE_SIZES]
    assert len(captured) > 100
    assert all(at.verify_ms[0, b, k] == pytest.approx(plain.verify_ms[0, b, k]) for b, k in captured)


def test_captured_sizes_are_those_of_vllm() -> None:
    assert CAPTURE_SIZES[:5] == (1, 2, 4, 8, 16)
    assert CAPTURE_SIZES[-3:] == (480, 496, 512)
    assert list(CAPTURE_SIZES) == sorted(set(CAPTURE_SIZES))
    assert {248, 256, 272} <= set(CAPTURE_SIZES)
    assert 264 not in CAPTURE_SIZES


def test_without_a_drafter_only_its_price_is_gone() -> None:
    at = surface().without_drafter()
    assert at.k_max == 0
    assert at.itl_ms(4, 0) == verify_ms(4, 0) == surface().itl_ms(4, 0) - 0.5
