"""Requests whose prompt another engine computed: their first step is no decode, and lost blocks are no acceptance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import RequestStatus

from adaptk.vllm_plugin import adaptive
from tests.engine import transfer
from tests.engine.books import Books, Frame
from tests.engine.driver import Policy, build_config, build_scheduler, cycling


@pytest.fixture(autouse=True)
def _no_plan() -> Iterator[None]:
    transfer.Connector.plan.clear()
    yield
    transfer.Connector.plan.clear()
    transfer.Connector.sending.clear()


class Consumer(Books):
    """Decodes what others have prefilled; transfers take some steps, and some blocks are lost."""

    lost = 0.0  # share of arrivals of which a block is missing

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.told: set[str] = set()  # requests whose arrival was reported

    def received(self, frame: Frame) -> Any:
        requests = self.scheduler.requests
        waiting = [rid for rid, request in requests.items() if request.status == RequestStatus.WAITING_FOR_REMOTE_KVS]
        arrived = {rid for rid in waiting if rid not in self.told and self.random.random() < 0.4}
        self.told |= arrived
        missing = {self._block(rid) for rid in arrived if self.random.random() < self.lost}
        for new in frame.output.scheduled_new_reqs:
            tokens, later = transfer.Connector.plan.get(new.req_id, (0, False))
            if tokens and not later and self.random.random() < self.lost:
                missing.add(self._block(new.req_id))
        self.seen["arrived"] += len(arrived)
        self.seen["lost"] += len(missing)
        return KVConnectorOutput(finished_recving=arrived or None, invalid_block_ids=missing)

    def _block(self, rid: str) -> int:
        return int(self.random.choice(self.scheduler.kv_cache_manager.get_block_ids(rid)[0][:2]))


def consumer(model: Path, seed: int, *, asynchronous: bool, depth: int, **fields: Any) -> tuple[Policy, Consumer]:
    """A policy and a consumer with room for a handful of requests at a time."""
    policy = cycling((3, 1, 7, 0))
    config = build_config(
        model, asynchronous=asynchronous, max_num_batched_tokens=64, transfer=transfer.settings(**fields)
    )
    cls = adaptive(AsyncScheduler if asynchronous else Scheduler, controller=policy)
    scheduler = build_scheduler(cls, config, num_blocks=60, v2=False if asynchronous else None)
    rule = config.model_config.max_model_len - scheduler.num_spec_tokens
    return policy, Consumer(scheduler, policy, seed, depth=depth, asynchronous=asynchronous, length_rule=rule)


def test_the_first_step_of_a_request_that_arrives_is_no_decode(model: Path) -> None:
    """Its last prompt token is computed here, beside decodes of others, and it has no drafts yet."""
    policy, books = consumer(model, 0, asynchronous=False, depth=1)
    books.add([5] * 10, 100, grammar=False, stops=False)
    for _ in range(3):
        books.step()
    transfer.Connector.plan["r1"] = (40, True)
    books.add([6] * 40, 50, grammar=False, stops=False)
    steps = 0
    while books.scheduler.requests["r1"].num_output_tokens == 0:
        books.step()
        steps += 1
    first = policy.records[-1]
    assert steps > 1
    assert (first.batch_size, first.decodes, first.prefill_tokens) == (2, 1, 1)
    assert first.drafted.count(0) >= 1
    books.step()
    assert policy.records[-1].decodes is None


def test_a_request_that_ended_and_is_still_being_sent(model: Path) -> None:
    """Aborted in flight, it stays with the scheduler until others have read its blocks, and counts no more."""
    policy, books = consumer(model, 0, asynchronous=True, depth=3)
    transfer.Connector.sending.add("r0")
    for first in (5, 6):
        books.add([first] * 20, 100, grammar=False, stops=False)
    for _ in range(4):
        books.step()
    books.abort("r0")
    books.update()
    assert "r0" in books.scheduler.requests
    record = policy.records[-1]
    assert sorted(drafts > 0 for drafts in record.drafted) == [False, True]
    assert sorted(tokens > 0 for tokens in record.emitted) == [False, True]


@pytest.mark.parametrize(("asynchronous", "depth", "lost"), [(False, 1, 0.0), (False, 1, 0.5), (True, 2, 0.0)])
@pytest.mark.parametrize("policy_of_failure", ["recompute", "fail"])
def test_transfers_under_load(model: Path, asynchronous: bool, depth: int, lost: float, policy_of_failure: str) -> None:
    """Through arrivals at once, arrivals later and lost blocks, only what the scheduler took in is counted."""
    _, books = consumer(model, 3, asynchronous=asynchronous, depth=depth, kv_load_failure_policy=policy_of_failure)
    books.lost = lost
    for turn in range(250):
        if len(books.scheduler.requests) < 6 and turn < 200:
            length = books.random.randint(17, 60)
            later = books.random.random() < 0.5
            tokens = min(books.random.choice((0, 16, 32, length)), length if later else length - 1)
            rid = f"r{len(books.asked_tokens)}"
            transfer.Connector.plan[rid] = (tokens, later)
            books.add([turn % 50] * length, books.random.randint(1, 40), grammar=False, stops=False)
        books.step()
        books.check_invariants()
    books.drain()
    assert books.steps > 120
    assert books.seen["arrived"] > 10
    assert (books.seen["lost"] > 5) == (lost > 0)
    assert books.scheduler.adaptk.collector.ignored > 0 or not lost
