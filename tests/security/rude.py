"""Clients of a port that do as they like, and what their process holds open."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

Here = tuple[str, int]
ASKS = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


def connected(here: Here, sends: bytes = b"") -> socket.socket:
    """A client that has sent this."""
    client = socket.create_connection(here, timeout=20)
    client.sendall(sends)
    return client


def everything(client: socket.socket) -> bytes:
    """All that comes until the other side ends the connection, however it does."""
    came = b""
    with suppress(ConnectionError):
        while piece := client.recv(1 << 16):
            came += piece
    return came


def said(here: Here, sends: bytes) -> bytes:
    """The answer to what is sent."""
    with connected(here, sends) as client:
        return everything(client)


@contextmanager
def crowd(here: Here, many: int, sends: Callable[[int], bytes]) -> Iterator[list[socket.socket]]:
    """``many`` clients at once, none of which waits until it is let in; each sends its bytes once it is."""
    _more_files(2 * many)
    clients = [socket.socket() for _ in range(many)]
    for client in clients:
        client.setblocking(False)
        client.connect_ex(here)
    for number, client in enumerate(clients):
        with suppress(OSError):
            client.send(sends(number))
    try:
        yield clients
    finally:
        for client in clients:
            client.close()


def _more_files(many: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and many > hard:
        raise OSError(f"this process may open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, many), hard))


def links() -> set[str]:
    """The files that this process has open, by number and by what they are."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.add(f"{entry.name} {entry.readlink()}")
    return found


def until(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether something came to hold within a time that is long enough for a busy machine."""
    ends = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > ends:
            return False
        time.sleep(0.02)
    return True
