"""A thousand clients of a metrics port in a process of their own: silent, trickling, and asking without a pause."""

from __future__ import annotations

import multiprocessing
import resource
import selectors
import socket
import time
from contextlib import suppress
from multiprocessing.connection import Connection

ASKS = b"GET /metrics HTTP/1.1\r\nHost: besieged\r\n\r\n"
AGAIN_S = 0.5  # after which a client that was turned away comes back
TRICKLE_S = 1.0  # between two bytes of those that never come to an end


class Besiegers:
    """They come when they are sent to a port and go when they are called back."""

    def __init__(self, many: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_besiege, args=(theirs, many), daemon=True)
        self._process.start()
        theirs.close()

    def go(self, port: int) -> None:
        """Let them come to this port of this machine."""
        self._connection.send(port)

    def back(self) -> tuple[int, int]:
        """Call them back; how often one was let in, and how many pages they got."""
        self._connection.send(None)
        met, pages = self._connection.recv()
        return int(met), int(pages)

    def close(self) -> None:
        """End them."""
        self._connection.close()
        self._process.join(20)


def _besiege(orders: Connection, many: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * many + 100) if hard > 0 else 2 * many + 100, hard))
    with suppress(EOFError):
        while True:
            port = orders.recv()
            if port is not None:
                orders.send(_Crowd(port, many).until(orders))


class _Crowd:
    """A third of them say nothing, a third never end their headers, a third asks for the page and comes back."""

    def __init__(self, port: int, many: int) -> None:
        self._here = ("127.0.0.1", port)
        self._selector = selectors.DefaultSelector()
        self._due = [(0.0, number) for number in range(many)]
        self._trickling: dict[socket.socket, float] = {}
        self._met = self._pages = 0

    def until(self, orders: Connection) -> tuple[int, int]:
        while not orders.poll():
            now = time.monotonic()
            late, self._due = [n for at, n in self._due if at <= now], [each for each in self._due if each[0] > now]
            for number in late:
                self._come(number)
            for link, at in list(self._trickling.items()):
                if at <= now:
                    self._trickling[link] = now + TRICKLE_S
                    with suppress(OSError):
                        link.send(b"X")
            for key, _ in self._selector.select(0.02):
                self._hear(key.fileobj, key.data)  # type: ignore[arg-type]
        orders.recv()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        return self._met, self._pages

    def _come(self, number: int) -> None:
        link = socket.socket()
        link.setblocking(False)
        link.connect_ex(self._here)
        self._selector.register(link, selectors.EVENT_WRITE, number)

    def _hear(self, link: socket.socket, number: int) -> None:
        try:
            if self._selector.get_key(link).events == selectors.EVENT_WRITE:  # it is connected
                self._met += 1
                kind = number % 3
                if kind:
                    link.send(ASKS if kind == 1 else ASKS[:30])
                if kind == 2:
                    self._trickling[link] = time.monotonic() + TRICKLE_S
                self._selector.modify(link, selectors.EVENT_READ, number)
                return
            piece = link.recv(1 << 18)
            self._pages += piece.startswith(b"HTTP/1.1 200")
            if piece:
                return
        except OSError:
            pass
        self._selector.unregister(link)
        self._trickling.pop(link, None)
        link.close()
        self._due.append((time.monotonic() + AGAIN_S, number))
