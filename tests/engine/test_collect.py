"""What is not a draft, not a step's time or not a step at all is not booked as one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import DraftTokenIds
from vllm.v1.request import RequestStatus

from adaptk.vllm_plugin import adaptive, compat
from tests.engine.conftest import Lines
from tests.engine.driver import Policy, Worker, build_config, build_scheduler, cycling, make_request, runner_output
from tests.engine.versions import since


def driven(
    model: Path, k: int, *, asynchronous: bool = False, requests: int = 1, **config: Any
) -> tuple[Policy, Worker]:
    """A policy that always plays ``k`` and a worker with requests of 5 prompt tokens."""
    policy = cycling((k,))
    base = AsyncScheduler if asynchronous else Scheduler
    cls = adaptive(base, controller=policy)
    scheduler = build_scheduler(
        cls, build_config(model, asynchronous=asynchronous, **config), v2=False if asynchronous else None
    )
    for i in range(requests):
        scheduler.add_request(make_request(f"r{i}", 5, 100))
    return policy, Worker(scheduler, 0, asynchronous=asynchronous, accept=1.0)


def steps(worker: Worker, n: int) -> None:
    for _ in range(n):
        worker.schedule()
        worker.update()


class TestDrafts:
    def test_tokens_cut_by_the_length_limit_are_not_emitted(self, model: Path) -> None:
        """Drafts accepted beyond max_tokens are accepted, and do not count as emitted."""
        policy, worker = driven(model, 7, requests=0)
        worker.scheduler.add_request(make_request("short", 5, 4))
        steps(worker, 2)
        assert (policy.records[1].drafted, policy.records[1].accepted, policy.records[1].emitted) == ([7], [7], [3])

    def test_a_stop_token_cuts_what_is_emitted(self, model: Path) -> None:
        """What follows a stop token within a step is accepted and not emitted."""
        policy, worker = driven(model, 3, requests=0)
        worker.scheduler.add_request(make_request("a", 5, 100, stop_token=400))
        steps(worker, 1)
        worker.schedule()
        worker.in_flight[0].result.sampled_token_ids[0][:] = [300, 400, 301, 302]
        worker.update()
        assert (policy.records[1].accepted, policy.records[1].emitted) == ([3], [2])

    def test_a_request_without_drafts_is_not_one_that_accepted_none(self, model: Path) -> None:
        """Where the drafter found nothing for a request, it stands with 0 drafted."""
        policy, worker = driven(model, 3, requests=4)
        worker.schedule()
        step = worker.in_flight.popleft()
        worker.scheduler.update_from_output(step.output, step.result)
        drafts = DraftTokenIds(["r0", "r1", "r2", "r3"], [[9, 9, 9], [], [9], []])
        worker.scheduler.update_draft_token_ids(drafts)
        steps(worker, 1)
        assert sorted(policy.records[1].drafted) == [0, 0, 1, 3]
        assert policy.records[1].verified is None

    def test_grammar_invalid_drafts_are_left_out(self, model: Path) -> None:
        """Drafts that a grammar refused were computed, and are no drafts."""
        policy, worker = driven(model, 3, asynchronous=True, requests=2)
        steps(worker, 1)
        output = worker.schedule()
        output.num_invalid_spec_tokens = {"r0": 2}
        result = worker.in_flight[0].result
        result.sampled_token_ids[result.req_id_to_index["r0"]][:] = [300, 301]
        worker.update()
        record = policy.records[1]
        assert sorted(zip(record.drafted, record.accepted, strict=True)) == [(1, 1), (3, 3)]
        assert record.verified == 6

    def test_more_accepted_than_drafted_is_clamped_and_counted(self, model: Path) -> None:
        """A runner that returns more tokens than it had drafts for does not bring adaptk down."""
        policy, worker = driven(model, 1)
        steps(worker, 1)
        worker.schedule()
        worker.in_flight[0].result.sampled_token_ids[0][:] = [300, 301, 302, 303]
        worker.update()
        assert (policy.records[1].drafted, policy.records[1].accepted) == ([1], [1])
        assert worker.scheduler.adaptk.collector.clamped == 1
        assert worker.scheduler.adaptk.faults == 0

    def test_each_request_that_claims_too_much_is_counted(self, model: Path) -> None:
        """Two of three requests, in two steps: four; none of them for a step as it should be."""
        policy, worker = driven(model, 1, requests=3)
        steps(worker, 2)
        assert worker.scheduler.adaptk.collector.clamped == 0
        for _ in range(2):
            worker.schedule()
            for tokens in worker.in_flight[0].result.sampled_token_ids[:2]:
                tokens[:] = [300, 301, 302]
            worker.update()
        assert policy.records[-1].accepted == [1, 1, 1]
        assert worker.scheduler.adaptk.collector.clamped == 4

    def test_where_a_grammar_refused_all_drafts_there_are_none(self, model: Path) -> None:
        """Not one, and not fewer than none where vLLM counts more refused than there were."""
        for refused in (3, 5):
            policy, worker = driven(model, 3, asynchronous=True, requests=2)
            steps(worker, 1)
            output = worker.schedule()
            output.num_invalid_spec_tokens = {"r0": refused}
            result = worker.in_flight[0].result
            result.sampled_token_ids[result.req_id_to_index["r0"]][:] = [300]
            worker.update()
            record = policy.records[1]
            assert sorted(zip(record.drafted, record.accepted, strict=True)) == [(0, 0), (3, 3)]
            assert worker.scheduler.adaptk.collector.clamped == 0

    def test_a_request_that_the_runner_left_out_has_no_tokens(self, model: Path) -> None:
        """Two of three come back: the third stands in the record, with no drafts and nothing emitted."""
        _, worker = driven(model, 3, requests=3)
        steps(worker, 2)
        collector, requests = worker.scheduler.adaptk.collector, worker.scheduler.requests
        output = worker.scheduler.schedule(False)
        step = collector.schedule(output, requests, 0.0)
        result = runner_output(["r2", "r0"], [[300, 301], [302]])
        collector.count(step, requests, result)
        record = collector.record(step, result)
        assert (record.batch_size, record.drafted, record.accepted) == (3, [3, 0, 3], [0, 0, 1])
        assert (record.emitted, record.verified, record.gone) == ([1, 0, 2], 9, 1)

    @since(25, "padding of new requests")
    def test_dummies_that_pad_a_new_request_are_no_drafts(self, model: Path) -> None:
        """Without a schedule vLLM fills up a new one-token request with placeholders."""
        policy, worker = driven(model, 3)
        steps(worker, 2)
        worker.scheduler.add_request(make_request("late", 1, 10))
        output = worker.schedule()
        assert output.scheduled_spec_decode_tokens["late"] == [-1] * 7
        worker.update()
        record = policy.records[-1]
        assert sorted(record.drafted) == [0, 3]
        assert (record.verified, record.prefill_tokens, record.decodes) == (10, 1, 1)

    def test_dummies_near_the_length_limit_are_no_drafts(self, model: Path) -> None:
        """V1 gives every request K_max zeros once one of them comes too close to max_model_len."""
        policy, worker = driven(model, 1, requests=2, max_model_len=64)
        worker.scheduler.add_request(make_request("long", 50, 14))
        steps(worker, 1)
        assert policy.records[0].draft_k is None
        for _ in range(3):  # 50, then two tokens a step
            output = worker.schedule()
            worker.update()
        assert policy.records[-1].draft_k is None
        output = worker.schedule()
        ids = list(output.num_scheduled_tokens)
        step = worker.in_flight.popleft()
        worker.scheduler.update_from_output(step.output, step.result)
        assert policy.records[-1].draft_k == 0  # reached 58 tokens: 58 + 7 > 64
        worker.scheduler.update_draft_token_ids(DraftTokenIds(ids, [[0] * 7 for _ in ids]))
        steps(worker, 1)
        record = policy.records[-1]
        assert record.drafted == [0, 0, 0]
        assert record.verified == 7 + 7 + 4  # the long one has room for no more
        assert record.decodes == 0
        assert policy.asked[-1][2] is None
        assert worker.scheduler.adaptk.faults == 0

    @pytest.mark.parametrize("requests", [1, 3])
    def test_drafts_end_exactly_at_the_length_limit(self, model: Path, requests: int) -> None:
        """Room for 7 drafts in 64 tokens: a step that ends with a sequence of 57 still drafts, one of 58 does not."""
        policy, worker = driven(model, 0, requests=requests, max_model_len=64)
        lengths = []
        for _ in range(56):
            output = worker.schedule()
            ends = (worker.scheduler.requests[rid].num_computed_tokens for rid in output.num_scheduled_tokens)
            lengths.append(max(ends))
            worker.update()
        assert lengths[:2] == [5, 6]
        drafts = dict(zip(lengths, (record.draft_k for record in policy.records), strict=True))
        assert all(drafts[n] is None for n in range(5, 58))
        assert all(drafts[n] == 0 for n in range(58, 60))

    def test_the_longest_sequence_counts_not_the_sum_of_all(self, model: Path) -> None:
        """Three requests with 2 drafts each: 54 + 3 is within 57, though 54 + 1 + 3 * 2 is not."""
        policy, worker = driven(model, 2, requests=0, max_model_len=64)
        for i in range(3):
            worker.scheduler.add_request(make_request(f"long{i}", 47, 17))
        worker.accept = 0.0  # a token a step
        steps(worker, 1)
        ends = []
        for _ in range(9):
            ends.append(max(worker.schedule().scheduled_cached_reqs.num_computed_tokens) + 3)
            worker.update()
        assert ends == list(range(50, 59))
        assert [record.draft_k for record in policy.records[1:]] == [None] * 8 + [0]

    def test_placeholders_of_dummies_are_no_drafts(self, model: Path) -> None:
        """Under asynchronous scheduling the scheduler knows no draft's tokens: dummies look like any others there."""
        policy, worker = driven(model, 1, asynchronous=True, requests=2)
        steps(worker, 2)
        worker.scheduler.adaptk.collector.dummy_limit = 3
        steps(worker, 1)
        worker.scheduler.adaptk.collector.dummy_limit = None
        output = worker.schedule()
        assert list(output.scheduled_spec_decode_tokens.values()) == [[-1], [-1]]
        worker.update()
        steps(worker, 1)
        assert [record.draft_k for record in policy.records] == [None, None, 0, None, None]
        assert [record.drafted for record in policy.records[1:]] == [[1, 1], [1, 1], [0, 0], [1, 1]]
        assert [record.decodes for record in policy.records[1:]] == [None, None, 0, None]

    def test_drafts_from_before_the_dummies_are_drafts(self, model: Path) -> None:
        """A request that sat out the step whose drafts were dummies keeps its own, of token 0 though they are."""
        policy, worker = driven(model, 3, requests=2)
        worker.schedule()
        step = worker.in_flight.popleft()
        worker.scheduler.update_from_output(step.output, step.result)
        worker.scheduler.update_draft_token_ids(DraftTokenIds(["r0", "r1"], [[0, 0, 0], [5, 6, 7]]))
        waiting = worker.scheduler.running.pop(0)
        assert waiting.request_id == "r0"
        worker.scheduler.adaptk.collector.dummy_limit = 3
        worker.schedule()
        step = worker.in_flight.popleft()
        worker.scheduler.update_from_output(step.output, step.result)
        worker.scheduler.adaptk.collector.dummy_limit = None
        worker.scheduler.update_draft_token_ids(DraftTokenIds(["r1"], [[0, 0, 0]]))
        worker.scheduler.running.append(waiting)
        steps(worker, 1)
        record = policy.records[-1]
        assert (sorted(record.drafted), record.verified, record.decodes) == ([0, 3], 6, 1)

    def test_dummies_beside_a_new_prompt_are_no_decodes_that_lack_drafts(self, model: Path) -> None:
        """Two of the requests decode with dummies, another's prompt begins: none is left that could have had drafts."""
        policy, worker = driven(model, 1, requests=1, max_model_len=64)
        worker.scheduler.add_request(make_request("long", 57, 7))
        output = worker.schedule()
        ids = list(output.num_scheduled_tokens)
        step = worker.in_flight.popleft()
        worker.scheduler.update_from_output(step.output, step.result)
        assert policy.records[-1].draft_k is None
        output = worker.schedule()
        step = worker.in_flight.popleft()
        worker.scheduler.update_from_output(step.output, step.result)
        assert policy.records[-1].draft_k == 0
        worker.scheduler.update_draft_token_ids(DraftTokenIds(ids, [[0] * 7 for _ in ids]))
        worker.scheduler.add_request(make_request("new", 9, 20))
        steps(worker, 1)
        record = policy.records[-1]
        assert (record.batch_size, record.prefill_tokens, record.decodes) == (3, 9, 0)
        assert record.drafted == [0, 0, 0]

    def test_tokens_computed_again_are_prefill(self, model: Path) -> None:
        """Blocks of a running request that were lost in a transfer are computed again, and that is no decode."""
        policy, worker = driven(model, 3)
        steps(worker, 3)
        worker.scheduler.requests["r0"].num_computed_tokens -= 4
        steps(worker, 2)
        again, after = policy.records[-2:]
        assert (again.prefill_tokens, again.decodes, again.drafted) == (5, 0, [3])
        assert (after.prefill_tokens, after.decodes) == (0, None)

    def test_real_drafts_of_token_zero_are_drafts(self, model: Path) -> None:
        """Zeros are dummies only where the length limit made them."""
        policy, worker = driven(model, 3)
        worker.schedule()
        step = worker.in_flight.popleft()
        worker.scheduler.update_from_output(step.output, step.result)
        worker.scheduler.update_draft_token_ids(DraftTokenIds(["r0"], [[0, 0, 0]]))
        steps(worker, 1)
        assert policy.records[1].drafted == [3]


