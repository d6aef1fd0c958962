"""The metrics port among strangers: slow, rude and many of them; what it shows, and to whom."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk import Controller, Settings, StepRecord
from adaptk.vllm_plugin.metrics import server
from adaptk.vllm_plugin.metrics.page import Page
from adaptk.vllm_plugin.metrics.request import MOST_BYTES, Request, read
from adaptk.vllm_plugin.metrics.server import MOST, MetricsServer
from adaptk.vllm_plugin.metrics.sums import Sums
from adaptk.vllm_plugin.steering import Steering
from tests.security.rude import ASKS, Here, connected, crowd, everything, links, said, until


@contextmanager
def served(
    making: Callable[[str], tuple[str, bytes]] = lambda _: ("text/plain", b"the page"), form: Callable[[str], str] = str
) -> Iterator[Here]:
    made = MetricsServer("127.0.0.1", 0, making, form)
    try:
        yield made.host, made.port
    finally:
        made.stop()


def test_only_this_machine_gets_in_by_default() -> None:
    """The default address is the loopback's own: another one of this machine finds nobody there."""
    made = MetricsServer(Settings().metrics_host, 0, lambda _: ("text/plain", b"the page"), str)
    try:
        assert b"the page" in said(("127.0.0.1", made.port), ASKS)
        with pytest.raises(ConnectionRefusedError):
            connected(("127.0.0.2", made.port))
    finally:
        made.stop()


