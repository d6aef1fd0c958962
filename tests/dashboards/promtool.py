"""Prometheus' own tool as a judge: series that are made up, expressions and alerts that are to hold."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.dashboards.contract import ENGINE, METRICS, Metric, selector

TARGET = {"instance": "host:9475", "job": "vllm"}
MINUTES = 120

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (prometheus)")


def series(changed: Mapping[str, list[Metric]] = METRICS) -> list[dict[str, str]]:
    """Every metric of the contract, those in ``changed`` with its values, as they would be scraped each minute."""
    made = []
    for name, samples in {**METRICS, **changed}.items():
        for sample in samples:
            labels = {**TARGET, **ENGINE, **sample.labels}
            values = f"{sample.value:g}+{sample.per_minute:g}x{MINUTES}"
            made.append({"series": f"{name}{selector(labels)}", "values": values})
    return made


def judge(folder: Path, tests: Iterable[dict[str, Any]], rules: Path | None = None) -> str:
    """What promtool has to say against ``tests``; nothing if they hold."""
    path = folder / "tests.yml"
    files = [] if rules is None else [str(rules)]
    path.write_text(json.dumps({"rule_files": files, "tests": list(tests)}))  # JSON is YAML
    done = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True, timeout=60)
    return "" if done.returncode == 0 else done.stdout + done.stderr
