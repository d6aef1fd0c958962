"""The real engine with the target as its own drafter: exactly K drafts, all of them accepted.

The drafter is told a shorter length than the target's, as small models often have.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.driver import Policy, cycling
from tests.engine.engine import greedy, running, scheduler_of

K_MAX = 7
SHORT = 128  # the drafter's max_model_len


@pytest.fixture(scope="module")
def llm(model: Path) -> Iterator[Any]:
    """An engine of 256 tokens whose drafter has 128."""
    drafter = {"method": "draft_model", "model": str(model), "num_speculative_tokens": K_MAX, "max_model_len": SHORT}
    with running(model, drafter, ADAPTK="on") as llm:
        yield llm
        assert scheduler_of(llm).adaptk.active, scheduler_of(llm).adaptk.reason


def steer(llm: Any, *ks: int) -> Policy:
    """A policy that plays ``ks`` in turn, in charge from now on."""
    policy = scheduler_of(llm).adaptk.controller = cycling(ks)
    return policy


def test_every_step_verifies_exactly_the_previous_decision(llm: Any) -> None:
    """With a drafter that always finds K drafts, each width is the K decided one step before, no more and no less."""
    policy = steer(llm, 3, 0, 1, 7, 1, 3)
    # Few enough tokens that no request is cut at its end: the widths are then the decisions'.
    greedy(llm, ["hello hello", "one two three four"], 80)
    whole = [r for r in policy.records[1:] if r.batch_size == 2]
    for before, record in zip(policy.chosen, whole, strict=False):
        assert record.drafted == [before] * 2
        assert record.verified is None
    assert len(whole) > 15
    accepted = sum(map(sum, (r.accepted for r in policy.records)))
    drafted = sum(map(sum, (r.drafted for r in policy.records)))
    assert accepted > 0.95 * drafted > 0


def test_beyond_a_stop_drafts_are_accepted_and_nothing_comes_of_them(llm: Any) -> None:
    """A stop token among accepted drafts ends the output there: all of them are acceptance, some are goodput."""
    from vllm import SamplingParams

    steer(llm, K_MAX)
    (tokens,) = greedy(llm, ["one two three four"], 60)
    # Tokens come as 1, 8, 8, ...: one that is first seen in the midst of an 8.
    place = next(i for i in range(10, 60) if tokens.index(tokens[i]) == i and (i - 1) % (K_MAX + 1) in (2, 3, 4))
    policy = steer(llm, K_MAX)
    params = SamplingParams(max_tokens=60, temperature=0.0, ignore_eos=True, stop_token_ids=[tokens[place]])
    (answer,) = llm.generate(["one two three four"], params, use_tqdm=False)
    assert list(answer.outputs[0].token_ids) == tokens[: place + 1]
    last = next(r for r in reversed(policy.records) if any(r.emitted or ()))
    assert (last.drafted, last.accepted) == ([K_MAX], [K_MAX])
    assert last.emitted == [(place - 1) % (K_MAX + 1) + 1]
    assert sum(sum(r.emitted or ()) for r in policy.records) == place + 1


def test_beyond_max_tokens_drafts_are_accepted_and_nothing_comes_of_them(llm: Any) -> None:
    """The same where the output ends because it is long enough."""
    policy = steer(llm, K_MAX)
    greedy(llm, ["one two three four"], 12)
    last = next(r for r in reversed(policy.records) if any(r.emitted or ()))
    assert (last.drafted, last.accepted, last.emitted) == ([K_MAX], [K_MAX], [3])


def test_one_request_too_long_for_the_drafter_ends_all_drafts(llm: Any) -> None:
    """V1 then gives every request dummies: no drafts, no times of an arm, and drafts again once it is gone."""
    policy = steer(llm, 3)
    greedy(llm, ["x" * (SHORT - 20), "hello hello"], 60)
    too_long = [r for r in policy.records if r.draft_k == 0]
    assert len(too_long) > 30
    after = False
    for record in policy.records[1:]:
        if after:
            assert not any(record.drafted)
            assert record.verified == K_MAX * record.batch_size or record.batch_size == 1
        after = record.draft_k == 0
    policy = steer(llm, 3)
    greedy(llm, ["hello hello"], 30)
    assert [r.drafted for r in policy.records[1:4]] == [[3]] * 3
