"""vLLM's scheduler goes on, and is steered as before, whatever becomes of its trace."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

import adaptk.trace
from adaptk import Settings
from adaptk.trace import read_trace
from adaptk.vllm_plugin.start import StartError
from tests.engine.conftest import Lines
from tests.faults.disks import wait_for
from tests.faults.driven import Engine

LOAD = 12


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptk.trace, "_POLL_S", 0.01)
    monkeypatch.setattr(adaptk.trace, "_RETRY_S", 0.05)


def served(engine: Engine) -> Engine:
    """After all its requests were answered."""
    engine.add(LOAD)
    engine.serve()
    engine.check()
    return engine


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("place", ["no/such/folder/t.jsonl", "link", "folder", "/proc/t.jsonl"])
def test_a_trace_that_cannot_be_made(
    model: Path, tmp_path: Path, log: Lines, place: str, asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """adaptk works without one and says so once; under strict the start is refused."""
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("link").symlink_to("nowhere")
    settings = Settings(mode="on", trace=place)
    engine = served(Engine(model, settings=settings, asynchronous=asynchronous))
    assert engine.steering.active
    assert engine.steering.writer is None
    assert sum("adaptk writes no trace: " in line for line in log.lines) == 1
    assert not Path("nowhere").exists()
    engine.scheduler.shutdown()
    with pytest.raises(StartError, match="adaptk cannot start"):
        Engine(model, settings=Settings(mode="on", trace=place, strict=True), asynchronous=asynchronous)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_disk_that_fails_while_it_serves(
    model: Path, tmp_path: Path, asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request gets its text, the trace has every step once the disk takes them, and nothing stood down."""
    path = tmp_path / "t.jsonl"
    engine = Engine(model, settings=Settings(mode="on", trace=str(path)), asynchronous=asynchronous)
    served(engine)
    writer, real = engine.steering.writer, os.write
    assert wait_for(lambda: writer.rows == len(engine.ks))

    def full(fd: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    served(engine)
    assert wait_for(lambda: writer.failed >= 2)
    monkeypatch.setattr(os, "write", real)
    served(engine)
    engine.scheduler.shutdown()
    rows = read_trace(path).rows
    assert [row.step.k for row in rows] == engine.ks
    assert [row.decision.seq for row in rows if row.decision is not None] == list(range(len(engine.ks)))
    assert (engine.steering.faults, writer.dropped) == (0, 0)
    assert engine.steering.active


def test_rows_that_are_dropped_are_counted(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps that are not in the trace are as many as the counter says."""
    engine = Engine(model, settings=Settings(mode="on", trace=str(tmp_path / "t.jsonl")))
    writer = engine.steering.writer
    writer._max_pending = 5
    real = os.write

    def full(fd: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    served(engine)
    assert wait_for(lambda: writer.dropped > 0)
    monkeypatch.setattr(os, "write", real)
    engine.scheduler.shutdown()
    rows = read_trace(tmp_path / "t.jsonl").rows
    assert len(rows) == writer.rows
    assert writer.rows + writer.dropped == len(engine.ks)
