"""Addresses as people write them."""

from __future__ import annotations

import pytest

from adaptk.live.address import Address, addresses, from_environment
from adaptk.settings import SettingsError


def test_forms() -> None:
    """A host and a port, a port, a range of ports, a URL with and without a path; each page once."""
    given = ["h:9475", "9475", "9475-9476", "[::1]:1", "http://h:9475/", "https://x/adaptk?y=1", " h:9475 "]
    assert addresses(given) == (
        Address("h:9475", "http://h:9475/metrics"),
        Address("127.0.0.1:9475", "http://127.0.0.1:9475/metrics"),
        Address("127.0.0.1:9476", "http://127.0.0.1:9476/metrics"),
        Address("[::1]:1", "http://[::1]:1/metrics"),
        Address("x/adaptk", "https://x/adaptk?y=1"),
    )


@pytest.mark.parametrize(
    "text",
    ["", "host", "h:0", "h:65536", "h:99999", "9-5", "h:1-2-3", "::1:9475", "h:port", "ftp://h:1/", "http://", "http://h:x/",
     "http://[::1", "http://h:0/", "http://h h/", "http://u:p@h:1/", "h:9475/metrics", "h\n:1",
     "h\x1b[2J:1", "h\u202e:1", "١٢٣"],
)  # fmt: skip
def test_others_are_refused_with_an_example(text: str) -> None:
    """Before anything is fetched."""
    with pytest.raises(ValueError, match=r"give .*127\.0\.0\.1:9475|give ports from 1"):
        addresses([text])


@pytest.mark.parametrize("given", [["1-65535"], ["1-1500", "2001-3500"]])
def test_too_many_are_refused(given: list[str]) -> None:
    """A slip of the pen, most likely."""
    with pytest.raises(ValueError, match="too many"):
        addresses(given)


@pytest.mark.parametrize(
    ("env", "url"),
    [
        ({"ADAPTK_METRICS_PORT": "9475"}, "http://127.0.0.1:9475/metrics"),
        ({"ADAPTK_METRICS_PORT": "9475", "ADAPTK_METRICS_HOST": "0.0.0.0"}, "http://127.0.0.1:9475/metrics"),
        ({"ADAPTK_METRICS_PORT": "9475", "ADAPTK_METRICS_HOST": "::"}, "http://[::1]:9475/metrics"),
        ({"ADAPTK_METRICS_PORT": "9475", "ADAPTK_METRICS_HOST": "gpu-1"}, "http://gpu-1:9475/metrics"),
        ({"ADAPTK_METRICS_PORT": "9475", "ADAPTK_NONSENSE": "1", "ADAPTK": "?"}, "http://127.0.0.1:9475/metrics"),
    ],
)
def test_the_servers_variables_say_where(env: dict[str, str], url: str) -> None:
    """All interfaces are reached by this machine's own; other settings are not looked at."""
    (address,) = from_environment(env)
    assert address.url == url


def test_no_port_is_no_address() -> None:
    """And a bad one is refused by name."""
    assert from_environment({"ADAPTK_METRICS_HOST": "gpu-1"}) == ()
    with pytest.raises(SettingsError, match="ADAPTK_METRICS_PORT='0'"):
        from_environment({"ADAPTK_METRICS_PORT": "0"})
