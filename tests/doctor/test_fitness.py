"""Does the vLLM at hand do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from adaptk.doctor import fitness
from adaptk.doctor.facts import Facts, Installed
from tests.doctor.made import by_id

README = Path(__file__).parents[2] / "README.md"


def statuses(**installed: object) -> dict[str, str]:
    facts = Facts(installed=Installed(**{"platform": "cuda", **installed}))  # type: ignore[arg-type]
    return {name: finding.status for name, finding in by_id(fitness.findings(facts)).items()}


@pytest.mark.parametrize(
    ("version", "status"),
    [("0.24.0", "ok"), ("0.32.0+cpu", "ok"), ("0.33.7", "ok"), ("0.34.0rc1", "note"), ("1.0", "note"), ("dev", "note")],
)
def test_versions(version: str, status: str) -> None:
    """Later ones than those tested are worth a note, if every hook is there."""
    found = statuses(version=version)
    assert found["vllm.version"] == status
    assert found["vllm.hooks"] == "ok"


def test_a_vllm_that_lacks_a_hook() -> None:
    """One line, with the reason that the plugin would log."""
    assert statuses(version="0.23.0", unfit="vLLM 0.23.0 lacks what came with 0.24") == {"vllm.hooks": "fail"}


def test_a_vllm_that_cannot_be_imported() -> None:
    """With its own error."""
    (found,) = fitness.findings(Facts(broken="RuntimeError: operator torchvision::nms does not exist"))
    assert found.status == "fail"
    assert "torchvision::nms" in found.detail


@pytest.mark.parametrize(("platform", "status"), [("cuda", "ok"), ("cpu", "ok"), ("", "fail")])
def test_platforms(platform: str, status: str) -> None:
    """vLLM without a device cannot start at all."""
    assert statuses(version="0.32.0", platform=platform)["vllm.platform"] == status


def test_a_build_whose_command_fails() -> None:
    """CPU builds have another name, which their own command does not know."""
    assert statuses(version="0.32.0", serves=False)["vllm.command"] == "note"
    assert "vllm.command" not in statuses(version="0.32.0")


def test_before_drafters_heard_of_k() -> None:
    """The price of older versions is told."""
    assert statuses(version="0.31.0")["vllm.runner_v2"] == "note"
    assert "vllm.runner_v2" not in statuses(version="0.32.0")


def test_the_tested_versions_are_those_of_the_readme() -> None:
    """Its table of versions ends where this one does."""
    rows = re.findall(r"^\| (0\.\d\d[^|]*)\|", README.read_text(), re.MULTILINE)
    minors = [int(minor) for row in rows for minor in re.findall(r"0\.(\d\d)", row) if "older" not in row]
    assert (min(minors), max(minors)) == (fitness.OLDEST[1], fitness.NEWEST[1])
