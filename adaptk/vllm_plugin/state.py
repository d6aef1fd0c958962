"""What a controller has learnt, saved at intervals and at the end by a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from multiprocessing.util import Finalize
from typing import Any, Protocol

from adaptk.continuity import changing, completed
from adaptk.controller import Controller
from adaptk.forks import open_here
from adaptk.settings import Mode
from adaptk.statefile import ForeignError
from adaptk.vllm_plugin import faulttext
from adaptk.vllm_plugin.stateplace import Place

INTERVAL_S = 30.0
QUIET_S = 10.0  # the same where the engine has nothing to do: servers are ended then, by vLLM without a moment's notice
REST = 100.0  # times as long as a copy took lie between two of an engine that comes to rest again and again
_LOOK_S = 1.0  # between two looks whether it is time
_SHORT_S = 0.05  # between two looks whether the engine has handed over a copy
_BETWEEN_S = 0.5  # at the end, for a moment in which the engine's thread learns nothing, or hands over a copy
_BLINK_S = 0.001  # between two looks for such a moment
_ENDS_WITHIN_S = 2.0  # at shutdown: a disk that hangs is not waited for any longer
_News = tuple[tuple[int, int], dict[str, Any]]
_EXCHANGED = "{} is the state of the controller that the engine started with: another one is in charge and is not saved"
_FOREIGN = ": it is not replaced; move it away, or give another ADAPTK_STATE"


class Kept(Protocol):
    """What a keeper needs of a steering."""

    active: bool
    turn: int  # odd while the controller changes, another even number after each time

    @property
    def mode(self) -> Mode:
        """Off: nothing is learnt."""
        ...

    @property
    def at_work(self) -> bool:
        """Whether a step is about to come back."""
        ...


class Keeper:
    """Keeps a state file at what ``controller`` has learnt, while no other engine does and ``steering`` is active.

    It is saved every ``INTERVAL_S`` while the engine is at work, and ``QUIET_S`` after the last time once it rests.

    The engine's thread copies (``take``, ``rest``), and nothing else; a thread of its own seals, writes and renames.
    At the end any thread may copy, as the engine's may be gone, or may go on: what it changed meanwhile is no copy.
    What the disk refuses is told once, counted, and tried again at the next interval. The thread ends with ``end``,
    with ``give_up``, or when the steering is gone. A forked child saves nothing.

    Parameters
    ----------
    place
        The file.
    controller
        As the engine begins with it: what it has learnt by now is in the file, or not worth saving.
    steering
        Of the engine; held weakly.
    """

    def __init__(self, place: Place, controller: Controller, steering: Kept) -> None:
        self.place = place
        self.wanted = False  # whether the engine's thread is to hand over a copy
        self.saves = 0
        self.failures = 0
        self._controller = controller
        self._steering = weakref.ref(steering)
        self._copy: dict[str, Any] | None = None
        self._done: dict[str, Any] | None = None  # the copy that was saved last
        self._counted = _counted(controller)  # what it had seen when it was copied last
        self._copied_s = 0.0
        self._copy_took_s = 0.0
        self._given_up = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._finalizer: Finalize | None = None

    @property
    def saved_s(self) -> float | None:
        """When what stands in the file was saved, by whichever engine; unix time."""
        return self.place.saved_s

    def start(self) -> None:
        """Save what is learnt from now on.

        Raises
        ------
        RuntimeError
            If there can be no further thread.
        """
        thread = threading.Thread(target=self._run, name="adaptk-state", daemon=True)
        thread.start()
        self._thread = thread
        # Unlike atexit, this also runs at the end of a multiprocessing child, as vLLM's engine is.
        self._finalizer = Finalize(None, self._at_exit, exitpriority=0)
        _open.add(self)

    def take(self, controller: Any) -> None:
        """Copy what the controller believes now, if it is the one that the state is of; on the engine's thread."""
        own, began = self._controller, time.monotonic()
        try:
            if own is not controller:
                self.place.tell("exchanged", logging.WARNING, _EXCHANGED.format(self.place.path))
                return
            self._keep_copy(self._news())
        except Exception as error:  # no memory left, say: it is decided on all the same
            self._failed(error)
        finally:
            self._copied_s = time.monotonic()
            self._copy_took_s = self._copied_s - began
            self.wanted = False  # last: the other thread goes on to write the copy then

    def rest(self) -> None:
        """The engine has nothing to do: no step will come by when the next copy is wanted."""
        if not self._given_up and time.monotonic() - self._copied_s >= REST * self._copy_took_s:
            self.take(self._controller)

    def give_up(self) -> None:
        """Save nothing any more, as what is believed may be wrong; waits for nothing."""
        self._given_up = True
        self._ended.set()

    def end(self) -> None:
        """Save what is new for the last time, on whichever thread, in half a second at most; see ``wait``.

        Where the engine's thread was broken off as it learnt, or learns without a pause, what was copied last is saved.
        """
        if self._may():
            self._take_between()
        self._ended.set()

    def _take_between(self) -> None:
        """Copy while nothing is learnt, unless the engine's thread hands over a copy before that."""
        self.wanted = True
        until = time.monotonic() + _BETWEEN_S
        try:
            while self.wanted and not self._took_still() and time.monotonic() < until:
                time.sleep(_BLINK_S)
        except Exception as error:
            self._failed(error)
        self.wanted = False

    def _took_still(self) -> bool:
        """Copy on a thread that may not be the engine's; whether nothing was learnt meanwhile, else it is no copy."""
        turn = self._turn()
        if turn % 2:
            return False
        try:
            news = self._news()
        except Exception:
            if turn == self._turn():
                raise
            return False  # a list that grew as it was read
        if turn != self._turn():
            return False
        self._keep_copy(news)
        return True

    def _turn(self) -> int:
        steering = self._steering()
        return 0 if steering is None else steering.turn

    def _news(self) -> _News | None:
        """A copy, and what was counted by then; ``None`` where nothing was learnt since the last one."""
        counted = _counted(self._controller)
        return None if counted == self._counted else (counted, changing(self._controller))

    def _keep_copy(self, news: _News | None) -> None:
        if news is not None:
            self._counted, self._copy = news

    def wait(self) -> None:
        """Wait until all is saved after ``end``, for two seconds at most."""
        if self._thread is None:
            return
        self._thread.join(_ENDS_WITHIN_S)
        if self._thread.is_alive():
            late = f"the state is not yet saved to {self.place.path} after {_ENDS_WITHIN_S:g} s"
            self.place.tell("hangs", logging.ERROR, f"{late}: the former one stays there")

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
        self.place.release()
        _open.discard(self)
        if self._finalizer is not None:
            self._finalizer.cancel()

    def _keep(self) -> None:
        saved = time.monotonic()
        while not self._ended.wait(_LOOK_S) and self._steering() is not None:
            waited = time.monotonic() - saved
            if waited < QUIET_S or (waited < INTERVAL_S and self._at_work()):
                continue
            self.wanted = True
            while self.wanted and self._at_work() and not self._ended.wait(_SHORT_S):
                pass
            self._save()
            saved = time.monotonic()
        if self._steering() is None:  # dropped without a shutdown: nobody uses it now
            self.end()
        self._save()

    def _at_work(self) -> bool:
        steering = self._steering()
        return steering is not None and steering.mode != "off" and steering.at_work

    def _may(self) -> bool:
        """Whether what is believed is to be trusted: not after a fault."""
        steering = self._steering()
        return not self._given_up and (steering is None or steering.active)

    def _save(self) -> None:
        """Write the last copy, unless it is written already."""
        copy = self._copy
        if copy is None or copy is self._done or not self._may():
            return
        try:
            if not self.place.lock():
                return
            self.place.write(completed(self._controller, copy))
            self._done = copy
        except Exception as error:
            self._failed(error)
            return
        self.saves += 1
        if self.place.told("failed"):
            self.place.tell("mended", logging.INFO, f"the state is saved to {self.place.path} again")

    def _failed(self, error: Exception) -> None:
        """Count a failure; the first one is told, the next ones are in the metrics."""
        self.failures += 1
        said = str(error) if isinstance(error, (OSError, ValueError)) else faulttext.short(error)
        remedy = _FOREIGN if isinstance(error, ForeignError) else ""
        again = f"It is tried again every {INTERVAL_S:g} s"
        self.place.tell(
            "failed", logging.ERROR, f"the state cannot be saved, and the engine goes on: {said}{remedy}. {again}"
        )

    def abandon(self) -> None:
        """In a forked child: file and lock are the parent's, and the thread does not exist here."""
        self.wanted, self._given_up = False, True
        self._thread, self._copy = None, None
        self._ended = threading.Event()  # the parent's thread may have held the other one's lock
        self.place.release()


def _counted(controller: Controller) -> tuple[int, int]:
    """What changes when a controller learns."""
    return controller.counters["steps"], controller.counters["weights_changed"]


_open = open_here(Keeper)
