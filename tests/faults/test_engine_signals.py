"""Signals to vLLM's OpenAI server while it answers: processes of its own, adaptk with all its files open."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from adaptk.statefile import read_state
from adaptk.trace import read_trace
from tests.engine import servers, versions
from tests.engine.engine import NGRAM
from tests.engine.metricspages import free_port, parsed, scraped

OPTIONS = {
    "served-model-name": "tiny",
    "dtype": "float32",
    "max-model-len": "2048",
    "max-num-seqs": "8",
    "speculative-config": json.dumps(NGRAM),
    "enforce-eager": "",
    "gpu-memory-utilization": "0.3",
}
TOKENS, REQUESTS = 300, 6


class Server(NamedTuple):
    """A server, its engine's process, and where its things are."""

    address: str
    engine: int
    metrics: str
    folder: Path


def engine_of(log: Path) -> int:
    """The process of the engine, as the log's lines name it."""
    return int(log.read_text().partition("(EngineCore pid=")[2].partition(")")[0])


def ask(address: str, number: int) -> int:
    """One request answered in full; its tokens."""
    body = {"model": "tiny", "prompt": f"a b c {number} " * 4, "max_tokens": TOKENS, "temperature": 0}
    request = urllib.request.Request(
        f"{address}/v1/completions",
        json.dumps(body | {"ignore_eos": True}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return int(json.load(answer)["usage"]["completion_tokens"])


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all signals that it outlives."""
    versions.need_engine()
    folder = tmp_path_factory.mktemp("signals")
    port = free_port()
    settings = {"ADAPTK": "on", "ADAPTK_BUDGET": "0.1", "ADAPTK_METRICS_PORT": str(port)}
    settings |= {f"ADAPTK_{name.upper()}": str(folder / name) for name in ("trace", "state", "control")}
    with servers.serving(model, folder / "log", OPTIONS, **settings) as address:
        yield Server(address, engine_of(folder / "log"), f"http://127.0.0.1:{port}/metrics", folder)


def steps(server: Server) -> int:
    return int(parsed(scraped(server.metrics)).sum("adaptk_steps_total"))


def test_stopped_and_gone_on(server: Server) -> None:
    """The engine's process is stopped in mid-work for a second, five times, as a machine that sleeps.

    Every request is answered in full, adaptk goes on steering, no step is lost and the trace has each.
    """
    before = steps(server)
    with ThreadPoolExecutor(REQUESTS) as pool:
        answers = [pool.submit(ask, server.address, number) for number in range(REQUESTS)]
        for _ in range(5):
            time.sleep(0.2)
            os.kill(server.engine, signal.SIGSTOP)
            time.sleep(1.0)
            os.kill(server.engine, signal.SIGCONT)
        assert [answer.result() for answer in answers] == [TOKENS] * REQUESTS
    page = parsed(scraped(server.metrics))
    assert page.value("adaptk_active") == 1
    assert page.value("adaptk_faults_total") == 0
    assert page.sum("adaptk_observations_dropped_total", cause="lost") == 0
    assert steps(server) > before


def test_the_server_is_ended_in_mid_work(model: Path, tmp_path: Path) -> None:
    """By SIGTERM: no client waits for ever, the trace has every step, and the state is that after the last one.

    vLLM kills its engine at once unless ``--shutdown-timeout`` grants it some time.
    """
    versions.need_engine()
    settings = {"ADAPTK": "on", "ADAPTK_STRICT": "1"}
    settings |= {f"ADAPTK_{name.upper()}": str(tmp_path / name) for name in ("trace", "state")}
    options = OPTIONS | {"shutdown-timeout": "60"}
    with servers.started(model, tmp_path / "log", options, **settings) as server, ThreadPoolExecutor(REQUESTS) as pool:
        engine = engine_of(tmp_path / "log")
        asked = [pool.submit(ask, server.address, number) for number in range(REQUESTS)]
        until = time.monotonic() + 120
        while len((tmp_path / "trace").read_bytes().splitlines()) < 30 and time.monotonic() < until:
            time.sleep(0.05)
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(120)
        for answer in asked:
            answer.exception(120)  # answered or refused
    until = time.monotonic() + 30
    while Path(f"/proc/{engine}").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not Path(f"/proc/{engine}").exists()
    trace = read_trace(tmp_path / "trace")
    assert [row.decision.seq for row in trace.rows if row.decision] == list(range(len(trace.rows)))
    assert len(trace.rows) > 20
    state = read_state(tmp_path / "state")
    assert state is not None
    assert state.snapshot["counters"]["steps"] == len(trace.rows)
    assert "adaptk stands down" not in (tmp_path / "log").read_text()
