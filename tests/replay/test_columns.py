"""Which entry of a step is which request: as the trace says, or guessed."""

from __future__ import annotations

from adaptk.replay.columns import request_numbers, tokens_of
from tests.replay.traces import step


def test_numbers_of_the_trace_are_taken() -> None:
    steps = [step([0, 0], requests=[5, 9]), step([3, 3], requests=[9, 5]), step([3], requests=[9])]
    assert list(request_numbers(steps)) == [[5, 9], [9, 5], [9]]


def test_numbers_on_some_steps_only_are_no_help() -> None:
    assert list(request_numbers([step([0, 0], requests=[5, 9]), step([3, 3])])) == [[0, 1], [0, 1]]


def test_an_answer_that_was_cut_has_ended() -> None:
    steps = [step([0, 0, 0]), step([3, 3, 3], [1, 2, 1], emitted=[2, 2, 2]), step([3, 3])]
    assert list(request_numbers(steps))[2] == [0, 2]


def test_the_context_that_is_gone_tells_who_left() -> None:
    """Prompts of 10, 20 and 30 tokens; after a token each the cache loses 21 of 63: the second request."""
    steps = [
        step([0], prefill_tokens=10, context_tokens=0),
        step([0, 0], prefill_tokens=20, context_tokens=10, decodes=1),
        step([0, 0, 0], prefill_tokens=30, context_tokens=31, decodes=2),
        step([0, 0, 0], context_tokens=63),
        step([0, 0], context_tokens=44),
    ]
    assert list(request_numbers(steps))[3:] == [[0, 1, 2], [0, 2]]


def test_one_leaves_and_one_joins_at_once() -> None:
    """The batch stays as large; that a request decodes less shows it."""
    steps = [step([0, 0], prefill_tokens=8, decodes=0), step([3, 3]), step([3, 0], prefill_tokens=4, decodes=1)]
    assert list(request_numbers(steps)) == [[0, 1], [0, 1], [1, 2]]


def test_a_prompt_in_pieces_is_one_request() -> None:
    steps = [
        step([0], emitted=[0], prefill_tokens=8, decodes=0),
        step([0], emitted=[0], prefill_tokens=8, decodes=0),
        step([0], prefill_tokens=3, decodes=0),
        step([3]),
    ]
    assert list(request_numbers(steps)) == [[0]] * 4


def test_tokens_of_a_step_that_does_not_say() -> None:
    assert tokens_of(step([3], [2], emitted=None), 0) == 3
    assert tokens_of(step([3], [2], emitted=[1]), 0) == 1
