"""The seed figures: calibrated surfaces reproduce the published ratios."""

from __future__ import annotations

import numpy as np
import pytest

from adaptk.replay.costs.calibrated import (
    DENSE_ACCEPTANCE,
    DENSE_ARMS,
    FIGURE_BATCHES,
    MOE_ACCEPTANCE,
    MOE_ARMS,
    FigureRow,
    dense_figure,
    dense_surface,
    figure_rows,
    moe_figure,
    moe_surface,
)
from adaptk.replay.surface import CostSurface

DENSE = {(row.batch, row.k): row for row in dense_figure()}
MOE = {(row.batch, row.k): row for row in moe_figure()}


def best(rows: list[FigureRow]) -> dict[int, FigureRow]:
    """The fastest K by batch size."""
    return {row.batch: row for row in rows if row.best}


@pytest.mark.parametrize(("batch", "over_none"), [(128, 1.075), (256, 1.018)])
def test_dense_ratios_are_the_published_ones(batch: int, over_none: float) -> None:
    """Within 2 points; "no speculation" as an engine without a drafter, and as in-engine K=0."""
    dynamic = best(dense_figure())[batch]
    assert dynamic.over_k3 == pytest.approx(1.23, abs=0.02)
    assert dynamic.over_no_drafter == pytest.approx(over_none, abs=0.02)
    assert dynamic.over_k0 == pytest.approx(over_none, abs=0.02)


@pytest.mark.parametrize(("batch", "over_none"), [(128, 1.075), (256, 1.018)])
def test_dense_calibration_is_exact_without_a_drafter(batch: int, over_none: float) -> None:
    """To a tenth of a point, for the best of all K as for the figure's."""
    for arms in (DENSE_ARMS, range(6), (0, 1, 3)):
        dynamic = best(figure_rows(dense_surface(), DENSE_ACCEPTANCE, arms))[batch]
        assert dynamic.over_k3 == pytest.approx(1.23, abs=1e-3)
        assert dynamic.over_no_drafter == pytest.approx(over_none, abs=1e-3)


def test_fixed_k3_is_slower_than_nothing_at_batch_128_and_256_alone() -> None:
    slower = [b for b in FIGURE_BATCHES if DENSE[b, 3].over_no_drafter < 1.0]
    assert slower == [128, 256]
    assert DENSE[128, 3].over_k0 < 1.0
    assert DENSE[256, 3].over_k0 < 1.0


def test_the_best_k_of_the_dense_surface_falls_to_0() -> None:
    rows = figure_rows(dense_surface(), DENSE_ACCEPTANCE, range(6), range(1, 513))
    ks = [row.k for row in rows if row.best]
    assert ks == sorted(ks, reverse=True)
    assert (ks[0], ks[15], ks[63], ks[511]) == (4, 2, 1, 0)


def test_the_best_k_of_the_mixture() -> None:
    """3 everywhere but at batch 16 to 32, where it is 5."""
    rows = figure_rows(moe_surface(), MOE_ACCEPTANCE, MOE_ARMS, range(1, 513))
    assert {row.batch: row.k for row in rows if row.best} == {b: 5 if 16 <= b <= 32 else 3 for b in range(1, 513)}


def test_the_5_of_the_mixture_brings_no_speed() -> None:
    for row in figure_rows(moe_surface(), MOE_ACCEPTANCE, MOE_ARMS, range(16, 33)):
        if row.k == 5:
            assert 1.0 < row.over_k3 < 1.01


def test_the_5_would_bring_speed_if_acceptance_did_not_fall() -> None:
    """That it is the poor acceptance beyond position 3: at that of position 3 the 5 gains more than 5 %."""
    held = (*MOE_ACCEPTANCE[:3], MOE_ACCEPTANCE[2], MOE_ACCEPTANCE[2])
    rows = figure_rows(moe_surface(), held, MOE_ARMS, (16, 32))
    assert all(row.over_k3 > 1.05 for row in rows if row.k == 5)


def test_speculation_helps_the_mixture_everywhere() -> None:
    assert all(MOE[b, 3].over_no_drafter > 1.5 for b in FIGURE_BATCHES)


@pytest.mark.parametrize("surface", [dense_surface(), moe_surface()], ids=lambda s: s.name)
def test_surfaces_grow_with_batch_and_drafts(surface: CostSurface) -> None:
    assert np.all(np.diff(surface.verify_ms, axis=1) > 0)
    assert np.all(np.diff(surface.verify_ms[:, 1:], axis=2) > 0)
    assert np.all(np.diff(surface.draft_ms[1:, 1:], axis=1) > 0)
    assert np.array_equal(surface.draft_ms[:, 0], surface.draft_ms[:, 1])
    assert surface.prefill_ms > 0


def test_the_figures_show_every_cell_once() -> None:
    for rows in (dense_figure(), moe_figure()):
        assert [(row.batch, row.k) for row in rows] == [(b, k) for b in FIGURE_BATCHES for k in (0, 1, 2, 3, 5)]


def test_figure_ratios_by_hand() -> None:
    """Times of 10 + k ms verifying and 2 ms drafting whatever K; half of all drafts accepted."""
    verify = np.broadcast_to(10.0 + np.arange(4.0), (1, 3, 4)).copy()
    rows = figure_rows(CostSurface("plain", np.zeros(1), verify, np.full((3, 4), 2.0)), (0.5, 0.5, 0.5), (0, 3), (2,))
    k0, k3 = rows
    assert k3.tokens_per_s == pytest.approx(1e3 * 1.875 / 15.0)
    assert k3.over_no_drafter == pytest.approx(1.875 / 15.0 * 10.0)
    assert k3.over_k0 == pytest.approx(1.875 / 15.0 * 12.0)
    assert (k3.over_k3, k3.best, k0.best) == (1.0, True, False)


@pytest.mark.parametrize(
    ("arms", "batches", "message"),
    [
        ((0, 1), (1,), r"arms is \(0, 1\): give K from 0 to 5, 3 among them"),
        ((0, 3, 7), (1,), r"arms is \(0, 3, 7\)"),
        ((0, 3), (0,), r"batches is \(0,\): give 1 to 512"),
    ],
)
def test_impossible_figures_are_refused(arms: tuple[int, ...], batches: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        figure_rows(dense_surface(), DENSE_ACCEPTANCE, arms, batches)
