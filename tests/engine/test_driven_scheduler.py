"""vLLM's schedulers under random loads: what adaptk counts is what the worker knows, step for step."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from adaptk import Controller, Settings
from adaptk.evidence import delivering
from adaptk.vllm_plugin import adaptive
from tests.engine.driver import Policy, Step, Worker, build_config, build_scheduler, cycling, make_request
from tests.engine.versions import at_least

ARMS = (0, 1, 3, 7)


class Load:
    """A random load with its own books: which drafts are still worth counting when their step comes back."""

    def __init__(self, scheduler: Any, seed: int, *, asynchronous: bool, depth: int) -> None:
        self.scheduler = scheduler
        self.random = random.Random(seed)
        self.worker = Worker(scheduler, seed, asynchronous=asynchronous, none=0.2)
        self.depth = depth
        self.outputs: list[Any] = []  # kept, so that no two have the same id
        self.added = 0
        self.preempted = 0
        self.stale: set[tuple[int, str]] = set()  # (id of output, request)
        self.padded: set[tuple[int, str]] = set()
        self.expected: list[tuple[int, int, int]] = []  # drafted, accepted, emitted per step with tokens

    def in_flight(self, rids: Any) -> set[tuple[int, str]]:
        return {
            (id(s.output), rid) for s in self.worker.in_flight for rid in rids if rid in s.output.num_scheduled_tokens
        }

    def disturb(self) -> None:
        scheduler = self.scheduler
        if len(scheduler.requests) < 12 and self.random.random() < 0.4:
            rid = f"r{self.added}"
            self.added += 1
            scheduler.add_request(make_request(rid, self.random.randint(1, 90), self.random.randint(1, 40)))
        if scheduler.requests and self.random.random() < 0.05:
            scheduler.finish_requests(self.random.choice(list(scheduler.requests)), RequestStatus.FINISHED_ABORTED)
        if self.random.random() < 0.02:
            while self.worker.in_flight and not at_least(27):  # vLLM's own scheduler could not bear it: see books.py
                self.update()
            self.stale |= self.in_flight([r.request_id for r in scheduler.running])
            scheduler.reset_prefix_cache(reset_running_requests=True)

    def step(self) -> None:
        self.disturb()
        before = list(self.worker.in_flight)
        output = self.worker.schedule()
        self.outputs.append(output)
        for rid in output.preempted_req_ids or ():
            self.preempted += 1
            self.stale |= {(id(s.output), rid) for s in before if rid in s.output.num_scheduled_tokens}
        begun = {new.req_id for new in output.scheduled_new_reqs} | output.scheduled_cached_reqs.resumed_req_ids
        self.padded |= {(id(output), rid) for rid in begun}
        if len(self.worker.in_flight) >= self.depth:
            self.update()

    def update(self) -> None:
        step = self.worker.in_flight[0]
        counted = [rid for rid in step.drafted if rid in self.scheduler.requests and self.usable(step, rid)]
        drafted = sum(step.drafted[rid] for rid in counted)
        accepted = sum(step.accepted[rid] for rid in counted)
        self.worker.update()
        if step.output.total_num_scheduled_tokens:
            tokens = [o.new_token_ids for e in self.worker.engine_outputs[-1].values() for o in e.outputs]
            if not at_least(27):  # of these versions the only truth is what was delivered
                given = {o.request_id for e in self.worker.engine_outputs[-1].values() for o in e.outputs}
                counted = [rid for rid in step.drafted if rid in given and (id(step.output), rid) not in self.padded]
                drafted = sum(step.drafted[rid] for rid in counted)
                accepted = sum(step.accepted[rid] for rid in counted)
            self.expected.append((drafted, accepted, sum(map(len, tokens))))

    def usable(self, step: Step, rid: str) -> bool:
        key = (id(step.output), rid)
        return key not in self.stale and key not in self.padded


def run(model: Path, controller: Any, seed: int, *, asynchronous: bool, depth: int, steps: int = 250) -> Load:
    base = AsyncScheduler if asynchronous else Scheduler
    config = build_config(model, max_model_len=512, asynchronous=asynchronous)
    cls = adaptive(base, controller=controller)
    scheduler = build_scheduler(cls, config, num_blocks=24, v2=False if asynchronous else None)
    load = Load(scheduler, seed, asynchronous=asynchronous, depth=depth)
    for _ in range(steps):
        load.step()
    while load.worker.in_flight:
        load.update()
    return load


@pytest.mark.parametrize(("asynchronous", "depth"), [(False, 1), (True, 1), (True, 2), (True, 3)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_counts_are_the_workers(model: Path, asynchronous: bool, depth: int, seed: int) -> None:
    """Drafts, acceptances and emitted tokens agree in every step, through preemptions, aborts and cache resets."""
    policy = cycling(ARMS)
    load = run(model, policy, seed, asynchronous=asynchronous, depth=depth)
    steering = load.scheduler.adaptk
    assert steering.faults == 0, steering.reason
    assert load.preempted > 0
    counted = [(sum(r.drafted), sum(r.accepted), sum(r.emitted)) for r in policy.records]
    assert counted == load.expected
    assert sum(drafted for drafted, _, _ in counted) > 200
    assert steering.collector.clamped == 0
    if asynchronous and depth > 1:
        assert steering.collector.ignored > 0


@pytest.mark.parametrize(("asynchronous", "depth"), [(False, 1), (True, 3)])
def test_every_record_meets_its_own_choice(model: Path, asynchronous: bool, depth: int) -> None:
    """The n-th record carries the n-th K, and the batch, context and decodes that the n-th choice was asked with."""
    policy = cycling(ARMS)
    run(model, policy, 5, asynchronous=asynchronous, depth=depth)
    assert len(policy.records) == len(policy.chosen) > 100
    assert [r.k for r in policy.records] == policy.chosen
    asked = [(batch, context) for batch, context, _ in policy.asked]
    assert [(r.batch_size, r.context_tokens) for r in policy.records] == asked
    assert all(len(r.drafted) == r.batch_size for r in policy.records)


class NumberedLoad(Load):
    """Checks after every step that each request's row stands under its number."""

    def __init__(self, scheduler: Any, policy: Policy, seed: int, *, asynchronous: bool, depth: int) -> None:
        super().__init__(scheduler, seed, asynchronous=asynchronous, depth=depth)
        scheduler.adaptk.collector.numbered = True
        self.policy = policy
        self.number_of: dict[str, int] = {}
        self.seen = 0

    def update(self) -> None:
        step = self.worker.in_flight[0]
        counted = {r: n for r, n in step.accepted.items() if r in self.scheduler.requests and self.usable(step, r)}
        super().update()
        if not step.output.total_num_scheduled_tokens:
            return
        record = self.policy.records[-1]
        assert len(set(record.requests)) == len(record.requests) == record.batch_size
        numbers = dict(self.scheduler.adaptk.collector._numbers)
        for rid, accepted in counted.items():
            assert self.number_of.setdefault(rid, numbers[rid]) == numbers[rid]
            assert record.accepted[record.requests.index(numbers[rid])] == accepted
            self.seen += 1


