"""Memory over a run without end: a table of checkpoints and a verdict; the status is 1 where anything grows.

    python -m tests.bounded.endurance controller --steps 10000000
    python -m tests.bounded.endurance steering --steps 1000000

``controller`` is a controller alone, under a load that brings about everything (see ``endless``). ``steering`` is all
of adaptk around vLLM's own scheduler, under requests that come and go (see ``comings``), with a trace, a state file, a
control file and metrics that are asked for. About 150 and 1,500 microseconds a step on one core of a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from adaptk import Controller
from tests.bounded.endless import BLOCK, Endless
from tests.bounded.growth import Growth
from tests.publicengine import PUBLIC

LOOKS = 1000


def controller(steps: int, looks: int = LOOKS, seed: int = 0) -> tuple[Growth, Endless]:
    """A controller alone; ``steps`` and what lies between two looks are rounded up to whole blocks."""
    load = Endless(Controller(PUBLIC, seed=seed), seed)
    growth = Growth(lambda: [load.controller], steps)
    while load.steps < steps:
        load.run(max(1, steps // BLOCK // looks))
        growth.look(load.steps)
    return growth, load


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print, and say whether anything grew."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("part", choices=("controller", "steering"))
    parser.add_argument("--steps", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write every look to this file")
    given = parser.parse_args(argv)
    started = time.perf_counter()
    if given.part == "controller":
        growth, load = controller(given.steps, seed=given.seed)
        said = f"{len(load.sizes):,} batch sizes in order, and those of a load that wanders"
    else:
        from tests.bounded.comings import steered

        with tempfile.TemporaryDirectory() as folder:
            growth, said = steered(Path(folder), given.steps, seed=given.seed)
    took = (time.perf_counter() - started) / given.steps * 1e6
    grown = growth.grown()
    print(f"{given.part}: {given.steps:,} steps, {took:.0f} us each, all included; {said}", *growth.lines(), sep="\n")
    print(*grown or ["nothing grows"], sep="\n", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps([look._asdict() for look in growth.looks]))
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
