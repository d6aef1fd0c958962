"""The profile of vLLM pull request 32374: cells, split and oracle."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from adaptk.replay.costs.calibrated import figure_rows
from adaptk.replay.costs.p32374 import ACCEPTANCE, BATCHES, ITL_MS, KS, p32374_surface
from adaptk.replay.drafter import lengths

DATA = Path(__file__).resolve().parents[4] / "shared/data/p32374.json"


def test_every_printed_cell_is_met() -> None:
    surface = p32374_surface()
    for batch, row in zip(BATCHES, ITL_MS, strict=True):
        assert [surface.itl_ms(batch, k) for k in KS] == pytest.approx(row)


@pytest.mark.skipif(not DATA.exists(), reason=f"{DATA} is not here")
def test_the_numbers_are_those_of_the_data_file() -> None:
    data = json.loads(DATA.read_text())
    assert {str(b): dict(zip(map(str, KS), row, strict=True)) for b, row in zip(BATCHES, ITL_MS, strict=True)} == data[
        "itl_ms"
    ]
    assert np.cumprod(ACCEPTANCE) == pytest.approx(data["acceptance_marginal"])


def test_the_oracle() -> None:
    """K of 3, 3, 3, 1, 0 at the printed batch sizes, of those printed."""
    rows = figure_rows(p32374_surface(), ACCEPTANCE, KS, BATCHES)
    assert [row.k for row in rows if row.best] == [3, 3, 3, 1, 0]


def test_acceptance_lengths_as_printed() -> None:
    assert lengths(ACCEPTANCE)[[1, 3, 5]] == pytest.approx([1.681, 2.276, 2.429], abs=1e-3)


def test_linear_between_cells() -> None:
    surface = p32374_surface()
    assert surface.itl_ms(40, 1) == pytest.approx((7.852 + 9.656) / 2)
    assert surface.itl_ms(64, 2) == pytest.approx((9.656 + 13.498) / 2)


def test_the_split() -> None:
    """All of it drafting at batch 1; at 256 drafting has grown as the step at K=0 has, 2.22 times."""
    surface = p32374_surface()
    assert surface.verify_ms[0, 1] == pytest.approx(6.521)
    assert surface.draft_ms[256, 5] == pytest.approx((10.326 - 6.521) * 14.491 / 6.521)
    assert np.all(np.diff(surface.verify_ms, axis=2) > -1e-9)
    assert np.all(np.diff(surface.draft_ms[1:], axis=1) > 0)
    assert not surface.draft_ms[:, 0].any()
