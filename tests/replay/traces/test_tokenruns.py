"""What a trace says about the tokens of each request, checked by hand."""

from __future__ import annotations

import pytest

from adaptk.replay.drafter import HIT, MISS, UNKNOWN
from adaptk.replay.traces.tokenruns import token_runs
from adaptk.step import StepRecord
from tests.replay.recordings import step


def outcomes(*steps: StepRecord) -> list[list[int]]:
    return [stream.outcomes for stream in token_runs(steps).streams]


class TestOutcomes:
    def test_a_rejection_shows_one_miss(self) -> None:
        assert outcomes(step([3], [1])) == [[HIT, MISS]]

    def test_the_token_behind_a_full_acceptance_was_not_drafted(self) -> None:
        assert outcomes(step([3], [3])) == [[HIT, HIT, HIT, UNKNOWN]]

    def test_without_drafts_nothing_is_seen(self) -> None:
        assert outcomes(step([0])) == [[UNKNOWN]]

    def test_an_answer_cut_at_a_stop(self) -> None:
        assert outcomes(step([3, 3], [3, 1], emitted=[2, 2])) == [[HIT, HIT], [HIT, MISS]]

    def test_more_tokens_than_drafts_explain(self) -> None:
        assert outcomes(step([1], [0], emitted=[3])) == [[MISS, UNKNOWN, UNKNOWN]]

    def test_steps_follow_one_another_in_each_request(self) -> None:
        steps = [step([0, 0], requests=[4, 8]), step([2, 1], [1, 1], requests=[8, 4])]
        assert outcomes(*steps) == [[UNKNOWN, HIT, UNKNOWN], [UNKNOWN, HIT, MISS]]


class TestLoad:
    STEPS = (
        step([0, 0], emitted=[1, 0], prefill_tokens=30, decodes=0, requests=[0, 1]),
        step([3, 0], [2, 0], emitted=[3, 1], prefill_tokens=7, decodes=1, requests=[0, 1]),
        step([3, 0], [0, 0], prefill_tokens=9, decodes=1, requests=[1, 2]),
        step([3], [3], requests=[2]),
    )

    def test_prompts(self) -> None:
        """Of requests that join together only the sum is known; a piece belongs to who has emitted nothing yet."""
        streams = token_runs(self.STEPS).streams
        assert [(stream.prompt, stream.pieces) for stream in streams] == [(15.0, 1), (22.0, 2), (9.0, 1)]

    def test_work_before_each_step_and_request(self) -> None:
        runs = token_runs(self.STEPS)
        assert runs.emitted.tolist() == [1, 4, 2, 4]
        assert runs.before.tolist() == [0, 1, 5, 7]
        assert [stream.after_tokens for stream in runs.streams] == [0, 0, 5]

    def test_who_decodes_and_who_gets_drafts(self) -> None:
        runs = token_runs(self.STEPS)
        assert runs.decodes.tolist() == [0, 1, 1, 1]
        assert runs.drafting.tolist() == [1, 1, 1, 0]
        assert runs.live.tolist() == [2, 2, 2, 1]

    def test_decodes_are_those_that_have_emitted_where_the_trace_does_not_say(self) -> None:
        assert token_runs([step([0, 0]), step([3, 3, 0], prefill_tokens=5)]).decodes.tolist() == [2, 2]

    def test_silent_requests_and_prompts_computed_again(self) -> None:
        runs = token_runs([step([0, 0], emitted=[1, 0], requests=[0, 1]), step([0], prefill_tokens=40, requests=[0])])
        assert (len(runs.streams), runs.silent, runs.recomputed) == (1, 1, 40)


class TestAsked:
    def test_the_step_before_asked_for_the_drafts(self) -> None:
        [stream] = token_runs([step([0], k=3), step([1], [1], k=2), step([0], k=0), step([0], k=3)]).streams
        assert stream.drafts == [(3, 1, 1), (2, 0, 0), (0, 0, 0)]

    def test_a_drafter_that_did_not_run_was_not_asked(self) -> None:
        [stream] = token_runs([step([0], draft_k=0), step([0])]).streams
        assert stream.drafts == [(0, 0, 0)]

    @pytest.mark.parametrize("k", [1, 3])
    def test_drafts_in_the_next_steps_time(self, k: int) -> None:
        """There draft_k is what the step before asked for, which says nothing of this one."""
        [stream] = token_runs([step([0], k=0, draft_k=3), step([0], k=k, draft_k=0), step([0], k=1, draft_k=k)]).streams
        assert stream.drafts == [(0, 0, 0), (k, 0, 0)]
