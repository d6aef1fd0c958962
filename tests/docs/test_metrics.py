"""The metrics that the pages name are those that an engine serves."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from adaptk.vllm_plugin.metrics.names import BASE, BY_NAME, METRICS
from tests.docs.documents import PAGES, blocks, read

PAGE = "docs/metrics.md"
LABELS = {"batch", "k", "position", "policy", "cause", *BASE}


def test_the_page_has_a_row_for_each() -> None:
    """With its kind, labels and meaning, in the same order."""
    rows = re.findall(r"^\| `(adaptk_\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", read(PAGE), re.MULTILINE)
    said = [(name, kind, tuple(re.findall(r"`(\w+)`", labels)), meaning) for name, kind, labels, meaning in rows]
    assert said == [tuple(metric) for metric in METRICS]


@pytest.mark.parametrize("page", PAGES)
def test_every_name_is_served(page: str) -> None:
    """No page names a metric that there is not; the names of packages and files apart."""
    for name in re.findall(r"\b(adaptk_[a-z0-9_]+[a-z0-9])\b(?![./])", read(page)):
        assert name in BY_NAME or name == "adaptk_maintainers", f"{page}: {name}"


def test_queries_are_of_prometheus(tmp_path: Path) -> None:
    """They group by labels that there are, and Prometheus's own tool, where it is installed, reads each."""
    queries = [line for block in blocks("promql") for line in block.text.splitlines()]
    assert queries
    for query in queries:
        grouped = re.findall(r"by \((.*?)\)", query)
        assert {label.strip() for part in grouped for label in part.split(",")} <= LABELS
    if shutil.which("promtool"):
        rules = [{"record": f"query_{i}", "expr": query} for i, query in enumerate(queries)]
        path = tmp_path / "rules.yml"
        path.write_text(yaml.safe_dump({"groups": [{"name": "page", "rules": rules}]}))
        done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
