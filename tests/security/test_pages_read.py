"""``adaptk top`` in front of a page that somebody hostile serves: bounded, and nothing of it steers the terminal."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adaptk.live import page as reading
from adaptk.live.address import addresses
from adaptk.live.browser import Browser
from adaptk.live.fetch import Look, fetch, look
from adaptk.live.fleet import Fleet
from adaptk.live.page import MOST_ENGINES, MOST_LINES, PageError, snapshots
from adaptk.live.plain import document, plain_line
from adaptk.live.texts import width_of
from adaptk.spans import plain
from tests.dashboards import contract
from tests.live.pages import Engine, page, served

STEERING = '\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u2066\u200b\r\x08\x00[bold red]x[/] \U000e0041\n\\"'
Behaviour = Callable[[socket.socket], None]


@contextmanager
def behaving(answer: Behaviour) -> Iterator[str]:
    """A server that does ``answer`` with each connection, once it has read the request; its HOST:PORT."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client, suppress(OSError):
                    client.recv(1 << 16)
                    answer(client)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def again_and_again(first: bytes, then: bytes, pause_s: float) -> Behaviour:
    """Sends one thing, then another for half a minute, with pauses."""

    def answer(client: socket.socket) -> None:
        client.sendall(first)
        ends = time.monotonic() + 30.0
        while time.monotonic() < ends:
            client.sendall(then)
            time.sleep(pause_s)

    return answer


_OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"HTTP/1.1 200 O", b"K"),
        (_OK, b"X-Y: z\r\n"),
        (_OK + b"X-Y: ", b"z"),
        (_OK + b"\r\n", b"x"),
        (_OK + b"Content-Length: 1000000000000\r\n\r\n", b"x"),
        (_OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n", b"0"),
        (_OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"X-Trailer: y\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b""),
    ],
)
def test_a_slow_answer_is_given_up(first: bytes, then: bytes) -> None:
    """However often a piece of it comes, and whichever part of it is without an end."""
    with behaving(again_and_again(first, then, 0.05)) as place:
        began = time.monotonic()
        with pytest.raises((TimeoutError, HTTPException)):
            fetch(f"http://{place}/metrics", timeout=0.5)
        assert time.monotonic() - began < 10.0


@pytest.mark.parametrize("head", [_OK + b"\r\n", _OK + b"Content-Length: 1000000000\r\n\r\n"])
def test_a_huge_answer_is_given_up(head: bytes) -> None:
    """After sixteen mebibytes of a thousand, which nobody holds."""
    sent = 0

    def answer(client: socket.socket) -> None:
        nonlocal sent
        client.sendall(head)
        piece = b"adaptk_x 1\n" * 100_000
        while sent < 1_000_000_000:
            client.sendall(piece)
            sent += len(piece)

    with behaving(answer) as place, pytest.raises(ValueError, match="larger than 16 MiB"):
        fetch(f"http://{place}/metrics", timeout=60.0)
    assert sent < 100_000_000


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc/passwd", "ftp://127.0.0.1/x", "http://127.0.0.2/metrics", "//example.invalid/metrics",
        "http://127.0.0.1:99999999/", "http://[/", "javascript:alert(1)", "data:text/plain,adaptk_active 1",
        "http://127.0.0.1@example.invalid/", "/metrics\x1b[2J",
    ],
)  # fmt: skip
def test_nobody_is_sent_elsewhere(location: str) -> None:
    """A redirect is followed on the same host only: a page must not make its reader ask others."""
    with served(lambda: (302, {"Location": location}, b"")) as place:
        (address,) = addresses([place])
        seen = look(address)
    assert "leads on to another host, which is not followed" in seen.error
    assert seen.error.isprintable()


def test_the_words_of_an_answer_do_not_steer() -> None:
    """Reason phrases and headers are not shown as they come."""
    head = b"HTTP/1.1 500 \x1b]0;owned\x07\x9b2J" + b"very " * 1000 + b"long\r\n\r\n"
    with behaving(lambda client: client.sendall(head)) as place:
        (address,) = addresses([place])
        error = look(address).error
    assert error.startswith("HTTP 500 ")
    assert error.isprintable()
    assert len(error) <= 200


