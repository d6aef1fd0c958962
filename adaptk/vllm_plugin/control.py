"""The mode of a running engine, read from a small file once a second by a thread of its own."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path
from typing import Protocol

from adaptk.inputs import InputError, opened_regular
from adaptk.settings import MODES, Mode, SettingsError
from adaptk.vllm_plugin.log import logger

PERIOD_S = 1.0
# A mode and some white space; no more of a file is looked at.
_BYTES = 64


class Switched(Protocol):
    """What a control needs of a steering."""

    mode: Mode
    active: bool


class Control:
    """Keeps the mode of ``steering`` at what the file ``path`` says, from before the first step on.

    Without the file it is the mode at the start. What cannot be read as a mode leaves it as it was and is told once.
    The thread ends with ``stop``, when the steering has stood down, or when the steering is gone; it keeps nothing
    alive. In a forked process there is no such thread, and the mode stays; so it does where none can be started.

    Parameters
    ----------
    path
        The file, which need not be there.
    steering
        Whose mode is set, by another thread than that of its steps.
    refused
        Why ``on`` cannot be had here, where it cannot.
    """

    def __init__(self, path: Path, steering: Switched, refused: str | None = None) -> None:
        self._ended = threading.Event()
        look = Look(path, steering.mode, refused)
        look(steering)
        ended = self._ended
        there = weakref.ref(steering, lambda _: ended.set())
        thread = threading.Thread(target=_watch, args=(there, look, ended), name="adaptk-control", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the process may have no more of them
            logger.warning(
                "adaptk takes its mode from %s at the start only: %s; raise the limit of threads", path, error
            )

    def stop(self) -> None:
        """End the thread; waits for nothing."""
        self._ended.set()


def _watch(there: weakref.ref[Switched], look: Look, ended: threading.Event) -> None:
    while not ended.wait(PERIOD_S):
        steering = there()
        if steering is None or not steering.active:
            return
        try:
            look(steering)
        except Exception:
            logger.exception("adaptk takes its mode from no file any more; it stays as it is")
            return
        del steering


class Look:
    """One look at the file after the other, and what of it has been told already."""

    def __init__(self, path: Path, started: Mode, refused: str | None) -> None:
        self._path = path.absolute()  # the program may go to another folder
        self._started = started
        self._refused = refused
        self._wanted = started
        self._odd: str | None = None
        self._told: set[str] = set()

    def __call__(self, steering: Switched) -> None:
        """Set the mode of ``steering`` where the file has come to say another one."""
        try:
            wanted, why = self._read()
        except SettingsError as error:
            self._puzzle(str(error))
            return
        self._odd = None
        if wanted == self._wanted:
            return
        self._wanted = wanted
        before = steering.mode
        if wanted == "on" and self._refused is not None:
            logger.error("adaptk stays in mode %s although %s: %s", before, why, self._refused)
        elif wanted != before:
            steering.mode = wanted
            logger.info("adaptk goes from mode %s to %s: %s", before, wanted, why)

    def _read(self) -> tuple[Mode, str]:
        """The mode that is wanted, and why."""
        try:
            return read(self._path), f"{self._path} says so"
        except FileNotFoundError:
            return self._started, f"there is no {self._path}, and so it was started"
        except OSError as error:
            raise SettingsError(f"it cannot be read ({error.strerror or error})") from None

    def _puzzle(self, problem: str) -> None:
        # A shell empties a file before it writes it: only what stays for another look is worth a line.
        seen, self._odd = self._odd, problem
        if seen == problem and problem not in self._told:
            self._told.add(problem)
            logger.warning("adaptk leaves the mode as it is, %s being no control file: %s", self._path, problem)


def read(path: Path) -> Mode:
    """The mode that a control file holds.

    Raises
    ------
    SettingsError
        If it holds no mode.
    OSError
        If it is not there or cannot be read.
    """
    text = held(path)
    mode = MODES.get(text.lower())
    if mode is None:
        raise SettingsError(f"it holds {text!r}: write on, shadow or off")
    return mode


def held(path: Path) -> str:
    """What a control file holds, less the white space around it.

    Raises
    ------
    SettingsError
        If it is no regular file, or holds more than a mode.
    OSError
        If it is not there or cannot be read.
    """
    try:
        with opened_regular(path) as file:
            content = file.read(_BYTES + 1)
    except InputError as error:
        raise SettingsError(f"it {error}: write on, shadow or off to one") from None
    if len(content) > _BYTES:
        raise SettingsError("it holds more than a mode: write on, shadow or off")
    return content.decode("utf-8-sig", "replace").strip()
