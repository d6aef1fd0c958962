"""Which files adaptk opens in an engine's process, and with which rights: those that it was told to, and no others."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed", allow_module_level=True)

from tests.engine.conftest import model

__all__ = ["model"]
pytestmark = pytest.mark.engine
_ROOT = Path(__file__).parents[2]
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_SCRATCH = re.compile(r"state\.json\.[0-9a-f]{8}\.tmp")


class Found:
    """What a run opened, and what it left."""

    def __init__(self, model: Path, folder: Path) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "tests.security.auditing", str(model), str(folder)]
        env = {name: value for name, value in os.environ.items() if not name.startswith("ADAPTK")}
        done = subprocess.run(command, capture_output=True, text=True, cwd=_ROOT, timeout=300, check=True, env=env)
        told = json.loads(done.stdout.splitlines()[-1])
        self.folder, self.url = folder, told["url"]
        self.sound = told["active"] and told["faults"] == 0
        self.seen: list[dict[str, Any]] = told["seen"]
        # What has a number in place of a name is a file that was opened before.
        named = [arguments for arguments in self.of("open") if isinstance(arguments[0], str)]
        self.opened = [(self.name(path), flags) for path, _, flags in named]

    def name(self, path: Any) -> str:
        """A path below the folder by its name alone."""
        text = str(path)
        return text.removeprefix(f"{self.folder}/")

    def of(self, event: str) -> list[list[Any]]:
        return [entry["arguments"] for entry in self.seen if entry["event"] == event]


@pytest.fixture(scope="module")
def found(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """Of one run with a table, a trace, a state, a control file and metrics."""
    return Found(model, tmp_path_factory.mktemp("opened"))


def test_the_run_was_one(found: Found) -> None:
    """Steps were decided and recorded, or what follows would say nothing."""
    assert found.sound
    assert (found.folder / "trace.jsonl").read_bytes().count(b"\n") == 121
    assert json.loads((found.folder / "state.json").read_bytes())["kind"] == "adaptk-state"
    assert {"table.json", "mode", "trace.jsonl"} <= {name for name, _ in found.opened}


def test_what_is_only_read_is_opened_for_reading(found: Found) -> None:
    """Table and control file: no creation, no writing, no truncation; the table may be read-only."""
    flags = [flags for name, flags in found.opened if name in ("table.json", "mode")]
    assert flags
    assert not any(each & _WRITES for each in flags)


def test_only_what_was_named_is_opened_for_writing(found: Found) -> None:
    """The trace, the state's lock, and the state under a name of its own until it is whole; none through a link."""
    writing = [(name, flags) for name, flags in found.opened if flags & _WRITES]
    assert {name if not _SCRATCH.fullmatch(name) else "scratch" for name, _ in writing} == {
        "trace.jsonl", "state.json.lock", "scratch",
    }  # fmt: skip
    for name, flags in writing:
        assert flags & (os.O_EXCL | os.O_NOFOLLOW), name
        assert flags & os.O_CLOEXEC, name


def test_files_are_for_their_owner_alone_or_readable_as_others_are(found: Found) -> None:
    """State and lock for nobody else; the trace never writable for others, nor anything executable."""
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in found.folder.iterdir()}
    assert modes["state.json"] == modes["state.json.lock"] == 0o600
    assert modes["trace.jsonl"] & 0o133 == 0


def test_nothing_else_is_done(found: Found) -> None:
    """One address is bound, on this machine; nothing is called, started, unpickled or made elsewhere."""
    assert {entry["event"] for entry in found.seen} <= {"open", "os.rename", "os.remove", "socket.bind"}
    bound = [json.dumps(arguments[1]) for arguments in found.of("socket.bind")]
    assert len(bound) == 1
    assert "127.0.0.1" in bound[0]
    assert found.url.startswith("http://127.0.0.1:")
    for old, new, *_ in found.of("os.rename"):
        assert _SCRATCH.fullmatch(found.name(old))
        assert found.name(new) == "state.json"
    for path, *_ in found.of("os.remove"):
        assert str(path).startswith(f"{found.folder}/state.json")