@pytest.mark.parametrize(
    ("sends", "status"),
    [
        (b"GET /metrics HTTP/1.0\r\n\r\n", 200),
        (b"GET /metrics?x=1 HTTP/1.1\nHost: x\n\n", 200),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", 200),
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics/../../../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"GET //metrics HTTP/1.1\r\n\r\n", 404),
        (b"GET /etc/passwd%00/metrics HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nREFLX", 405),
        (b"DELETE /metrics HTTP/1.1\r\n\r\n", 405),
        (b"TRACE /metrics HTTP/1.1\r\nX-Sent: REFLX\r\n\r\n", 405),
        (b"GET /metrics\r\n\r\n", 400),
        (b"get /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 400),
        (b"GET /REFLX<script> HTTP/1.1 REFLX\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"\x00\xff" * 100, 400),
        (b"\r\n\r\n", 400),
        (b"GET /" + b"REFLX" * MOST_BYTES, 431),
        (b"GET /metrics HTTP/1.1\r\n" + b"X-Sent: REFLX\r\n" * MOST_BYTES, 431),
    ],
)
def test_only_the_page_is_served(sends: bytes, status: int) -> None:
    """To GET and HEAD at one path; else a refusal that repeats nothing of what was sent, and names no software."""
    with served() as here:
        answer = said(here, sends)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert (body == b"the page") is (status == 200 and not sends.startswith(b"HEAD"))
    assert b"REFLX" not in answer
    assert b"script" not in answer
    assert b"python" not in answer.lower()
    assert b"\nserver:" not in head.lower()
    assert b"Connection: close" in head
    assert b"nosniff" in head


def test_who_has_said_all_still_gets_the_page() -> None:
    """A client that closes its own half, as nc does, and one that sends the next request at once: one answer each."""
    with served() as here:
        with connected(here, ASKS) as half:
            half.shutdown(socket.SHUT_WR)
            assert everything(half).endswith(b"the page")
        assert said(here, 50 * ASKS).count(b"the page") == 1


def test_a_request_may_come_in_pieces() -> None:
    """Two bytes at a time."""
    with served() as here, connected(here) as client:
        for i in range(0, len(ASKS), 2):
            client.sendall(ASKS[i : i + 2])
            time.sleep(0.002)
        assert everything(client).endswith(b"the page")


def test_a_body_without_end_is_not_read_on() -> None:
    """The answer comes, and after a mebibyte more the connection is ended."""
    with (
        served() as here,
        connected(here, b"POST /metrics HTTP/1.1\r\nContent-Length: 1000000000000\r\n\r\n") as client,
    ):
        sent = 0
        with suppress(ConnectionError):
            while sent < 1 << 30:
                sent += client.send(bytes(1 << 16))
        assert sent < 1 << 26  # what the system keeps is on top


def test_slow_headers_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a byte of them comes: the time is that of the whole connection."""
    monkeypatch.setattr(server, "_LASTS_S", 1.0)
    with served() as here, connected(here, b"GET /metrics HTTP/1.1\r\n") as client:
        client.settimeout(0.05)
        began = time.monotonic()
        ended = False
        while not ended and time.monotonic() - began < 20:
            try:
                client.send(b"X")
                ended = client.recv(100) == b""
            except TimeoutError:
                pass
            except ConnectionError:
                ended = True
        assert ended
        assert time.monotonic() - began > 0.5


def test_slow_readers_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for who does not take its page, and it is let go."""
    monkeypatch.setattr(server, "_LASTS_S", 1.0)
    page = b"x" * (12 << 20)  # more than the system keeps for who reads little
    with served(lambda _: ("text/plain", page)) as here, socket.socket() as slow:
        before = links()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(20)
        slow.connect(here)
        slow.sendall(ASKS)
        assert slow.recv(1000).startswith(b"HTTP/1.1 200 OK")
        monkeypatch.setattr(server, "_LASTS_S", 60.0)
        assert len(said(here, ASKS)) > len(page)
        assert until(lambda: links() <= before)
        assert len(everything(slow)) < len(page)


def silent(number: int) -> bytes:
    return b""


def trickling(number: int) -> bytes:
    return b"GET /metrics HTTP/1.1\r\nX-"


def asking(number: int) -> bytes:
    return ASKS


@pytest.mark.parametrize("sends", [silent, trickling, asking])
def test_a_thousand_connections(sends: Callable[[int], bytes]) -> None:
    """No thread more, a few files open at a time, somebody in between gets the page, and nothing is left."""
    with served() as here:
        assert said(here, ASKS).endswith(b"the page")
        before, threads = links(), threading.active_count()
        with crowd(here, 1000, sends) as clients:
            own = {client.fileno() for client in clients}
            for _ in range(3):
                with connected(here, ASKS) as scraper:
                    own.add(scraper.fileno())
                    assert everything(scraper).endswith(b"the page")
                held = [link for link in links() - before if int(link.split()[0]) not in own]
                assert len(held) <= MOST + 1
                assert threading.active_count() == threads
        assert until(lambda: links() <= before)
        assert said(here, ASKS).endswith(b"the page")


def test_who_has_asked_is_not_ended_by_who_has_not() -> None:
    """A request that came while the thread was busy counts, though more connections than have room came after it."""
    begun, go_on = threading.Event(), threading.Event()

    def making(_: str) -> tuple[str, bytes]:
        begun.set()
        assert go_on.wait(20)
        return "text/plain", b"the page"

    with served(making) as here, ExitStack() as stack:
        scraper = stack.enter_context(connected(here, ASKS[:1]))
        time.sleep(0.2)  # so that it has been let in
        first = stack.enter_context(connected(here, ASKS))
        assert begun.wait(20)
        scraper.sendall(ASKS[1:])
        for _ in range(100):
            stack.enter_context(connected(here))
        go_on.set()
        assert everything(first).endswith(b"the page")
        assert everything(scraper).endswith(b"the page")


def test_a_flood_of_resets() -> None:
    """Clients that break off the hard way at every stage leave nothing behind."""
    with served(lambda _: ("text/plain", b"x" * 1_000_000)) as here:
        before = links()
        for number in range(300):
            client = connected(here, ASKS[: number % (len(ASKS) + 1)])
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
        assert said(here, ASKS).endswith(b"x")
        assert until(lambda: links() <= before)


def test_who_waits_together_shares_a_page() -> None:
    """A page that is made after all of them asked is as fresh for each."""
    made: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def making(_: str) -> tuple[str, bytes]:
        made.append(1)
        begun.set()
        go_on.wait(20)
        return "text/plain", b"page %d" % len(made)

    with served(making) as here, ExitStack() as stack:
        first = stack.enter_context(connected(here, ASKS))
        assert begun.wait(20)
        others = [stack.enter_context(connected(here, ASKS)) for _ in range(20)]
        time.sleep(0.1)
        go_on.set()
        assert everything(first).endswith(b"page 1")
        assert {everything(other)[-6:] for other in others} == {b"page 2"}


def test_scraping_without_a_pause_costs_little() -> None:
    """Between two pages the thread rests nineteen times as long as one costs, in however many forms they are asked."""
    pages: list[tuple[float, float, str]] = []
    cost_s = 0.01

    def making(accept: str) -> tuple[str, bytes]:
        began, until_s = time.monotonic(), time.thread_time() + cost_s
        while time.thread_time() < until_s:
            pass
        pages.append((began, time.monotonic(), accept))
        return "text/plain", b"the page"

    with served(making) as here:
        ends = time.monotonic() + 2.0

        def hammer(form: bytes) -> None:
            while time.monotonic() < ends or len(pages) < 4:
                with suppress(OSError):
                    said(here, b"GET /metrics HTTP/1.1\r\nAccept: " + form + b"\r\n\r\n")

        threads = [threading.Thread(target=hammer, args=(b"text/%d" % form,)) for form in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    rests = [after - before for (_, before, _), (after, _, _) in pairwise(pages)]
    assert min(rests) > 18 * cost_s
    assert len({accept for _, _, accept in pages}) > 1


def test_who_has_closed_its_half_may_have_to_wait() -> None:
    """For pages of other forms that are made before: one is made at a time."""
    begun, go_on = threading.Event(), threading.Event()

    def making(accept: str) -> tuple[str, bytes]:
        begun.set()
        go_on.wait(20)
        return "text/plain", accept.encode()

    with served(making) as here, ExitStack() as stack:
        stack.enter_context(connected(here, ASKS))
        assert begun.wait(20)
        others = []
        for form in (b"a", b"b", b"c"):
            sends = b"GET /metrics HTTP/1.1\r\nAccept: " + form + b"\r\n\r\n"
            others.append(stack.enter_context(connected(here, sends)))
            others[-1].shutdown(socket.SHUT_WR)
        time.sleep(0.1)
        go_on.set()
        assert [everything(other)[-1:] for other in others] == [b"a", b"b", b"c"]


def with_accept(accept: str) -> bytes:
    return f"GET /metrics HTTP/1.1\r\nAccept: {accept}\r\n\r\n".encode()


def test_headers_of_any_number_share_two_pages() -> None:
    """Clients that each send another Accept header wait no longer than if they all sent the same."""
    made: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def making(form: str) -> tuple[str, bytes]:
        made.append(form)
        begun.set()
        assert go_on.wait(20)
        return "text/plain", b"page %d" % len(made)

    with served(making, Page.form) as here, ExitStack() as stack:
        first = stack.enter_context(connected(here, ASKS))
        assert begun.wait(20)
        words = [f"a/{i}" for i in range(10)] + [f"application/openmetrics-text; version=1.0.{i}" for i in range(10)]
        others = [stack.enter_context(connected(here, with_accept(word))) for word in words]
        time.sleep(0.1)
        go_on.set()
        assert everything(first).endswith(b"page 1")
        assert {everything(other)[-6:] for other in others} == {b"page 2", b"page 3"}
    assert len(set(made)) == 2


@given(
    st.text(st.characters(max_codepoint=255), max_size=60),
    st.integers(0, 10**9),
    st.text("0123456789.rcab", max_size=9),
)
def test_a_header_comes_to_one_of_two_forms(text: str, number: int, version: str) -> None:
    """Whatever its words and its version are; both can be made."""
    forms = {Page.form(text), Page.form(f"application/openmetrics-text; version=1.0.{number}")}
    forms |= {
        Page.form(f"application/openmetrics-text; version={version}"),
        Page.form(f"text/plain; version={version}"),
    }
    assert forms <= {"", "application/openmetrics-text"}
    page = Page(Steering(None), None, ("m", "0"), {})
    assert page("")[0].startswith("text/plain")
    assert page("application/openmetrics-text")[0].startswith("application/openmetrics-text")


def test_who_waits_is_ended_by_nobody() -> None:
    """Where all places are taken by clients that wait for pages of their own, more connections wait outside."""
    begun, go_on = threading.Event(), threading.Event()

    def making(form: str) -> tuple[str, bytes]:
        begun.set()
        assert go_on.wait(20)
        return "text/plain", form.encode()

    with served(making) as here, ExitStack() as stack:
        stack.enter_context(connected(here, ASKS))
        assert begun.wait(20)
        names = [f"form {i}" for i in range(MOST)]
        waiting = [stack.enter_context(connected(here, with_accept(name))) for name in names]
        for _ in range(60):
            stack.enter_context(connected(here, ASKS))
        go_on.set()
        assert [everything(client).rpartition(b"\r\n\r\n")[2].decode() for client in waiting] == names


def test_who_takes_its_page_is_not_ended_by_who_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is made by those that asked and do not read, though the one that reads has been there for longer."""
    monkeypatch.setattr(server, "_LASTS_S", 120.0)  # so large a page may take longer than a client has
    monkeypatch.setattr(server, "_SHARE", 0.5)
    page = b"x" * (12 << 20)  # more than the system keeps for who reads little
    with served(lambda _: ("text/plain", page)) as here, ExitStack() as stack:

        def narrow() -> socket.socket:
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            client.settimeout(20)
            client.connect(here)
            client.sendall(ASKS)
            assert client.recv(1000).startswith(b"HTTP/1.1 200 OK")
            return client

        reader = narrow()
        idle = [narrow() for _ in range(MOST - 1)]
        taken = 0

        def take() -> int:
            piece = reader.recv(1 << 16)
            assert piece, f"it was ended after {taken} bytes"
            return len(piece)

        while taken < len(page) >> 1:  # more than the system had taken off the server's hands
            taken += take()
        for _ in range(4):
            assert said(here, ASKS).endswith(b"x")
            taken += take()
        while piece := reader.recv(1 << 16):
            taken += len(piece)
        assert taken > len(page) - 1000
        assert len(everything(idle[0])) < len(page)


def test_a_page_is_bounded_whatever_was_served() -> None:
    """Requests by the thousand and a name without end: its rows are those of powers of two and of arms, some kB."""
    controller = Controller(None, arms=(0, 1, 3, 7), seed=0)
    steering, sums = Steering(controller, 7), Sums(7)
    for batch in (*range(1, 32), *range(32, 10_000, 23)):
        k = controller.choose(batch)
        drafts = [k] * batch
        record = StepRecord(batch_size=batch, elapsed_ms=10.0, k=k, drafted=drafts, accepted=drafts, context_tokens=1)
        sums.observe(controller, record, 7)
    sums.hand_over(controller)
    page = Page(steering, sums, ("m" * 100_000, "0"), {})
    began = time.thread_time()
    text = page("")[1].decode()
    assert time.thread_time() - began < 2.0
    assert "m" * 1000 in text
    assert "m" * 1001 not in text
    assert len(set(re.findall(r'batch="([^"]+)"', text))) == 14
    assert len(text.replace("m" * 1000, "m")) < 200_000


@given(st.binary(max_size=300))
def test_any_bytes_are_read(data: bytes) -> None:
    """Into a request or a refusal, or they are waited on; never more than that."""
    found = read(data)
    assert found is None or found.status in (200, 400, 404, 405)
    assert read(data + bytes(MOST_BYTES)) is not None


@given(st.integers(0, 60), st.sampled_from(["text/plain;version=1.0.0", "*/*", "a: b"]))
def test_a_request_is_the_same_wherever_it_is_cut(at: int, accept: str) -> None:
    """Nothing is concluded before the headers end, and Accept is found whatever stands around it."""
    whole = f"GET /metrics?x HTTP/1.1\r\nHost: a\r\nACCEPT:  {accept} \r\nX: y\r\n\r\n".encode()
    cut = min(at, len(whole) - 4)
    assert read(whole[:cut]) is None
    assert read(whole) == read(whole + b"rest") == Request(200, False, accept)
