"""Wheel and sdist: what is in them, what they say of themselves, and that anybody builds the same."""

from __future__ import annotations

import configparser
import email
import subprocess
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.packaging.distributions import ROOT, STRANGER, Built, build, copied

LARGEST = 3_000_000  # bytes of a release's file; a dump that slipped in would show


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Both, of this folder."""
    return build(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def wheel(built: Built) -> Iterator[zipfile.ZipFile]:
    """The wheel, open."""
    with zipfile.ZipFile(built.wheel) as archive:
        yield archive


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    """What the wheel says of itself."""
    return email.message_from_bytes(wheel.read(_info(wheel, "METADATA")))


@pytest.fixture(scope="module")
def project() -> dict[str, object]:
    """Of pyproject.toml."""
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def _info(wheel: zipfile.ZipFile, name: str) -> str:
    (found,) = [path for path in wheel.namelist() if path.endswith(f".dist-info/{name}")]
    return found


def _package() -> set[str]:
    """Files of the package, in this folder."""
    paths = (path for path in (ROOT / "adaptk").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in paths}


def test_anybody_builds_the_same(built: Built, tmp_path: Path) -> None:
    """From a copy in another folder, with another umask, clock, locale and order of sets: byte for byte."""
    again = build(copied(tmp_path / "elsewhere", 0o077), tmp_path / "dist", umask=0o077, **STRANGER)
    assert [path.name for path in again] == [path.name for path in built]
    assert again.contents() == built.contents()


def test_the_wheel_is_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    """Every file of adaptk/, data and py.typed among them; no tests, no notebooks."""
    own = {path for path in wheel.namelist() if ".dist-info/" not in path}
    assert own == _package()
    assert {"adaptk/py.typed", "adaptk/data/prompts.jsonl", "adaptk/data/grafana-dashboard.json",
            "adaptk/data/prometheus-rules.yml"} <= own  # fmt: skip
    assert {path.rpartition("/")[2] for path in wheel.namelist() if ".dist-info/" in path} == {
        "METADATA", "WHEEL", "RECORD", "entry_points.txt", "LICENSE"}  # fmt: skip


def test_files_are_as_they_are_here(wheel: zipfile.ZipFile) -> None:
    """And can be read by everybody, whoever built it."""
    for path in _package():
        assert wheel.read(path) == (ROOT / path).read_bytes(), path
        assert wheel.getinfo(path).external_attr >> 16 & 0o777 == 0o644, path


def test_vllm_and_the_shell_find_it(wheel: zipfile.ZipFile) -> None:
    """The entry point of vLLM's plugins, and the command; each names something that is there."""
    entries = configparser.ConfigParser()
    entries.read_string(wheel.read(_info(wheel, "entry_points.txt")).decode())
    assert dict(entries["vllm.general_plugins"]) == {"adaptk": "adaptk.vllm_plugin.plugin:register"}
    assert dict(entries["console_scripts"]) == {"adaptk": "adaptk.cli.main:main"}
    for group in entries.sections():
        for place in entries[group].values():
            module, name = place.split(":")
            source = wheel.read(f"{module.replace('.', '/')}.py").decode()
            assert f"def {name}(" in source


def test_it_needs_what_the_project_says(metadata: Message, project: dict[str, list[str]]) -> None:
    """Two packages, never vLLM or torch; all else is an extra."""
    asked = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    needed = {(one.name, one.specifier) for one in asked if one.marker is None}
    assert needed == {(one.name, one.specifier) for one in map(Requirement, project["dependencies"])}
    assert {name for name, _ in needed} == {"numpy", "msgspec"}
    assert not any(one.name.startswith(("vllm", "torch")) for one in asked)
    assert set(metadata.get_all("Provides-Extra", [])) == set(project["optional-dependencies"])
    assert metadata["License-Expression"] == project["license"] == "Apache-2.0"
    assert metadata["Requires-Python"] == project["requires-python"]


def test_the_sdist_is_the_whole_project(built: Built) -> None:
    """Package, tests, docs, notebooks and what builds and tests them; no build's or cache's leavings."""
    with tarfile.open(built.sdist) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
    assert {member.name.partition("/")[0] for member in members} == {built.sdist.name.removesuffix(".tar.gz")}
    assert all((member.uid, member.gid, member.mode & 0o777) == (0, 0, 0o644) for member in members)
    found = {member.name.partition("/")[2] for member in members} - {"PKG-INFO"}
    assert found == _tracked(found)
    assert built.sdist.stat().st_size < LARGEST
    assert built.wheel.stat().st_size < LARGEST


def _tracked(found: set[str]) -> set[str]:
    """What a release of this folder should hold: all that git would keep, but for what serves the repository alone."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, text=True, check=False)  # fmt: skip
    if listed.returncode:  # unpacked from an sdist: there is no git to ask
        return found
    kept = {path for path in listed.stdout.split("\0") if path and (ROOT / path).is_file()}
    return {path for path in kept if not path.startswith(".ci/")}
