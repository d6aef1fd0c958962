"""What is attached to a server all the time: a scraper, ``adaptk top`` in a terminal, and a look at its memory."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time
import urllib.error
import urllib.request
from typing import NamedTuple

import psutil
import pyte

PERIOD_S = 1.0
_LINES, _COLUMNS = 40, 110


class Scraper:
    """Asks for a page of metrics once a second until it is stopped."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.ms: list[float] = []
        self.faults: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scraper", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._ended.wait(max(due - time.monotonic(), 0.0)):
            due += PERIOD_S
            begun = time.perf_counter()
            try:
                with urllib.request.urlopen(self._url, timeout=10) as answer:
                    answer.read()
                    if answer.status != 200:
                        self.faults.append(f"status {answer.status}")
            except OSError as error:
                self.faults.append(str(error))
            self.ms.append(1e3 * (time.perf_counter() - begun))

    def stop(self) -> None:
        """End it; it can be asked what it found afterwards."""
        self._ended.set()
        self._thread.join(15)


class Top:
    """``adaptk top`` in a terminal of its own."""

    def __init__(self, address: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
        command = [sys.executable, "-m", "adaptk", "top", "--interval", "1s", address]
        env = os.environ | {"TERM": "xterm-256color"}
        self._process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, close_fds=True)
        os.close(theirs)
        self._screen = pyte.Screen(_COLUMNS, _LINES)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 65536)
            except OSError:  # the other end is closed
                return
            if not data:
                return
            with self._lock:
                self._stream.feed(data)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def screen(self) -> list[str]:
        """The lines that are on it now."""
        with self._lock:
            return [line.rstrip() for line in self._screen.display]

    def quit(self) -> int | None:
        """Press q; the status it ends with, ``None`` if it had to be ended."""
        status: int | None = None
        if self.alive:
            os.write(self._ours, b"q")
        try:
            status = self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join(5)
        os.close(self._ours)
        return status


class Size(NamedTuple):
    """What the processes of a server hold."""

    rss_mb: float
    threads: int
    files: int

    def __str__(self) -> str:
        return f"{self.rss_mb:.0f} MB, {self.threads} threads, {self.files} files"


def size(pid: int) -> Size:
    """Of a process and all that it has started."""
    main = psutil.Process(pid)
    family = [main, *main.children(recursive=True)]
    return Size(
        sum(process.memory_info().rss for process in family) / 1e6,
        sum(process.num_threads() for process in family),
        sum(process.num_fds() for process in family),
    )