@pytest.mark.parametrize(("asynchronous", "depth"), [(False, 1), (True, 3)])
def test_a_request_keeps_its_number_in_a_trace(model: Path, asynchronous: bool, depth: int) -> None:
    """What the worker accepted of each request stands under that request's number, and no two share one."""
    policy = cycling(ARMS)
    config = build_config(model, max_model_len=512, asynchronous=asynchronous)
    cls = adaptive(AsyncScheduler if asynchronous else Scheduler, controller=policy)
    scheduler = build_scheduler(cls, config, num_blocks=24, v2=False if asynchronous else None)
    load = NumberedLoad(scheduler, policy, 7, asynchronous=asynchronous, depth=depth)
    for _ in range(250):
        load.step()
    assert load.seen > 100
    assert len(set(load.number_of.values())) == len(load.number_of) > 20


def test_no_trace_no_numbers(model: Path) -> None:
    policy = cycling(ARMS)
    run(model, policy, 1, asynchronous=False, depth=1, steps=20)
    assert {record.requests for record in policy.records} == {None}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_k_is_obeyed(model: Path, asynchronous: bool) -> None:
    """The width that a request verifies never exceeds the K of the step that drafted it, and mostly equals it."""
    policy = cycling(ARMS)
    base = AsyncScheduler if asynchronous else Scheduler
    config = build_config(model, asynchronous=asynchronous)
    scheduler = build_scheduler(adaptive(base, controller=policy), config, v2=False if asynchronous else None)
    worker = Worker(scheduler, 0, asynchronous=asynchronous)
    for i in range(6):
        scheduler.add_request(make_request(f"r{i}", 10, 60))
    drafted_by: dict[str, int] = {}
    full = trimmed = 0
    while scheduler.requests:
        output = worker.schedule()
        for rid in output.num_scheduled_tokens:
            width = len(output.scheduled_spec_decode_tokens.get(rid, ()))
            assert width <= drafted_by.get(rid, 0)
            full += width == drafted_by.get(rid, 0)
            trimmed += width < drafted_by.get(rid, 0)
            drafted_by[rid] = policy.chosen[-1]
        worker.update()
    assert full > 50
    assert trimmed == 0


