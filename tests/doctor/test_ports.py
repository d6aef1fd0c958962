"""The port of the metrics, and who has it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from adaptk.doctor import ports
from adaptk.live.fetch import fetch
from adaptk.settings import Settings
from tests.doctor.made import by_id
from tests.live.pages import Engine, page, served


def _port(place: str) -> int:
    return int(place.rpartition(":")[2])


@pytest.fixture
def adaptks() -> Iterator[int]:
    """A port with a page of adaptk's, which stands aside."""
    engine = Engine(model="m/8B", mode="shadow")
    engine.gauges["active"], engine.inactive = 0, "no drafter"
    with served(page(engine)) as place:
        yield _port(place)


@pytest.fixture
def others() -> Iterator[int]:
    """A port with a page of somebody else's."""
    with served("vllm_up 1\n") as place:
        yield _port(place)


@pytest.fixture
def free() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_no_port() -> None:
    """Metrics are not needed."""
    (finding,) = ports.findings(Settings(), 1)
    assert finding.status == "note"


def test_a_free_port(free: int) -> None:
    """On the loopback it is seen from here alone; elsewhere that is told."""
    found = by_id(ports.findings(Settings(metrics_port=free), 1))
    assert {name: finding.status for name, finding in found.items()} == {"metrics.port": "ok"}
    found = by_id(ports.findings(Settings(metrics_port=free, metrics_host="0.0.0.0"), 1))
    assert found["metrics.host"].status == "note"


def test_a_port_that_another_program_has(others: int) -> None:
    """It answers, and not as adaptk."""
    finding = by_id(ports.findings(Settings(metrics_port=others), 1))["metrics.port"]
    assert finding.status == "warn"
    assert "another program" in finding.what


def test_a_port_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken is taken, and the look does not wait for long."""
    monkeypatch.setattr(fetch, "__defaults__", (0.1,))
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(1)
        port = int(silent.getsockname()[1])
        assert by_id(ports.findings(Settings(metrics_port=port), 1))["metrics.port"].status == "warn"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_an_engine_that_serves_there(adaptks: int, host: str) -> None:
    """Its mode, its model, and why it stands aside."""
    finding = by_id(ports.findings(Settings(metrics_port=adaptks, metrics_host=host), 1))["metrics.port"]
    assert finding.status == "note"
    assert finding.what.endswith("already: mode shadow, model m/8B, inactive: no drafter")


def test_strict_engines_do_not_start_without_their_metrics(others: int, adaptks: int, free: int) -> None:
    """What is a warning elsewhere stops them; a free port does not, nor does having none."""
    for port in (others, adaptks):
        assert [each.status for each in ports.findings(Settings(metrics_port=port, strict=True), 1)] == ["fail"]
    assert [each.status for each in ports.findings(Settings(metrics_port=free, strict=True), 1)] == ["ok"]
    assert [each.status for each in ports.findings(Settings(strict=True), 1)] == ["note"]


def test_one_port_for_each_rank(adaptks: int) -> None:
    """The port after the first is looked at, too."""
    (finding,) = ports.findings(Settings(metrics_port=adaptks - 1), 2)
    assert f"port {adaptks}" in finding.what or finding.status == "warn"
    (finding,) = ports.findings(Settings(metrics_port=65535), 2)
    assert "65535 is the last" in finding.what


@pytest.mark.parametrize("host", ["no such host", "256.1.1.1", "192.0.2.1", "é" * 70 + ".x", "-"])
def test_hosts_that_are_none_of_this_machine(host: str, free: int) -> None:
    """A wrong address costs the metrics, and nothing else."""
    (finding,) = ports.findings(Settings(metrics_port=free, metrics_host=host), 1)
    assert finding.status == "warn"
    assert "no address of this machine" in finding.what


def test_a_missing_package(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's Python must have it."""
    monkeypatch.setattr(ports, "find_spec", lambda _: None)
    assert by_id(ports.findings(Settings(metrics_port=free), 1))["metrics.package"].status == "warn"


@pytest.mark.parametrize("page", ["", "adaptk_mode{", "adaptk_mode{mode=} x\n", "\0", 'adaptk_mode{mode="on"} 1e'])
def test_pages_that_make_no_sense(page: str) -> None:
    """Are another program's."""
    with served(page) as place:
        finding = by_id(ports.findings(Settings(metrics_port=_port(place)), 1))["metrics.port"]
    assert "another program" in finding.what
