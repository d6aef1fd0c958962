"""JSON, YAML and other files that the pages show, and the pages' links and figure."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from adaptk import GoodputTable, Settings, __version__
from tests.docs.documents import PAGES, ROOT, Block, anchors, blocks, links, prose, read

LANGUAGES = {"sh", "python", "json", "yaml", "text", "bibtex", "dockerfile", "promql"}
FIGURE = ROOT / "docs/how-it-decides.svg"


def test_every_block_has_a_language_that_is_checked() -> None:
    """No block is of a kind that no test looks at."""
    assert {block.language for block in blocks()} <= LANGUAGES


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_json_is_a_table_that_loads(block: Block, tmp_path: Path) -> None:
    """The only JSON shown is a table."""
    path = tmp_path / "table.json"
    path.write_text(block.text)
    assert GoodputTable.load(path).best_k(1) in (0, 1, 3)


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_yaml_is_part_of_the_manifest(block: Block) -> None:
    """What is shown stands in docs/kubernetes.yaml, too, with the same values."""
    template = _manifest("Deployment")["spec"]["template"]
    assert _within(yaml.safe_load(block.text), template)


def test_the_manifest_serves_metrics_where_they_are_scraped() -> None:
    """Port, annotations, monitor, service and network policy agree, and the variables are settings."""
    deployment, policy = (_manifest(kind) for kind in ("Deployment", "NetworkPolicy"))
    monitor, service = _manifest("PodMonitor", "docs/kubernetes-podmonitor.yaml"), _manifest("Service")
    pod = deployment["spec"]["template"]
    container = pod["spec"]["containers"][0]
    settings = Settings.from_env({entry["name"]: entry["value"] for entry in container["env"]})
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert settings.metrics_host == "0.0.0.0"
    assert settings.metrics_port == ports["adaptk-metrics"]
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(settings.metrics_port)
    assert [end["port"] for end in monitor["spec"]["podMetricsEndpoints"]] == ["adaptk-metrics"]
    allowed = {port["port"]: "from" in rule for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    assert allowed == {ports["http"]: False, ports["adaptk-metrics"]: True}
    labels = pod["metadata"]["labels"]
    for selector in (deployment["spec"]["selector"], monitor["spec"]["selector"], policy["spec"]["podSelector"]):
        assert selector["matchLabels"] == labels
    assert service["spec"]["selector"] == labels
    assert {port["targetPort"] for port in service["spec"]["ports"]} == {"http"}
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    paths = (settings.control, settings.trace, settings.state)
    assert {str(Path(path).parent) for path in paths if path} <= mounts


def test_the_manifest_lets_the_state_be_saved() -> None:
    """It has a path for each rank, and vLLM time for its engine to end before Kubernetes kills both."""
    pod = _manifest("Deployment")["spec"]["template"]["spec"]
    container = pod["containers"][0]
    settings = Settings.from_env({entry["name"]: entry["value"] for entry in container["env"]})
    assert settings.state
    assert "{rank}" in settings.state
    words = container["args"]
    seconds = int(words[words.index("--shutdown-timeout") + 1])
    assert 10 <= seconds <= pod.get("terminationGracePeriodSeconds", 30) - 5


def test_the_image_is_of_the_version_that_is_tested() -> None:
    """Its vLLM is that of the Makefile, and the extra that it installs is there."""
    (block,) = blocks("dockerfile")
    version = re.search(r"^VLLM_CPU := (\S+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert version
    assert f":v{version[1]}\n" in block.text
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"\[(\w+)\]", block.text)) <= set(extras)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """To a file that is there, and to a heading in it."""
    for link in links(page):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        assert target.exists(), f"{page}: {link}"
        if anchor:
            assert anchor in anchors(str(target.relative_to(ROOT))), f"{page}: {link}"


@pytest.mark.parametrize("page", PAGES)
def test_files_named_in_the_text_exist(page: str) -> None:
    """A path in backticks that begins with a folder of this one is there."""
    for path in re.findall(r"`((?:adaptk|tests|docs|notebooks)/[\w./-]+)`", prose(page)):
        assert (ROOT / path).exists(), f"{page}: {path}"


@pytest.mark.parametrize("page", PAGES)
def test_lines_are_short_enough_to_read(page: str) -> None:
    """Sentences and commands are wrapped at about 100 columns; tables and links may be longer."""
    shown = [line for block in blocks("sh", "yaml") if block.page == page for line in block.text.splitlines()]
    for line in (*prose(page).splitlines(), *shown):
        assert len(line) <= 110 or line.startswith("|") or "](" in line, f"{page}: {line}"


def test_the_figure_can_be_drawn_again(tmp_path: Path) -> None:
    """Its script draws it from adaptk's own code: the same words and as many curves, in both colour schemes."""
    out = tmp_path / "drawn.svg"
    subprocess.run([sys.executable, ROOT / "docs/draw_how_it_decides.py", out], check=True, cwd=ROOT)
    drawn, kept = out.read_text(), FIGURE.read_text()
    words = re.compile(r"<text[^>]*>([^<]*)</text>")
    assert words.findall(drawn) == words.findall(kept)
    assert "prefers-color-scheme:dark" in kept
    assert not re.search(r"(?:stroke|fill): #", kept)
    assert "<title>" in kept


def test_the_version_is_said_once() -> None:
    """In the changelog, in the citation and in the README's BibTeX entry."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    assert {"cff-version", "message", "title", "authors", "type", "license"} <= set(citation)
    assert f"version = {{{__version__}}}" in blocks("bibtex")[0].text
    assert f"[{__version__}]" in read("CHANGELOG.md")


def _manifest(kind: str, file: str = "docs/kubernetes.yaml") -> Any:
    """The part of this kind of a manifest."""
    parts = yaml.safe_load_all((ROOT / file).read_text())
    return json.loads(json.dumps(next(part for part in parts if part["kind"] == kind)))


def _within(part: Any, whole: Any) -> bool:
    """Whether everything in ``part`` stands in ``whole``: fields by name, list entries in any place."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(name in whole and _within(v, whole[name]) for name, v in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and all(any(_within(entry, other) for other in whole) for entry in part)
    return bool(part == whole)
