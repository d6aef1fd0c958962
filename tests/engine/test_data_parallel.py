"""Two ranks of a dense model behind one server, asked for in a configuration file: each is steered on its own."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest

from adaptk.cli.main import main
from tests.engine import versions
from tests.engine.engine import NGRAM
from tests.engine.metricspages import free_port, parsed, scraped
from tests.engine.servers import serving

OPTIONS = {
    "served-model-name": "tiny",
    "dtype": "float32",
    "max-model-len": "256",
    "max-num-seqs": "8",
    "speculative-config": json.dumps(NGRAM),
    "data-parallel-size": "2",
    "enforce-eager": "",
}
TOKENS = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the log, the traces and the control files are."""
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def metrics_port() -> int:
    """Where the first rank serves its metrics; the second one has the next port."""
    return free_port(ranks=2)


@pytest.fixture(scope="module")
def client(model: Path, folder: Path, metrics_port: int) -> Iterator[openai.OpenAI]:
    """A client of the one server here; no variable asks for adaptk."""
    versions.need_engine()
    options = {"trace": f"{folder}/trace-{{rank}}.jsonl", "control": f"{folder}/mode-{{rank}}", "strict": True}
    options["metrics_port"] = metrics_port
    config = folder / "config.yaml"
    config.write_text(json.dumps({"additional-config": {"adaptk": options}}))  # which is YAML, too
    with serving(model, folder / "log", {**OPTIONS, "config": str(config)}) as address:
        yield openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=120)


def ask(client: openai.OpenAI, requests: int) -> None:
    """Have so many prompts answered at once, each in full."""

    def one(number: int) -> None:
        answer = client.completions.create(
            model="tiny", prompt=f"a b a b {number}", max_tokens=TOKENS, temperature=0, extra_body={"ignore_eos": True}
        )
        assert answer.usage is not None
        assert answer.usage.completion_tokens == TOKENS

    with ThreadPoolExecutor(requests) as pool:
        list(pool.map(one, range(requests)))


def rows(trace: Path) -> list[Any]:
    """The steps in a trace so far."""
    return [msgspec.json.decode(line) for line in trace.read_bytes().rpartition(b"\n")[0].splitlines()[1:]]


def emitted(folder: Path) -> list[int]:
    """Tokens of each rank so far, by its trace."""
    return [sum(sum(row["step"]["emitted"]) for row in rows(folder / f"trace-{rank}.jsonl")) for rank in (0, 1)]


def test_each_rank_is_steered_and_recorded_on_its_own(client: openai.OpenAI, folder: Path) -> None:
    """With all its arms; together they answer all."""
    ask(client, 6)
    deadline = time.monotonic() + 10
    while sum(emitted(folder)) < 6 * TOKENS and time.monotonic() < deadline:
        time.sleep(0.2)
    ranks = emitted(folder)
    assert sum(ranks) == 6 * TOKENS
    assert min(ranks) > 0
    lines = [line for line in (folder / "log").read_text().splitlines() if "adaptk 0" in line]
    assert len(lines) == 2
    for rank in (0, 1):
        (line,) = [line for line in lines if f"EngineCore_DP{rank}" in line]
        assert "mode on, arms (0, 1, 3, 7)" in line
        assert "(set by adaptk for capture only; vLLM's own K is 7)" in line


def test_each_rank_serves_its_own_metrics(client: openai.OpenAI, folder: Path, metrics_port: int) -> None:
    """At a port of its own, labelled by its index as vLLM labels its own metrics; the trace holds as many tokens."""
    tokens = []
    for rank in (0, 1):
        page = parsed(scraped(f"http://127.0.0.1:{metrics_port + rank}/metrics"))
        labels = {(s.labels["model_name"], s.labels["engine"]) for s in page.samples("adaptk_steps_total")}
        assert labels == {("tiny", str(rank))}
        tokens.append(page.sum("adaptk_tokens_total"))
    assert all(0 < mine <= traced for mine, traced in zip(tokens, emitted(folder), strict=True))


def test_one_rank_is_switched_off(client: openai.OpenAI, folder: Path) -> None:
    """Its controller sees no more steps, the other's does; nothing is lost."""
    assert main(["mode", str(folder / "mode-1"), "off"]) == 0
    deadline = time.monotonic() + 20
    while "from mode on to off" not in (folder / "log").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    before = emitted(folder)
    ask(client, 6)
    deadline = time.monotonic() + 10
    while emitted(folder)[0] == before[0] and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(1.5)  # what is on its way to a trace is there within a second
    after = emitted(folder)
    assert after[0] > before[0]
    assert after[1] == before[1]
