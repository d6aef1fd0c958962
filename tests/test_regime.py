from __future__ import annotations

import json

import numpy as np
import pytest

from adaptk.acceptance import AcceptancePosterior
from adaptk.regime import KEPT_TRIALS, FormerRegime
from tests.test_acceptance import mean, play


def test_what_is_kept_weighs_no_more_than_a_limit() -> None:
    former = FormerRegime.left([900.0, 8.0], [300.0, 2.0], [0.5, 1.0])
    assert (former.alpha, former.beta) == ([0.75 * KEPT_TRIALS, 8.0], [0.25 * KEPT_TRIALS, 2.0])


def test_the_odds_are_those_of_the_two_beliefs() -> None:
    """Log of 0.9 / 0.5 for a hit, of 0.1 / 0.5 for a miss."""
    former = FormerRegime.left([5.0], [5.0], [1.0])
    assert former.against(0, 0.9) == pytest.approx((np.log(1.8), np.log(0.2)))


@pytest.mark.parametrize("seed", range(10))
def test_a_change_that_was_none_is_taken_back(seed: int) -> None:
    """Ten steps of bad luck fire the alarm; twelve ordinary ones later the belief and its sureness are back."""
    posterior, rng = AcceptancePosterior(3, [0.8]), np.random.default_rng(seed)
    play(posterior, rng, 0.8, 3, 8, 300)
    for _ in range(10):
        if posterior.observe([3] * 8, [0] * 8, asked=3, decodes=8):
            break
    assert posterior.alarms == 1
    assert mean(posterior, 0) < 0.6
    play(posterior, rng, 0.8, 3, 8, 12)
    assert posterior.alarms == 1
    assert mean(posterior, 0) == pytest.approx(0.8, abs=0.08)
    assert posterior.alpha[0] + posterior.beta[0] > 200.0


@pytest.mark.parametrize("seed", range(10))
def test_a_regime_that_comes_back_is_known_again_at_every_position(seed: int) -> None:
    """0.9 and 0.3 take turns: ten steps into the second turn of 0.9 even the third position is within 0.1 of it."""
    posterior, rng = AcceptancePosterior(3, [0.9]), np.random.default_rng(seed)
    for a in (0.9, 0.3):
        play(posterior, rng, a, 3, 8, 200)
    play(posterior, rng, 0.9, 3, 8, 10)
    assert all(abs(mean(posterior, j) - 0.9) < 0.1 for j in range(3))


def test_it_is_not_taken_up_for_what_neither_explains() -> None:
    """Former 0.1, present 0.03: eight of eight accepted is likelier under the former, and no sign of its return."""
    former = FormerRegime.left([30.0], [270.0], [1.0])
    assert former.against(0, 0.03)[0] < 0.0
    assert not former.explains([([8], [0])], 1.0)
    assert former.explains([([1], [7])], 1.0)


def test_it_survives_json() -> None:
    former = FormerRegime.left([30.0, 8.0], [10.0, 2.0], [0.6, 1.0])
    former.returned(1.5)
    other = FormerRegime.restored(json.loads(json.dumps(former.snapshot())))
    assert other.snapshot() == former.snapshot()
    assert other.against(1, 0.4) == former.against(1, 0.4)
