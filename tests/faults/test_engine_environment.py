"""Rubbish in the environment: vLLM's scheduler starts and serves, adaptk works or says in one line why it does not."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adaptk.tracefile import header_line
from adaptk.vllm_plugin import patches
from adaptk.vllm_plugin.start import StartError
from adaptk.vllm_plugin.steering import Steering
from tests.engine.conftest import Lines
from tests.engine.driver import build_config, build_scheduler
from tests.faults.driven import K_MAX, Engine

NUMBERS = (
    *("nan", "inf", "-1", "1e999", "9" * 5000, "0x10", "1.5.2", "½", "٣", "1_0", "--", "None", "[]", "{}"),
    *("\t7\n8", "7;8", "$(id)", "%s%n", "on", "\x1b[31m7", "a" * 100_000),
)
VARIABLES = (
    *("ADAPTK", "ADAPTK_ARMS", "ADAPTK_MIN_K", "ADAPTK_MAX_ITL_MS", "ADAPTK_BUDGET", "ADAPTK_SEED"),
    *("ADAPTK_METRICS_PORT", "ADAPTK_METRICS_HOST", "ADAPTK_ALLOW_MISMATCH", "ADAPTK_STRICT", "ADAPTK_TRACE_MAX_MB"),
    *("ADAPTK_", "ADAPTK_BUGDET", "ADAPTK_Ünicode", "ADAPTK_TABLE_", "ADAPTKX"),
)
PATHS = ("ADAPTK_TABLE", "ADAPTK_TRACE", "ADAPTK_CONTROL", "ADAPTK_STATE")


@pytest.fixture(autouse=True)
def _patched() -> Iterator[None]:
    """vLLM's configuration as adaptk's plugin leaves it."""
    patches.apply()
    yield
    patches.remove()


def served(model: Path, log: Lines) -> Steering | None:
    """Start as an engine does and have two requests answered; what adaptk did, ``None`` where it was not asked.

    Of whatever it was given, it has told once why it is inactive, if it is; nothing of it failed, no thread is left.
    """
    before = set(threading.enumerate())
    began = time.monotonic()
    config = build_config(model, k_max=K_MAX)
    scheduler = build_scheduler(config.scheduler_config.get_scheduler_cls(), config)
    steering: Any = scheduler.__dict__.get("adaptk")
    engine = Engine.__new__(Engine)
    if steering is None:
        scheduler.adaptk = Steering(None)  # of which the driver only holds the name
    engine.__init__(model, scheduler)  # type: ignore[misc]
    engine.add(2, tokens=10)
    engine.serve()
    engine.check()
    assert time.monotonic() - began < 20.0
    if steering is None or not steering.active:
        assert set(engine.ks) == {K_MAX}
        assert len(log.having("inactive")) == 1 or not log.lines
    assert steering is None or steering.faults == 0
    assert all("Traceback" not in line and len(line) < 20_000 for line in log.lines)
    assert all(line.isprintable() or "\x1b" not in line for line in log.lines)
    scheduler.shutdown()
    until = time.monotonic() + 10.0
    while any(thread.is_alive() for thread in set(threading.enumerate()) - before):
        assert time.monotonic() < until
        time.sleep(0.01)
    return steering


@pytest.mark.parametrize("variable", VARIABLES)
def test_values_that_are_none(
    model: Path, log: Lines, monkeypatch: pytest.MonkeyPatch, variable: str, tmp_path: Path
) -> None:
    """Of every variable, and of such as are no variable of adaptk's."""
    monkeypatch.chdir(tmp_path)
    for value in NUMBERS:
        log.lines.clear()
        with monkeypatch.context() as patch:
            patch.setenv("ADAPTK", "on")
            patch.setenv(variable, value)
            served(model, log)
    assert list(tmp_path.iterdir()) == []


def odd_paths(folder: Path) -> Iterator[Path | str]:
    """What stands where a file should be, or cannot stand anywhere."""
    (folder / "folder").mkdir()
    yield folder / "folder"
    os.mkfifo(folder / "pipe")
    yield folder / "pipe"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
        yield folder / "socket"
    yield from ("/dev/zero", "/dev/full", "/dev/null", "/dev/tty", "/proc/self/mem", "/proc/self/environ", "/proc/1/x")
    (folder / "loop").symlink_to(folder / "loop")
    yield folder / "loop"
    (folder / "dangling").symlink_to(folder / "nowhere" / "file")
    yield folder / "dangling"
    yield folder / "no" / "such" / "folder" / "file"
    yield folder / ("x" * 300)
    yield folder / "file" / "in a file"
    yield str(folder) + "/" + "y/" * 3000
    yield folder / "{rank}{0}%s{self.__class__}"
    yield "\udcff\udcfe"  # bytes that are no text


