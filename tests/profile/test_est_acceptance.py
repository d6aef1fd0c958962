"""Counts of drafts: the convention of missing drafts, sums, and errors that count requests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from adaptk.profile.estimate import AcceptanceCounts
from adaptk.step import StepRecord


def _step(drafted: Sequence[int], accepted: Sequence[int], k: int = 3, **more: Any) -> StepRecord:
    fields = {"batch_size": len(drafted), "elapsed_ms": 10.0, "k": k, "drafted": drafted, "accepted": accepted}
    return StepRecord(**{**fields, "drafted": list(drafted), "accepted": list(accepted), **more})


def _run(rates: np.ndarray, steps: int, rng: np.random.Generator, k: int = 3) -> list[StepRecord]:
    """One step after the other of requests with an acceptance of their own, shape ``(requests,)``."""
    numbers = list(range(len(rates)))
    records = []
    for _ in range(steps + 1):
        hits = np.cumprod(rng.random((len(rates), k)) < rates[:, None], axis=1).sum(axis=1)
        records.append(_step([k] * len(rates), [int(hit) for hit in hits], k, requests=numbers))
    return records


def test_a_missing_draft_counts_as_a_failure() -> None:
    """Three were asked for: one request got none, one got two of which both were accepted."""
    counts = AcceptanceCounts.from_records([_step([0, 0], [0, 0]), _step([0, 2], [0, 2])], 3)
    assert counts.counts() == [[1, 2], [1, 1], [0, 1]]
    assert counts.supply() == [0.5, 0.5, 0.0]
    assert counts.width(3) == 1.0
    assert counts.acceptance_length(3)[0] == pytest.approx(2.0)


def test_acceptance_length_is_the_tokens_that_came() -> None:
    """Whatever a drafter returns: one token and the accepted drafts, averaged over all request-steps of that K."""
    rng = np.random.default_rng(0)
    records = []
    for _ in range(200):
        drafted = [int(d) for d in rng.integers(0, 8, 4)]
        records.append(_step(drafted, [int(rng.integers(0, d + 1)) for d in drafted], 7))
    tokens = np.mean([1 + accepted for step in records[1:] for accepted in step.accepted])
    assert AcceptanceCounts.from_records(records, 7).acceptance_length(7)[0] == pytest.approx(tokens)


def test_prompts_and_requests_without_a_token_are_left_out() -> None:
    """A step with prompt tokens, and a request that was gone, show nothing."""
    records = [
        _step([3], [3]),
        _step([3], [0], prefill_tokens=5),
        _step([3, 3], [3, 0], emitted=[4, 0]),
    ]
    assert AcceptanceCounts.from_records(records, 3).counts() == [[1, 1]] * 3


def test_requests_whose_drafts_do_not_count_are_no_drafter_without_drafts() -> None:
    """After steps that were left to vLLM, and where it put dummies in their place: fewer decodes than requests."""
    records = [_step([3], [3]), _step([0, 0], [0, 0], decodes=0), _step([3, 0], [3, 0], decodes=1), _step([3], [3])]
    assert AcceptanceCounts.from_records(records, 3).counts() == [[1, 1]] * 3


def test_steps_of_different_k_share_positions() -> None:
    """K=1 teaches the first position alone; more drafts than were asked for are taken as asked."""
    records = [_step([0], [0], 1), _step([1], [1], 3), _step([3], [1], 0), _step([2], [2], 0)]
    counts = AcceptanceCounts.from_records(records, 3)
    assert counts.tried == (3, 2, 0)
    assert counts.asked == (3, 2, 1)
    assert counts.accepted == (3, 1, 0)


def test_sums_are_those_of_all_records() -> None:
    """Adding the counts of two runs of other requests is counting both; an empty one changes nothing."""
    rng = np.random.default_rng(1)
    first, second = (AcceptanceCounts.from_records(_run(np.full(3, 0.6), 20, rng), 3) for _ in range(2))
    both = first.merge(second)
    assert both.tried == tuple(a + b for a, b in zip(first.tried, second.tried, strict=True))
    assert len(both.requests) == 6
    assert both.clustered
    assert AcceptanceCounts().merge(first) == first == first.merge(AcceptanceCounts())
    unknown = AcceptanceCounts(accepted=(5, 1), tried=(10, 5), returned=(10, 10), asked=(10, 10))
    mixed = first.merge(unknown)
    assert not mixed.clustered
    assert mixed.tried[2] == first.tried[2]


def test_counts_are_plain_data() -> None:
    """A journal gives them back unchanged."""
    counts = AcceptanceCounts.from_records(_run(np.array([0.2, 0.9]), 10, np.random.default_rng(0)), 3)
    assert msgspec.json.decode(msgspec.json.encode(counts), type=AcceptanceCounts) == counts


def test_errors_count_requests_where_steps_of_one_are_alike() -> None:
    """Requests differ (rates 0.3 to 0.9): the stated error is the spread over repetitions, within a quarter.

    Counting steps as independent would state less than half of it.
    """
    rng = np.random.default_rng(2)
    lengths, stated, naive = [], [], []
    for _ in range(150):
        counts = AcceptanceCounts.from_records(_run(rng.uniform(0.3, 0.9, 20), 40, rng), 3)
        length, error = counts.acceptance_length(3)
        lengths.append(length)
        stated.append(error)
        naive.append(msgspec.structs.replace(counts, requests=()).acceptance_length(3)[1])
    assert np.mean(stated) == pytest.approx(np.std(lengths), rel=0.25)
    assert np.mean(naive) < 0.5 * np.std(lengths)


def test_a_ratio_of_lengths_is_surer_than_its_parts() -> None:
    """K=1 and K=3 share their first position, whose error cancels in part."""
    counts = AcceptanceCounts.from_records(
        _run(np.random.default_rng(3).uniform(0.3, 0.9, 30), 40, np.random.default_rng(4)), 3
    )
    ratio, error = counts.log_length_ratio(3, 1)
    (long, long_error), (short, short_error) = counts.acceptance_length(3), counts.acceptance_length(1)
    assert ratio == pytest.approx(math.log(long / short))
    assert 0.0 < error < math.hypot(long_error / long, short_error / short)
    assert counts.log_length_ratio(2, 2) == (0.0, 0.0)


def test_what_was_never_tried_is_unknown() -> None:
    """Without counts acceptance is 0 and its error infinite; K=0 is known all the same."""
    nothing = AcceptanceCounts()
    assert nothing.acceptance_length(0) == (1.0, 0.0)
    assert nothing.acceptance_length(3) == (1.0, math.inf)
    assert nothing.log_length_ratio(0, 3) == (0.0, math.inf)
    assert nothing.conditional() == nothing.supply() == nothing.counts() == []
    assert nothing.width(2) == 2.0
    dead = AcceptanceCounts.from_records([_step([0], [0]), _step([3], [0])], 3)
    assert dead.acceptance_length(1)[1] < math.inf
    assert dead.acceptance_length(2)[1] == math.inf
    assert AcceptanceCounts.from_records([], 2).counts() == [[0, 0], [0, 0]]


def test_a_longer_k_holds_the_last_position() -> None:
    """As a table does beyond its last entry."""
    counts = AcceptanceCounts(accepted=(50,), tried=(100,), returned=(80,), asked=(100,))
    assert counts.acceptance_length(3)[0] == pytest.approx(1.0 + 0.5 + 0.25 + 0.125)
    assert counts.width(3) == pytest.approx(2.4)
