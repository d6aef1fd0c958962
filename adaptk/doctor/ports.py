"""Where metrics are to be served: can the port be had, and is somebody served there already."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec

import msgspec

from adaptk.doctor.finding import Finding
from adaptk.live.address import address_of
from adaptk.live.fetch import look
from adaptk.live.snapshot import Snapshot
from adaptk.settings import Settings

_ANOTHER = "set another ADAPTK_METRICS_PORT"


def findings(settings: Settings, ranks: int) -> Iterator[Finding]:
    """The port of each rank: the one that is set, and those after it.

    Without its metrics an engine goes on; one that was told to be strict does not start.
    """
    for finding in _findings(settings, ranks):
        unserved = finding.id != "metrics.host" and finding.status != "ok" and settings.metrics_port is not None
        yield msgspec.structs.replace(finding, status="fail") if unserved and settings.strict else finding


def _findings(settings: Settings, ranks: int) -> Iterator[Finding]:
    first, host = settings.metrics_port, settings.metrics_host
    if first is None:
        what = "no metrics are served: ADAPTK_METRICS_PORT is not set"
        yield Finding(
            "metrics.port", "note", what, remedy="set it, as ADAPTK_METRICS_PORT=9475, and watch by adaptk top"
        )
        return
    if find_spec("prometheus_client") is None:
        what = "metrics need prometheus_client, which is not installed"
        yield Finding("metrics.package", "warn", what, remedy="pip install 'adaptk[tools]'")
    last = first + ranks - 1
    if last > 65535:
        what = f"{ranks} engines need the ports {first} to {last}, and 65535 is the last there is"
        yield Finding(
            "metrics.port", "warn", what, "those beyond serve no metrics", "set a smaller ADAPTK_METRICS_PORT"
        )
        return
    taken = [found for port in range(first, last + 1) if (found := _port(host, port)) is not None]
    yield from taken
    if taken:
        return
    ports = f"port {first} is" if ranks == 1 else f"ports {first} to {last}, one for each engine, are"
    yield Finding("metrics.port", "ok", f"{ports} free on {host}")
    if not _loopback(host):
        what = f"metrics on {host} can be read from other machines"
        yield Finding("metrics.host", "note", what, "they hold no prompts, and nobody is asked for a password")


def _port(host: str, port: int) -> Finding | None:
    """What stands in the way of serving there; ``None`` if nothing does."""
    error = _bind(host, port)
    if error is None:
        return None
    name = "metrics.port"
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        what = f"ADAPTK_METRICS_HOST={host!r} is no address of this machine"
        return Finding(name, "warn", what, f"no metrics would be served ({_said(error)})",
                       "give 127.0.0.1, 0.0.0.0 or an address of this machine")  # fmt: skip
    if error.errno != errno.EADDRINUSE:
        return Finding(name, "warn", f"port {port} on {host} cannot be had", _said(error), _ANOTHER)
    served = _served(host, port)
    if served is not None:
        what = f"an adaptk is being served on port {port} already: {described(served)}"
        remedy = f"watch it by adaptk top {port}; for a second engine {_ANOTHER}"
        return Finding(name, "note", what, "a second engine here would have no metrics", remedy)
    what = f"port {port} on {host} is taken by another program"
    return Finding(name, "warn", what, "no metrics would be served", _ANOTHER)


def _bind(host: str, port: int) -> OSError | None:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with closing(socket.socket(family, kind, protocol)) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: what was just closed is free
            server.bind(address)
            server.listen(1)
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that no host can have
        return error if isinstance(error, OSError) else socket.gaierror(str(error))
    return None


def _served(host: str, port: int) -> Snapshot | None:
    """The engine whose metrics are served there; ``None`` where there are none of adaptk's, or they cannot be read."""
    engines = look(address_of(host, port)).engines
    return engines[0] if engines else None


def described(engine: Snapshot) -> str:
    """What a page of adaptk's metrics says of its engine.

    Examples
    --------
    >>> described(Snapshot(model="m", engine="0", mode="on", active=False, inactive_reason="no drafter"))
    'mode on, model m, inactive: no drafter'
    """
    told = [f"mode {engine.mode}" if engine.mode else "its mode is not told"]
    if engine.model:
        told.append(f"model {engine.model}")
    if engine.active is False:
        told.append(f"inactive{': ' if engine.inactive_reason else ''}{engine.inactive_reason}")
    return ", ".join(told)


def _loopback(host: str) -> bool:
    return host == "localhost" or host.startswith("127.") or host == "::1"


def _said(error: OSError) -> str:
    return error.strerror or str(error)
