"""The version stands in one place, and whatever repeats it says the same."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from datetime import date

import pytest
import yaml

import adaptk
from adaptk._version import __version__
from tests.packaging.distributions import ROOT


def test_it_is_taken_from_one_module() -> None:
    """Which the build reads, and the package and its command repeat."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in settings["project"]["dynamic"]
    assert settings["tool"]["hatch"]["version"]["path"] == "adaptk/_version.py"
    assert adaptk.__version__ == __version__
    said = subprocess.run([sys.executable, "-m", "adaptk", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["adaptk", __version__]


def test_it_is_a_release_or_says_that_it_is_none() -> None:
    """As PEP 440 writes it, three numbers and perhaps a stage."""
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?(\.dev\d+)?", __version__)


def test_citations_name_it() -> None:
    """The file for machines and the README's entry."""
    assert str(yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]) == __version__
    (cited,) = re.findall(r"^  version = \{(.*)\},$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert cited == __version__


def test_the_changelog_begins_with_it() -> None:
    """Dated, or not yet released; releases below are older."""
    entries = re.findall(r"^## \[(.*?)\] - (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    version, when = entries[0]
    assert version == __version__
    assert when == "unreleased" or date.fromisoformat(when)
    numbers = [tuple(int(part) for part in entry.split(".")) for entry, _ in entries]
    assert numbers == sorted(numbers, reverse=True)


@pytest.mark.parametrize("page", ["README.md", "docs/measurements.md", "CONTRIBUTING.md"])
def test_no_page_names_another_one(page: str) -> None:
    """Where adaptk's own log line is shown, it is this version's."""
    shown = re.findall(r"\badaptk (\d+\.\d+\.\d+)\b", (ROOT / page).read_text())
    assert set(shown) <= {__version__}
