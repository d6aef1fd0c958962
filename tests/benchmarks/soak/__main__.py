"""vLLM's OpenAI server under adaptk for twenty minutes of a rough load, beside one without adaptk.

    python -m tests.benchmarks.soak [--minutes 20] [--quick] [--pinned] [--json FILE] [--keep FOLDER]

Two servers over SmolLM2-135M with an n-gram drafter live side by side. One has ADAPTK=on, a trace, a state file, a
control file and a metrics page, and a scraper and ``adaptk top`` attached to it throughout; the other has no adaptk.
Both answer the same turns of bursts of 1 to 48 requests: chat and completions, streamed or whole, stop strings, JSON of
a schema, sampling, log-probabilities, clients that hang up, and requests that must be refused. A round is a turn in
mode on, one of the server without adaptk, and one in mode shadow, the outer two in changing order, until the server
under adaptk has had its minutes. Then the mode is switched under load, a last turn is counted token by token, both
servers are ended, what was written is counted, and the server under adaptk starts once more from its state.

Judged are every answer, greedy answers against those of plain vLLM (and plain vLLM's against its own), the trace step
by step against a stopwatch that both servers have, metrics, state and screen, and the p99 of the step time. The ratio
in mode on is what an operator gets; it holds what K does to a step. In shadow both play the same K, and the ratio is
what adaptk's presence does. Neither interval may lie above 1.02. ``--pinned`` allows adaptk only K=7 instead. Ends with
status 1 if anything did not hold. Takes one and a half times its minutes and some five more.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from adaptk.cli import options
from adaptk.demo.engine import ENVIRONMENT
from tests.benchmarks.pairs import machine
from tests.benchmarks.soak.course import Course


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; 1 if anything did not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.soak", description=(__doc__ or "").splitlines()[0], allow_abbrev=False
    )
    parser.add_argument(
        "--minutes", type=options.count, default=20, help="load on the server under adaptk (default 20)"
    )
    parser.add_argument("--quick", action="store_true", help="two short rounds: shows how it works")
    parser.add_argument("--pinned", action="store_true", help="adaptk may only choose K=7")
    parser.add_argument("--json", type=Path, help="write turns and checks")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave logs, trace and state there")
    given = parser.parse_args(argv)
    os.environ.update({name: value for name, value in ENVIRONMENT.items() if name != "VLLM_LOGGING_LEVEL"})
    os.environ.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
    print(machine(), flush=True)
    with ExitStack() as cleanup:
        if given.keep is None:
            folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory()))
        else:
            given.keep.mkdir(parents=True)
            folder = given.keep
        course = Course(folder, given.quick, given.pinned)
        course.run(given.minutes * 60.0)
    failed = [check for check in course.checks if not check.held]
    print(f"{len(course.checks) - len(failed)} of {len(course.checks)} checks held.")
    if given.json is not None:
        rows = [row._asdict() for row in course.rows]
        given.json.write_text(
            json.dumps({"turns": rows, "checks": [check._asdict() for check in course.checks]}, indent=1)
        )
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
