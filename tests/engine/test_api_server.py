"""The server as a user starts it: processes of its own, adaptk and its metrics switched on by the environment alone."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import openai
import pytest

from adaptk.vllm_plugin.metrics.names import BY_NAME
from tests.engine import versions
from tests.engine.engine import NGRAM
from tests.engine.metricspages import Page, free_port, parsed, scraped
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
TOKENS = 250


class Server(NamedTuple):
    """Where it and adaptk's metrics are, what it prints, and the trace that it writes."""

    address: str
    metrics: str
    log: Path
    trace: Path
    client: openai.OpenAI


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One adaptive server for all tests."""
    versions.need_engine()
    folder = tmp_path_factory.mktemp("server")
    port = free_port()
    settings = {"ADAPTK": "on", "ADAPTK_STRICT": "1", "ADAPTK_BUDGET": "0.1", "ADAPTK_METRICS_PORT": str(port)}
    settings["ADAPTK_TRACE"] = str(folder / "trace-{rank}.jsonl")
    settings["ADAPTK_STATE"] = str(folder / "state-{rank}.json")
    with serving(model, folder / "log", OPTIONS, **settings) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=120)
        yield Server(address, f"http://127.0.0.1:{port}/metrics", folder / "log", folder / "trace-0.jsonl", client)


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


def rows_until(trace: Path, steps: int) -> list[Any]:
    """The rows of a trace, once so many are there or ten seconds have passed."""
    deadline = time.monotonic() + 10
    while True:
        _, rows = read_until(trace, 0)
        if len(rows) >= steps or time.monotonic() > deadline:
            return rows
        time.sleep(0.2)


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
    assert "mode on, arms (0, 1, 3, 7), budget 0.1, no table, schedule [[1, 1, 7], " in line
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


def ask(server: Server, number: int) -> int:
    """Have one prompt answered in full; its tokens."""
    answer = server.client.completions.create(prompt=f"a b c {number} " * 4, max_tokens=TOKENS, **ASKED)
    assert answer.usage is not None
    return int(answer.usage.completion_tokens)


@pytest.fixture(scope="module")
def pages(server: Server) -> list[Page]:
    """One before ten requests, some while they run, and the last one after them."""
    found = [parsed(scraped(server.metrics))]
    with ThreadPoolExecutor(10) as pool:
        answers = [pool.submit(ask, server, number) for number in range(10)]
        while not all(answer.done() for answer in answers):
            found.append(parsed(scraped(server.metrics)))
            time.sleep(0.2)
        assert [answer.result() for answer in answers] == [TOKENS] * 10
    return [*found, parsed(scraped(server.metrics))]


class TestMetrics:
    """Scraped while it answers, against what its trace holds."""

    def test_it_says_where_they_are(self, server: Server) -> None:
        """In one line of the engine's log."""
        (line,) = [line for line in server.log.read_text().splitlines() if "serves its metrics" in line]
        assert server.metrics in line
        assert "EngineCore" in line

    def test_every_sample_is_in_the_catalogue_with_its_labels(self, pages: list[Page]) -> None:
        """Name, kind, labels; and who it is of, under the names of vLLM's own metrics."""
        for page in pages:
            for name, family in page.families.items():
                known = BY_NAME[name]
                assert family.type == known.kind
                assert family.documentation == known.help
                for sample in family.samples:
                    assert set(sample.labels) - {"le"} == {"model_name", "engine", *known.labels}
                    assert (sample.labels["model_name"], sample.labels["engine"]) == ("tiny", "0")
        absent = {"adaptk_inactive_info", "adaptk_table_itl_seconds", "adaptk_drift_ratio", "adaptk_table_k"}
        saved = {"adaptk_state_timestamp_seconds"}  # there once it was saved
        assert set(pages[-1].families) | saved == set(BY_NAME) - absent  # there is no table, and adaptk is active

    def test_counters_never_fall_while_it_serves(self, pages: list[Page]) -> None:
        """From page to page, of each series; several pages were made in mid-work."""
        for before, after in pairwise(pages):
            for series, value in before.counters().items():
                assert after.counters()[series] >= value, series
        steps = [page.sum("adaptk_steps_total") for page in pages]
        assert len(set(steps)) > 3

    def test_they_are_those_of_the_trace(self, server: Server, pages: list[Page]) -> None:
        """Steps, tokens, decisions and drafts by position of the last page, counted from the rows."""
        page = pages[-1]
        found = rows_until(server.trace, int(page.sum("adaptk_steps_total")))
        steps = [row["step"] for row in found]
        assert page.sum("adaptk_steps_total") == len(steps)
        timed = [step for step in steps if step.get("elapsed_ms") is not None]
        assert page.sum("adaptk_timed_steps_total") == len(timed)
        assert page.sum("adaptk_tokens_total") == sum(sum(step["emitted"]) for step in timed)
        assert page.sum("adaptk_step_seconds_total") == pytest.approx(sum(step["elapsed_ms"] for step in timed) / 1000)
        decided = Counter((str(row["decision"]["k"]), row["decision"]["reason"]) for row in found)
        assert page.by("adaptk_decisions_total", "k", "reason") == decided
        pairs = [pair for step in steps for pair in zip(step["drafted"], step["accepted"], strict=True)]
        for position in range(1, 8):
            reached = sum(d >= position and n >= position - 1 for d, n in pairs)
            assert page.value("adaptk_draft_reached_total", position=str(position)) == reached
            assert page.value("adaptk_draft_accepted_total", position=str(position)) == sum(
                n >= position for _, n in pairs
            )
        assert page.value("adaptk_played_k") == page.value("adaptk_chosen_k") == steps[-1]["k"]

    def test_beliefs_came_while_it_served(self, pages: list[Page]) -> None:
        """Of the bins that were served, newer from page to page; where nothing is known tokens are taken over."""
        times = [page.value("adaptk_beliefs_timestamp_seconds") for page in pages]
        assert times == sorted(times)
        assert len(set(times)) > 3
        last = pages[-1]
        bins = {batch for batch, _ in last.by("adaptk_steps_total", "batch", "k")}
        believed = last.by("adaptk_believed_itl_seconds", "batch", "k")
        assert {batch for batch, _ in believed} == bins - {"0"}
        assert {k for _, k in believed} == {"0", "1", "3", "7"}
        assert last.sum("adaptk_best_probability_ratio") == pytest.approx(len(bins - {"0"}))
        tokens = last.sum("adaptk_tokens_total")
        assert last.value("adaptk_reference_tokens_total", policy="adaptk") == tokens
        assert 0 <= last.value("adaptk_reference_unknown_tokens_total", policy="k0") < tokens
        assert last.value("adaptk_mode", mode="on") == last.value("adaptk_active") == 1
        assert abs(time.time() - last.value("adaptk_last_step_timestamp_seconds")) < 600

    def test_only_that_page_is_there(self, server: Server) -> None:
        """Of Prometheus's type; elsewhere there is a hint."""
        with urllib.request.urlopen(server.metrics, timeout=30) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=")
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            urllib.request.urlopen(server.metrics.replace("/metrics", "/"), timeout=30)
        assert b"/metrics" in refused.value.read()


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