def test_prompts_are_told_from_decodes(model: Path) -> None:
    """Prompt tokens of chunks count as prefill, and ``decodes`` leaves their requests out until they have ended."""
    policy = cycling((3,))
    config = build_config(model, max_num_batched_tokens=64)
    scheduler = build_scheduler(adaptive(Scheduler, controller=policy), config)
    worker = Worker(scheduler, 0, asynchronous=False)
    scheduler.add_request(make_request("a", 5, 100))
    for _ in range(3):
        worker.schedule()
        worker.update()
    scheduler.add_request(make_request("b", 150, 10))
    for _ in range(4):
        worker.schedule()
        worker.update()
    prompt, pure, *_, first, second, third, after = policy.records
    assert (prompt.prefill_tokens, prompt.decodes) == (5, 0)
    assert (pure.prefill_tokens, pure.decodes) == (0, None)
    assert [r.decodes for r in (first, second, third)] == [1, 1, 1]
    assert first.prefill_tokens + second.prefill_tokens + third.prefill_tokens == 150
    assert (after.prefill_tokens, after.decodes) == (0, None)


def test_a_step_without_tokens_asks_nobody(model: Path) -> None:
    """No choice, no record, and vLLM's field is left alone."""
    policy = cycling((1,))
    config = build_config(model)
    scheduler = build_scheduler(adaptive(Scheduler, controller=policy), config)
    worker = Worker(scheduler, 0, asynchronous=False)
    output = worker.schedule()
    assert output.total_num_scheduled_tokens == 0
    assert output.num_spec_tokens_to_schedule == 7
    worker.update()
    assert policy.chosen == []
    assert policy.records == []
    assert scheduler.adaptk.unmatched == 0


@pytest.mark.parametrize("rule", [lambda _: 99, lambda _: -3])
def test_a_choice_out_of_range_is_clamped(model: Path, rule: Callable[[int], int]) -> None:
    """K never exceeds ``num_speculative_tokens`` and is never negative, whatever the policy says."""
    policy = Policy(rule)
    scheduler = build_scheduler(adaptive(Scheduler, controller=policy), build_config(model))
    scheduler.add_request(make_request("a", 5, 20))
    output = Worker(scheduler, 0, asynchronous=False).schedule()
    assert output.num_spec_tokens_to_schedule == min(max(rule(1), 0), 7)
    assert scheduler.adaptk.clamped == 1


def test_shadow_decides_and_does_not_act(model: Path) -> None:
    """In shadow the K of vLLM is used and recorded, while the controller is asked and told all the same."""
    policy = cycling((1,))
    cls = adaptive(Scheduler, controller=policy, settings=Settings(mode="shadow"))
    scheduler = build_scheduler(cls, build_config(model))
    worker = Worker(scheduler, 0, asynchronous=False)
    scheduler.add_request(make_request("a", 5, 40))
    for _ in range(4):
        assert worker.schedule().num_spec_tokens_to_schedule == 7
        worker.update()
    assert len(policy.chosen) == len(policy.records) == 4
    assert {r.k for r in policy.records} == {7}


def test_shadow_follows_the_operators_schedule(model: Path) -> None:
    """The K that vLLM would have used is the operator's schedule at that batch."""
    config = build_config(model, schedule=[[1, 1, 5], [2, 16, 2]])
    cls = adaptive(Scheduler, controller=cycling((1,)), settings=Settings(mode="shadow"))
    scheduler = build_scheduler(cls, config)
    worker = Worker(scheduler, 0, asynchronous=False)
    scheduler.add_request(make_request("a", 5, 40))
    assert worker.schedule().num_spec_tokens_to_schedule == 5
    worker.update()
    scheduler.add_request(make_request("b", 5, 40))
    assert worker.schedule().num_spec_tokens_to_schedule == 2


def test_the_controller_can_be_exchanged_between_steps(model: Path) -> None:
    """A step is observed by the controller that chose for it, even if another has taken over since."""
    first, second = cycling((1,)), cycling((3,))
    config = build_config(model, asynchronous=True)
    scheduler = build_scheduler(adaptive(AsyncScheduler, controller=first), config, v2=False)
    worker = Worker(scheduler, 0, asynchronous=True)
    scheduler.add_request(make_request("a", 5, 100))
    worker.schedule()
    worker.schedule()
    scheduler.adaptk.controller = second
    worker.update()
    worker.schedule()
    worker.update()
    worker.update()
    assert [len(first.records), len(second.records)] == [2, 1]
    assert [r.k for r in first.records + second.records] == [1, 1, 3]