@pytest.mark.parametrize("variable", PATHS)
def test_paths_that_are_none(
    model: Path, log: Lines, monkeypatch: pytest.MonkeyPatch, variable: str, tmp_path: Path
) -> None:
    """Folders, pipes, sockets, devices, loops: none is waited for, read to its end, replaced or taken away."""
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / "file").write_text("keep me")
    monkeypatch.chdir(folder)
    for path in odd_paths(folder):
        before = {p.name: p.lstat().st_ino for p in folder.iterdir()}
        log.lines.clear()
        with monkeypatch.context() as patch:
            patch.setenv("ADAPTK", "on")
            patch.setenv(variable, str(path))
            steering = served(model, log)
        assert steering is not None
        assert steering.active or variable == "ADAPTK_TABLE", (path, steering.reason)
        after = {p.name: p.lstat().st_ino for p in folder.iterdir()}
        assert before.items() <= after.items(), path
        assert (folder / "file").read_text() == "keep me"


@pytest.mark.parametrize("variable", ["ADAPTK_TABLE", "ADAPTK_STATE", "ADAPTK_CONTROL"])
@pytest.mark.parametrize("content", ["vast", "deep", "binary", "empty", "foreign"])
def test_files_that_are_none(
    model: Path, log: Lines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, content: str
) -> None:
    """A gigabyte, brackets nested a million deep, bytes, nothing, something else: refused at once and told once."""
    path = tmp_path / "file"
    with path.open("wb") as file:
        if content == "vast":
            file.truncate(2**30)
        file.write({"deep": b"[" * 1_000_000, "binary": bytes(range(256)), "foreign": b'{"a": 1}'}.get(content, b""))
    monkeypatch.setenv("ADAPTK", "on")
    monkeypatch.setenv(variable, str(path))
    steering = served(model, log)
    assert steering is not None
    assert steering.active is (variable != "ADAPTK_TABLE")
    assert path.exists() or variable == "ADAPTK_STATE"


@pytest.mark.parametrize(
    ("one", "other"),
    [("ADAPTK_TABLE", "ADAPTK_TRACE"), ("ADAPTK_TRACE", "ADAPTK_STATE"), ("ADAPTK_STATE", "ADAPTK_CONTROL")],
)
@pytest.mark.parametrize("there", [True, False])
def test_two_variables_with_one_file(
    model: Path, log: Lines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, one: str, other: str, there: bool
) -> None:
    """It is told in one line, however they are spelled, and nothing is written; under strict the start is refused."""
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to("file")
    if there:  # what a trace would move aside, and a state replace
        Path("file").write_bytes(header_line({}) if "ADAPTK_TRACE" in (one, other) else b"on\n")
    before = {p.name: (p.lstat().st_ino, p.lstat().st_mtime_ns) for p in tmp_path.iterdir()}
    monkeypatch.setenv("ADAPTK", "on")
    monkeypatch.setenv(one, str(tmp_path / "file"))
    monkeypatch.setenv(other, "link")
    steering = served(model, log)
    assert steering is not None
    assert not steering.active
    [line] = log.having("inactive")
    assert f"{one}='{tmp_path / 'file'}' and {other}='link' are one file: give each a path of its own" in line
    assert {p.name: (p.lstat().st_ino, p.lstat().st_mtime_ns) for p in tmp_path.iterdir()} == before
    monkeypatch.setenv("ADAPTK_STRICT", "1")
    with pytest.raises(StartError, match="are one file"):
        served(model, log)


def test_an_entry_that_is_none(model: Path, log: Lines) -> None:
    """Where the settings stand in vLLM's additional_config: no text, bytes without end, objects in each other."""
    ring: dict[str, Any] = {}
    ring["table"] = ring
    for entry in ("on", 7, None, [], {"table": "a\0b"}, {"arms": [1, [2]]}, {"seed": -1}, ring, {"": {}}, {1: 2}):
        log.lines.clear()
        config = build_config(model, k_max=K_MAX)
        config.scheduler_config.__dict__["_adaptk_asked"] = {"options": entry, "environment": {}}
        scheduler = build_scheduler(config.scheduler_config.get_scheduler_cls(), config)
        if "adaptk" not in scheduler.__dict__:
            scheduler.adaptk = Steering(None)
        engine = Engine(model, scheduler)
        engine.add(2, tokens=10)
        engine.serve()
        engine.check()
        assert len(log.having("inactive")) == 1, entry
