"""A program that serves under adaptk, whatever its surroundings: run by ``test_engine_processes``.

Its output goes to the file that ``SAID`` names, as it may have no standard output or error.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from adaptk import Settings
from tests.faults.driven import Engine


def main(model: Path, folder: Path) -> dict[str, object]:
    """Serve in one process, with a trace and a state."""
    settings = Settings(mode="on", trace=str(folder / "trace.jsonl"), state=str(folder / "state.json"))
    engine = Engine(model, settings=settings)
    engine.add(8, tokens=100)
    engine.serve()
    engine.check()
    engine.scheduler.shutdown()
    steering = engine.steering
    return {
        "faults": steering.faults,
        "active": steering.active,
        "steps": steering.controller.counters["steps"],
        "ks": sorted(set(engine.ks)),
    }


if __name__ == "__main__":
    said = "SAID " + json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]))) + "\n"
    Path(os.environ["SAID"]).write_text(said)
