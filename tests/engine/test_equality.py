"""Under greedy decoding an engine with adaptk says token for token what it says without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.driver import cycling
from tests.engine.engine import NGRAM, running, scheduler_of
from tests.engine.workloads import SMALL, WORKLOADS, Answers

ARMS = (0, 1, 3, 7)


@pytest.fixture(scope="module")
def untouched(model: Path) -> dict[str, Answers]:
    """What vLLM says by itself."""
    with running(model, NGRAM, SMALL) as llm:
        assert not hasattr(scheduler_of(llm), "adaptk")
        return {name: ask(llm) for name, ask in WORKLOADS.items()}


@pytest.fixture(scope="module")
def llm(model: Path, untouched: dict[str, Answers]) -> Iterator[Any]:
    """One adaptive engine for all tests here, started after the other one has gone."""
    with running(model, NGRAM, SMALL, ADAPTK="on") as llm:
        yield llm


@pytest.fixture
def steering(llm: Any) -> Iterator[Any]:
    """The steering, put back as it was."""
    steering = scheduler_of(llm).adaptk
    controller = steering.controller
    llm.reset_prefix_cache()
    yield steering
    steering.controller, steering.mode = controller, "on"
    assert steering.active, steering.reason
    assert (steering.faults, steering.unmatched) == (0, 0)


@pytest.mark.parametrize("how", ["adaptive", "cycling", "shadow", "flapping"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_token_is_the_same(
    llm: Any, steering: Any, untouched: dict[str, Answers], name: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With adaptk's own choices, with K changing at every step, in shadow, and with the mode changing all the time."""
    if how in ("cycling", "flapping"):
        steering.controller = cycling(ARMS)
    if how == "shadow":
        steering.mode = "shadow"
    if how == "flapping":
        flap(scheduler_of(llm), monkeypatch)
    answers, expected = WORKLOADS[name](llm), untouched[name]
    for part in ("logprobs", "prompt"):
        if part in expected:
            for mine, theirs in zip(answers.pop(part), expected[part], strict=True):
                assert mine == pytest.approx(theirs, abs=1e-3)
    assert answers == {part: value for part, value in expected.items() if part in answers}


def flap(scheduler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set another mode before each step."""
    original, modes = scheduler.schedule, ["on", "off", "on", "shadow"] * 5000

    def schedule(*args: Any, **kwargs: Any) -> Any:
        scheduler.adaptk.mode = modes.pop()
        return original(*args, **kwargs)

    monkeypatch.setattr(scheduler, "schedule", schedule)


def test_the_workloads_are_what_they_say(untouched: dict[str, Answers]) -> None:
    """Requests were preempted, prefixes were found again, grammars were obeyed, stops came early, requests went."""
    assert untouched["preemption"]["preempted"]
    assert untouched["prefix_caching"]["cached"]
    json, regex, choice = untouched["structured"]["texts"]
    assert json.startswith("{")
    assert set(regex) <= set("abcd")
    assert choice in ("yes yes yes yes", "no no no no")
    assert untouched["several_answers"]["text"] == {"the cat sat on the mat, " * 4}
    assert {why for why, _ in untouched["stops"]["why"]} == {"stop", "length"}
    assert untouched["aborts"]["gone"] == 4
    assert all(len(ids) == 60 for ids in untouched["aborts"]["tokens"])
