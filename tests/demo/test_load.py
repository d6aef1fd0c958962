"""The demo's load: the same for every policy, other texts in every round, three phases that differ as promised."""

from __future__ import annotations

import random

import pytest

from adaptk.demo import load


@pytest.mark.parametrize("size", [load.QUICK, load.FULL])
def test_phases_are_as_promised(size: load.Size) -> None:
    """Few who copy, greedily; 16 who chat at temperature 1 for at least 96 tokens; a rollout that starts at 32."""
    copy, chat, rollout = load.phases(0, size)
    assert [phase.name for phase in (copy, chat, rollout)] == list(load.PHASES)
    assert copy.greedy
    assert copy.concurrency == 2
    assert chat.concurrency == len(chat.requests) == 16
    assert min(request.max_tokens for request in chat.requests) >= 96
    assert rollout.concurrency == len(rollout.requests) == 32
    for phase in (chat, rollout):
        assert {request.temperature for request in phase.requests} == {1.0}
        assert len({request.seed for request in phase.requests}) == len(phase.requests)


def test_rounds_repeat_exactly_and_differ_from_each_other() -> None:
    """What one policy is asked in a round, every other is asked too."""
    assert load.phases(3) == load.phases(3)
    for first, second in zip(load.phases(0), load.phases(1), strict=True):
        assert {request.prompt for request in first.requests} != {request.prompt for request in second.requests}


def test_rollout_drains_slowly_with_a_long_tail() -> None:
    """The last quarter of the requests takes the second half of the time, and no two end together."""
    lengths = load.rollout_lengths(280)
    assert lengths == sorted(lengths)
    assert len(lengths) == 32
    assert lengths[-1] == 280
    assert lengths[23] == 280 / 2
    assert len(set(lengths)) == 32


def test_notes_have_one_day_a_sentence() -> None:
    """A text without repeated sentences cannot be copied from its own beginning."""
    text = load.notes(random.Random(1), 11)
    sentences = text.split(". ")
    assert len(sentences) == len(set(sentences)) == 11
