"""A page served over HTTP by threads of its own: nothing of it runs on the engine's."""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any

from adaptk.vllm_plugin.log import logger

# What a request asks for and what it gets: the value of its Accept header, and content type and text.
Answer = Callable[[str], tuple[str, bytes]]
PATH = "/metrics"
_PATIENCE_S = 10.0  # with a client that does not go on
_STOPS_WITHIN_S = 2.0
_FULL_S = 0.5  # between two tries to let a client in where the process may open no more files


class MetricsServer:
    """Serves ``answer`` at ``http://host:port/metrics`` from the moment it is made until ``stop``.

    Parameters
    ----------
    host
        A name or an address of this machine, of either family.
    port
        Below 65536.
    answer
        Called by the thread of each request.

    Raises
    ------
    OSError
        If the port is taken or may not be used, or the host is none of this machine's.
    """

    def __init__(self, host: str, port: int, answer: Answer) -> None:
        self._http = _Http(host, port, answer)
        self.host, self.port = str(self._http.server_address[0]), self._http.server_address[1]
        self._thread = threading.Thread(target=_serve, args=(self._http,), name="adaptk-metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}{PATH}"

    def stop(self) -> None:
        """Give the port back; requests under way are still answered."""
        if self._http.ended:
            return
        self._http.wake()
        if self._thread is not threading.current_thread():  # on which this may run, where an engine was just dropped
            self._thread.join(_STOPS_WITHIN_S)


def _serve(http: _Http) -> None:
    # The thread that waits at the socket closes it: closed by another one, its number might be another file's by then.
    try:
        while not http.ended:
            http.handle_request()
    except Exception:
        logger.exception("adaptk serves its metrics no more; the engine goes on")
    finally:
        _open.discard(http)
        http.server_close()


class _Http(ThreadingMixIn, HTTPServer):
    daemon_threads = True
    allow_reuse_address = True  # of connections that have ended; a server that listens is never displaced
    ended = False

    def __init__(self, host: str, port: int, answer: Answer) -> None:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self.address_family = family
        self.answer = answer
        self._told = False
        super().__init__(address, _Handler)  # type: ignore[arg-type]  # of two entries or, for IPv6, four
        _open.add(self)

    def server_bind(self) -> None:
        # Without the base's look for this machine's name, which may ask the network.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Let the next client in; one that cannot be is still there at once, and trying on would take a whole core."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(_FULL_S)
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell a fault of ours once; a client that went away, or never spoke, is nobody's business."""
        if not isinstance(sys.exception(), OSError):
            self.tell()

    def tell(self) -> None:
        """Log the exception at hand, the first time."""
        if not self._told:
            self._told = True
            logger.exception("adaptk could not answer who asked for its metrics; the engine goes on")

    def wake(self) -> None:
        """Let nobody in any more, and the thread that waits at the socket end."""
        self.ended = True
        with suppress(OSError):  # not everywhere can a socket that listens be shut down
            self.socket.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    timeout = _PATIENCE_S
    server: _Http

    def do_GET(self) -> None:
        """Give the page; whatever fails in making it costs this answer only."""
        if self.path.partition("?")[0] != PATH:
            self._send(404, "text/plain; charset=utf-8", f"adaptk's metrics are at {PATH}\n".encode())
            return
        try:
            kind, page = self.server.answer(self.headers.get("Accept", ""))
        except Exception:
            self.server.tell()
            self._send(500, "text/plain; charset=utf-8", b"the metrics could not be made: see the engine's log\n")
            return
        self._send(200, kind, page)

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base names it so
        """Say nothing: a line per scrape would drown the engine's own."""


def _after_fork() -> None:
    """In a forked child: the port is the parent's, who could not give it back while a child holds it."""
    for http in list(_open):
        http.socket.close()
    _open.clear()


_open: weakref.WeakSet[_Http] = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork)
