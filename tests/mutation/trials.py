"""Mutants put into a fork of a process that has collected the tests.

The fork inherits all that was imported, takes the code of one function from the mutated source, and runs the tests it
is given. No file is ever written into the tree.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import pytest

from tests.mutation.mutants import Mutant

KILLED, SURVIVED, TIMEOUT = "killed", "survived", "timed out"
# Seconds are those of the processor: other work on the machine makes no test slow, and no mutant endless.
SLACK, SLACK_S = 10.0, 10.0  # times a test's own seconds, and seconds on top, after which it is given up
STUCK_S = 300.0  # by the clock, and as much again as a test may take: for what waits without end
MOST_MEMORY = 4 << 30  # bytes that a mutant may take beyond what is there
ENDLESS = 99  # exit status of a fork whose test took too long


class Trial(NamedTuple):
    """How a mutant fared: the ``outcome``, the test that killed it or went on without end, and seconds."""

    outcome: str
    test: str
    seconds: float


class Failures:
    """A plugin of pytest that knows whether something failed."""

    def __init__(self) -> None:
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """In any of a test's phases."""
        self.failed = self.failed or report.failed


def put_in_place(mutant: Mutant, path: Path) -> None:
    """Give the function that was changed the code and the defaults that it has in the mutated source.

    Whoever holds the function already, as a method or by name, has the mutant from now on.
    """
    module = sys.modules[mutant.module]
    mutated = ModuleType(mutant.module)
    mutated.__file__ = str(path)
    exec(compile(mutant.source, str(path), "exec", dont_inherit=True), vars(mutated))
    old, new = (_function(within, mutant.function) for within in (module, mutated))
    old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__


def _function(module: ModuleType, name: str) -> FunctionType:
    found: Any = reduce(lambda within, part: vars(within)[part], name.split("."), module)
    return getattr(found, "__func__", found)  # type: ignore[no-any-return]


def try_mutant(mutant: Mutant, path: Path, items: Sequence[pytest.Item], seconds: Mapping[str, float]) -> Trial:
    """Run ``items`` in their order against the mutant until one fails; ``seconds`` are what each takes without it."""
    begun = time.monotonic()
    if not items:
        return Trial(SURVIVED, "no test runs it", 0.0)
    with tempfile.NamedTemporaryFile("r") as last:

        def work() -> str:
            _limit_memory()
            put_in_place(mutant, path)
            return _first_failure(items, seconds, Path(last.name))

        most = sum(seconds[item.nodeid] for item in items)
        status, killer = in_fork(work, STUCK_S + 2.0 * SLACK * most)
        test = last.read()
    took = time.monotonic() - begun
    if status == ENDLESS:
        return Trial(TIMEOUT, test, took)
    # The tests themselves are sound: what ended the process in another way is the mutant's doing.
    return Trial(KILLED, killer or test, took) if killer or status else Trial(SURVIVED, "", took)


def _first_failure(items: Sequence[pytest.Item], seconds: Mapping[str, float], last: Path) -> str:
    """The node id of the first test that fails; ``last`` holds that of the one that runs."""
    signal.signal(signal.SIGPROF, lambda *_: os._exit(ENDLESS))
    failures = Failures()
    items[0].config.pluginmanager.register(failures)
    for item, after in zip(items, [*items[1:], None], strict=True):
        last.write_text(item.nodeid)
        signal.setitimer(signal.ITIMER_PROF, SLACK_S + SLACK * seconds[item.nodeid])
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        signal.setitimer(signal.ITIMER_PROF, 0)
        if failures.failed:
            return item.nodeid
    return ""


def in_fork(work: Callable[[], Any], limit_s: float) -> tuple[int, Any]:
    """Exit status and result of ``work``, done in a fork; what it prints is lost."""
    sys.stdout.flush()
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer")
        pid = os.fork()
        if pid == 0:
            _be_the_fork(work, answer)
        status = _ended(pid, limit_s)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # what it started, and left
        return status, json.loads(answer.read_text()) if answer.exists() else None


def _be_the_fork(work: Callable[[], Any], answer: Path) -> None:
    status = 1
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        answer.write_text(json.dumps(work()))
        status = 0
    finally:
        os._exit(status)


def _ended(pid: int, limit_s: float) -> int:
    """The exit status of a fork, which is killed when its time is over."""
    until = time.monotonic() + limit_s
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return ENDLESS
        time.sleep(0.005)


def _limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