def quoted(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


_COUNTED = [
    ("alarms", "kind"), ("observations_dropped", "cause"), ("switches", "reason"), ("reference_tokens", "policy"),
]  # fmt: skip


def hostile_page(text: str, number: float = 1.0) -> str:
    """A page of all metrics whose labels are ``text`` where any is possible, and with more values than are sane."""
    engine = Engine(model=text, engine=text)
    engine.inactive = text
    engine.baseline = text
    lines = page(engine).split("\n")
    whose = f'model_name="{quoted(text)}",engine="{quoted(text)}"'
    odd = f'"{quoted(text)}"'
    lines[-1:] = [
        f"adaptk_mode{{mode={odd},{whose}}} 1",
        f"adaptk_build_info{{version={odd},vllm_version={odd},{whose}}} 1",
        f"adaptk_config_info{{arms={odd},table={odd},runner={odd},baseline_schedule={odd},{whose}}} 1",
        *(f"adaptk_{name}_total{{{label}={odd},{whose}}} {number!r}" for name, label in _COUNTED),
        f"adaptk_decisions_total{{k=\"3\",reason={odd},{whose}}} {number!r}",
        *(f"{name}{{batch={odd},k=\"3\",{whose}}} {number!r}" for name in (*reading._BELIEFS, "adaptk_steps_total")),
        *(f"{name}{{{whose}}} {number!r}" for name in reading._NUMBERS),
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def shown(text: str) -> list[str]:
    """All that anybody could see of a page: every view, narrow and wide, scrolled and helped, and as a document."""
    places = addresses(["127.0.0.1:1-2"])
    fleet = Fleet(places)
    for at in (0.0, 10.0):
        for place in places:
            fleet.update(Look(place, at, snapshots(text)))
    seen = fleet.engines(11.0)
    lines = [plain_line(each, "00:00:00") for each in seen]
    assert all(width_of(line) <= 80 for line in lines), lines
    for some in (seen[:1], seen):
        for width, height in ((80, 24), (200, 60), (20, 5)):
            browser = Browser()
            for key in ("", "end", "enter", "p", "?"):
                browser.press(key, some)
                drawn = [plain(line) for line in browser.picture(some, width, height)]
                assert all(width_of(line) <= width for line in drawn)
                lines += drawn
    return [*lines, *msgspec.json.format(msgspec.json.encode(document(seen, 1.0)), indent=1).decode().split("\n")]


@settings(max_examples=40)
@given(st.text(max_size=30), st.floats())
@example(STEERING, 1.0)
@example(STEERING, float("inf"))
@example("\u0301" * 1000, -1.0)
@example("漢" * 300, 1e308)
@example("", -1e308)
@example("9" * 800, 5e-324)
def test_no_label_and_no_number_steers_the_terminal(text: str, number: float) -> None:
    """Whatever a page says is shown in lines of signs that can be seen, no wider than the terminal."""
    lines = shown(hostile_page(text, number))
    assert [line for line in lines if not line.isprintable()] == []


def in_a_terminal(place: str) -> tuple[int, bytes]:
    """The status of one look at a page, and all that came to the terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "adaptk", "top", "--once", place]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"}) as process:
        os.close(theirs)
        came = b""
        with suppress(OSError):  # the other side is closed
            while piece := os.read(ours, 1 << 16):
                came += piece
    os.close(ours)
    return process.returncode, came


def test_in_a_real_terminal_nothing_of_it_is_obeyed() -> None:
    """Title, screen, colours and direction stay adaptk's."""
    with served(hostile_page(STEERING)) as place:
        for _ in range(5):  # a busy machine may not have the page within two seconds
            status, came = in_a_terminal(place)
            if status == 0:
                break
    assert status == 0
    text = came.decode()
    assert "]0;owned" in text  # as letters
    assert not any(sign in text for sign in ("\x1b]", "\x1b[2J", "\x9b", "\x07", "\x08", "\u202e", "\u2066", "\u200b"))
    assert "[bold red]" in text  # is no style


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Beside sane lines, too; the error is that of pages."""
    for text in (data.decode("utf-8", "replace"), contract.page() + data.decode("latin-1") + "\n"):
        with suppress(PageError):
            assert snapshots(text)


@pytest.mark.parametrize("sign", ["\\", '"', ",", "{", "}", "=", "# {", 'a="b",'])
def test_a_line_of_one_sign_is_read_at_once(sign: str) -> None:
    """The longest that is looked at, a thousand times: no parser runs away."""
    line = 'adaptk_active{model_name="' + (sign * 8192)[:8100]
    began = time.process_time()
    with suppress(PageError):
        snapshots("".join(f"{line}{number}\n" for number in range(100)))
    assert time.process_time() - began < 10.0


def test_a_page_of_too_many_engines_is_refused() -> None:
    """A million of them, told after the first thousand."""
    text = "".join(f'adaptk_active{{model_name="m",engine="{number}"}} 1\n' for number in range(1_000_000))
    began = time.process_time()
    with pytest.raises(PageError, match=f"{MOST_ENGINES} engines"):
        snapshots(text)
    assert time.process_time() - began < 5.0


def test_a_page_of_too_many_lines_is_refused() -> None:
    """Also where they all say the same."""
    with pytest.raises(PageError, match=f"more than {MOST_LINES} lines"):
        snapshots('adaptk_active{model_name="m",engine="0"} 1\n' * (MOST_LINES + 1))
    assert snapshots('adaptk_active{model_name="m",engine="0"} 1\n' * 1000)[0].active


def test_an_engine_has_room_for_so_many_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are counted as not understood, those that are known go on being read."""
    monkeypatch.setattr(reading, "_MOST_KEYS", 10)
    sane = 'adaptk_steps_total{{batch="{}",k="1"}} {}\n'
    (seen,) = snapshots("".join(sane.format(n, 1) for n in range(30)) + sane.format(3, 5))
    assert len(seen.counts.steps) == 10
    assert seen.counts.steps[reading.Cell("3", 1)] == 5.0
    assert seen.skipped == 20


def test_what_is_kept_of_pages_is_bounded() -> None:
    """Labels that are longer than any engine's are read anew each time."""
    reading._series.cache_clear()
    snapshots('adaptk_active{model_name="' + "x" * 2000 + '"} 1\n')
    assert reading._series.cache_info().currsize == 0
    snapshots('adaptk_active{model_name="x"} 1\n')
    assert reading._series.cache_info().currsize == 1
