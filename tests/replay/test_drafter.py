"""Drafters: probabilities that are some, cut and extended, and the profiles that are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adaptk.replay.drafter import DFLASH, EAGLE, EAGLE3, Drafter, conditional, lengths, profiles


def test_acceptance_lengths_by_hand() -> None:
    assert lengths([0.5, 0.4, 1.0]).tolist() == pytest.approx([1.0, 1.5, 1.7, 1.9])
    assert lengths([]).tolist() == [1.0]


def test_conditional_acceptance_multiplies_back_to_the_marginal() -> None:
    marginal = [0.76, 0.54, 0.39, 0.28]
    assert np.cumprod(conditional(marginal)).tolist() == pytest.approx(marginal)


def test_to_cuts_or_holds_the_last_acceptance_and_supply() -> None:
    drafter = Drafter(profiles([0.7, 0.5], k_max=2), supply=profiles([0.9, 0.8], k_max=2), cold=0.3)
    assert drafter.to(1).acceptance.tolist() == [[0.7]]
    longer = drafter.to(4)
    assert longer.acceptance.tolist() == [[0.7, 0.5, 0.5, 0.5]]
    assert longer.supply is not None
    assert longer.supply.tolist() == [[0.9, 0.8, 0.8, 0.8]]
    assert (longer.k_max, longer.kinds, longer.cold) == (4, 1, 0.3)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"acceptance": profiles([1.1])}, "acceptance"),
        ({"acceptance": np.array([0.5])}, "acceptance"),
        ({"acceptance": profiles([np.nan])}, "acceptance"),
        ({"supply": profiles([-0.1])}, "supply"),
        ({"mix": np.array([[0.5]])}, "add up to 1"),
        ({"mix": np.array([[0.5, 0.5]])}, "mix"),
        ({"supply": profiles([0.5], k_max=2)}, "supply"),
        ({"supply": profiles([0.5], [0.5])}, "supply"),
        ({"segment": 0}, "segment is 0"),
        ({"cold": 1.5}, "cold is 1.5"),
        ({"cold_steps": 0.0}, "cold_steps is 0"),
    ],
)
def test_what_is_no_probability_or_has_another_shape_is_refused(fields: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Drafter(**{"acceptance": profiles([0.7]), **fields})


def test_a_drafter_trained_on_its_own_drafts_falls_slower_with_depth() -> None:
    assert all(0 < a < 1 for profile in (EAGLE, EAGLE3, DFLASH) for a in profile)
    assert lengths(EAGLE)[7] == pytest.approx(2.48)  # 1 + .68 + .39 + .20 + .10 + .06 + .03 + .02
    assert lengths(EAGLE3)[7] == pytest.approx(3.45)
    assert lengths(DFLASH)[7] > lengths(EAGLE3)[7]
