"""Where metrics pages are: addresses as people write them, to URLs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from adaptk.settings import Settings

EXAMPLE = "127.0.0.1:9475"
MOST = 2_000
_PORTS = re.compile(
    r"(?:(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^:/?#\s@\[\]]+)?:)?(?P<first>\d{1,5})(?:-(?P<last>\d{1,5}))?", re.A
)
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 -- what is asked for there is here


class Address(NamedTuple):
    """A metrics page: the name it is shown by, and its URL."""

    name: str
    url: str


def addresses(given: Sequence[str]) -> tuple[Address, ...]:
    """The pages that were named, each once, in order.

    Parameters
    ----------
    given
        Each ``HOST:PORT``, ``PORT`` (of this machine), a range of ports as ``HOST:9475-9482``, or a URL.

    Raises
    ------
    ValueError
        For what is none of these, with an example.

    Examples
    --------
    >>> [made.url for made in addresses(["9475", "[::1]:9475-9476", "https://host/adaptk"])]
    ['http://127.0.0.1:9475/metrics', 'http://[::1]:9475/metrics', 'http://[::1]:9476/metrics', 'https://host/adaptk']
    """
    made: dict[str, Address] = {}
    for text in given:
        for address in _urls(text.strip()):
            made.setdefault(address.url, address)
            if len(made) > MOST:
                raise ValueError(f"more than {MOST} addresses are too many to watch: name fewer")
    return tuple(made.values())


def from_environment(env: Mapping[str, str]) -> tuple[Address, ...]:
    """The page that ``ADAPTK_METRICS_PORT`` and ``ADAPTK_METRICS_HOST`` name; none where no port is set.

    Raises
    ------
    SettingsError
        For a value that adaptk refuses.
    """
    names = ("ADAPTK_METRICS_PORT", "ADAPTK_METRICS_HOST")
    settings = Settings.from_env({name: env[name] for name in names if name in env})
    if settings.metrics_port is None:
        return ()
    return addresses([address_of(settings.metrics_host, settings.metrics_port).name])


def address_of(host: str, port: int) -> Address:
    """The page of an engine of this machine that serves it on ``host``, which may be every address of the machine.

    Examples
    --------
    >>> address_of("0.0.0.0", 9475).url, address_of("::1", 9475).name
    ('http://127.0.0.1:9475/metrics', '[::1]:9475')
    """
    host = _ANY.get(host, host)
    name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Address(name, f"http://{name}/metrics")


def _urls(text: str) -> list[Address]:
    if "://" in text:
        return [_url(text)]
    found = _PORTS.fullmatch(text)
    if found is None or not text.isprintable():
        raise ValueError(f"{text!r}: give HOST:PORT, a port, a range of ports or a URL, as {EXAMPLE}")
    first = int(found["first"])
    last = int(found["last"] or first)
    if not 0 < first <= last < 65_536:
        raise ValueError(f"{text!r}: give ports from 1 to 65535, the first of a range not above the last")
    if last - first >= MOST:
        raise ValueError(f"{text!r}: more than {MOST} addresses are too many to watch: name fewer")
    host = found["host"] or "127.0.0.1"
    return [Address(f"{host}:{port}", f"http://{host}:{port}/metrics") for port in range(first, last + 1)]


def _url(text: str) -> Address:
    try:
        parts = urlsplit(text)
        holds = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and text.isprintable()
    except ValueError:  # a port out of range, or an open bracket
        holds = False
    if not holds or " " in text or "@" in parts.netloc:
        raise ValueError(f"{text!r}: give a URL as http://{EXAMPLE}/metrics, without a user's name")
    shown = parts.netloc
    path = parts.path if parts.path not in ("", "/") else "/metrics"
    url = parts._replace(path=path, fragment="").geturl()
    return Address(shown if path == "/metrics" and not parts.query else f"{shown}{path}", url)
