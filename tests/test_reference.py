"""What steps are held against means what it says, worked out with scipy's distributions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from adaptk.reference import LEAST_SHIFT, MOST_SHIFT, Reference
from adaptk.regime import FormerRegime

ALPHA, BETA, DILUTION = [30.0, 5.0, 2.0], [10.0, 5.0, 6.0], [1.0, 2.0, 1.5]
FORMER = FormerRegime([8.0, 8.0, 8.0], [2.0, 3.0, 4.0], [1.0] * 3)


@given(st.integers(0, 12), st.integers(0, 12), st.floats(0.3, 3.0), st.floats(0.0, 3.0), st.integers(0, 2))
def test_counts_weigh_as_binomial_likelihoods(s: int, f: int, ratio: float, deviation: float, j: int) -> None:
    """Of odds that rose or fell by the shift, and of the present belief against the former one."""
    reference = Reference([0.5] * 3)
    positions = reference.refresh(ALPHA, BETA, DILUTION, ratio, deviation, FORMER)
    assert positions is reference.positions
    p, level, spread, _, up, down, _, for_hit, for_miss = positions[j]
    n, shift = s + f, reference.shift
    assert shift == min(MOST_SHIFT, max(LEAST_SHIFT, deviation))
    assert level == ALPHA[j] / (ALPHA[j] + BETA[j])
    assert special.logit(p) == pytest.approx(special.logit(level) + math.log(ratio), abs=1e-9)
    assert spread == pytest.approx(stats.bernoulli.var(p))
    for sign, normaliser in ((1.0, up), (-1.0, down)):
        moved = special.expit(special.logit(p) + sign * shift)
        expected = stats.binom.logpmf(s, n, moved) - stats.binom.logpmf(s, n, p)
        assert s * sign * shift - n * normaliser == pytest.approx(expected, abs=1e-9)
    former = FORMER.alpha[j] / (FORMER.alpha[j] + FORMER.beta[j])
    expected = stats.binom.logpmf(s, n, level) - stats.binom.logpmf(s, n, former)
    assert s * for_hit + f * for_miss == pytest.approx(expected, abs=1e-9)


def test_doubt_and_lead() -> None:
    """Equal weights make one trial each; the lead counts from the beginning of the block."""
    reference = Reference([0.5])
    (position,) = reference.refresh([30.0], [10.0], [1.0], 1.0, 0.5, None)
    assert position[3] == 1.0 / 40.0
    assert position[6] == 0.25
    assert position[7:] == (0.0, 0.0)
    reference.begin_block([30.0], [10.0])
    (position,) = reference.refresh([32.0], [8.0], [1.0], 1.0, 0.5, None)
    assert position[6] == pytest.approx(0.05)
