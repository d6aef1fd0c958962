from __future__ import annotations

import json
import math

import numpy as np
import pytest

from adaptk.acceptance import AcceptancePosterior
from adaptk.offsets import SPREAD, BatchOffsets, octave
from tests.test_acceptance import drafts


def alternate(posterior: AcceptancePosterior, seed: int, chances: dict[int, float], turns: int, spell: int) -> None:
    """Spells at each batch size in turn, each with an acceptance of its own."""
    rng = np.random.default_rng(seed)
    for _ in range(turns):
        for batch, a in chances.items():
            for _ in range(spell):
                posterior.observe(*drafts(rng, a, 3, batch), asked=3, decodes=batch, batch=batch)
            posterior.settle()


def test_octaves_are_powers_of_two() -> None:
    assert [octave(b) for b in (0, 1, 2, 3, 4, 7, 8, 255, 256, 10**12)] == [0, 0, 1, 1, 2, 2, 3, 7, 8, 23]


@pytest.mark.parametrize("chances", [{64: 0.75, 4: 0.45}, {64: 0.45, 4: 0.75}])
def test_each_batch_size_is_believed_to_accept_what_it_does(chances: dict[int, float]) -> None:
    """Spells of 150 steps; the length of K=3 is right at both to 6 %, where one belief for both would be 15 % off."""
    posterior = AcceptancePosterior(3, [0.6])
    alternate(posterior, 0, chances, 6, 150)
    for batch, a in chances.items():
        true = 1.0 + a + a * a + a**3
        assert posterior.lengths((3,), batch)[0] == pytest.approx(true, rel=0.06)


def test_a_short_spell_elsewhere_hardly_moves_what_is_believed_here() -> None:
    """2,000 drafts of the last two requests of a drain, none accepted: at batch 64 half of the fall is not believed."""
    posterior = AcceptancePosterior(3, [0.7])
    alternate(posterior, 1, {64: 0.7}, 1, 300)
    before = posterior.lengths((3,), 64)[0]
    posterior.observe([3, 3], [0, 0], asked=3, decodes=2, batch=2)
    assert posterior.lengths((3,), 64)[0] == pytest.approx(before, rel=0.01)


def test_where_all_was_learnt_there_is_no_offset() -> None:
    """At a constant batch size the offset stays exactly none and every position keeps its plain counts."""
    with_batch, without = AcceptancePosterior(3, [0.7]), AcceptancePosterior(3, [0.7])
    rng = np.random.default_rng(2)
    for _ in range(200):
        drafted, accepted = drafts(rng, 0.6, 3, 8)
        with_batch.observe(drafted, accepted, 3, 8, batch=8)
        without.observe(drafted, accepted, 3, 8)
    assert with_batch.alpha == without.alpha
    assert with_batch.beta == without.beta
    assert with_batch.lengths((1, 3), 8) == without.lengths((1, 3))


def test_an_unknown_batch_size_is_less_sure() -> None:
    """Learnt at batch 64; at batch 2 the same mean, with the spread of the octaves on top."""
    posterior = AcceptancePosterior(3, [0.7])
    alternate(posterior, 3, {64: 0.7}, 1, 300)
    here, there = (posterior.draws((3,), 20_000, np.random.default_rng(0), batch) for batch in (64, 2))
    assert np.mean(there) == pytest.approx(np.mean(here), rel=0.01)
    assert np.std(there) > 3.0 * np.std(here)


def test_it_is_the_posterior_of_a_normal_mean() -> None:
    """Nearly all was learnt elsewhere: one step with variance n p q, precision 1 / SPREAD^2 + information / noise."""
    offsets = BatchOffsets()
    for _ in range(3000):
        offsets.enter(64)
    offsets.enter(2)
    prior = offsets.unknown
    assert prior == pytest.approx(SPREAD * SPREAD, rel=0.12)
    offsets.learn(surprise=2.0, noise=4.0, information=4.0)
    precision = 1.0 / prior + 4.0
    assert math.log(offsets.ratio) == pytest.approx(2.0 / 4.0 * 4.0 / precision, rel=1e-9)


def test_it_survives_json() -> None:
    posterior, other = AcceptancePosterior(3, [0.6]), AcceptancePosterior(3)
    alternate(posterior, 4, {64: 0.7, 4: 0.5}, 2, 40)
    other.load(json.loads(json.dumps(posterior.snapshot())))
    for each in (posterior, other):
        alternate(each, 5, {4: 0.5, 32: 0.6}, 2, 20)
    assert other.snapshot() == posterior.snapshot()
    assert other.lengths((1, 3), 64) == posterior.lengths((1, 3), 64)
