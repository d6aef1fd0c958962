"""Thousands of random steps of vLLM's schedulers, synchronous, asynchronous and pipelined: each is booked as it was."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.scheduler import Scheduler

from adaptk.vllm_plugin import adaptive
from tests.engine.books import Books
from tests.engine.driver import Policy, build_config, build_scheduler
from tests.engine.versions import at_least, since

ARMS = (0, 1, 3, 7)
LONGEST = 160


class Mode(NamedTuple):
    """How an engine calls its scheduler."""

    asynchronous: bool
    depth: int  # steps in flight
    v2: bool = False
    stages: int = 1  # of a pipeline


MODES = {
    "synchronous": Mode(False, 1),
    "asynchronous, one in flight": Mode(True, 1),
    "asynchronous": Mode(True, 2),
    "asynchronous, three in flight": Mode(True, 3),
    "asynchronous on V2": Mode(True, 2, v2=True),
    "two stages": Mode(False, 2, stages=2),
    "three stages": Mode(False, 3, stages=3),
    "two stages, asynchronous": Mode(True, 3, v2=True, stages=2),
    "three stages, asynchronous": Mode(True, 4, v2=True, stages=3),
}


def start(config: Any, mode: Mode, seed: int, blocks: int, arms: tuple[int, ...]) -> Books:
    """An engine by hand, in the state in which vLLM would have built it for ``mode``."""
    held = 20 if mode.stages > 1 else 1  # steps that a K stays: in a pipeline only such steps have a time
    policy = Policy(lambda _: arms[len(policy.chosen) // held % len(arms)])
    base = AsyncScheduler if mode.asynchronous else Scheduler
    scheduler = build_scheduler(adaptive(base, controller=policy), config, num_blocks=blocks, v2=mode.v2)
    if mode.stages > 1:
        scheduler.use_pp = True
        scheduler.pp_size = scheduler.decode_stagger = mode.stages
    rule = None if mode.v2 else config.model_config.max_model_len - scheduler.num_spec_tokens
    return Books(
        scheduler, policy, seed, depth=mode.depth, asynchronous=mode.asynchronous, stages=mode.stages, length_rule=rule
    )


class Machine(RuleBasedStateMachine):
    """Requests of all kinds come, go and are disturbed while the engine steps."""

    config: Any
    mode: Mode
    seen: Counter[str]

    def __init__(self) -> None:
        super().__init__()
        self.books: Books | None = None

    @initialize(seed=st.integers(0, 2**16), blocks=st.integers(14, 60), arms=st.permutations(ARMS))
    def begin(self, seed: int, blocks: int, arms: list[int]) -> None:
        self.books = start(self.config, self.mode, seed, blocks, tuple(arms))

    @rule(
        first=st.integers(0, 2),
        length=st.integers(1, 150),
        children=st.integers(1, 3),
        max_tokens=st.integers(1, 90),
        grammar=st.booleans(),
        stops=st.booleans(),
    )
    def add(self, first: int, length: int, children: int, max_tokens: int, grammar: bool, stops: bool) -> None:
        """Some share a beginning, and children a whole prompt."""
        for _ in range(children):
            self.books.add([first] * length, max_tokens, grammar=grammar, stops=stops)

    @rule(n=st.integers(1, 25))
    def step(self, n: int) -> None:
        for _ in range(n):
            self.books.step()

    @rule(chance=st.sampled_from((0.0, 0.6, 1.0)))
    def accept(self, chance: float) -> None:
        self.books.accept = chance

    @precondition(lambda self: self.books is not None and self.books.scheduler.requests)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.books.abort(data.draw(st.sampled_from(sorted(self.books.scheduler.requests))))

    @rule()
    def reset(self) -> None:
        self.books.reset()

    @rule(state=st.sampled_from(PauseState), n=st.integers(1, 4))
    def pause(self, state: PauseState, n: int) -> None:
        self.books.scheduler.set_pause_state(state)
        for _ in range(n):
            self.books.step()
        self.books.scheduler.set_pause_state(PauseState.UNPAUSED)

    @rule()
    def wait(self) -> None:
        """The engine takes in all that is in flight."""
        self.books.drain()

    @invariant()
    def sound(self) -> None:
        if self.books is not None:
            self.books.check_invariants()

    def teardown(self) -> None:
        books = self.books
        if books is None:
            return
        books.accept = 0.6
        for _ in range(3_000):
            if not books.scheduler.requests and not books.in_flight:
                break
            books.step()
            if not books.scheduler.requests:
                books.drain()
        books.check_invariants()
        books.check_end()
        self.seen += books.seen
        self.seen["steps"] += books.steps


def expected(mode: Mode) -> list[str]:
    """What a run must have met with, so that its silence about it says something."""
    kinds = ["cut", "chunks", "prefix hits", "beyond a stop"]
    if not mode.v2:
        kinds.append("too long to draft")
    if mode.depth > 1:
        kinds.append("drafts left out")
        if at_least(27):  # before, a reset waits for what is in flight, and too few blocks are seldom met with
            kinds.append("preempted in flight")
    if mode.asynchronous and mode.depth > 1:
        kinds.append("refused by grammar")
    return kinds + (["timed", "untimed"] if mode.stages > 1 else [])


def marked(name: str) -> Any:
    """Before 0.28 vLLM's own Scheduler, as a pipeline calls it, asserts as soon as a request has drafts."""
    mode = MODES[name]
    pipelined = mode.stages > 1 and not mode.asynchronous
    return pytest.param(name, marks=[since(28, "a synchronous pipeline with drafts")] if pipelined else [])


@pytest.mark.parametrize("name", map(marked, MODES))
def test_every_step_is_booked_as_it_was(model: Path, name: str) -> None:
    """Drafted, accepted and emitted of each request agree, the n-th record meets the n-th choice, vLLM stays sound."""
    mode = MODES[name]
    config = build_config(
        model,
        max_num_seqs=8,
        max_model_len=LONGEST,
        max_num_batched_tokens=64,
        asynchronous=mode.asynchronous,
        prefix_caching=True,
    )
    seen: Counter[str] = Counter()
    machine = type("Machine", (Machine,), {"config": config, "mode": mode, "seen": seen})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=25,
            stateful_step_count=50,
            derandomize=True,
            deadline=None,
            phases=(Phase.generate,),  # shrinking a failure would take minutes
            suppress_health_check=list(HealthCheck),
        ),
    )
    missing = [kind for kind in expected(mode) if seen[kind] == 0]
    assert not missing, f"nothing of {missing} in {dict(seen)}"
    assert seen["steps"] > 500
