"""The server as a user starts it: processes of its own, adaptk switched on by the environment alone."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import openai
import pytest

from tests.engine import versions
from tests.engine.engine import NGRAM
from tests.engine.servers import serving

OPTIONS = {
    "served-model-name": "tiny",
    "dtype": "float32",
    "max-model-len": "2048",
    "max-num-seqs": "8",
    "speculative-config": json.dumps(NGRAM),
    "enforce-eager": "",
}
ASKED: dict[str, Any] = {"model": "tiny", "temperature": 0, "extra_body": {"ignore_eos": True}}


class Server(NamedTuple):
    """Where it is, what it prints, and the trace that it writes."""

    address: str
    log: Path
    trace: Path
    client: openai.OpenAI


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One adaptive server for all tests."""
    versions.need_engine()
    folder = tmp_path_factory.mktemp("server")
    settings = {"ADAPTK": "on", "ADAPTK_STRICT": "1", "ADAPTK_TRACE": str(folder / "trace-{rank}.jsonl")}
    with serving(model, folder / "log", OPTIONS, **settings) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=120)
        yield Server(address, folder / "log", folder / "trace-0.jsonl", client)


def read_until(trace: Path, tokens: int) -> tuple[Any, list[Any]]:
    """Header and rows of a trace, once they hold so many tokens or ten seconds have passed."""
    deadline = time.monotonic() + 10
    while True:
        whole = trace.read_bytes().rpartition(b"\n")[0]
        header, *rows = map(msgspec.json.decode, whole.splitlines())
        if emitted(rows) >= tokens or time.monotonic() > deadline:
            return header, rows
        time.sleep(0.2)


def emitted(rows: list[Any]) -> int:
    return sum(sum(row["step"]["emitted"]) for row in rows)


def metric(address: str, name: str) -> float:
    """One of the server's own metrics, without labels that part it."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    (line,) = [line for line in lines if line.startswith(f"vllm:{name}{{")]
    return float(line.rpartition(" ")[2])


def test_the_environment_variable_alone_makes_the_server_adaptive(server: Server) -> None:
    """It answers, its log has adaptk's first line from the engine's process, and the trace has every step."""
    answer = server.client.completions.create(prompt="a b a b a b", max_tokens=40, **ASKED)
    # The server may kill its engine at the end; until then rows reach the file within a second.
    header, rows = read_until(server.trace, tokens=40)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 40
    (line,) = [line for line in server.log.read_text().splitlines() if "on vLLM" in line and "adaptk" in line]
    assert "EngineCore" in line
    assert "mode on, arms (0, 1, 3, 7), table no table" in line
    assert "(set by adaptk for capture only; vLLM's own K is 7)" in line
    assert header["mode"] == "on"
    assert emitted(rows) == 40


def test_a_stream_is_the_whole_answer(server: Server) -> None:
    """Chunk by chunk the tokens and the text of the same request without a stream, ended once, counted right.

    Several drafts accepted in one step come in one chunk; the controller tries its arms meanwhile.
    """
    asked = ASKED | {"prompt": "x y z x y z", "max_tokens": 300}
    asked["extra_body"] = {"ignore_eos": True, "return_token_ids": True}
    whole = server.client.completions.create(**asked)
    before = emitted(read_until(server.trace, 0)[1])
    chunks = list(server.client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole.choices[0].text
    tokens = [token for chunk in chunks if chunk.choices for token in chunk.choices[0].token_ids or ()]  # type: ignore[attr-defined]
    assert tokens == whole.choices[0].token_ids  # type: ignore[attr-defined]
    assert len(tokens) == 300
    ends = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert [end for end in ends if end] == ["length"]
    assert ends[-1] == "length"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 300
    _, rows = read_until(server.trace, before + 300)
    assert max(max(row["step"]["accepted"], default=0) for row in rows) > 1
    assert len({row["step"]["k"] for row in rows}) > 1


def test_a_client_that_hangs_up_is_forgotten_and_the_server_lives_on(server: Server) -> None:
    """In mid-stream, while another stream runs: the one is aborted, the other comes to its end, steered throughout."""
    before = metric(server.address, "generation_tokens_total")
    other = server.client.completions.create(prompt="m n m n", max_tokens=1200, stream=True, **ASKED)
    next(iter(other))
    left = server.client.completions.create(prompt="p q p q", max_tokens=1900, stream=True, **ASKED)
    for _ in range(3):
        next(iter(left))
    left.close()
    ends = [chunk.choices[0].finish_reason for chunk in other]
    assert ends[-1] == "length"
    deadline = time.monotonic() + 60
    while metric(server.address, "num_requests_running") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert metric(server.address, "num_requests_running") == 0
    assert 1200 < metric(server.address, "generation_tokens_total") - before < 1200 + 1900
    again = server.client.completions.create(prompt="a b a b a b", max_tokens=40, **ASKED)
    assert again.usage is not None
    assert again.usage.completion_tokens == 40
    assert "adaptk stands down" not in server.log.read_text()
