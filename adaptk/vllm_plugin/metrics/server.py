"""A page served over HTTP by one thread of its own, which takes little of a core whoever asks and however often."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from adaptk.forks import open_here
from adaptk.vllm_plugin.log import logger
from adaptk.vllm_plugin.metrics.request import PATH, Request, answer, read, refusal

# What a request gets, content type and text, in one of the few forms that Accept headers come to.
Answer = Callable[[str], tuple[str, bytes]]
Form = Callable[[str], str]
MOST = 32  # connections at a time: one more ends the one that has taken nothing for longest, and waits for no page
_WAITING = 128  # that the system keeps until they are let in
_LASTS_S = 10.0  # a connection, from the moment that it is let in, whatever its client does
_SHARE = 0.05  # of a core, that the thread may take
_LONGEST_PAUSE_S = 1.0
_FULL_S = 0.5  # between two tries to let a client in where the process may open no more files
_PIECE = 1 << 16
_MOST_UNREAD = 1 << 20  # bytes that a client may go on to send after its answer, which are thrown away
_STOPS_WITHIN_S = 2.0
_LAST_WORDS_S = 1.0  # for answers under way when it stops


class MetricsServer:
    """Serves ``answer`` at ``http://host:port/metrics`` from the moment it is made until ``stop``.

    A page is made at most once a turn, for all who wait for its form then. After each turn the thread rests for as long
    as keeps it below a twentieth of a core, so that the engine feels neither how many clients there are nor what they
    send. A client has ten seconds, and less where more than ``MOST`` are connected.

    Parameters
    ----------
    host
        A name or an address of this machine, of either family.
    port
        Below 65536.
    answer
        Makes the page in a form; called on the server's thread.
    form
        The form that is meant by an Accept header, whatever its words, of which clients have any number.

    Raises
    ------
    OSError
        If the port is taken or may not be used, or the host is none of this machine's.
    """

    def __init__(self, host: str, port: int, answer: Answer, form: Form) -> None:
        self._http = _Http(_listening(host, port), answer, form)
        address = self._http.listener.getsockname()
        self.host, self.port = str(address[0]), int(address[1])
        self._thread = threading.Thread(target=_serve, args=(self._http,), name="adaptk-metrics", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the process may have no more threads
            self._http.close()
            raise

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}{PATH}"

    def stop(self) -> None:
        """Give the port back; requests under way are still answered."""
        if self._http.ended:
            return
        if self._thread is threading.current_thread():  # on which this may run, where an engine was just dropped
            self._http.let_nobody_in()
            return
        self._http.wake()
        self._thread.join(_STOPS_WITHIN_S)


def _listening(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Of connections that have ended the port may be had again; a server that listens is never displaced.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_WAITING)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _serve(http: _Http) -> None:
    # The thread that waits at the sockets closes them: closed by another, a number might be another file's by then.
    try:
        try:
            while not http.ended:
                http.turn()
                http.rest()
            http.finish()
        finally:
            http.close()
    except Exception:
        logger.exception("adaptk serves its metrics no more; the engine goes on")


class _Client:
    """A connection: what came, what is still to be sent, and until when it may last."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.moved = time.monotonic()  # when it was let in, or took something last
        self.until = self.moved + _LASTS_S
        self.came = b""
        self.request: Request | None = None  # that waits for its page
        self.form: str | None = None  # of that page
        self.left: memoryview | None = None  # of the answer
        self.unread = 0  # bytes that came after it

    @property
    def events(self) -> int:
        """What it waits for."""
        return selectors.EVENT_WRITE if self.left else selectors.EVENT_READ

    def receive(self) -> bool:
        """Take in what came; whether the connection goes on."""
        with suppress(BlockingIOError):
            piece = self.link.recv(_PIECE)
            if self.left is not None:
                self.unread += len(piece)
            elif self.request is None:
                self.came += piece
                self.request = read(self.came)
            # Who will send no more may still wait for the answer.
            return (bool(piece) or self.request is not None) and self.unread <= _MOST_UNREAD
        return True

    def send(self, data: bytes | None = None) -> None:
        """Send as much as goes at once, of a new answer or of the one begun; once all is sent, say so."""
        if data is not None:
            self.left, self.request, self.came = memoryview(data), None, b""
        if self.left:
            with suppress(BlockingIOError):
                self.left = self.left[self.link.send(self.left, socket.MSG_NOSIGNAL) :]
                self.moved = time.monotonic()
            if not self.left:  # only then would closing it cut off what the client has not read
                self.link.shutdown(socket.SHUT_WR)


