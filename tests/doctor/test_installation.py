"""Would vLLM find adaptk, and what else is installed."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from adaptk.doctor import installation
from tests.doctor.made import by_id

OURS = EntryPoint("adaptk", installation.ENTRY, installation.GROUP)


def points(monkeypatch: pytest.MonkeyPatch, *found: EntryPoint) -> None:
    monkeypatch.setattr(installation, "entry_points", lambda group: found if group == installation.GROUP else ())


@pytest.mark.parametrize(
    ("found", "status"),
    [
        ((), "fail"),
        ((EntryPoint("other", "x:y", installation.GROUP),), "fail"),
        ((OURS,), "ok"),
        ((OURS, OURS), "ok"),  # installed twice, and the same
        ((OURS, EntryPoint("adaptk", "fork:register", installation.GROUP)), "warn"),
    ],
)
def test_the_entry_point(found: tuple[EntryPoint, ...], status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it vLLM never calls adaptk."""
    points(monkeypatch, *found)
    assert by_id(installation.findings({}))["installation.entry_point"].status == status


@pytest.mark.parametrize(
    ("plugins", "remedy"),
    [
        (None, None),
        ("adaptk", None),
        ("other,adaptk", None),
        ("", "set VLLM_PLUGINS=adaptk, or unset it"),
        ("other", "set VLLM_PLUGINS=other,adaptk, or unset it"),
        ("other, adaptk", "set VLLM_PLUGINS=other,adaptk, or unset it"),  # vLLM takes the blank for a part of the name
    ],
)
def test_the_list_of_plugins(plugins: str | None, remedy: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where VLLM_PLUGINS is set, it must name adaptk to the letter."""
    points(monkeypatch, OURS)
    found = by_id(installation.findings({} if plugins is None else {"VLLM_PLUGINS": plugins}))
    shut = found.get("installation.vllm_plugins")
    assert (None if shut is None else shut.remedy) == remedy
    assert shut is None or shut.status == "fail"


def test_packages_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, with what they are for and how to get them."""
    monkeypatch.setattr(installation, "find_spec", lambda name: None if name in ("rich", "scipy") else object())
    found = by_id(installation.findings({}))["installation.extras"]
    assert (found.status, found.what) == ("note", "not installed: rich, scipy")
    assert "scipy is for adaptk profile" in found.detail
    assert found.remedy == "pip install 'adaptk[tools]'"


def test_an_old_install_behind_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two versions of adaptk are told apart."""
    monkeypatch.setattr(installation, "version", lambda name: "0.0.1")
    assert "0.0.1 is what is installed" in by_id(installation.findings({}))["installation.version"].what
