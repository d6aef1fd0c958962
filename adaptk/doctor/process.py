"""The process that imports vLLM: whatever that prints, breaks or hangs on, the doctor goes on."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from adaptk.doctor.facts import Doing, Facts, Question

LIMIT_S = 180.0  # a model's configuration may come from a hub that does not answer
_TICK_S = 0.5
_LAST_LINES = 4


def ask(question: Question, waiting: Callable[[str, float], None] = lambda what, seconds: None) -> Facts:
    """The facts, from a process of their own; if that fails, why.

    Parameters
    ----------
    question
        What to look at.
    waiting
        Called twice a second with what is being done, and since when, in seconds.
    """
    handle, name = tempfile.mkstemp(prefix="adaptk-doctor-", suffix=".log")
    os.close(handle)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=serve, args=(theirs, question, name), name="adaptk-doctor", daemon=True)
    try:
        process.start()
        theirs.close()
        facts, at = _receive(ours, waiting)
        if facts is None:
            process.join(1)
            why = f"{_ending(process.exitcode, at)}{_last_lines(Path(name))}"
            facts = Facts(refused=why) if at.startswith("letting") else Facts(broken=why)
        return facts
    finally:
        _end(process)
        Path(name).unlink(missing_ok=True)


def serve(connection: Connection, question: Question, log: str) -> None:
    """Look, and send what is seen; the body of the process."""
    os.setsid()  # an interrupt at the terminal is the parent's affair
    signal.alarm(int(LIMIT_S) + 30)  # should the parent be gone
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    from adaptk.doctor.look import look

    connection.send(look(question, lambda what: connection.send(Doing(what))))
    os._exit(0)  # what vLLM and its libraries do at their end is of no use here


def _receive(connection: Connection, waiting: Callable[[str, float], None]) -> tuple[Facts | None, str]:
    begun, at = time.monotonic(), ""
    while time.monotonic() - begun < LIMIT_S:
        waiting(at, time.monotonic() - begun)
        if not connection.poll(_TICK_S):
            continue
        try:
            answer = connection.recv()
        except (EOFError, ConnectionResetError):
            return None, at
        if isinstance(answer, Facts):
            return answer, at
        at = answer.what
    return None, at


def _ending(code: int | None, at: str) -> str:
    doing = at or "starting Python"
    if code is None:
        return f"{doing} took longer than {LIMIT_S:.0f} s"
    how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
    return f"the process that was {doing} {how}"


def _last_lines(log: Path) -> str:
    """The last of what was printed, on one line."""
    with suppress(OSError):
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
        if lines:
            return f"; the last of what it printed: {' | '.join(line[:160] for line in lines[-_LAST_LINES:])}"
    return ""


def _end(process: multiprocessing.process.BaseProcess) -> None:
    if process.pid is not None and process.is_alive():
        process.kill()
        process.join(5)
