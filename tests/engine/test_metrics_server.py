"""The port that metrics are served at: whose it is, what it answers, and that it is given back."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adaptk.vllm_plugin.metrics import server
from adaptk.vllm_plugin.metrics.server import MetricsServer
from tests.engine.conftest import Lines
from tests.engine.metricspages import free_port


def answer(accept: str) -> tuple[str, bytes]:
    return "text/plain", b"page " + accept.encode()


@contextmanager
def served(port: int, host: str = "127.0.0.1", making: Callable[[str], tuple[str, bytes]] = answer) -> Iterator[str]:
    server = MetricsServer(host, port, making, str)
    try:
        yield server.url
    finally:
        server.stop()


def read(url: str, **headers: str) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as response:
        return bytes(response.read())


@contextmanager
def busy_clock() -> Iterator[Callable[[], float]]:
    """Seconds for which the server's thread has run."""
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "adaptk-metrics")
    with Path(f"/proc/self/task/{thread.native_id}/schedstat").open("rb") as file:
        yield lambda: int(os.pread(file.fileno(), 100, 0).split()[0]) * 1e-9


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:{}/metrics"),
        ("localhost", "http://127.0.0.1:{}/metrics"),
        ("0.0.0.0", "http://0.0.0.0:{}/metrics"),
        ("::1", "http://[::1]:{}/metrics"),
    ],
)
def test_any_address_of_this_machine(host: str, url: str) -> None:
    """By name, of either family, or all of them; the URL in the log can be opened as it stands."""
    port = free_port()
    with served(port, host) as at:
        assert at == url.format(port)
        assert read(at, Accept="x/y") == b"page x/y"


def test_the_page_is_at_one_path() -> None:
    """A query does not matter, anything else is refused with a hint."""
    with served(free_port()) as url:
        assert read(url + "?name[]=x").startswith(b"page ")
        for path in ("/", "/metric", "/metrics/x"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                read(url.removesuffix("/metrics") + path)


def test_a_taken_port_stays_whose_it_is() -> None:
    """The second one is refused, the first one still answers."""
    port = free_port()
    with served(port) as url:
        with pytest.raises(OSError, match="in use"):
            MetricsServer("127.0.0.1", port, answer, str)
        assert read(url).startswith(b"page ")


@pytest.mark.parametrize("host", ["203.0.113.7", "no-such-host.invalid"])
def test_a_host_that_is_not_ours(host: str) -> None:
    with pytest.raises(OSError, match=r"."):
        MetricsServer(host, free_port(), answer, str)


def test_stop_gives_port_and_thread_back() -> None:
    """At once, as often as it is called, and though a client is connected that says nothing."""
    port = free_port()
    before = threading.active_count()
    for _ in range(3):
        server = MetricsServer("127.0.0.1", port, answer, str)
        with socket.create_connection(("127.0.0.1", port)):
            assert read(server.url).startswith(b"page ")
            server.stop()
            server.stop()
    until = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_stop_on_the_server_s_own_thread_takes_no_lock() -> None:
    """An engine may be collected there within a wait of the thread's own: the page still goes out, then it ends."""
    made: list[MetricsServer] = []

    def making(accept: str) -> tuple[str, bytes]:
        with made[0]._http._woken._cond:  # what a wait holds
            made[0].stop()
        return answer(accept)

    made.append(MetricsServer("127.0.0.1", free_port(), making, str))
    assert read(made[0].url).startswith(b"page ")
    made[0]._thread.join(30)
    assert not made[0]._thread.is_alive()


def test_a_forked_child_does_not_hold_the_port() -> None:
    """Nor a connection to it; the child's own copies are closed, and the port can be had while it lives."""
    port = free_port()
    heard, told = os.pipe()
    with served(port) as url, socket.create_connection(("127.0.0.1", port)):
        assert read(url).startswith(b"page ")  # so that the other connection was let in
        (http,) = (each for each in server._open if each.listener.getsockname()[1] == port)
        links = [http.listener, *http._clients]
        child = os.fork()
        if child == 0:
            os.read(heard, 1)
            os._exit(sum(link.fileno() >= 0 for link in links))
    try:
        with served(port) as url:
            assert read(url).startswith(b"page ")
    finally:
        os.write(told, b".")
        _, status = os.waitpid(child, 0)
        os.close(heard)
        os.close(told)
    assert len(links) >= 2
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_process_out_of_files_is_not_kept_busy() -> None:
    """A client that cannot be let in waits; the thread looks twice a second, and lets it in once that goes."""
    port = free_port()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with served(port) as url, socket.socket() as client, busy_clock() as busy_s:
        assert read(url).startswith(b"page ")
        lowest = os.dup(0)  # free again, and the next one that would be opened
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
        try:
            client.connect(("127.0.0.1", port))
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            at_first = busy_s()
            time.sleep(1.5)
            assert busy_s() - at_first < 0.02  # trying on without a pause takes its whole share, 0.075
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        client.settimeout(10)
        assert b"200" in client.recv(100)


def test_a_page_that_fails_is_told_once(log: Lines) -> None:
    """Who asks gets a 500 each time."""

    def fail(_: str) -> tuple[str, bytes]:
        raise RuntimeError("no page")

    with served(free_port(), making=fail) as url:
        for _ in range(3):
            with pytest.raises(urllib.error.HTTPError, match="500"):
                read(url)
    assert len(log.having("could not answer")) == len(log.lines) == 1


def test_a_client_that_goes_away_is_not_told(log: Lines) -> None:
    """In the middle of its request or of the answer."""
    port = free_port()
    with served(port, making=lambda _: ("text/plain", b"x" * 10_000_000)) as url:
        for sent in (b"GET /met", b"GET /metrics HTTP/1.0\r\n\r\n"):
            one = socket.create_connection(("127.0.0.1", port))
            one.sendall(sent)
            one.close()
        assert len(read(url)) == 10_000_000
    assert log.lines == []