class TestAfterAGap:
    """Steps that were left to vLLM, as in mode off, and then steered again."""

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_drafts_of_nobodys_decision_are_not_counted(self, model: Path, asynchronous: bool) -> None:
        """A request's first drafts after the gap count neither as drafts nor as missing; the next ones do."""
        policy, worker = driven(model, 3, asynchronous=asynchronous, requests=2)
        steps(worker, 2)
        steering = worker.scheduler.adaptk
        steering.mode = "off"
        steps(worker, 2)
        worker.scheduler.add_request(make_request("while off", 5, 100))
        steps(worker, 1)
        steering.mode = "on"
        worker.scheduler.add_request(make_request("since", 5, 100))
        steps(worker, 2)
        assert len(policy.records) == 4
        first, second = policy.records[-2:]
        assert (first.drafted, first.accepted) == ([0] * 4, [0] * 4)
        assert (first.verified, first.decodes, first.elapsed_ms) == (21, 0, None)
        assert sum(first.emitted) == 3 * 8 + 1
        assert (second.drafted, second.verified, second.decodes) == ([3] * 4, None, None)
        assert second.elapsed_ms is not None

    def test_a_request_that_sat_out_is_still_foreign(self, model: Path) -> None:
        """A request which the first steered step leaves out has unknown drafts when its turn comes."""
        policy, worker = driven(model, 3, requests=2)
        steps(worker, 2)
        collector = worker.scheduler.adaptk.collector
        collector.resume(worker.scheduler.requests)
        waiting = worker.scheduler.running.pop()
        steps(worker, 1)
        worker.scheduler.running.append(waiting)
        steps(worker, 2)
        assert [sorted(record.drafted) for record in policy.records[-3:]] == [[0], [0, 3], [3, 3]]
        assert [record.decodes for record in policy.records[-3:]] == [0, 1, None]
        assert not collector._foreign


