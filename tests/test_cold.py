from __future__ import annotations

import json

import numpy as np
import pytest

from adaptk.acceptance import AcceptancePosterior
from adaptk.cold import COLD_AFTER, COLD_STEPS
from tests.test_acceptance import drafts, play


def learnt(seed: int, a: float = 0.7, batch: int = 8) -> tuple[AcceptancePosterior, np.random.Generator]:
    """A posterior that knows a drafter well."""
    posterior, rng = AcceptancePosterior(3, [a]), np.random.default_rng(seed)
    play(posterior, rng, a, 3, batch, 300)
    return posterior, rng


def rest(posterior: AcceptancePosterior, steps: int = 60) -> None:
    """Steps at K=0."""
    for _ in range(steps):
        posterior.observe([0] * 8, [0] * 8, asked=0, decodes=8)


@pytest.mark.parametrize("seed", range(10))
def test_a_drafter_that_is_poor_after_k0_is_not_taken_for_a_bad_one(seed: int) -> None:
    """Acceptance is 0.28 for 10 steps after 60 at K=0, 0.7 before: not half of the fall of 1.8 in log odds is believed.

    Without a spell at K=0 all of it is.
    """
    means = []
    for idle in (60, 0):
        posterior, rng = learnt(seed)
        rest(posterior, idle)
        play(posterior, rng, 0.28, 3, 8, 10)
        means.append(posterior.means()[0])
    assert means[0] > 0.52
    assert means[1] < 0.45


@pytest.mark.parametrize("seed", range(10))
def test_a_drafter_that_has_become_bad_is_found_out_all_the_same(seed: int) -> None:
    """Acceptance 0.1 for good after the spell: after COLD_STEPS drafted steps it is believed below 0.3."""
    posterior, rng = learnt(seed)
    rest(posterior)
    play(posterior, rng, 0.1, 3, 8, COLD_STEPS)
    assert posterior.means()[0] < 0.3


@pytest.mark.parametrize("seed", range(10))
def test_good_news_counts_at_once(seed: int) -> None:
    """Acceptance 0.05, then 0.85 found by probing for four steps after 60 at K=0: it is believed above 0.5."""
    posterior, rng = learnt(seed, 0.05)
    rest(posterior)
    play(posterior, rng, 0.85, 1, 8, 4)
    assert posterior.means()[0] > 0.5


def test_a_drafter_known_to_be_cold_is_worth_less_in_the_next_steps_only() -> None:
    """After five spells with 0.28 of 0.7 in the steps behind, a visit is priced at less than 0.8 of the length."""
    posterior, rng = learnt(0)
    for _ in range(5):
        rest(posterior)
        play(posterior, rng, 0.28, 3, 8, 8)
        play(posterior, rng, 0.7, 3, 8, 60)
    assert posterior.lengths_now((3,)) == posterior.lengths((3,))
    rest(posterior, COLD_AFTER)
    assert posterior.lengths_now((3,))[0] < 0.8 * posterior.lengths((3,))[0]
    drawn = posterior.draws((3,), 4000, np.random.default_rng(0), visit=True).mean()
    assert drawn == pytest.approx(posterior.lengths_now((3,))[0], rel=0.03)


def test_a_drafter_that_is_never_cold_is_priced_as_it_is() -> None:
    """Five spells with the same acceptance behind them: within 5 % of the length."""
    posterior, rng = learnt(0)
    for _ in range(5):
        rest(posterior)
        play(posterior, rng, 0.7, 3, 8, 60)
    rest(posterior, COLD_AFTER)
    assert posterior.lengths_now((3,))[0] == pytest.approx(posterior.lengths((3,))[0], rel=0.05)


def test_it_survives_json_in_the_middle_of_a_cold_spell() -> None:
    posterior, rng = learnt(1)
    rest(posterior)
    posterior.observe(*drafts(rng, 0.2, 3, 8), asked=3, decodes=8)
    other = AcceptancePosterior(3)
    other.load(json.loads(json.dumps(posterior.snapshot())))
    for _ in range(COLD_STEPS):
        drafted, accepted = drafts(rng, 0.3, 3, 8)
        answers = [each.observe(drafted, accepted, 3, 8) for each in (posterior, other)]
        assert answers[0] == answers[1]
    assert other.snapshot() == posterior.snapshot()
