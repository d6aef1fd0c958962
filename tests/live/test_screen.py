"""The live screen in a real terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.live.pages import Engine, page, served

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_ON, _OFF, _CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


class Screen:
    """``adaptk top`` in a terminal of its own."""

    def __init__(self, places: list[str], environment: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self.size(80, 24)
        self.modes = termios.tcgetattr(self._ours)
        self.sent = ""
        command = [sys.executable, "-m", "adaptk", "top", "--interval", "0.1s", *places]
        env = {**os.environ, "TERM": "xterm-256color", **environment}
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True
        )
        os.close(theirs)

    def size(self, columns: int, lines: int) -> None:
        """Give the terminal another size."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        """Type keys."""
        self.sent = ""
        os.write(self._ours, keys.encode())

    def shows(self, text: str) -> None:
        """Wait for a text on the screen."""
        until = time.monotonic() + 30.0
        while text not in _ESCAPES.sub("", self.sent):
            assert time.monotonic() < until, f"{text!r} did not come: {self.sent[-2000:]!r}"
            assert self._read(), f"ended without {text!r}: {self.sent[-2000:]!r}"

    def end(self) -> int:
        """The rest of what it sent, and its exit status."""
        while self._read():
            pass
        return self.process.wait(30.0)

    def close(self) -> None:
        """Take the terminal away."""
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def _read(self) -> bool:
        if not select.select([self._ours], [], [], 30.0)[0]:
            return False
        try:
            self.sent += os.read(self._ours, 1 << 16).decode("utf-8", "replace")
        except OSError:  # the other side is closed
            return False
        return True

    def modes_now(self) -> list[object]:
        """The terminal's modes."""
        return termios.tcgetattr(self._ours)


@contextmanager
def screen(*places: str, **environment: str) -> Iterator[Screen]:
    """``adaptk top`` over these places."""
    made = Screen(list(places), environment)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """A server with the page of one engine."""
    with served(page(Engine(model="org/first"))) as place:
        yield place


def test_a_session(place: str) -> None:
    """Seen, scrolled, helped, resized, stopped, left: the terminal is then as it was before."""
    with screen(place) as top:
        top.shows("org/first")
        assert _ON in top.sent
        assert "\x1b[1;32mon" in top.sent  # coloured
        top.shows("tok/s")
        top.press("?")
        top.shows("this page; any key turns it")
        top.press("\x1b")
        top.shows("tok/s")
        top.press(" ")
        top.shows("STOPPED")
        top.size(120, 40)
        top.process.send_signal(signal.SIGWINCH)
        top.shows("lately")
        top.press("q")
        assert top.end() == 0
        assert top.sent.endswith((f"{_OFF}{_CURSOR}", f"{_OFF}{_CURSOR}\r\n"))
        assert top.modes_now() == top.modes


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 0), (signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGHUP, 128 + signal.SIGHUP)],
)
def test_signals_leave_the_terminal_in_order(place: str, number: signal.Signals, status: int) -> None:
    """An interrupt is the reader's way out; the others give the status that shells give."""
    with screen(place) as top:
        top.shows("org/first")
        top.process.send_signal(number)
        assert top.end() == status
        assert _OFF in top.sent
        assert _CURSOR in top.sent
        assert "Traceback" not in top.sent
        assert top.modes_now() == top.modes


def test_without_colour_nothing_is_coloured(place: str) -> None:
    """Under NO_COLOR, with one engine of two out of reach."""
    with served("") as gone:
        pass
    with screen(place, gone, NO_COLOR="1") as top:
        top.shows("connection refused")
        top.shows("1 on, 1 unreachable")
        top.press("q")
        assert top.end() == 0
        assert not re.search(r"\x1b\[[0-9;]*\b3[0-7][;m]", top.sent)
