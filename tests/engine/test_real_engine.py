"""The real engine with an n-gram drafter: K is adaptk's, and the text is what it would have been."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adaptk import Controller
from tests.engine.driver import cycling
from tests.engine.engine import NGRAM, greedy, running, scheduler_of

ARMS = (0, 1, 3, 7)
PROMPTS = ["one two three one two three", "a b a b a b a b", "the quick brown fox", "zzzzzzzzzzzz", "0123456789" * 3]


@pytest.fixture(scope="module")
def untouched(model: Path) -> list[list[int]]:
    """What vLLM says by itself, from an engine without adaptk."""
    with running(model, NGRAM) as llm:
        assert not hasattr(scheduler_of(llm), "adaptk")
        return greedy(llm, PROMPTS, 60)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trace") / "trace-0.jsonl"


@pytest.fixture(scope="module")
def llm(model: Path, trace: Path, untouched: list[list[int]]) -> Iterator[Any]:
    """One adaptive engine for all tests here, started after the other one has gone."""
    with running(model, NGRAM, ADAPTK="on", ADAPTK_TRACE=str(trace).replace("-0", "-{rank}")) as llm:
        yield llm


@pytest.fixture
def steering(llm: Any) -> Iterator[Any]:
    """The steering, put back as it was."""
    steering = scheduler_of(llm).adaptk
    controller = steering.controller
    yield steering
    steering.controller, steering.mode = controller, "on"
    assert steering.faults == 0, steering.reason


def test_adaptk_is_in_charge(llm: Any, steering: Any) -> None:
    """The environment variable alone made the scheduler adaptive, and set what vLLM captures."""
    assert steering.active
    assert isinstance(steering.controller, Controller)
    assert steering.controller.arms == ARMS
    config = scheduler_of(llm).vllm_config.speculative_config
    assert config.num_speculative_tokens_per_batch_size == [(1, 1, 7), (2, 2, 3), (3, 3, 1), (4, 16, 0)]


@pytest.mark.parametrize("how", ["adaptive", "cycling", "shadow"])
def test_greedy_text_is_the_same(llm: Any, steering: Any, untouched: list[list[int]], how: str) -> None:
    """Token for token what the untouched engine said, with adaptk on, with K changing every step, and in shadow."""
    if how == "cycling":
        steering.controller = cycling(ARMS)
    steering.mode = "shadow" if how == "shadow" else "on"
    assert greedy(llm, PROMPTS, 60) == untouched


def test_k_is_obeyed(llm: Any, steering: Any) -> None:
    """Each step verifies what the step before decided, or what the drafter found of it; every arm is reached."""
    policy = steering.controller = cycling((7, 0, 3, 1))
    greedy(llm, PROMPTS, 100)
    records = policy.records
    assert [r.k for r in records] == policy.chosen
    widest = dict.fromkeys(ARMS, 0)
    for before, record in zip(policy.chosen, records[1:], strict=False):
        assert max(record.drafted) <= before
        assert record.verified is None
        widest[before] = max(widest[before], max(record.drafted))
    assert widest == {k: k for k in ARMS}
    assert sum(map(sum, (r.emitted for r in records))) == 100 * len(PROMPTS)


def test_shadow_uses_vllms_k(llm: Any, steering: Any) -> None:
    """The engine drafts its fixed maximum, whatever the controller says."""
    policy = steering.controller = cycling((0,))
    steering.mode = "shadow"
    greedy(llm, PROMPTS[3:4], 40)
    assert {r.k for r in policy.records} == {7}
    assert max(max(r.drafted) for r in policy.records) == 7
    assert set(policy.chosen) == {0}


def test_dummies_near_max_model_len_are_not_booked(llm: Any, steering: Any) -> None:
    """V1 widens a step to K_max zeros once a request comes near the limit; those are no drafts of any arm."""
    policy = steering.controller = cycling((1,))
    greedy(llm, ["x" * 200, "yz" * 20], 56)
    dummies = [r for r in policy.records if r.verified is not None]
    assert dummies
    assert all(sum(r.drafted) == 0 for r in dummies)
    assert any(r.verified > r.batch_size for r in dummies)  # wider than the K of 1 that was decided
    assert max(max(r.drafted) for r in policy.records) <= 1


def test_the_trace_holds_every_step(llm: Any, steering: Any, trace: Path) -> None:
    """Read back after closing: a header, then a row for each step of whichever policy was in charge."""
    steps = len(trace_rows(trace))
    policy = steering.controller = cycling((1,))
    greedy(llm, PROMPTS[:2], 20)
    steering.writer.close()
    rows = trace_rows(trace)
    assert rows[0]["arms"] == list(ARMS)
    assert rows[0]["mode"] == "on"
    assert len(rows) >= steps + len(policy.records)
    written = [row["step"] for row in rows[-len(policy.records) :]]
    assert [row["k"] for row in written] == policy.chosen
    assert [row["drafted"] for row in written] == [r.drafted for r in policy.records]


def trace_rows(path: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
