"""vLLM's schedulers driven in the order of its engine, with books of what each step was really worth."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.engine.driver import Grammar, Policy, make_request, runner_output
from tests.engine.versions import at_least

STOP = 499


@dataclass
class Frame:
    """A step in flight and what is known of it: ``real`` are the drafts that were drafts, per request."""

    output: Any
    partial: set[str]  # prompts that go on after this step: no token comes of them
    real: dict[str, int]
    decoding: set[str]
    makers: set[int]  # K of the steps that drafted for it
    accepted: dict[str, int] = field(default_factory=dict)
    stale: set[str] = field(default_factory=set)  # requests preempted since
    result: Any = None


class Books:
    """An engine by hand: requests come and go, and every record of ``policy`` is held against the truth.

    Parameters
    ----------
    scheduler, policy
        An adaptive scheduler and the policy in it.
    depth
        Steps in flight, ``>= 1``.
    asynchronous
        Whether drafts stay on the workers, in whose place the scheduler has placeholders.
    stages
        Stages of the pipeline: a step's drafts are then not those of the step before.
    length_rule
        Longest sequence, in tokens, beyond which the workers have no drafts but zeros for all requests of the step;
        ``None``: there is no such rule.
    """

    def __init__(
        self,
        scheduler: Any,
        policy: Policy,
        seed: int,
        *,
        depth: int,
        asynchronous: bool,
        stages: int = 1,
        length_rule: int | None = None,
    ) -> None:
        self.scheduler, self.policy = scheduler, policy
        self.depth, self.asynchronous, self.length_rule = depth, asynchronous, length_rule
        self.stages = stages
        self.random = random.Random(seed)
        self.accept = 0.6
        self.in_flight: deque[Frame] = deque()
        self.kept: list[Any] = []  # outputs, so that no two have the same id
        self.last_k: dict[str, int] = {}
        self.dummies: set[str] = set()  # requests whose next drafts are zeros
        self.prompts: set[str] = set()  # requests whose prompt goes on
        self.asked_tokens: dict[str, int] = {}
        self.delivered: Counter[str] = Counter()
        self.finished: dict[str, str] = {}
        self.seen: Counter[str] = Counter()
        self.steps = 0

    def add(self, prompt: list[int], max_tokens: int, *, grammar: bool, stops: bool) -> str:
        """A new request; one that ``stops`` may end at a token in the middle of a step's."""
        rid = f"r{len(self.asked_tokens)}"
        self.asked_tokens[rid] = max_tokens
        stop = STOP if stops else None
        self.scheduler.add_request(make_request(rid, prompt, max_tokens, stop, grammar=grammar, hashed=True))
        return rid

    def abort(self, rid: str) -> None:
        """The client has gone."""
        from vllm.v1.request import RequestStatus

        self.finished[rid] = "aborted"
        self.scheduler.finish_requests(rid, RequestStatus.FINISHED_ABORTED)

    def reset(self) -> None:
        """Every running request is preempted at once, as when weights are replaced.

        Before 0.27 nothing may be in flight then: vLLM's own AsyncScheduler, told so while it waits for steps with
        drafts, counts the tokens to discard as if they were steps; requests lose tokens, never end, or trip its assert.
        """
        if not at_least(27):
            self.drain()
        self._preempted(r.request_id for r in self.scheduler.running)
        self.scheduler.reset_prefix_cache(reset_running_requests=True)

    def step(self) -> None:
        """One turn of the engine: schedule, and take in the oldest step once enough are in flight."""
        output = self.scheduler.schedule(False)
        self.kept.append(output)
        self._preempted(output.preempted_req_ids or ())
        frame = self._frame(output)
        if self.asynchronous and getattr(output, "pending_structured_output_tokens", False):
            if self.in_flight:
                self.update()
            self._offer_in_output(frame)
        frame.result = self._execute(frame)
        self.in_flight.append(frame)
        while len(self.in_flight) >= self.depth:
            self.update()

    def drain(self) -> None:
        """Take in everything that is in flight."""
        while self.in_flight:
            self.update()

    def update(self) -> None:
        """Take in the oldest step and hold its record against the truth."""
        frame = self.in_flight.popleft()
        here = set(self.scheduler.requests)
        records = len(self.policy.records)
        engine_outputs = self.scheduler.update_from_output(frame.output, frame.result)
        tokens: Counter[str] = Counter()
        for outputs in engine_outputs.values():
            for out in outputs.outputs:
                tokens[out.request_id] += len(out.new_token_ids)
                if out.finish_reason is not None:
                    self.finished[out.request_id] = str(out.finish_reason)
        self.delivered += tokens
        if frame.output.total_num_scheduled_tokens:
            assert len(self.policy.records) == records + 1
            self._check(frame, here, tokens)
        else:
            assert len(self.policy.records) == records
        if not self.asynchronous:
            self._offer(frame)

    def _frame(self, output: Any) -> Frame:
        spec = output.scheduled_spec_decode_tokens
        begun = {new.req_id for new in output.scheduled_new_reqs} | output.scheduled_cached_reqs.resumed_req_ids
        requests = self.scheduler.requests
        partial = {rid for rid in output.num_scheduled_tokens if requests[rid].is_prefill_chunk}
        none = begun | self.dummies
        real = {rid: 0 if rid in none else len(drafts) for rid, drafts in spec.items()}
        for rid, drafts in spec.items():
            assert rid in none or len(drafts) <= self.last_k[rid]
        decoding = output.num_scheduled_tokens.keys() - begun - self.prompts
        makers = {self.last_k[rid] for rid in decoding}
        self.prompts = (self.prompts - output.num_scheduled_tokens.keys()) | partial
        for rid in output.num_scheduled_tokens:
            self.last_k[rid] = output.num_spec_tokens_to_schedule
        self.dummies -= output.num_scheduled_tokens.keys()
        if self.length_rule is not None and self._longest(output) > self.length_rule:
            self.dummies |= output.num_scheduled_tokens.keys()
            self.seen["too long to draft"] += 1
        self.seen["padded"] += len(begun & spec.keys())
        self.seen["cut"] += sum(len(drafts) not in (0, *makers) for drafts in spec.values())
        self.seen["chunks"] += len(partial)
        self.seen["prefix hits"] += sum(new.num_computed_tokens > 0 for new in output.scheduled_new_reqs)
        self.seen["mixed makers"] += len(makers) > 1
        return Frame(output, partial, real, decoding, makers)

    def _longest(self, output: Any) -> int:
        cached = output.scheduled_cached_reqs
        starts = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        starts |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        return max((starts[rid] + n for rid, n in output.num_scheduled_tokens.items()), default=0)

    def _preempted(self, rids: Iterable[str]) -> None:
        for rid in rids:
            self.dummies.discard(rid)
            for frame in self.in_flight:
                if rid in frame.output.num_scheduled_tokens and rid not in frame.stale:
                    frame.stale.add(rid)
                    self.seen["preempted in flight"] += 1

    def _tokens(self, n: int, grammar: bool = True) -> list[int]:
        """Drafts, some of which no grammar takes."""
        return [self.random.choice([91, 50, 51, 52, 53]) if grammar else 50 for _ in range(n)]

    def _offer_in_output(self, frame: Frame) -> None:
        """Asynchronous drafts reach the scheduler only where a grammar has to see them."""
        from vllm.v1.outputs import DraftTokenIds

        output = frame.output
        spec = dict(output.scheduled_spec_decode_tokens)
        rids = list(spec)
        offered = [self._tokens(len(spec[rid]) + self.random.randint(0, 1)) for rid in rids]
        good = {}
        for rid, tokens in zip(rids, offered, strict=True):
            request = self.scheduler.requests.get(rid)
            width = len(spec[rid])
            structured = request is not None and request.use_structured_output
            good[rid] = len(Grammar().validate_tokens(tokens[:width])) if structured else width
        self.scheduler.update_draft_token_ids_in_output(DraftTokenIds(rids, offered), output)
        for rid in frame.real:
            self.seen["refused by grammar"] += frame.real[rid] > good[rid]
            frame.real[rid] = min(frame.real[rid], good[rid])

    def _offer(self, frame: Frame) -> None:
        """Synchronous drafts: as many as were asked for, none for some, zeros for all where one is too long."""
        from vllm.v1.outputs import DraftTokenIds

        k, k_max = frame.output.num_spec_tokens_to_schedule, self.scheduler.num_spec_tokens
        rids, drafts = [], []
        for rid in frame.output.num_scheduled_tokens:
            if rid in frame.partial or rid in frame.stale:
                continue
            rids.append(rid)
            found = k if self.random.random() < 0.8 else self.random.randint(0, k)
            drafts.append([0] * k_max if rid in self.dummies else self._tokens(found))
        if rids:
            self.scheduler.update_draft_token_ids(DraftTokenIds(rids, drafts))

    def _execute(self, frame: Frame) -> Any:
        ids = list(frame.output.num_scheduled_tokens)
        self.random.shuffle(ids)
        sampled: list[list[int]] = []
        for rid in ids:
            if rid in frame.partial:
                sampled.append([])
                continue
            n = 0
            while n < frame.real.get(rid, 0) and self.random.random() < self.accept:
                n += 1
            frame.accepted[rid] = n
            sampled.append([self.random.choice([STOP, *range(100, 130)]) for _ in range(n + 1)])
        return runner_output(ids, sampled, self.received(frame))

    def received(self, frame: Frame) -> Any:
        """What the workers say of transfers of the KV cache in a step."""
        return None

    def _check(self, frame: Frame, here: set[str], tokens: Counter[str]) -> None:
        record = self.policy.records[-1]
        truth = []
        for rid in frame.output.num_scheduled_tokens:
            drafted, accepted = frame.real.get(rid, 0), frame.accepted.get(rid, 0)
            usable = rid in here and rid not in frame.partial and self.finished.get(rid) != "aborted"
            usable = usable and (rid not in frame.stale if at_least(27) else tokens[rid] > 0)
            if frame.result.kv_connector_output is not None:
                usable = usable and tokens[rid] > 0  # what was computed from a lost block is thrown away
            if not usable:
                self.seen["drafts left out"] += drafted > 0
                drafted = accepted = 0
            self.seen["beyond a stop"] += usable and tokens[rid] < 1 + accepted
            truth.append((drafted, accepted, tokens[rid]))
        assert sorted(zip(record.drafted, record.accepted, record.emitted, strict=True)) == sorted(truth)
        width = sum(map(len, frame.output.scheduled_spec_decode_tokens.values()))
        assert width == (sum(record.drafted) if record.verified is None else record.verified)
        assert record.k == self.policy.chosen[self.steps] == frame.output.num_spec_tokens_to_schedule
        assert (record.batch_size if record.decodes is None else record.decodes) <= len(frame.decoding)
        assert record.batch_size == self.policy.asked[self.steps][0] == len(truth)
        if self.stages > 1:
            self._check_pipeline(frame, record)
        self.steps += 1

    def _check_pipeline(self, frame: Frame, record: Any) -> None:
        """Only where all of its time is of one K does a step have one."""
        assert record.asked == max(frame.makers, default=None)
        around = {
            frame.output.num_spec_tokens_to_schedule,
            *frame.makers,
            *self.policy.chosen[self.steps - 1 : self.steps],
        }
        assert record.elapsed_ms is None or len(around) == 1
        self.seen["timed"] += record.elapsed_ms is not None
        self.seen["untimed"] += record.elapsed_ms is None

    def check_invariants(self) -> None:
        """What must hold of vLLM's own requests between any two calls."""
        steering = self.scheduler.adaptk
        assert steering.faults == 0, steering.reason
        assert steering.collector.clamped == steering.unmatched == 0
        for request in self.scheduler.requests.values():
            assert request.num_output_placeholders >= 0
            assert (
                0
                <= request.num_computed_tokens
                <= request.num_tokens + max(request.num_output_placeholders, self.scheduler.num_spec_tokens)
            )

    def check_end(self) -> None:
        """Every request got its tokens, and nothing is held back."""
        pool = self.scheduler.kv_cache_manager.block_pool
        assert not self.scheduler.requests
        assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1  # one stands for none
        for rid, reason in self.finished.items():
            if reason == "length":
                room = self.scheduler.max_model_len
                assert self.delivered[rid] == self.asked_tokens[rid] or self.delivered[rid] < room
            assert self.delivered[rid] <= self.asked_tokens[rid]
        assert self.finished.keys() == self.asked_tokens.keys()
