"""``adaptk doctor`` as a user starts it, on the real engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from adaptk.cli.main import main
from adaptk.vllm_plugin import compat
from tests.engine import versions


def test_this_vllm_fits(capsys: pytest.CaptureFixture[str]) -> None:
    """Two lines and status 0, by the hooks that adaptk really uses."""
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == 2
    assert shown.endswith(f"vLLM {compat.vllm_version()}: every hook that adaptk needs is there\n")


def test_two_real_engines_side_by_side(model: Path, tmp_path: Path) -> None:
    """In a process of its own, without a terminal: every K has a ratio to the engine without a drafter."""
    versions.need_engine()
    speculation = {"method": "draft_model", "model": str(model), "num_speculative_tokens": 3}
    file = tmp_path / "d.json"
    command = [sys.executable, "-m", "adaptk.cli.main", "doctor", "--measure", str(model), "--json", str(file)]
    command += ["--budget", "5", "--batches", "4", "--arms", "0,3", "--speculative-config", json.dumps(speculation)]
    command += ["--dtype", "float32", "--max-model-len", "256", "--max-num-seqs", "4", "--enforce-eager"]
    command += ["--gpu-memory-utilization", "0.3"]
    env = {name: value for name, value in os.environ.items() if name != "VLLM_ENABLE_V1_MULTIPROCESSING"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    held = json.loads(file.read_bytes())
    assert held["side_by_side"] is True
    rows = {row["k"]: row for row in held["rows"]}
    assert set(rows) == {None, 0, 3}
    assert all(row["ratio"]["value"] > 0 for row in rows.values())
    assert held["acceptance"][0] > 0.9  # the drafter is the target itself
    assert "Batch 4: " in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if str(file) not in line) <= 80
