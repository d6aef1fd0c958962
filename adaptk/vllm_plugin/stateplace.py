"""Whose a state file is: who may write it, and what of another engine's it does not destroy."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from adaptk._version import __version__
from adaptk.outputs import write_whole
from adaptk.statefile import (
    MODE,
    ForeignError,
    State,
    StateError,
    asides_of,
    is_state,
    next_aside,
    read_state,
    scratch_of,
    state_bytes,
)
from adaptk.tablekey import differences
from adaptk.vllm_plugin.log import logger
from adaptk.vllm_plugin.statelock import Lock, lock_of

ASIDES = 5  # states that were moved aside and are kept
_SOON_S = 0.05  # who only looks whether there is a lock has it for a moment
_Mark = tuple[int, int, int]
_HELD = (
    "another engine saves its state to {}: this one does not, and takes over when that one ends. Put {{rank}} into "
    "ADAPTK_STATE, or give each engine a path of its own"
)
_NO_LOCKS = "{} lies where files have no locks: see to it that no other engine has the same ADAPTK_STATE"


class Place:
    """The file ``path`` of one engine, as long as it holds the lock beside it; asked by one thread at a time.

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
        self.saved_s: float | None = None  # when what stands in the file was saved, unix time
        self._target = Path(os.path.realpath(path))
        self._key = dict(key)
        self._vllm = vllm
        self._lock = Lock(lock_of(path))
        self._locked = False
        self._told: set[str] = set()
        self._left: _Mark | None = None  # the file as it was left, so that one that somebody else wrote is seen
        self._useless = ""  # why what was read is of no use

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
        time.sleep(_SOON_S)
        return self._lock.take()

    def release(self) -> None:
        """Let another engine save; of a forked child: leave the lock to the parent."""
        self._lock.release()

    def write(self, snapshot: Mapping[str, Any]) -> None:
        """Save what ``Controller.snapshot`` gave; the lock must be had.

        Raises
        ------
        OSError, ValueError
            If the disk refuses it, or something stands there that is nothing to replace.
        """
        self._make_way(snapshot)
        state = State(adaptk=__version__, vllm=self._vllm, saved=time.time(), key=self._key, snapshot=dict(snapshot))
        write_whole(self._target, state_bytes(state), MODE)
        self._left = _mark(self._target)
        self.saved_s = state.saved

    def _make_way(self, snapshot: Mapping[str, Any]) -> None:
        """See to it that what is saved destroys nothing but an older state of this engine."""
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
            why = why or self._another(state, snapshot)
        if why:
            aside = next_aside(self._target)
            self._target.rename(aside)
            self._log(logging.WARNING, f"the state at {self.path} was moved to {aside}, being of no use here: {why}")
            self._thin_out()

    def _another(self, state: State, snapshot: Mapping[str, Any]) -> str:
        """What of a state's engine is another's, so that it must not be lost; empty where nothing is."""
        differing = differences(state.key, self._key, "in the state")
        arms = state.snapshot.get("arms")
        if isinstance(arms, list) and arms[-1:] != snapshot["arms"][-1:]:
            differing.append(f"up to {arms[-1:]} drafts")
        if self._left is None and _steps(state.snapshot) > _steps(snapshot):
            differing.append("it has seen more steps than this one")  # that stood by until the other one ended
        return "; ".join(differing)

    def _thin_out(self) -> None:
        """Remove the oldest that were moved aside, so that engines with one path by turns do not fill the disk."""
        states = [each for each in asides_of(self._target) if is_state(each)]
        # What has a lock is the file of another engine, whose path ends in a number, be it at work or not.
        asides = [each for each in states if not lock_of(each).exists()]
        for path in asides[:-ASIDES]:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:  # saved all the same
                self.tell("stays", logging.WARNING, f"{path}, moved aside before, cannot be removed: {error}")
                return
            self._log(logging.INFO, f"{path} was removed: of states that were moved aside the last {ASIDES} are kept")

    def tell(self, kind: str, level: int, text: str) -> None:
        """Say each kind of thing once."""
        if kind not in self._told:
            self._told.add(kind)
            self._log(level, text)

    def told(self, kind: str) -> bool:
        """Whether that kind of thing was said."""
        return kind in self._told

    def _log(self, level: int, text: str) -> None:
        with suppress(Exception):  # a log handler that fails is no reason to stand down, or to save no more
            logger.log(level, "adaptk: %s", text)


def _steps(snapshot: Mapping[str, Any]) -> float:
    """Steps that a snapshot's controller had seen; 0 where it does not say."""
    counters = snapshot.get("counters")
    steps = counters.get("steps") if isinstance(counters, Mapping) else None
    return steps if isinstance(steps, int | float) else 0


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