class _Http:
    """The sockets, and what is done at each turn."""

    def __init__(self, listener: socket.socket, answer: Answer, form: Form) -> None:
        self.listener = listener
        self.ended = False
        self._answer = answer
        self._form = form
        self._clients: dict[socket.socket, _Client] = {}  # the oldest first
        # By poll, which has no state in the system that a forked child would share.
        self._selector = selectors.PollSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._woken = threading.Event()
        self._busy_s = 0.0  # of the thread, at the end of its last rest
        self._full = False  # whether the process may open no more files
        self._told = False
        _open.add(self)

    def turn(self) -> None:
        """Wait for something to happen and do what it asks for."""
        ready = self._selector.select(self._patience())
        now = time.monotonic()
        for client in [client for client in self._clients.values() if client.until <= now]:
            self._drop(client)
        # What came from those who are here is read before others are let in, who take the place of who sent nothing.
        for key, events in ready:
            client = self._clients.get(key.fileobj)  # type: ignore[call-overload]
            if client is not None:
                self._attend(client, events)
        if not self.ended and any(key.fileobj is self.listener for key, _ in ready):
            self._let_in()
        self._answer_some()

    def rest(self) -> None:
        """Leave the core to others for as long as the share asks for."""
        owed = min((time.thread_time() - self._busy_s) * (1.0 / _SHARE - 1.0), _LONGEST_PAUSE_S)
        self._woken.wait(max(owed, _FULL_S) if self._full else owed)
        self._busy_s, self._full = time.thread_time(), False

    def finish(self) -> None:
        """Let nobody in any more, and send what is under way."""
        self._selector.unregister(self.listener)
        self.listener.close()
        until = time.monotonic() + _LAST_WORDS_S
        while time.monotonic() < until:
            self._answer_some()
            if not any(client.request is not None or client.left for client in self._clients.values()):
                return
            for key, events in self._selector.select(0.0 if self._waiting() else until - time.monotonic()):
                self._attend(self._clients[key.fileobj], events)  # type: ignore[index]

    def wake(self) -> None:
        """Let nobody in any more, and the thread that waits at the sockets or rests end."""
        self.let_nobody_in()
        self._woken.set()

    def let_nobody_in(self) -> None:
        """End after this turn; takes no lock, as the thread itself may come by here within a wait of its own."""
        self.ended = True
        with suppress(OSError):  # not everywhere can a socket that listens be shut down
            self.listener.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close everything."""
        _open.discard(self)
        self.listener.close()
        for link in list(self._clients):
            link.close()
        self._clients.clear()

    def abandon(self) -> None:
        """In a forked child: the port is the parent's, who could not give it back while a child holds it."""
        self.ended = True
        self.close()

    def _patience(self) -> float | None:
        """Seconds until something is due though nothing happens."""
        if self._waiting():
            return 0.0
        first = min((client.until for client in self._clients.values()), default=None)
        return None if first is None else max(first - time.monotonic(), 0.0)

    def _waiting(self) -> list[tuple[_Client, Request]]:
        """Who waits for a page, the longest first."""
        return [(client, client.request) for client in self._clients.values() if client.request is not None]

    def _let_in(self) -> None:
        """Let in who waits, as many as have room; there may be more the next time.

        Nobody who waits for a page makes room: where all do, the next turn has a page for some of them.
        """
        for _ in range(MOST):
            if len(self._waiting()) >= MOST:
                return
            try:
                link, _ = self.listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # the process may open no more files: who waits is there at once, and again
                self._full = not isinstance(error, ConnectionError)
                return
            link.setblocking(False)
            if len(self._clients) >= MOST:
                self._end_one()
            client = self._clients[link] = _Client(link)
            self._selector.register(link, client.events)
            self._attend(client, selectors.EVENT_READ)  # most have sent their request by now

    def _end_one(self) -> None:
        """End the connection that has taken nothing for longest; none that waits for its page."""
        idle = min((each for each in self._clients.values() if each.request is None), key=lambda each: each.moved)
        if idle.left is None:
            with self._minding(idle):
                idle.send(refusal(503))
        self._drop(idle)

    def _attend(self, client: _Client, events: int) -> None:
        """Read from a client or send to it, as it is ready for; one that went away is nobody's business."""
        with self._minding(client):
            if events & selectors.EVENT_WRITE:
                client.send()
            if events & ~selectors.EVENT_WRITE and not client.receive():
                self._drop(client)
            elif client.request is not None and client.request.status != 200:
                client.send(refusal(client.request.status, client.request.head_only))
            elif client.request is not None and client.form is None:
                client.form = self._form(client.request.accept)

    def _answer_some(self) -> None:
        """Make a page for the one who waits longest, and for all who get the same form."""
        waiting = self._waiting()
        if not waiting:
            return
        form = waiting[0][0].form or ""
        try:
            kind, page = self._answer(form)
        except Exception:
            self._tell()
            kind, page = "", b""
        for client, request in waiting:
            if client.form == form:
                with self._minding(client):
                    client.send(answer(200, kind, page, request.head_only) if kind else refusal(500, request.head_only))

    @contextmanager
    def _minding(self, client: _Client) -> Iterator[None]:
        """Whatever goes wrong with one client ends that connection only; that it went away is nobody's business."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, OSError):
                self._tell()
            self._drop(client)
        else:
            if client.link in self._clients:
                self._selector.modify(client.link, client.events)

    def _drop(self, client: _Client) -> None:
        if self._clients.pop(client.link, None) is not None:
            self._selector.unregister(client.link)
            client.link.close()

    def _tell(self) -> None:
        """Log the exception at hand, the first time."""
        if not self._told:
            self._told = True
            logger.exception("adaptk could not answer who asked for its metrics; the engine goes on")


_open = open_here(_Http)