def test_drafts_of_another_controller_are_those_that_it_asked_for(model: Path) -> None:
    """Where a controller comes back, its own record before is not that of the step before."""
    first, second = cycling((3,)), cycling((1,))
    scheduler = build_scheduler(adaptive(Scheduler, controller=first), build_config(model))
    worker = Worker(scheduler, 0, asynchronous=False)
    scheduler.add_request(make_request("a", 5, 100))
    for controller in (first, second, first, first):
        scheduler.adaptk.controller = controller
        for _ in range(2):
            worker.schedule()
            worker.update()
    assert [(r.asked, r.drafted) for r in second.records] == [(3, [3]), (None, [1])]
    assert [(r.asked, r.drafted) for r in first.records[2:]] == [(1, [1]), (None, [3]), (None, [3]), (None, [3])]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_restored_controller_waits_for_no_step_of_the_one_before(model: Path, depth: int) -> None:
    """Decisions that were open when the snapshot was taken are of steps that come back to the other controller."""
    asynchronous = depth > 1
    first = Controller(None, arms=ARMS, k_max=7, seed=0)
    base = AsyncScheduler if asynchronous else Scheduler
    config = build_config(model, asynchronous=asynchronous)
    scheduler = build_scheduler(adaptive(base, controller=first), config, v2=False if asynchronous else None)
    worker = Worker(scheduler, 0, asynchronous=asynchronous)
    scheduler.add_request(make_request("a", 5, 150))
    for _ in range(depth):
        worker.schedule()
    second = Controller.restore(first.snapshot(), None)
    scheduler.adaptk.controller = second
    seen = []
    observe = second.observe
    second.observe = lambda record: seen.append((observe(record), record.k))  # type: ignore[method-assign,func-returns-value]
    for _ in range(12):
        worker.update()
        worker.schedule()
    assert len(seen) > 8
    assert all(decision.k == k for decision, k in seen)
    assert [decision.seq for decision, _ in seen] == list(range(depth, depth + len(seen)))


@pytest.mark.parametrize("depth", [2, 3])
def test_requests_that_end_in_flight_are_no_missing_drafts(model: Path, depth: int) -> None:
    """Short answers one after the other, so that some end while the prompts of others are computed."""
    policy = cycling((3,))
    config = build_config(model, asynchronous=True)
    scheduler = build_scheduler(adaptive(AsyncScheduler, controller=policy), config, v2=True)
    worker = Worker(scheduler, 0, asynchronous=True)
    chance = random.Random(depth)
    for turn in range(200):
        while len(scheduler.requests) < 8:
            scheduler.add_request(make_request(f"{turn}-{len(scheduler.requests)}", 5, chance.randrange(2, 12)))
        worker.schedule()
        if len(worker.in_flight) == depth:
            worker.update()
    both = 0
    for record in policy.records:
        decodes = record.batch_size if record.decodes is None else record.decodes
        both += record.prefill_tokens > 0 and bool(record.gone)
        assert sum(record.drafted) == 3 * delivering(record, decodes)
    assert both > 10


def test_what_is_no_controller_changes_nothing(model: Path) -> None:
    """The one in charge stays, and so does the engine's steering."""
    policy = cycling((1,))
    scheduler = build_scheduler(adaptive(Scheduler, controller=policy), build_config(model))
    with pytest.raises(AttributeError):
        scheduler.adaptk.controller = object()
    assert scheduler.adaptk.controller is policy


def test_works_without_init(model: Path) -> None:
    """An object made by ``object.__new__`` and given a scheduler's attributes steers all the same."""
    plain = build_scheduler(Scheduler, build_config(model))
    cls = adaptive(Scheduler, controller=cycling((1,)))
    scheduler = object.__new__(cls)
    scheduler.__dict__.update(plain.__dict__)
    scheduler.add_request(make_request("a", 5, 20))
    worker = Worker(scheduler, 0, asynchronous=False)
    assert worker.schedule().num_spec_tokens_to_schedule == 1
    worker.update()
    assert len(scheduler.adaptk.controller.records) == 1


def test_the_real_controller_drives_both_schedulers(model: Path) -> None:
    """A Controller learns through a random load without a fault, and its decisions stay in step with the records."""
    for asynchronous in (False, True):
        controller = Controller(None, arms=ARMS, k_max=7, seed=0)
        load = run(model, controller, 3, asynchronous=asynchronous, depth=2 if asynchronous else 1)
        assert load.scheduler.adaptk.faults == 0, load.scheduler.adaptk.reason
        assert controller.counters["steps"] == len(load.expected)
