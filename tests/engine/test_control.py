"""The control file: what an operator writes there becomes the mode of a running engine, off the step."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from adaptk import Settings
from adaptk.settings import Mode
from adaptk.vllm_plugin import adaptive, capture, compat, control
from adaptk.vllm_plugin.control import Control, Look
from tests.engine.conftest import Lines
from tests.engine.driver import Worker, build_config, build_scheduler, cycling, make_request


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Looks come quickly, and no thread outlives its test."""
    monkeypatch.setattr(control, "PERIOD_S", 0.01)
    yield
    if threads():  # of engines that nobody shut down; with torch in the process a collection takes a second and more
        gc.collect()
    until(lambda: not threads())


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "adaptk-control"]


def until(holds: Callable[[], object]) -> None:
    """Wait for another thread; an error after far more time than it can need."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.005)


class Steered:
    """What a control needs of a steering."""

    def __init__(self, mode: Mode = "on") -> None:
        self.mode = mode
        self.active = True


class TestLook:
    @pytest.mark.parametrize(
        ("content", "mode"),
        [
            (b"shadow", "shadow"),
            (b"off\n", "off"),
            (b" Shadow\r\n", "shadow"),
            (b"0", "off"),
            (b"on", "on"),
            (b"\xef\xbb\xbfoff", "off"),
        ],
    )
    def test_a_mode_is_followed(self, tmp_path: Path, content: bytes, mode: str) -> None:
        """As the settings spell it, whatever an editor put around it."""
        path, seen = tmp_path / "mode", Steered()
        path.write_bytes(content)
        Look(path, "on", None)(seen)
        assert seen.mode == mode

    def test_each_switch_is_one_line(self, tmp_path: Path, log: Lines) -> None:
        """However often the file is looked at, also where it comes and goes."""
        path, seen = tmp_path / "mode", Steered("shadow")
        look = Look(path, "shadow", None)
        for content in (None, b"on", b"off", None):
            path.write_bytes(content) if content else path.unlink(missing_ok=True)
            look(seen)
            look(seen)
        assert seen.mode == "shadow"
        assert [line.partition(":")[0] for line in log.lines] == [
            "INFO adaptk goes from mode shadow to on",
            "INFO adaptk goes from mode on to off",
            "INFO adaptk goes from mode off to shadow",
        ]

    @pytest.mark.parametrize("content", [b"", b"\n", b"yes", b"\xff\xfe", b"on off", b"o" * 100_000, "än".encode()])
    def test_what_is_no_mode_leaves_it_and_is_told_once(self, tmp_path: Path, log: Lines, content: bytes) -> None:
        """Once for each content, also where another one came between; not for what is gone at the next look."""
        path, seen = tmp_path / "mode", Steered("shadow")
        look = Look(path, "on", None)
        path.write_bytes(content)
        look(seen)
        assert not log.lines
        for _ in range(3):
            look(seen)
        path.write_bytes(b"off")
        look(seen)
        path.write_bytes(content)
        for _ in range(3):
            look(seen)
        assert seen.mode == "off"
        assert len(log.having("WARNING")) == 1
        assert "write on, shadow or off" in log.having("WARNING")[0]

    def test_what_cannot_be_read_leaves_it(self, tmp_path: Path, log: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
        """A folder, a pipe, whose reader would wait for ever, or a disk that fails."""
        seen = Steered("shadow")
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path, tmp_path / "pipe"):
            look = Look(path, "on", None)
            look(seen)
            look(seen)

        def fail(*_: Any, **__: Any) -> Any:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr("adaptk.inputs.os.fdopen", fail)
            (tmp_path / "mode").write_text("on")
            look = Look(tmp_path / "mode", "on", None)
            look(seen)
            look(seen)
        assert seen.mode == "shadow"
        assert len(log.having("is no regular file")) == 2
        assert len(log.having("cannot be read (Input/output error)")) == 1

    def test_on_is_refused_where_it_has_a_price(self, tmp_path: Path, log: Lines) -> None:
        """One line names it, and the mode stays; off and shadow can be had, and asking anew is answered anew."""
        path, seen = tmp_path / "mode", Steered("shadow")
        look = Look(path, "shadow", "the price")
        for content in (b"on", b"on", b"off", b"on"):
            path.write_bytes(content)
            look(seen)
        assert seen.mode == "off"
        assert len(log.having("the price")) == 2


class TestThread:
    def test_it_follows_the_file_until_it_is_stopped(self, tmp_path: Path) -> None:
        """The first look is taken before the first step."""
        path, seen = tmp_path / "mode", Steered()
        path.write_text("shadow")
        one = Control(path, seen)
        assert seen.mode == "shadow"
        path.write_text("off")
        until(lambda: seen.mode == "off")
        one.stop()
        one.stop()
        until(lambda: not threads())
        path.write_text("on")
        time.sleep(0.05)
        assert seen.mode == "off"

    def test_it_ends_with_its_steering(self, tmp_path: Path) -> None:
        """Gone, or stood down; each of several goes its own way."""
        gone, down, kept = Steered(), Steered(), Steered()
        controls = [Control(tmp_path / name, s) for name, s in (("a", gone), ("b", down), ("c", kept))]
        assert len(threads()) == 3
        del gone
        until(lambda: len(threads()) == 2)
        down.active = False
        until(lambda: len(threads()) == 1)
        (tmp_path / "b").write_text("off")
        (tmp_path / "c").write_text("off")
        until(lambda: kept.mode == "off")
        assert down.mode == "on"
        controls[2].stop()

    def test_a_fault_of_its_own_ends_nothing_else(self, tmp_path: Path, log: Lines, monkeypatch: Any) -> None:
        """Whatever goes wrong in the thread, the mode stays and it is told once."""
        seen = Steered()
        one = Control(tmp_path / "mode", seen)

        def fail(*_: Any) -> Any:
            raise RuntimeError("unforeseen")

        monkeypatch.setattr(control, "read", fail)
        until(lambda: not threads())
        assert seen.mode == "on"
        assert len(log.having("ERROR")) == 1
        one.stop()


class TestEngine:
    @staticmethod
    def scheduler(model: Path, path: Path, mode: Mode = "on") -> Any:
        settings = Settings(mode=mode, control=str(path))
        cls = adaptive(Scheduler, controller=cycling((1,)), settings=settings)
        return build_scheduler(cls, build_config(model))

    def test_a_running_scheduler_changes_with_the_next_step(self, model: Path, tmp_path: Path) -> None:
        """On is the controller's K, shadow and off are vLLM's; off asks the controller nothing."""
        path = tmp_path / "mode-0"
        scheduler = self.scheduler(model, tmp_path / "mode-{rank}")
        worker = Worker(scheduler, 0, asynchronous=False)
        scheduler.add_request(make_request("a", 5, 60))
        policy = scheduler.adaptk.controller
        taken = []
        for mode in ("on", "shadow", "off", "on"):
            path.write_text(mode)
            until(lambda mode=mode: scheduler.adaptk.mode == mode)
            for _ in range(2):
                before = len(policy.chosen)
                output = worker.schedule()
                worker.update()
                taken.append((mode, output.num_spec_tokens_to_schedule, len(policy.chosen) - before))
        each = (("on", 1, 1), ("shadow", 7, 1), ("off", 7, 0), ("on", 1, 1))
        assert taken == [step for step in each for _ in range(2)]
        scheduler.shutdown()
        until(lambda: not threads())

    def test_a_scheduler_that_nobody_shut_down_takes_its_thread_along(self, model: Path, tmp_path: Path) -> None:
        """The thread keeps no engine alive."""
        scheduler = self.scheduler(model, tmp_path / "mode")
        assert len(threads()) == 1
        del scheduler
        gc.collect()
        until(lambda: not threads())

    def test_a_fault_is_for_good(self, model: Path, tmp_path: Path) -> None:
        """No file brings back an adaptk that stood down."""
        path = tmp_path / "mode"
        scheduler = self.scheduler(model, path)
        worker = Worker(scheduler, 0, asynchronous=False)
        scheduler.add_request(make_request("a", 5, 60))
        scheduler.adaptk.controller.choose = None
        worker.schedule()
        worker.update()
        assert not scheduler.adaptk.active
        until(lambda: not threads())
        path.write_text("on")
        assert worker.schedule().num_spec_tokens_to_schedule == 7

    def test_shadow_that_may_be_switched_on_prepares_vllm(
        self, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its configuration gets the capture schedule, and vLLM's own K stays the fixed one."""
        from adaptk.vllm_plugin import patches

        monkeypatch.setenv("ADAPTK", "shadow")
        monkeypatch.setenv("ADAPTK_CONTROL", str(tmp_path / "mode"))
        patches.apply()
        try:
            config = build_config(model)
            cls = config.scheduler_config.get_scheduler_cls()
        finally:
            patches.remove()
        schedule = config.speculative_config.num_speculative_tokens_per_batch_size
        assert isinstance(schedule, capture.CaptureSchedule)
        scheduler = build_scheduler(cls, config)
        assert set(scheduler.dynamic_sd_lookup) == {7}
        assert scheduler.adaptk.mode == "shadow"
        (tmp_path / "mode").write_text("on")
        until(lambda: scheduler.adaptk.mode == "on")
        scheduler.shutdown()

    def test_where_on_would_cost_the_full_graphs_it_is_refused(
        self, model: Path, tmp_path: Path, log: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On runner V1 with FULL graphs nothing was prepared, and the line names the price."""
        monkeypatch.setattr(compat, "full_graphs", lambda _: True)
        monkeypatch.setattr(compat, "runner_v2", lambda _: False)
        scheduler = self.scheduler(model, tmp_path / "mode", "shadow")
        (tmp_path / "mode").write_text("on")
        until(lambda: log.having("stays in mode shadow"))
        (line,) = log.having("stays in mode shadow")
        assert "PIECEWISE" in line
        assert scheduler.adaptk.mode == "shadow"
        scheduler.shutdown()


@pytest.mark.parametrize("folder", ["nowhere", "x" * 300])
def test_a_folder_that_is_not_there_is_a_warning(model: Path, tmp_path: Path, log: Lines, folder: str) -> None:
    """When the file is needed it would be too late to find out; made later, it is obeyed."""
    path = tmp_path / folder / "mode"
    cls = adaptive(Scheduler, settings=Settings(mode="on", control=str(path)))
    scheduler = build_scheduler(cls, build_config(model))
    (line,) = log.having("WARNING")
    assert f"there is no folder {path.parent}: make it, or give another ADAPTK_CONTROL" in line
    if folder == "nowhere":
        path.parent.mkdir()
        path.write_text("off")
        until(lambda: scheduler.adaptk.mode == "off")
    scheduler.shutdown()
