"""Rows of what a drafter costs: ratios of pairs, their intervals, and the acceptance from which a K pays."""

from __future__ import annotations

import math
from statistics import fmean, stdev

import numpy as np
import pytest

from adaptk.profile.estimate import AcceptanceCounts, Block
from adaptk.profile.taxrows import Span, TaxRow, pays_above, tax_rows

COUNTS = AcceptanceCounts(accepted=(60, 30), tried=(100, 60), returned=(100, 60), asked=(100, 60))


def blocks(k: int, visits: list[float], batch: int = 4) -> list[Block]:
    """A block of eight equal steps in each visit."""
    return [Block(batch, k, 64, 64.0, visit, 0.0, (ms,) * 8, (float(k),) * 8) for visit, ms in enumerate(visits)]


def row(rows: list[TaxRow], k: int | None) -> TaxRow:
    return next(row for row in rows if row.k == k)


def test_a_paired_ratio_is_a_t_interval_over_the_logs() -> None:
    """By hand from four visits."""
    ours, theirs = [11.0, 12.1, 10.6, 11.4], [10.0, 10.9, 10.0, 10.3]
    found = row(tax_rows(blocks(0, ours), blocks(0, theirs), COUNTS, paired=True), 0).ratio
    logs = [math.log(a / b) for a, b in zip(ours, theirs, strict=True)]
    reach = 3.18245 * stdev(logs) / 2  # t with three degrees of freedom
    assert found is not None
    assert found.value == pytest.approx(math.exp(fmean(logs)))
    assert found.low == pytest.approx(math.exp(fmean(logs) - reach), rel=1e-5)
    assert found.high == pytest.approx(math.exp(fmean(logs) + reach), rel=1e-5)


def test_what_the_machine_does_to_both_is_in_no_pair() -> None:
    """A machine that slows down by half: pairs do not notice, strangers know that they do not know."""
    drift = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]
    ours, theirs = blocks(0, [10.5 * d for d in drift]), blocks(0, [10.0 * d for d in drift])
    pair = row(tax_rows(ours, theirs, COUNTS, paired=True), 0)
    apart = row(tax_rows(ours, theirs, COUNTS, paired=False), 0)
    assert pair.ratio is not None
    assert apart.ratio is not None
    assert pair.ratio.value == apart.ratio.value == pytest.approx(1.05)
    assert pair.relative_width < 1e-6
    assert apart.relative_width > 0.2


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """150 sessions of seven visits with drift and noise: 95 % within three standard errors of that share."""
    rng, hits = np.random.default_rng(0), 0
    for _ in range(150):
        drift = np.exp(0.1 * rng.standard_normal(7).cumsum())
        noise = np.exp(0.02 * rng.standard_normal((2, 7)))
        ours, theirs = (10.6 * drift * noise[0]).tolist(), (10.0 * drift * noise[1]).tolist()
        ratio = row(tax_rows(blocks(0, ours), blocks(0, theirs), COUNTS, paired=True), 0).ratio
        assert ratio is not None
        assert ratio.low is not None
        assert ratio.high is not None
        hits += ratio.low <= 1.06 <= ratio.high
    assert abs(hits / 150 - 0.95) < 3 * math.sqrt(0.95 * 0.05 / 150)


def test_speeds_at_the_acceptance_of_the_answers() -> None:
    """Batch times acceptance length over step time; the gain is the ratio's counterpart."""
    rows = tax_rows(blocks(0, [10.0] * 4) + blocks(2, [15.0] * 4), blocks(0, [8.0] * 4), COUNTS, paired=True)
    none, idle, two = rows
    assert [one.k for one in rows] == [None, 0, 2]
    assert none.tokens_per_s is not None
    assert none.tokens_per_s.value == pytest.approx(4 / 0.008)
    assert idle.gain is not None
    assert idle.gain.value == pytest.approx(0.8)
    assert idle.pays_above is None
    length = 1 + 0.6 + 0.6 * 0.5
    assert two.tokens_per_s is not None
    assert two.tokens_per_s.value == pytest.approx(4 * length / 0.015)
    assert two.gain is not None
    assert two.gain.value == pytest.approx(length / (15.0 / 8.0))
    assert two.gain.low is not None
    assert two.gain.low < two.gain.value  # the acceptance is itself counted
    assert two.pays_above is not None
    assert 1 + two.pays_above + two.pays_above**2 == pytest.approx(15.0 / 8.0, rel=1e-4)


@pytest.mark.parametrize("k", [1, 3, 7])
def test_the_acceptance_from_which_a_k_pays(k: int) -> None:
    """Emits exactly as many tokens as its step is longer; beyond what all drafts accepted give there is none."""
    for ratio in np.linspace(1.0, k + 1.0, 9):
        share = pays_above(float(ratio), k)
        assert share is not None
        assert sum(share**i for i in range(k + 1)) == pytest.approx(ratio, abs=1e-4)
    assert pays_above(k + 1.01, k) is None
    assert pays_above(0.5, k) == 0.0


def test_what_is_not_known_is_not_said() -> None:
    """No engine to compare with, no draft tried, too few visits, nothing at all, batch sizes of one engine alone."""
    (alone,) = tax_rows(blocks(1, [10.0]), [], COUNTS, paired=True)
    assert (alone.ratio, alone.gain, alone.pays_above, alone.relative_width) == (None, None, None, math.inf)
    assert alone.itl_ms == Span(pytest.approx(10.0), None, None)
    untried = row(tax_rows(blocks(1, [10.0] * 3), blocks(0, [9.0] * 3), AcceptanceCounts(), paired=True), 1)
    assert (untried.tokens_per_s, untried.gain) == (None, None)
    assert untried.pays_above == pytest.approx(1 / 9, abs=1e-5)
    few = row(tax_rows(blocks(0, [10.0] * 2), blocks(0, [9.0] * 2), COUNTS, paired=True), 0).ratio
    assert few == Span(pytest.approx(10 / 9), None, None)
    assert tax_rows([], [], COUNTS, paired=True) == []
    (bare,) = tax_rows([], blocks(0, [9.0] * 3), COUNTS, paired=True)
    assert bare.k is None
    mixed = tax_rows(blocks(0, [10.0], batch=1), blocks(0, [9.0], batch=2), COUNTS, paired=True)
    assert [(one.batch, one.k, one.ratio is None) for one in mixed] == [(1, 0, True), (2, None, False)]
    shifted = [block._replace(visit=block.visit + 10) for block in blocks(0, [9.0] * 3)]
    assert row(tax_rows(blocks(0, [10.0] * 3), shifted, COUNTS, paired=True), 0).ratio is None
