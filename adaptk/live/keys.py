"""Keys from a terminal, one at a time, and the terminal as it was afterwards."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

_ESCAPES = {
    b"[A": "up", b"[B": "down", b"OA": "up", b"OB": "down", b"[5~": "page up", b"[6~": "page down",
    b"[H": "home", b"[F": "end", b"OH": "home", b"OF": "end", b"[1~": "home", b"[4~": "end",
    b"[7~": "home", b"[8~": "end",
    b"[D": "left", b"[C": "right", b"OD": "left", b"OC": "right",
}  # fmt: skip
_SIGNS = {" ": "space", "\r": "enter", "\n": "enter", "\x7f": "escape", "\x08": "escape", "\x03": "q", "\x04": "q"}
_ESCAPE_S = 0.05  # after which a lone escape is the key itself


def keys(read: bytes) -> list[str]:
    """The keys in what a terminal sent; unknown sequences are none.

    Examples
    --------
    >>> keys(b"q\\x1b[A\\x1b[6~ \\x1b[99~\\x1b")
    ['q', 'up', 'page down', 'space', 'escape']
    """
    found: list[str] = []
    while read:
        if read[:1] != b"\x1b":
            sign, read = read[:1].decode("ascii", "ignore"), read[1:]
            found.append(_SIGNS.get(sign, sign))
        elif read[1:2] not in (b"[", b"O"):
            found.append("escape")
            read = read[1:]
        else:
            length = next((i for i, byte in enumerate(read[2:], 3) if 0x40 <= byte <= 0x7E), len(read))
            found.append(_ESCAPES.get(read[1:length], ""))
            read = read[length:]
    return [key for key in found if key]


class Terminal:
    """A terminal's keys, unbuffered, and the signals that concern whoever draws on it; a context manager.

    Inside, an interrupt, a hang-up or a termination only sets ``ended``: whoever draws has time to put the screen in
    order. A stop (Ctrl-Z) calls ``leave`` first and ``enter`` when the process goes on.

    Parameters
    ----------
    enter, leave
        Take the screen, and give it back; each may be called again.
    """

    def __init__(self, enter: Callable[[], None], leave: Callable[[], None]) -> None:
        self.ended: int | None = None  # the signal
        self._enter, self._leave = enter, leave
        self._fd: int | None = None
        self._own = False
        self._modes: Any = None
        self._before: dict[int, Any] = {}
        self._wakes, self._wake = os.pipe()

    def __enter__(self) -> Terminal:
        for fd in (self._wakes, self._wake):
            os.set_blocking(fd, False)
        self._open()
        for number, handle in self._handlers().items():
            self._before[number] = signal.signal(number, handle)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._give()
        finally:
            for number, before in self._before.items():
                signal.signal(number, before)
            if self._own and self._fd is not None:
                os.close(self._fd)

    def wake(self) -> None:
        """Let :meth:`wait` return; from any thread."""
        with suppress(BlockingIOError):  # it is full: it will wake
            os.write(self._wake, b"w")

    def wait(self, seconds: float) -> list[str]:
        """The keys that were pressed; returns after ``seconds``, or at a key, a signal or a call of :meth:`wake`."""
        watched = [self._wakes] if self._fd is None else [self._wakes, self._fd]
        ready, _, _ = select.select(watched, [], [], max(seconds, 0.0))
        if self._wakes in ready:
            with suppress(BlockingIOError):
                os.read(self._wakes, 1 << 16)
        return self._read(self._fd) if self._fd in ready else []

    def _read(self, fd: int) -> list[str]:
        try:
            read = os.read(fd, 1 << 12)
            while read.endswith((b"\x1b", b"\x1b[", b"\x1bO")) and select.select([fd], [], [], _ESCAPE_S)[0]:
                read += os.read(fd, 1 << 12)
        except OSError:  # the terminal has gone
            read = b""
        if not read:
            self.ended = self.ended or signal.SIGHUP
        return keys(read)

    def _open(self) -> None:
        """Find the keyboard: standard input, or where that is no terminal the one that the process belongs to."""
        if sys.stdin is not None and sys.stdin.isatty():
            self._fd = sys.stdin.fileno()
            return
        with suppress(OSError):
            self._fd, self._own = os.open("/dev/tty", os.O_RDONLY), True

    def _take(self) -> None:
        if self._fd is not None:
            self._modes = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)
        self._enter()

    def _give(self) -> None:
        try:
            self._leave()
        finally:
            if self._fd is not None and self._modes is not None:
                with suppress(termios.error):  # the terminal has gone
                    termios.tcsetattr(self._fd, termios.TCSADRAIN, self._modes)

    def _handlers(self) -> dict[int, Any]:
        ends: dict[int, Any] = dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), self._end)
        return {**ends, signal.SIGWINCH: lambda *_: self.wake(), signal.SIGTSTP: self._stop}

    def _end(self, number: int, _: FrameType | None) -> None:
        self.ended = number
        self.wake()

    def _stop(self, number: int, _: FrameType | None) -> None:
        self._give()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # goes on from here when the shell says so
        signal.signal(number, self._stop)
        self._take()
        self.wake()
