"""vLLM's OpenAI server as a user starts it: processes of its own, adaptk switched on by the environment alone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

STARTS_WITHIN_S = 180


class Running(NamedTuple):
    """A server that answers at ``address``."""

    address: str
    process: subprocess.Popen[bytes]


@contextmanager
def serving(model: Path, log: Path, options: Mapping[str, str], **settings: str) -> Iterator[str]:
    """The address of a server; see :func:`started`."""
    with started(model, log, options, **settings) as server:
        yield server.address


@contextmanager
def started(model: Path, log: Path, options: Mapping[str, str], **settings: str) -> Iterator[Running]:
    """A server over ``model`` on a free loopback port, stopped in the end; its output goes to ``log``.

    Parameters
    ----------
    model
        A folder.
    log
        A file.
    options
        Of the server by name; an empty value stands for a flag.
    settings
        Environment variables beside those of this process.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {name: value for name, value in os.environ.items() if name != "VLLM_ENABLE_V1_MULTIPROCESSING"} | settings
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    given = {"model": str(model), "host": "127.0.0.1", "port": str(port), **options}
    command += [part for name, value in given.items() for part in (f"--{name}", value) if part]
    with log.open("wb") as out:
        server = subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(server, address, log)
        yield Running(address, server)
    finally:
        stop(server)


def stop(server: subprocess.Popen[bytes]) -> int:
    """Ask a server to end, and make it end after a minute; its status. More calls do nothing."""
    server.send_signal(signal.SIGTERM)
    try:
        return server.wait(60)
    except subprocess.TimeoutExpired:
        server.kill()
        return server.wait()


def wait_until_ready(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    """Return once the server answers.

    Raises
    ------
    RuntimeError
        With what it printed, if it ends before or takes too long.
    """
    deadline = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with status {server.returncode}:\n{log.read_text()}")
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise RuntimeError(f"no answer within {STARTS_WITHIN_S} s:\n{log.read_text()}")
