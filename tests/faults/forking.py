"""A program that starts an engine under adaptk with everything open, and then forks: run by ``test_engine_processes``.

Says as JSON what became of the parent: ``python -m tests.faults.forking MODEL FOLDER``.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from adaptk import Settings
from tests.engine.metricspages import free_port, parsed, scraped
from tests.faults.driven import Engine


def in_child(engine: Engine | None) -> int:
    """What a forked child may do with an engine that it has a copy of: serve on, change its mode, shut it down."""
    if engine is not None:
        engine.steering.mode = "shadow"
        engine.add(2)
        engine.serve()
        engine.check()
        engine.scheduler.shutdown()
    return os.getpid()


def forked(engine: Engine, end: str) -> int:
    """The exit status of a child that is made in mid-work and ends in one of many ways."""
    child = os.fork()
    if child == 0:
        in_child(engine)
        if end == "exit":
            sys.exit(0)  # with the interpreter's own finalisers
        if end == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return status


def main(model: Path, folder: Path) -> dict[str, Any]:
    """The parent's life."""
    (folder / "mode").write_text("on")
    settings = Settings(
        mode="on",
        trace=str(folder / "trace.jsonl"),
        state=str(folder / "state.json"),
        control=str(folder / "mode"),
        metrics_port=free_port(),
    )
    engine = Engine(model, settings=settings)
    engine.add(8, tokens=200)
    engine.serve(20)
    ended = []
    for end in ("exit", "signal", "at once"):
        ended.append(forked(engine, end))
        engine.serve(10)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        workers = pool.map(in_child, [None] * 8)
    engine.serve(10)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        workers += pool.map(in_child, [None])
    for _ in range(3):
        child = multiprocessing.get_context("fork").Process(target=in_child, args=(engine,))
        child.start()
        engine.serve(5)
        child.join()
        ended.append(child.exitcode or 0)
    engine.serve()
    engine.check()
    (folder / "mode").write_text("off")
    until = time.monotonic() + 20.0
    while engine.steering.mode != "off" and time.monotonic() < until:
        time.sleep(0.05)
    page = parsed(scraped(engine.steering.metrics.url))
    said = {
        "ended": ended,
        "workers": len(set(workers)),
        "steps": engine.steering.controller.counters["steps"],
        "counted": page.sum("adaptk_steps_total"),
        "faults": engine.steering.faults,
        "mode": engine.steering.mode,
    }
    engine.scheduler.shutdown()
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("adaptk")]
    return said | {"threads": left}


if __name__ == "__main__":
    sys.stdout.write("SAID " + json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]))) + "\n")
