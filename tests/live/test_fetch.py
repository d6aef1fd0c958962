"""Pages fetched from servers that are slow, wrong or gone."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from adaptk.live import fetch as module
from adaptk.live.address import Address, addresses
from adaptk.live.fetch import Fetcher, fetch, look
from tests.live.pages import page, served


def _address(place: str) -> Address:
    (address,) = addresses([place])
    return address


def test_a_page_gives_its_engines() -> None:
    """With the time of the look, and no error."""
    with served(page()) as place:
        seen = look(_address(place))
    assert seen.error == ""
    assert [engine.model for engine in seen.engines] == ["org/model"]


_HTML = b"<html>hello</html>"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((500, {}, b"oops"), "HTTP 500 Internal Server Error"),
        ((404, {}, b""), "HTTP 404 Not Found"),
        ((200, {}, _HTML), "no adaptk metrics"),
        ((200, {}, b""), "empty"),
        ((200, {"Content-Length": "99999"}, b"adaptk_batch_size 1\n"), "broke off"),
        ((302, {"Location": "/metrics"}, b""), "leads on without end"),
        ((302, {"Location": "file:///etc/passwd"}, b""), "leads on to another host"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(answer: tuple[int, Mapping[str, str], bytes], says: str) -> None:
    """In words, not in Python's names."""
    with served(lambda: answer) as place:
        seen = look(_address(place))
    assert says in seen.error
    assert "\n" not in seen.error
    assert seen.engines == ()


def test_a_redirect_is_followed() -> None:
    """As where a gateway moves a page."""
    with served(page()) as there, served(lambda: (302, {"Location": f"http://{there}/metrics"}, b"")) as place:
        assert look(_address(place)).error == ""


def test_nothing_listens() -> None:
    """Said so, as it is the commonest slip."""
    with served(page()) as place:
        pass
    assert look(_address(place)).error == "connection refused: nothing listens there"


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not reach this machine's own ports."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with served(page()) as place:
        assert look(_address(place)).error == ""


def test_too_large_a_page_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it fills the memory."""
    monkeypatch.setattr(module, "MOST_BYTES", 1 << 12)
    with served("x" * (1 << 16)) as place, pytest.raises(ValueError, match="larger than"):
        fetch(f"http://{place}/metrics")


def test_a_silent_server_is_given_up() -> None:
    """After the time out, while others are fetched."""
    go_on = threading.Event()

    def silent() -> tuple[int, Mapping[str, str], bytes]:
        go_on.wait(10.0)
        return 200, {}, b""

    with served(silent) as slow, served(page()) as quick:
        with pytest.raises(TimeoutError):
            fetch(f"http://{slow}/metrics", timeout=0.05)
        fetcher = Fetcher([_address(slow), _address(quick)])
        for address in fetcher.addresses:
            fetcher.ask(address)
        first = fetcher.answers.get(timeout=10.0)
        assert (first.address.name, first.error) == (quick, "")
        go_on.set()
        assert fetcher.answers.get(timeout=10.0).address.name == slow


def test_whoever_waits_is_woken() -> None:
    """After the answer is there."""
    woken = threading.Event()
    with served(page()) as place:
        fetcher = Fetcher([_address(place)], woken.set)
        fetcher.ask(_address(place))
        assert woken.wait(10.0)
        assert not fetcher.answers.empty()
