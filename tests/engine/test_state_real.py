"""State over a restart of the real engine: inside a program, and of a server that is told to end."""

from __future__ import annotations

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
    """SIGTERM to the server, whose engine is a process of its own: all that it learnt is in the file, and no scrap."""
    versions.need_engine()
    port, path = free_port(), tmp_path / "state.json"
    settings = {"ADAPTK": "on", "ADAPTK_STATE": str(path), "ADAPTK_METRICS_PORT": str(port)}
    with serving(model, tmp_path / "log", OPTIONS, **settings) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=120)
        client.completions.create(prompt=PROMPTS[0], max_tokens=150, **ASKED)
        page = parsed(scraped(f"http://127.0.0.1:{port}/metrics"))
        steps = page.sum("adaptk_steps_total")
    assert steps > 20
    assert saved(path).snapshot["counters"]["steps"] == steps
    assert not list(tmp_path.glob("*.tmp"))
