"""The two servers of a soak: one under adaptk with all that it can write and serve, one without it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from adaptk.demo.engine import precision
from adaptk.demo.model import ensure_model
from tests.benchmarks import serve_load
from tests.benchmarks.soak import clock
from tests.engine.metricspages import Page, free_port, parsed, scraped
from tests.engine.servers import started

OPTIONS = serve_load.OF_SERVERS | {
    "scheduler-cls": "tests.benchmarks.soak.clock.Timed",
    # Left to itself a small model fills its answers with blanks until they are cut, and no JSON can be checked.
    "structured-outputs-config": json.dumps({"backend": "xgrammar", "disable_any_whitespace": True}),
}
OBEYED_WITHIN_S = 10


class Side(NamedTuple):
    """A server, its process, what it prints, and where its steps are noted."""

    address: str
    process: subprocess.Popen[bytes]
    log: Path
    clock: Path

    def steps(self) -> clock.Steps:
        """All steps so far."""
        return clock.read(self.clock)


@contextmanager
def plain(folder: Path) -> Iterator[Side]:
    """The server without adaptk."""
    with _side(folder, "plain", {"ADAPTK": "off"}) as side:
        yield side


class Files:
    """What the server under adaptk writes and obeys, and where its metrics are.

    Parameters
    ----------
    folder
        For the files.
    arms
        ``ADAPTK_ARMS``, if given.
    """

    def __init__(self, folder: Path, arms: str | None) -> None:
        self.trace, self.state, self.mode = folder / "trace.jsonl", folder / "state.json", folder / "mode"
        self.port = free_port()
        self._arms = {} if arms is None else {"ADAPTK_ARMS": arms}

    @property
    def metrics(self) -> str:
        """Address of the page."""
        return f"http://127.0.0.1:{self.port}/metrics"

    def settings(self) -> dict[str, str]:
        """Environment variables."""
        return self._arms | {
            "ADAPTK": "on",
            "ADAPTK_STRICT": "1",
            "ADAPTK_TRACE": str(self.trace),
            "ADAPTK_STATE": str(self.state),
            "ADAPTK_CONTROL": str(self.mode),
            "ADAPTK_METRICS_PORT": str(self.port),
        }

    def page(self) -> Page:
        """The metrics now."""
        return parsed(scraped(self.metrics))

    def switch(self, mode: str) -> None:
        """Set the mode by adaptk's own command, and wait until it is in force.

        Raises
        ------
        RuntimeError
            If it is not within ten seconds.
        """
        subprocess.run([sys.executable, "-m", "adaptk", "mode", str(self.mode), mode], check=True, capture_output=True)
        deadline = time.monotonic() + OBEYED_WITHIN_S
        while not self.page().value("adaptk_mode", mode=mode):
            if time.monotonic() > deadline:
                raise RuntimeError(f"mode {mode} is not in force after {OBEYED_WITHIN_S} s")
            time.sleep(0.2)


@contextmanager
def adaptive(folder: Path, files: Files, name: str = "adaptk") -> Iterator[Side]:
    """The server under adaptk."""
    with _side(folder, name, files.settings()) as side:
        yield side


@contextmanager
def _side(folder: Path, name: str, settings: dict[str, str]) -> Iterator[Side]:
    log, notes = folder / f"{name}.log", folder / f"{name}.clock"
    options = OPTIONS | {"dtype": precision()}
    with started(ensure_model(), log, options, **settings, **{clock.FILE: str(notes)}) as server:
        yield Side(server.address, server.process, log, notes)