class TestLoad:
    """What a record says of the load: tokens of context, of prompts, and requests that decode."""

    def test_context_is_what_was_computed_before_the_step(self, model: Path) -> None:
        """Of all requests together, whether prompts are in the step or not; a prompt in two parts is told as such."""
        policy, worker = driven(model, 2, requests=2, max_num_batched_tokens=32)
        expected = []
        for i in range(8):
            if i == 3:
                worker.scheduler.add_request(make_request("prompt", 50, 5))
            before = {rid: request.num_computed_tokens for rid, request in worker.scheduler.requests.items()}
            output = worker.schedule()
            ids, spec = output.num_scheduled_tokens, output.scheduled_spec_decode_tokens
            decodes = [rid for rid in ids if before[rid] >= (50 if rid == "prompt" else 5)]
            prefill = sum(ids[rid] - len(spec.get(rid, ())) for rid in ids.keys() - set(decodes))
            expected.append((sum(before[rid] for rid in ids), prefill, len(decodes)))
            worker.update()
        seen = [
            (r.context_tokens, r.prefill_tokens, r.batch_size if r.decodes is None else r.decodes)
            for r in policy.records
        ]
        assert seen == expected
        assert [prefill for _, prefill, _ in expected[:3]] == [10, 0, 0]
        assert sum(0 < prefill < 50 for _, prefill, _ in expected[3:]) >= 2

    def test_a_prompt_that_waits_for_its_next_part_still_goes_on(self, model: Path) -> None:
        """A step without it stands between its two parts: the second one is prefill like the first."""
        policy, worker = driven(model, 2, requests=1, max_num_batched_tokens=32)
        worker.scheduler.add_request(make_request("prompt", 50, 5))
        steps(worker, 1)
        assert policy.records[0].prefill_tokens == 32
        waiting = worker.scheduler.running.pop()
        steps(worker, 1)
        assert policy.records[1].batch_size == 1
        worker.scheduler.running.append(waiting)
        steps(worker, 1)
        assert (policy.records[2].prefill_tokens, policy.records[2].decodes) == (23, 1)

    def test_a_new_request_without_drafts_is_no_decode(self, model: Path) -> None:
        """A prompt of one token takes one token, as a decode does, and is none."""
        policy, worker = driven(model, 0, requests=2)
        steps(worker, 2)
        worker.scheduler.add_request(make_request("one", 1, 10))
        steps(worker, 2)
        assert [(r.prefill_tokens, r.decodes) for r in policy.records] == [(10, 0), (0, None), (1, 2), (0, None)]


