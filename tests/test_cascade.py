"""Counts by draft position, whichever of the three ways of counting a step takes."""

from __future__ import annotations

import numpy as np
import pytest

from adaptk.cascade import cascade_counts


def one_by_one(drafted: list[int], accepted: list[int], k_max: int) -> tuple[list[int], list[int], list[int]]:
    """Request by request and position by position."""
    succeeded, failed, present = ([0] * k_max for _ in range(3))
    for d, n in zip(drafted, accepted, strict=True):
        for j in range(min(d, k_max)):
            present[j] += 1
            succeeded[j] += j < n
            failed[j] += j == n
    return succeeded, failed, present


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("most", [3, 15, 16, 40])
@pytest.mark.parametrize("k_max", [1, 7, 15, 64])
def test_counts_are_those_of_a_loop(most: int, alike: bool, k_max: int) -> None:
    """Few drafts or many, as many for all requests or not, also beyond the positions that are counted."""
    rng = np.random.default_rng(most)
    for requests in (1, 2, 50):
        drafted = [most] * requests if alike else rng.integers(0, most + 1, requests).tolist()
        accepted = [int(rng.integers(0, d + 1)) for d in drafted]
        assert tuple(map(list, cascade_counts(drafted, accepted, k_max))) == one_by_one(drafted, accepted, k_max)
