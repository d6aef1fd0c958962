"""Metrics pages fetched over HTTP, on threads of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

from adaptk.live.address import Address
from adaptk.live.page import printable, snapshots
from adaptk.live.snapshot import Snapshot

TIMEOUT_S = 2.0
MOST_BYTES = 32 << 20
_PIECE = 1 << 16
_THREADS = 32
_MOST_WORDS = 200


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

    Proxies of the environment are not used: a metrics port is in the neighbourhood.

    Raises
    ------
    OSError, ValueError, http.client.HTTPException
        If it cannot be had, is larger than 32 MiB or breaks off.
    """
    from urllib.request import ProxyHandler, Request, build_opener

    deadline = time.monotonic() + timeout
    asked = Request(url, headers={"Accept": "text/plain", "User-Agent": "adaptk-top"})
    with build_opener(ProxyHandler({})).open(asked, timeout=timeout) as response:
        pieces, size = [], 0
        while piece := response.read1(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > MOST_BYTES:
                raise ValueError(f"its page is larger than {MOST_BYTES >> 20} MiB")
            if time.monotonic() > deadline:
                raise TimeoutError
        if response.length:
            raise ConnectionError("its page broke off")
    return b"".join(pieces).decode("utf-8", "replace")


def _words(error: Exception) -> str:
    """What went wrong, without Python's names."""
    from urllib.error import HTTPError, URLError

    if isinstance(error, HTTPError):
        told = "leads on without end, or where it must not" if error.code in range(300, 400) else str(error.reason)
        return f"HTTP {error.code} {' '.join(told.split())}"[:_MOST_WORDS]
    if isinstance(error, URLError) and isinstance(error.reason, Exception):
        return _words(error.reason)
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT_S:.0f} s"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: nothing listens there"
    text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    return printable(" ".join(text.split()))[:_MOST_WORDS] or type(error).__name__
