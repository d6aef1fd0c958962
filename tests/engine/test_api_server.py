"""The server as a user starts it: processes of its own, adaptk switched on by the environment alone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.engine.engine import NGRAM

STARTS_WITHIN_S = 180


@contextmanager
def serving(model: Path, log: Path, **settings: str) -> Iterator[str]:
    """The address of a server over ``model`` on a free loopback port; its output goes to ``log``."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {name: value for name, value in os.environ.items() if name != "VLLM_ENABLE_V1_MULTIPROCESSING"} | settings
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    options = {
        "model": str(model),
        "served-model-name": "tiny",
        "host": "127.0.0.1",
        "port": str(port),
        "dtype": "float32",
        "max-model-len": "256",
        "max-num-seqs": "8",
        "speculative-config": json.dumps(NGRAM),
    }
    command += [part for name, value in options.items() for part in (f"--{name}", value)] + ["--enforce-eager"]
    with log.open("wb") as out:
        server = subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(server, address, log)
        yield address
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def wait_until_ready(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError(f"no answer within {STARTS_WITHIN_S} s:\n{log.read_text()}")


def post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def read_until(trace: Path, tokens: int) -> tuple[Any, list[Any]]:
    """Header and rows of a trace, once they hold so many tokens or ten seconds have passed."""
    deadline = time.monotonic() + 10
    while True:
        whole = trace.read_bytes().rpartition(b"\n")[0]
        header, *rows = map(msgspec.json.decode, whole.splitlines())
        if sum(sum(row["step"]["emitted"]) for row in rows) >= tokens or time.monotonic() > deadline:
            return header, rows
        time.sleep(0.2)


def test_the_environment_variable_alone_makes_the_server_adaptive(model: Path, tmp_path: Path) -> None:
    """It answers, its log has adaptk's first line from the engine's process, and the trace has every step."""
    log, trace = tmp_path / "log", tmp_path / "trace-0.jsonl"
    settings = {"ADAPTK": "on", "ADAPTK_STRICT": "1", "ADAPTK_TRACE": str(tmp_path / "trace-{rank}.jsonl")}
    with serving(model, log, **settings) as address:
        body = {"model": "tiny", "prompt": "a b a b a b", "max_tokens": 40, "temperature": 0, "ignore_eos": True}
        answer = post(f"{address}/v1/completions", body)
        # The server may kill its engine at the end; until then rows reach the file within a second.
        header, rows = read_until(trace, tokens=40)
    assert answer["usage"]["completion_tokens"] == 40
    (line,) = [line for line in log.read_text().splitlines() if "on vLLM" in line and "adaptk" in line]
    assert "EngineCore" in line
    assert "mode on, arms (0, 1, 3, 7), table no table" in line
    assert "(set by adaptk for capture only)" in line
    assert header["mode"] == "on"
    assert sum(sum(row["step"]["emitted"]) for row in rows) == 40
