"""Which entry of a step is which request: as the trace says, or guessed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.policies.static import FixedK
from adaptk.replay.simulator import Engine, World, simulate
from adaptk.replay.traces.columns import emitted_tokens, request_numbers, tokens_of
from adaptk.replay.traces.tokenruns import token_runs
from adaptk.replay.workload import Requests
from adaptk.step import StepRecord
from tests.replay.recordings import PRESET, SETUP, step


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


def silent(drafted: list[int], accepted: list[int] | None = None, **more: Any) -> StepRecord:
    return step(drafted, accepted, emitted=None, **more)


def emitted(*steps: StepRecord) -> list[list[int]]:
    return emitted_tokens(steps, list(request_numbers(steps)))


class TestEmitted:
    def test_pieces_of_a_prompt_emit_nothing_but_the_last(self) -> None:
        steps = [silent([0], prefill_tokens=8, decodes=0)] * 3
        assert emitted(*steps, silent([3], [2]), silent([3], [0])) == [[0], [0], [1], [3], [1]]

    def test_beside_one_that_decodes(self) -> None:
        """Without drafts it looks like a piece; as many as decodes says do not."""
        first = silent([0], prefill_tokens=8, decodes=0)
        mixed = [silent([0, 0], prefill_tokens=8, decodes=1)] * 2
        assert emitted(first, *mixed, silent([0, 0])) == [[1], [1, 0], [1, 1], [1, 1]]

    @pytest.mark.parametrize("numbers", [True, False])
    def test_where_nobody_says_who_decodes(self, numbers: bool) -> None:
        """Prompt tokens are of the request that joins, or of the last that did."""
        steps = [silent([0], prefill_tokens=8), silent([3, 0], [1, 0], prefill_tokens=8)]
        steps += [silent([3, 0], [1, 0], prefill_tokens=5), silent([3, 3])]
        if numbers:
            steps = [replace(one, requests=list(range(one.batch_size))) for one in steps]
        assert emitted(*steps) == [[1], [2, 0], [2, 1], [1, 1]]

    def test_a_cache_that_was_lost_is_computed_again_in_pieces(self) -> None:
        both, alone = {"requests": [0, 1]}, {"requests": [0]}
        steps = [silent([0, 0], prefill_tokens=9, decodes=0, **both), silent([3, 3], **both), silent([3], **alone)]
        steps += [silent([3, 0], prefill_tokens=4, decodes=1, **both)] * 2 + [silent([3, 3], **both)]
        assert emitted(*steps) == [[1, 1], [1, 1], [1], [1, 0], [1, 1], [1, 1]]
        assert token_runs(steps).recomputed == 8

    def test_what_a_step_says_is_taken(self) -> None:
        steps = [step([0], emitted=[1], prefill_tokens=8, decodes=0), silent([0], prefill_tokens=8, decodes=0)]
        assert emitted(*steps) == [[1], [1]]


@pytest.mark.parametrize(
    ("missing", "right"),
    [((), 1.0), (("requests",), 0.94), (("decodes",), 0.75), (("requests", "decodes"), 0.75)],
    ids=["numbers and decodes", "decodes", "numbers", "neither"],
)
def test_pieces_of_simulated_prompts(missing: tuple[str, ...], right: float) -> None:
    """Of 80 prompts of 20 to 200 tokens in steps of 48, a share of the pieces; none seems to be computed again."""
    rng = np.random.default_rng(1)
    load = Requests(np.zeros(80), rng.integers(20, 200, 80), rng.integers(5, 120, 80), np.zeros(80, dtype=np.int64))
    engine = Engine(8, max_tokens=48)
    world = World(PRESET.surface, Drafter(profiles([0.7], k_max=3)), load, 20_000, engine, seed=3)
    steps = [row.step for row in simulate(world, FixedK(SETUP, 3), record=True).rows]
    less = [replace(one, emitted=None, **dict.fromkeys(missing)) for one in steps]
    pieces = [[tokens == 0 for tokens in one.emitted or ()] for one in steps]
    count = sum(map(sum, pieces))
    assert count > 300
    guessed = [[tokens == 0 for tokens in one] for one in emitted_tokens(less, list(request_numbers(less)))]
    wrong = sum(one != other for a, b in zip(pieces, guessed, strict=True) for one, other in zip(a, b, strict=True))
    assert 1.0 - wrong / count >= right
    assert token_runs(less).recomputed == 0
