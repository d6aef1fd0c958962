"""Metrics pages fetched over HTTP, on threads of their own."""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from adaptk.live.address import Address
from adaptk.live.page import snapshots
from adaptk.live.snapshot import Snapshot
from adaptk.quoted import printable

TIMEOUT_S = 2.0
MOST_BYTES = 16 << 20
_PIECE = 1 << 16
_THREADS = 32
_MOST_WORDS = 200
_MOST_REDIRECTS = 3


class Look(NamedTuple):
    """What one address answered: its engines or the error; ``at`` is of the steady clock, seconds."""

    address: Address
    at: float
    engines: tuple[Snapshot, ...] = ()
    error: str = ""


class Fetcher:
    """Asks addresses for their pages; daemon threads, so that a slow server holds up nobody, also not the exit.

    Parameters
    ----------
    addresses
        Which may be asked.
    answered
        Called on a fetching thread each time that an answer has come.
    """

    def __init__(self, addresses: Sequence[Address], answered: Callable[[], None] = lambda: None) -> None:
        self.addresses = tuple(addresses)
        self.answers: SimpleQueue[Look] = SimpleQueue()
        self._asked: SimpleQueue[Address] = SimpleQueue()
        self._answered = answered
        for number in range(min(_THREADS, len(self.addresses))):
            Thread(target=self._work, name=f"adaptk-fetch-{number}", daemon=True).start()

    def ask(self, address: Address) -> None:
        """Have a page fetched; its answer comes into ``answers``."""
        self._asked.put(address)

    def _work(self) -> None:
        while True:
            self.answers.put(look(self._asked.get()))
            self._answered()


def look(address: Address) -> Look:
    """Fetch and read a page; whatever goes wrong with it is its error, in words."""
    try:
        engines, error = snapshots(fetch(address.url)), ""
    except Exception as failed:  # one address must not end the watch over the others
        engines, error = (), _words(failed)
    return Look(address, time.monotonic(), engines, error)


def fetch(url: str, timeout: float = TIMEOUT_S) -> str:
    """The text at a URL, which must have come whole within ``timeout`` seconds of the connection.

    A redirect is followed on the same host. Proxies of the environment are not used: a metrics port is in the
    neighbourhood.

    Raises
    ------
    OSError, ValueError, http.client.HTTPException
        If it cannot be had, is larger than 16 MiB or breaks off.
    """
    for _ in range(_MOST_REDIRECTS + 1):
        found = _answer(url, timeout)
        if isinstance(found, bytes):
            return found.decode("utf-8", "replace")
        url = found
    raise ValueError("leads on without end")


def _answer(url: str, timeout: float) -> bytes | str:
    """What is at a URL: its bytes, or another URL on the same host."""
    from http.client import HTTPConnection, HTTPSConnection

    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout)
    try:
        connection.connect()
        connection.sock = _Hurried(connection.sock, time.monotonic() + timeout)
        target = parts._replace(scheme="", netloc="", path=parts.path or "/", fragment="").geturl()
        connection.request("GET", target, headers={"Accept": "text/plain", "User-Agent": "adaptk-top"})
        response = connection.getresponse()
        if response.status in (301, 302, 303, 307, 308):
            return _moved(url, response.getheader("Location", ""))
        if response.status != 200:
            raise ValueError(f"HTTP {response.status} {response.reason}")
        pieces, size = [], 0
        while piece := response.read1(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > MOST_BYTES:
                raise ValueError(f"its page is larger than {MOST_BYTES >> 20} MiB")
        if response.length:
            raise ConnectionError("its page broke off")
        return b"".join(pieces)
    finally:
        connection.close()


def _moved(url: str, location: str) -> str:
    """Where a redirect leads, which must be the same host: a server must not send its readers around."""
    try:
        before, after = urlsplit(url), urlsplit(urljoin(url, location))
        same = after.scheme in ("http", "https") and after.hostname == before.hostname and after.port != 0
    except ValueError:  # a port out of range, or an open bracket
        same = False
    if not same or not location.isprintable() or " " in location:
        raise ValueError("leads on to another host, which is not followed: name that one")
    return after.geturl()


class _Hurried:
    """A socket whose answer must have come by a time, however often a byte of it comes."""

    def __init__(self, link: socket.socket, until: float) -> None:
        self._link = link
        self._until = until

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        """What the answer is read from."""
        return io.BufferedReader(_HurriedReader(self._link, self._until))

    def sendall(self, data: bytes) -> None:
        """As a socket does."""
        self._link.sendall(data)

    def close(self) -> None:
        """As a socket does."""
        self._link.close()


class _HurriedReader(io.RawIOBase):
    def __init__(self, link: socket.socket, until: float) -> None:
        self._link = link
        self._raw = link.makefile("rb", buffering=0)  # keeps the socket open where the connection lets it go
        self._until = until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0.0:
            raise TimeoutError
        self._link.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _words(error: Exception) -> str:
    """What went wrong, without Python's names."""
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT_S:.0f} s"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: nothing listens there"
    text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    return printable(" ".join(text.split())[:_MOST_WORDS]) or type(error).__name__
