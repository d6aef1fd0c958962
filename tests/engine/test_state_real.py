"""State over a restart of the real engine: inside a program, and of a server that is told to end."""

from __future__ import annotations

import time
from pathlib import Path

import openai

from adaptk.statefile import State, read_state
from tests.engine import versions
from tests.engine.engine import NGRAM, greedy, running, scheduler_of
from tests.engine.metricspages import free_port, parsed, scraped
from tests.engine.servers import serving
from tests.engine.test_api_server import ASKED, OPTIONS

PROMPTS = [f"{letter} b c {letter} b c {letter}" for letter in "aefghijk"]


def saved(path: Path) -> State:
    state = read_state(path)
    assert state is not None
    return state


def test_an_engine_that_is_started_again_goes_on(model: Path, tmp_path: Path) -> None:
    """It believes to the last bit what the one before did, and chooses as that one would have."""
    path = tmp_path / "state-0.json"
    settings = {"ADAPTK": "on", "ADAPTK_STRICT": "1", "ADAPTK_STATE": str(tmp_path / "state-{rank}.json")}
    with running(model, NGRAM, **settings) as llm:
        first = greedy(llm, PROMPTS, 100)
        before = scheduler_of(llm).adaptk.controller
    assert saved(path).snapshot == before.snapshot()
    steps = before.counters["steps"]
    with running(model, NGRAM, **settings) as llm:
        steering = scheduler_of(llm).adaptk
        after = steering.controller
        before.note_engine_restarted()
        assert after is not before
        assert after.snapshot() == before.snapshot()
        assert after.belief(8) == before.belief(8)
        assert after.choose(8) == before.choose(8)
        assert greedy(llm, PROMPTS, 100) == first
        assert steering.faults == 0
    assert saved(path).snapshot["counters"]["steps"] > steps
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["state-0.json", "state-0.json.lock"]


def test_a_server_that_is_told_to_end_saves(model: Path, tmp_path: Path) -> None:
    """SIGTERM to the server, whose engine is a process of its own: all that it learnt is in the file, and no scrap.

    By itself, where vLLM gives its engine time to end, as it does not unless it is told to.
    """
    versions.need_engine()
    port, path = free_port(), tmp_path / "state.json"
    settings = {"ADAPTK": "on", "ADAPTK_STATE": str(path), "ADAPTK_METRICS_PORT": str(port)}
    with serving(model, tmp_path / "log", OPTIONS | {"shutdown-timeout": "30"}, **settings) as address:
        steps = steps_after_a_request(address, port)
        early = read_state(path)
    assert steps > 20
    assert saved(path).snapshot["counters"]["steps"] == steps
    assert early is None or early.snapshot["counters"]["steps"] <= steps
    assert not list(tmp_path.glob("*.tmp"))


def test_a_server_that_is_killed_at_rest_has_saved(model: Path, tmp_path: Path) -> None:
    """As vLLM's own does with its engine when it is told to end: some seconds of rest, and nothing is lost."""
    versions.need_engine()
    port, path = free_port(), tmp_path / "state.json"
    settings = {"ADAPTK": "on", "ADAPTK_STATE": str(path), "ADAPTK_METRICS_PORT": str(port)}
    with serving(model, tmp_path / "log", OPTIONS, **settings) as address:
        steps = steps_after_a_request(address, port)
        until = time.monotonic() + 120
        while (not path.exists() or learnt(path) < steps) and time.monotonic() < until:
            time.sleep(0.2)
    assert learnt(path) == steps > 20


def learnt(path: Path) -> int:
    """Steps that the saved controller had seen."""
    steps: int = saved(path).snapshot["counters"]["steps"]
    return steps


def steps_after_a_request(address: str, port: int) -> float:
    """Steps that adaptk counts once a request is answered, and nothing else is under way."""
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=120)
    client.completions.create(prompt=PROMPTS[0], max_tokens=150, **ASKED)
    return parsed(scraped(f"http://127.0.0.1:{port}/metrics")).sum("adaptk_steps_total")
