"""Forks, other start methods and odd surroundings: a process of its own each, as a user's program would be one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from adaptk.statefile import read_state
from adaptk.trace import read_trace

ROOT = Path(__file__).parents[2]


def run(model: Path, folder: Path, module: str, *python: str, **surroundings: str | None) -> dict[str, Any]:
    """What a program of ``tests.faults`` said last; ``surroundings`` are variables, ``None`` for none."""
    env = {name: text for name, text in os.environ.items() if not name.startswith("ADAPTK")}
    env |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    env.pop("PYTHONUNBUFFERED", None)
    for name, text in surroundings.items():
        env.pop(name, None)
        if text is not None:
            env[name] = text
    command = [sys.executable, *python, "-m", f"tests.faults.{module}", str(model), str(folder)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False, cwd=folder)
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-4000:])
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("SAID ")]
    said: dict[str, Any] = json.loads(line.removeprefix("SAID "))
    return said


def test_a_running_engine_is_forked(model: Path, tmp_path: Path) -> None:
    """Six children serve on, change the mode, shut down and end in their own ways; two pools fork and spawn.

    The parent loses no request and no step: its trace, state, metrics, control and threads are its own.
    """
    said = run(model, tmp_path, "forking")
    assert said["ended"] == [0, 15, 0, 0, 0, 0]
    assert said["workers"] >= 2
    assert said["faults"] == 0
    assert said["mode"] == "off"
    assert said["threads"] == []
    assert said["steps"] == said["counted"] > 60
    trace = read_trace(tmp_path / "trace.jsonl")
    assert len(trace.rows) == said["steps"]
    assert [row.decision.seq for row in trace.rows if row.decision] == list(range(said["steps"]))
    assert read_state(tmp_path / "state.json").snapshot["counters"]["steps"] == said["steps"]
    assert {path.name for path in tmp_path.iterdir()} <= {"mode", "trace.jsonl", "state.json", "state.json.lock"}


def test_odd_surroundings(model: Path, tmp_path: Path) -> None:
    """All at once: no home, a temporary folder that is not there, rubbish for a locale, no asserts, standard streams
    closed, a umask that takes all rights from others.

    It serves, steers, and writes its trace and its state, which nobody else may read.
    """
    said = tmp_path / "said"
    (tmp_path / "out").mkdir()
    surroundings = {"HOME": "/nonexistent", "TMPDIR": "/nonexistent", "LANG": "xx_YY.no-such", "LC_ALL": "C"}
    odd = {"PYTHONHASHSEED": "12345", "COLUMNS": "-1", "TERM": "\x1b", "TZ": "Nowhere/Else"}
    env = {name: text for name, text in os.environ.items() if not name.startswith(("ADAPTK", "PYTHON", "XDG"))}
    env |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "PYTHONPATH": str(ROOT), "SAID": str(said), **surroundings, **odd}
    words = [sys.executable, "-W", "ignore", "-m", "tests.faults.oddly", str(model), str(tmp_path / "out")]
    closed = ["sh", "-c", 'umask 077; exec "$@" <&- >&- 2>&-', "sh", *words]
    done = subprocess.run(closed, env=env, timeout=300, check=False, cwd=tmp_path)
    assert done.returncode == 0
    told = json.loads(said.read_text().removeprefix("SAID "))
    assert told["faults"] == 0
    assert told["active"] is True
    assert len(told["ks"]) > 1
    assert len(read_trace(tmp_path / "out" / "trace.jsonl").rows) == told["steps"] > 20
    for name in ("trace.jsonl", "state.json"):
        assert (tmp_path / "out" / name).stat().st_mode & 0o077 == 0
