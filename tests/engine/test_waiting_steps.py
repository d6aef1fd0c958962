"""Steps whose sampling waits for a grammar are told from the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from adaptk.vllm_plugin import adaptive
from tests.engine.driver import Policy, Worker, build_config, build_scheduler, make_request


@pytest.mark.parametrize(
    ("asynchronous", "grammars", "waiting"),
    [(True, (False, True), True), (True, (False, False), False), (False, (True, True), False)],
)
def test_a_step_waits_where_vllm_defers_its_sampling(
    model: Path, asynchronous: bool, grammars: tuple[bool, ...], waiting: bool
) -> None:
    """Under asynchronous scheduling, as soon as one request with a grammar decodes; a synchronous step never does."""
    policy = Policy(lambda _: 2)
    base = AsyncScheduler if asynchronous else Scheduler
    config = build_config(model, k_max=3, asynchronous=asynchronous)
    scheduler = build_scheduler(adaptive(base, controller=policy), config, v2=False)
    worker = Worker(scheduler, 1, asynchronous=asynchronous)
    for i, grammar in enumerate(grammars):
        scheduler.add_request(make_request(str(i), 5, 60, grammar=grammar))
    deferred: list[Any] = []
    if asynchronous:
        deferred.append(worker.schedule().pending_structured_output_tokens)
    for _ in range(8):
        deferred.append(worker.schedule().pending_structured_output_tokens)
        worker.update()
    assert [record.waited for record in policy.records] == deferred[: len(policy.records)]
    assert any(record.waited for record in policy.records) == waiting
    assert not policy.records[0].waited  # nothing is in flight that the prompts could wait for
