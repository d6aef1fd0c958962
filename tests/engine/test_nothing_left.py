"""However an engine ends, or fails to begin: no thread, file or memory of adaptk's stays behind."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from adaptk import Settings
from adaptk.vllm_plugin import adaptive, start
from adaptk.vllm_plugin.boundary import stand_down
from adaptk.vllm_plugin.start import StartError
from tests.engine.driver import Worker, build_config, build_scheduler, make_request
from tests.engine.metricspages import free_port

TIMES = 200
WITHIN_S = 10.0  # threads that were told to end have done so


class Engines:
    """Starts and ends schedulers with everything that adaptk can open: trace, state, control, metrics."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.folder, self.config = folder, build_config(model)
        self.settings = Settings(
            mode="on",
            trace=str(folder / "trace.jsonl"),
            state=str(folder / "state.json"),
            control=str(folder / "mode"),
            metrics_port=free_port(),
        )
        # By the settings: those of a process are few, and each pair of class and settings is made once.
        self.classes = {strict: self._class(strict) for strict in (False, True)}

    def _class(self, strict: bool, **other: Any) -> type:
        fields = {name: getattr(self.settings, name) for name in self.settings.__struct_fields__}
        return adaptive(Scheduler, settings=Settings(**{**fields, "strict": strict, **other}))

    def started(self, cls: type | None = None, steps: int = 6) -> Any:
        """A scheduler that has made a few steps."""
        scheduler = build_scheduler(cls or self.classes[False], self.config)
        worker = Worker(scheduler, 0, asynchronous=False)
        scheduler.add_request(make_request("0", 5, 50))
        for _ in range(steps):
            worker.schedule()
            worker.update()
        return scheduler

    def clear(self) -> None:
        """Remove what was written."""
        for file in self.folder.iterdir():
            file.unlink()


def shut_down(engines: Engines) -> None:
    scheduler = engines.started()
    assert scheduler.adaptk.active
    scheduler.shutdown()


def dropped(engines: Engines) -> None:
    """Nobody calls shutdown: it is out of scope on return."""
    assert engines.started().adaptk.active


def faulty(engines: Engines) -> None:
    scheduler = engines.started()
    stand_down(scheduler, RuntimeError("made up"), "a test")
    assert not scheduler.adaptk.active
    scheduler.shutdown()


def faulty_and_dropped(engines: Engines) -> None:
    scheduler = engines.started()
    stand_down(scheduler, RuntimeError("made up"), "a test")


def port_taken(engines: Engines) -> None:
    """Under strict that refuses the start, when the trace and all else is open already."""
    with socket.create_server(("127.0.0.1", engines.settings.metrics_port)):
        with pytest.raises(StartError, match="cannot be had"):
            engines.started(engines.classes[True])
        scheduler = engines.started()
        assert scheduler.adaptk.active
        scheduler.shutdown()


def half_way(engines: Engines) -> None:
    """The last line of the start fails."""

    def fails(*_: Any) -> None:
        raise RuntimeError("made up")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start, "_announce", fails)
        scheduler = engines.started()
    assert not scheduler.adaptk.active
    scheduler.shutdown()


def no_folder(engines: Engines) -> None:
    """Neither trace nor state can be made."""
    nowhere = {"trace": str(engines.folder / "none" / "t"), "state": str(engines.folder / "none" / "s")}
    scheduler = engines.started(engines._class(False, **nowhere))
    scheduler.shutdown()
    with pytest.raises(StartError):
        engines.started(engines._class(True, **nowhere))


def no_table(engines: Engines) -> None:
    """The table is refused before anything is opened."""
    broken = engines.folder / "table.json"
    broken.write_text("{")
    with suppress(StartError):
        engines.started(engines._class(True, table=str(broken)))
    engines.started(engines._class(False, table=str(broken))).shutdown()


ENDS: tuple[Callable[[Engines], None], ...] = (
    *(shut_down, dropped, faulty, faulty_and_dropped, port_taken, half_way, no_folder, no_table),
)


class Held:
    """What the process holds that others can see."""

    def __init__(self) -> None:
        gc.collect()
        self.threads = sorted(thread.name for thread in threading.enumerate())
        self.tasks = len(os.listdir("/proc/self/task"))  # noqa: PTH208
        self.files = sorted(_targets())

    def over(self, before: Held) -> dict[str, Any]:
        """What is there that was not before."""
        more = {
            "threads": [name for name in self.threads if self.threads.count(name) > before.threads.count(name)],
            "tasks": max(0, self.tasks - before.tasks),
            "files": [name for name in self.files if self.files.count(name) > before.files.count(name)],
        }
        return {name: held for name, held in more.items() if held}


def _targets() -> Iterator[str]:
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with suppress(OSError):  # the one of the listing itself
            target = os.readlink(f"/proc/self/fd/{entry}")  # noqa: PTH115
            yield target.partition(":")[0]  # sockets and pipes without their numbers


def left(before: Held) -> dict[str, Any]:
    """What is still there once threads that were told to end had their time."""
    until = time.monotonic() + WITHIN_S
    while (more := Held().over(before)) and time.monotonic() < until:
        time.sleep(0.02)
    return more


@pytest.fixture(scope="module")
def engines(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """What was made lazily by then is no leak."""
    made = Engines(model, tmp_path_factory.mktemp("engines"))
    shut_down(made)
    made.clear()
    yield made
    shutil.rmtree(made.folder)


@pytest.mark.parametrize("way", ENDS, ids=lambda way: way.__name__)
def test_nothing_stays_behind(engines: Engines, way: Callable[[Engines], None]) -> None:
    """After any end, threads, kernel tasks and open files are those from before."""
    before = Held()
    way(engines)
    more = left(before)
    engines.clear()
    assert more == {}


def test_200_starts_and_ends_leave_memory_flat(engines: Engines, request: pytest.FixtureRequest) -> None:
    """By all ways in turn: no more objects after the 200th than after the 40th, give or take a hundred a way.

    One object left by one engine in eight would be 20; a controller has thousands.
    """
    logging.disable(logging.CRITICAL)  # pytest would keep every line, and with the errors among them whole engines
    request.addfinalizer(lambda: logging.disable(logging.NOTSET))
    before, objects = Held(), []
    for turn in range(TIMES):
        ENDS[turn % len(ENDS)](engines)
        if turn % len(ENDS) == len(ENDS) - 1:
            engines.clear()
            assert left(before) == {}
            gc.collect()
            objects.append(sys.getallocatedblocks())
    print(objects)
    assert max(objects[-5:]) <= max(objects[3:8]) + 100 * len(ENDS)
