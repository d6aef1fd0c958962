"""The process that holds a profiled engine, and the end of the pipe that speaks to it."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from adaptk.profile.orders import (
    Answered,
    AnswerOrder,
    Doing,
    EngineDiedError,
    EngineInfo,
    EngineOrder,
    Failed,
    Stayed,
    StayOrder,
)

_LAST_LINES = 12


class EngineProcess:
    """An engine in a process of its own: if that dies, what was measured does not die with it.

    What vLLM prints goes to a file, which is kept if the engine fails.

    Parameters
    ----------
    order
        Which engine to start.
    doing
        Called with what the engine is at.

    Raises
    ------
    EngineDiedError
        If it does not start.
    """

    def __init__(self, order: EngineOrder, doing: Callable[[Doing], None] = lambda at: None) -> None:
        self._doing = doing
        self._last: Doing | None = None
        self._idle = self._failed = False
        handle, name = tempfile.mkstemp(prefix="adaptk-profile-", suffix=".log")
        os.close(handle)
        self._log = Path(name)
        _start_tracker_quietly()
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, order, name), name="adaptk-profile")
        self._process.start()
        theirs.close()
        try:
            self.info: EngineInfo = self._receive(EngineInfo)
        except BaseException:  # an interrupt, too
            self.close()
            raise

    def stay(self, order: StayOrder) -> Stayed:
        """Play one stay.

        Raises
        ------
        EngineDiedError
            If the engine fails in it.
        """
        stayed: Stayed = self._ask(order, Stayed)
        return stayed

    def answer(self, order: AnswerOrder) -> Answered:
        """Answer prompts.

        Raises
        ------
        EngineDiedError
            If the engine fails in it.
        """
        answered: Answered = self._ask(order, Answered)
        return answered

    def close(self) -> None:
        """Stop the engine and its process; what it printed is kept only if it failed."""
        self._connection.close()
        if self._idle:
            self._process.join(20)  # in the middle of an order it would not notice before its end
        self._end()
        if not self._failed:
            self._log.unlink(missing_ok=True)

    def _ask(self, order: Any, kind: type[Any]) -> Any:
        self._idle = False
        try:
            self._connection.send(order)
        except (BrokenPipeError, ConnectionResetError):
            raise self._died() from None
        return self._receive(kind)

    def _receive(self, kind: type[Any]) -> Any:
        while True:
            try:
                answer = self._connection.recv()
            except (EOFError, ConnectionResetError):
                raise self._died() from None
            if isinstance(answer, Doing):
                self._last = answer
                self._doing(answer)
            elif isinstance(answer, Failed):
                self._failed = True
                reason = answer.reason.rstrip(".")
                raise EngineDiedError(f"{reason}{self._where()} (what vLLM printed: {self._log})", self._last)
            elif isinstance(answer, kind):
                self._idle = True
                return answer

    def _died(self) -> EngineDiedError:
        self._failed, self._idle = True, False
        self._process.join(5)
        code = self._process.exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with status {code}"
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        telling = [line for line in lines if "INFO" not in line]  # pages of which are printed at each start
        said = "".join(f"\n  | {line[:200]}" for line in telling[-_LAST_LINES:])
        text = f"the engine's process {how}{self._where()}; the last of what it printed ({self._log}):{said}"
        return EngineDiedError(text, self._last)

    def _where(self) -> str:
        if self._last is None:
            return ""
        at = "" if self._last.context is None else f" and context {self._last.context:g}"
        return f" while playing K={self._last.k} at batch {self._last.batch}{at}"

    def _end(self) -> None:
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(3)  # its workers watch it, and go when it is gone
        if self._process.is_alive():
            self._process.kill()
            self._process.join(10)


def _start_tracker_quietly() -> None:
    """Start Python's own tracker of shared resources with nowhere to write to.

    It outlives an engine that was killed, and would tell this terminal of what vLLM left behind.
    """
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        resource_tracker.ensure_running()
    finally:
        os.dup2(kept, 2)
        os.close(nowhere)
        os.close(kept)


def serve(connection: Connection, order: EngineOrder, log: str) -> None:
    """Start the engine and obey orders until the other side hangs up; the body of the process."""
    os.setsid()  # an interrupt at the terminal is the parent's affair
    threading.Thread(target=_end_with_parent, name="adaptk-parent", daemon=True).start()
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    try:
        engine = _start(order, connection)
    except BaseException as error:  # vLLM ends the process in places
        _tell_failure(connection, error)
        raise
    try:
        connection.send(engine.info)
        while True:
            asked = connection.recv()
            try:
                connection.send(engine.stay(asked) if isinstance(asked, StayOrder) else engine.answer(asked))
            except (BrokenPipeError, ConnectionResetError, EOFError):
                raise
            except Exception as error:
                _tell_failure(connection, error)
                raise
    except (BrokenPipeError, ConnectionResetError, EOFError):
        engine.close()


def _end_with_parent() -> None:
    """Do not outlive the parent, also where it dies while the engine starts or is in a long step."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _start(order: EngineOrder, connection: Connection) -> Any:
    from adaptk.vllm_plugin.profile import ProfiledEngine

    return ProfiledEngine(order, connection.send)


def _tell_failure(connection: Connection, error: BaseException) -> None:
    text = _said(error)
    try:
        connection.send(Failed(text if len(text) < 1500 else text[:1500] + "..."))
        time.sleep(0.1)
    except OSError:
        pass


def _said(error: BaseException) -> str:
    """What an error says, without the frame that vLLM's checked configurations put around it."""
    reasons = getattr(error, "errors", None)
    if callable(reasons):
        try:
            found = [str(reason["msg"]).removeprefix("Value error, ") for reason in reasons()]
        except (TypeError, KeyError):
            found = []
        if found:
            return "; ".join(found)
    return str(error).strip() or type(error).__name__