def test_numbers_of_requests_begin_at_0_and_are_not_used_again(model: Path) -> None:
    """A request that begins after others have ended gets the next number, and keeps it."""
    policy, worker = driven(model, 1, requests=2)
    worker.scheduler.adaptk.collector.numbered = True
    steps(worker, 2)
    assert [sorted(record.requests) for record in policy.records] == [[0, 1], [0, 1]]
    worker.scheduler.finish_requests("r0", RequestStatus.FINISHED_ABORTED)
    worker.scheduler.add_request(make_request("later", 5, 100))
    steps(worker, 2)
    assert [sorted(record.requests) for record in policy.records[2:]] == [[1, 2], [1, 2]]


class TestCompatibility:
    def test_output_to_be_dropped_before_0_28(self) -> None:
        """Requests of older versions carry another count of what is to be dropped."""

        class OldRequest:
            def __init__(self, discard: int) -> None:
                self.async_tokens_to_discard = discard
                self.status = 5

        assert compat.all_sound([OldRequest(0)], finished_above=6)
        assert not compat.all_sound([OldRequest(0), OldRequest(1)], finished_above=6)
        assert not compat.all_sound([OldRequest(0), None], finished_above=6)


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


class TestTime:
    def at(self, clock: Clock, seconds: float) -> None:
        clock.now = 100.0 + seconds

    def test_a_busy_engine_is_timed_from_update_to_update(self, model: Path, clock: Clock) -> None:
        """The scheduler's own work between two updates belongs to the step."""
        policy, worker = driven(model, 1)
        for scheduled, updated in ((0.0, 0.010), (0.012, 0.025)):
            self.at(clock, scheduled)
            worker.schedule()
            self.at(clock, updated)
            worker.update()
        assert [r.elapsed_ms for r in policy.records] == pytest.approx([10.0, 15.0])
        assert policy.records[1].t_ms == pytest.approx(100_025.0)

    def test_idle_time_is_no_step_time(self, model: Path, clock: Clock) -> None:
        """After a pause the step is timed from its own schedule."""
        policy, worker = driven(model, 1)
        for scheduled, updated in ((0.0, 0.010), (30.0, 30.012)):
            self.at(clock, scheduled)
            worker.schedule()
            self.at(clock, updated)
            worker.update()
        assert policy.records[1].elapsed_ms == pytest.approx(12.0)

    def test_steps_without_tokens_in_between_are_idle_time(self, model: Path, clock: Clock) -> None:
        """An engine that spins on empty steps does not add them to the next one."""
        policy, worker = driven(model, 1, requests=0)
        for i in range(50):
            self.at(clock, i)
            worker.schedule()
            worker.update()
        worker.scheduler.add_request(make_request("a", 5, 10))
        self.at(clock, 49.002)
        worker.schedule()
        self.at(clock, 49.020)
        worker.update()
        assert policy.records[0].elapsed_ms == pytest.approx(18.0)

    def test_overlapping_steps_are_timed_from_update_to_update(self, model: Path, clock: Clock) -> None:
        """S0 S1 U0 S2 U1 U2: a step with another one in flight at its schedule was never idle."""
        policy, worker = driven(model, 1, asynchronous=True)
        times = {"S0": 0.0, "S1": 0.001, "U0": 0.010, "S2": 0.018, "U1": 0.022, "U2": 0.030}
        for name, seconds in times.items():
            self.at(clock, seconds)
            if name.startswith("S"):
                worker.schedule()
            else:
                worker.update()
        assert [r.elapsed_ms for r in policy.records] == pytest.approx([10.0, 12.0, 8.0])


