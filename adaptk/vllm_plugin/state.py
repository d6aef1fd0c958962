"""What a controller has learnt, saved at intervals and at the end by a thread of its own."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, Protocol

from adaptk._version import __version__
from adaptk.continuity import changing, completed
from adaptk.controller import Controller
from adaptk.outputs import write_whole
from adaptk.settings import Mode
from adaptk.statefile import MODE, ForeignError, State, StateError, read_state, scratch_of, state_bytes
from adaptk.tablekey import differences
from adaptk.vllm_plugin import faulttext
from adaptk.vllm_plugin.log import logger
from adaptk.vllm_plugin.statelock import Lock, lock_of

INTERVAL_S = 30.0
QUIET_S = 10.0  # the same where the engine has nothing to do: servers are ended then, by vLLM without a moment's notice
REST = 100.0  # times as long as a copy took lie between two of an engine that comes to rest again and again
_LOOK_S = 1.0  # between two looks whether it is time
_SHORT_S = 0.05  # between two looks whether the engine has handed over a copy
_ENDS_WITHIN_S = 2.0  # at shutdown: a disk that hangs is not waited for any longer
_Mark = tuple[int, int, int]
_HELD = (
    "another engine saves its state to {}: this one does not, and takes over when that one ends. Put {{rank}} into "
    "ADAPTK_STATE, or give each engine a path of its own"
)
_NO_LOCKS = "{} lies where files have no locks: see to it that no other engine has the same ADAPTK_STATE"
_EXCHANGED = "{} is the state of the controller that the engine started with: another one is in charge and is not saved"
_FOREIGN = ": it is not replaced; move it away, or give another ADAPTK_STATE"


class Kept(Protocol):
    """What a keeper needs of a steering."""

    active: bool

    @property
    def mode(self) -> Mode:
        """Off: nothing is learnt."""
        ...

    @property
    def at_work(self) -> bool:
        """Whether a step is about to come back."""
        ...


class Keeper:
    """Keeps the file ``path`` at what one controller has learnt, as long as no other engine does.

    It is saved every ``INTERVAL_S`` while the engine is at work, and ``QUIET_S`` after the last time once it rests.

    The engine's thread copies (``take``, ``rest``), and nothing else; a thread of its own seals, writes and renames.
    What the disk refuses is told once, counted, and tried again at the next interval. The thread ends with ``end``,
    with ``give_up``, or when the steering is gone. A forked child saves nothing.

    Parameters
    ----------
    path
        The state file; a symbolic link is followed.
    key
        Of the engine.
    vllm
        Its version.
    """

    def __init__(self, path: Path, key: Mapping[str, Any], vllm: str) -> None:
        self.path = path
        self.wanted = False  # whether the engine's thread is to hand over a copy
        self.saves = 0
        self.failures = 0
        self.saved_s: float | None = None  # when what stands in the file was saved, unix time
        self._target = Path(os.path.realpath(path))
        self._key = dict(key)
        self._vllm = vllm
        self._lock = Lock(lock_of(path))
        self._locked = False
        self._told: set[str] = set()
        self._left: _Mark | None = None  # the file as it was left, so that one that somebody else wrote is seen
        self._useless = ""  # why what was read is of no use
        self._copy: dict[str, Any] | None = None
        self._done: dict[str, Any] | None = None  # the copy that was saved last
        self._counted: tuple[int, int] | None = None  # what the controller had seen when it was copied last
        self._copied_s = 0.0
        self._copy_took_s = 0.0
        self._controller: Controller | None = None
        self._steering: weakref.ref[Kept] | None = None
        self._given_up = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._finalizer: Finalize | None = None

    def read(self) -> State | None:
        """What the file holds; also where another engine has the lock, which may be about to end.

        Raises
        ------
        StateError
            If it holds no state to go on from; what is one but is of no use is moved aside before the first save.
        """
        try:
            state = read_state(self.path)
        except ForeignError:
            raise
        except StateError as error:
            self._useless = str(error)
            raise
        if state is not None:
            self.saved_s = state.saved
        return state

    def refuse(self, why: str) -> None:
        """What ``read`` gave is of no use: it is moved aside before the first save."""
        self._useless = why

    def lock(self) -> bool:
        """Have the lock, if no other engine has it.

        Raises
        ------
        OSError
            If the lock's file cannot be made, as in a folder that cannot be written to.
        """
        new = not self._locked
        self._locked = self._lock.take() or self._take_soon()
        if not self._locked:
            self.tell("held", logging.WARNING, _HELD.format(self.path))
        elif new and not self._lock.there:
            self.tell("no locks", logging.WARNING, _NO_LOCKS.format(self.path))
        elif new and "held" in self._told:
            self.tell("took over", logging.INFO, f"the lock is free now: the state is saved to {self.path}")
        return self._locked

    def _take_soon(self) -> bool:
        """Once more, as who only looks whether there is a lock has it for a moment."""
        time.sleep(_SHORT_S)
        return self._lock.take()

    def start(self, controller: Controller, steering: Kept) -> None:
        """Save what ``controller`` learns from now on, as long as ``steering`` is there and active.

        Raises
        ------
        RuntimeError
            If there can be no further thread.
        """
        self._controller = controller
        self._counted = _counted(controller)
        self._steering = weakref.ref(steering)
        thread = threading.Thread(target=self._run, name="adaptk-state", daemon=True)
        thread.start()
        self._thread = thread
        # Unlike atexit, this also runs at the end of a multiprocessing child, as vLLM's engine is.
        self._finalizer = Finalize(None, self._at_exit, exitpriority=0)
        _open.add(self)

    def take(self, controller: Any) -> None:
        """Copy what the controller believes now, if it is the one that the state is of; on the engine's thread."""
        own = self._controller
        if own is None:
            return
        began = time.monotonic()
        try:
            if own is not controller:
                self.tell("exchanged", logging.WARNING, _EXCHANGED.format(self.path))
                return
            counted = _counted(own)
            if counted != self._counted:
                self._copy = changing(own)
                self._counted = counted
        except Exception as error:  # no memory left, say: it is decided on all the same
            self._failed(error)
        finally:
            self._copied_s = time.monotonic()
            self._copy_took_s = self._copied_s - began
            self.wanted = False  # last: the other thread goes on to write the copy then

    def rest(self) -> None:
        """The engine has nothing to do: no step will come by when the next copy is wanted."""
        if self._controller is not None and time.monotonic() - self._copied_s >= REST * self._copy_took_s:
            self.take(self._controller)

    def give_up(self) -> None:
        """Save nothing any more, as what is believed may be wrong; waits for nothing."""
        self._given_up = True
        self._ended.set()

    def end(self) -> None:
        """Save what is new for the last time; waits for nothing, see ``wait``."""
        if self._controller is not None and self._may():
            self.take(self._controller)
        self._ended.set()

    def wait(self) -> None:
        """Wait until all is saved after ``end``, for two seconds at most."""
        if self._thread is None:
            self._lock.release()
            return
        self._thread.join(_ENDS_WITHIN_S)
        if self._thread.is_alive():
            self.tell("hangs", logging.ERROR, f"the state is not yet saved to {self.path} after {_ENDS_WITHIN_S:g} s: "
                       "the former one stays there")  # fmt: skip

    def _at_exit(self) -> None:
        """The process ends and nobody has shut the engine down."""
        self.end()
        self.wait()

    def _run(self) -> None:
        # Whatever fails here is told once and ends the saving: nobody waits for this thread to hear of it.
        for part in (self._keep, self._finish):
            try:
                part()
            except Exception as error:
                self._failed(error)

    def _finish(self) -> None:
        self._lock.release()
        _open.discard(self)
        if self._finalizer is not None:
            self._finalizer.cancel()

    def _keep(self) -> None:
        saved = time.monotonic()
        while not self._ended.wait(_LOOK_S) and self._there():
            waited = time.monotonic() - saved
            if waited < QUIET_S or (waited < INTERVAL_S and self._at_work()):
                continue
            self.wanted = True
            while self.wanted and self._at_work() and not self._ended.wait(_SHORT_S):
                pass
            self._save()
            saved = time.monotonic()
        if not self._there():  # dropped without a shutdown: nobody uses it now
            self.end()
        self._save()

    def _there(self) -> bool:
        return self._steering is not None and self._steering() is not None

    def _at_work(self) -> bool:
        steering = None if self._steering is None else self._steering()
        return steering is not None and steering.mode != "off" and steering.at_work

    def _may(self) -> bool:
        """Whether what is believed is to be trusted: not after a fault."""
        steering = None if self._steering is None else self._steering()
        return not self._given_up and (steering is None or steering.active)

    def _save(self) -> None:
        """Write the last copy, unless it is written already."""
        copy, controller = self._copy, self._controller
        if copy is None or copy is self._done or controller is None or not self._may():
            return
        try:
            if not self.lock():
                return
            self._make_way()
            snapshot = completed(controller, copy)
            state = State(adaptk=__version__, vllm=self._vllm, saved=time.time(), key=self._key, snapshot=snapshot)
            write_whole(self._target, state_bytes(state), MODE)
            self._left, self._done = _mark(self._target), copy
        except Exception as error:
            self._failed(error)
            return
        self.saves += 1
        self.saved_s = state.saved
        if "failed" in self._told:
            self.tell("mended", logging.INFO, f"the state is saved to {self.path} again")

    def _make_way(self) -> None:
        """See to it that the next save destroys nothing but an older state of this engine."""
        if self._left is None and self._lock.there:  # what writers that were killed left is nobody's, by the lock
            for scratch in scratch_of(self._target):
                scratch.unlink(missing_ok=True)
        if _mark(self._target) == self._left:
            return
        why = self._useless if self._left is None else ""  # also of what its engine has saved there since
        try:
            state = read_state(self._target)
        except ForeignError:
            raise
        except StateError as error:
            why = why or str(error)
        else:
            if state is None:
                return
            why = why or self._another(state)
        if why:
            aside = _aside(self._target)
            self._target.rename(aside)
            self._log(logging.WARNING, f"the state at {self.path} was moved to {aside}, being of no use here: {why}")

    def _another(self, state: State) -> str:
        """What of a state's engine is another's, so that it must not be lost; empty where nothing is."""
        differing = differences(state.key, self._key, "in the state")
        arms = state.snapshot.get("arms")
        if self._controller is not None and isinstance(arms, list) and arms[-1:] != [self._controller.arms[-1]]:
            differing.append(f"up to {arms[-1:]} drafts")
        if self._left is None and _steps(state.snapshot) > _steps(self._copy):
            differing.append("it has seen more steps than this one")  # that stood by until the other one ended
        return "; ".join(differing)

    def _failed(self, error: Exception) -> None:
        """Count a failure; the first one is told, the next ones are in the metrics."""
        self.failures += 1
        said = str(error) if isinstance(error, (OSError, ValueError)) else faulttext.short(error)
        remedy = _FOREIGN if isinstance(error, ForeignError) else ""
        self.tell("failed", logging.ERROR, f"the state cannot be saved, and the engine goes on: {said}{remedy}. "
                   f"It is tried again every {INTERVAL_S:g} s")  # fmt: skip

    def tell(self, kind: str, level: int, text: str) -> None:
        """Say each kind of thing once."""
        if kind not in self._told:
            self._told.add(kind)
            self._log(level, text)

    def _log(self, level: int, text: str) -> None:
        with suppress(Exception):  # a log handler that fails is no reason to stand down, or to save no more
            logger.log(level, "adaptk: %s", text)

    def _abandon(self) -> None:
        """In a forked child: file and lock are the parent's, and the thread does not exist here."""
        self.wanted, self._given_up = False, True
        self._thread, self._controller, self._copy = None, None, None
        self._ended = threading.Event()  # the parent's thread may have held the other one's lock
        self._lock.release()


def _steps(snapshot: Mapping[str, Any] | None) -> float:
    """Steps that a snapshot's controller had seen; 0 where it does not say."""
    counters = None if snapshot is None else snapshot.get("counters")
    steps = counters.get("steps") if isinstance(counters, Mapping) else None
    return steps if isinstance(steps, int | float) else 0


def _counted(controller: Controller) -> tuple[int, int]:
    """What changes when a controller learns."""
    return controller.counters["steps"], controller.counters["weights_changed"]


def _mark(path: Path) -> _Mark | None:
    """What tells a file from the one that is there next; ``None`` where there is none.

    Raises
    ------
    OSError
        If something is there and cannot be looked at, such as a link in a circle.
    """
    try:
        seen = path.stat()
    except FileNotFoundError:
        return None
    return seen.st_ino, seen.st_mtime_ns, seen.st_size


def _aside(path: Path) -> Path:
    """The first free name for a file that is moved away."""
    number = 1
    while os.path.lexists(aside := path.with_name(f"{path.name}.{number}")):
        number += 1
    return aside


def _after_fork() -> None:
    for keeper in list(_open):
        keeper._abandon()
    _open.clear()


_open: weakref.WeakSet[Keeper] = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork)