class TestOrder:
    def test_a_lost_output_closes_its_decision(self, model: Path, log: Lines) -> None:
        """A step that never comes back teaches nothing, and later records still meet their own choices."""
        policy = Policy(lambda _: len(policy.chosen))
        scheduler = build_scheduler(
            adaptive(AsyncScheduler, controller=policy), build_config(model, asynchronous=True), v2=False
        )
        worker = Worker(scheduler, 0, asynchronous=True)
        for i in range(3):
            scheduler.add_request(make_request(f"r{i}", 5, 100))
        worker.schedule()
        worker.schedule()
        worker.in_flight.popleft()
        worker.update()
        worker.schedule()
        worker.update()
        assert [r.k for r in policy.records] == policy.chosen == [0, 1, 2]
        lost, after, _ = policy.records
        assert (lost.elapsed_ms, lost.drafted, lost.decodes) == (None, [], 0)
        assert after.elapsed_ms is None  # its interval holds the lost step too
        assert scheduler.adaptk.unmatched == 1
        assert len(log.having("the output of a scheduled step never came")) == 1

    def test_an_output_of_unknown_origin_is_left_to_vllm(self, model: Path, log: Lines) -> None:
        """An update for a step that adaptk never saw scheduled changes nothing, and is told once."""
        policy, worker = driven(model, 1)
        for _ in range(2):
            output = worker.schedule()
            worker.scheduler.adaptk._flight._steps.clear()
            worker.update()
            assert output.total_num_scheduled_tokens > 0
        assert policy.records == []
        assert (worker.scheduler.adaptk.unmatched, worker.scheduler.adaptk.faults) == (2, 0)
        assert len(log.having("never saw scheduled")) == 1

    def test_outputs_that_never_come_do_not_pile_up(self, model: Path) -> None:
        """Memory stays bounded where schedule is called without end and update never."""
        policy, worker = driven(model, 0, asynchronous=True)
        for _ in range(90):
            worker.schedule()
        steering = worker.scheduler.adaptk
        assert len(policy.chosen) == 90
        assert len(policy.chosen) - len(policy.records) == len(list(steering._flight.steered())) == 64

    def test_a_result_without_samples_is_taken(self, model: Path) -> None:
        """A runner may return no sampled tokens at all, as for a partial prompt."""
        policy, worker = driven(model, 1, requests=0, max_num_batched_tokens=32)
        worker.scheduler.add_request(make_request("a", 100, 10))
        output = worker.schedule()
        step = worker.in_flight.popleft()
        worker.scheduler.update_from_output(output, runner_output(step.result.req_ids, []))
        assert policy.records[0].emitted == [0]
        assert policy.records[0].prefill_tokens == 32
