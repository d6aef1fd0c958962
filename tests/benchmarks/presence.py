"""What adaptk costs by being there: requests per second with it on and off, where every K is the same step.

    python -m tests.benchmarks.presence [--model tiny|smollm2] [--pairs N] [--batch B] [--control]

Two figures, each a ratio of requests per second, on over off, in pairs of short turns at the same requests whose order
alternates: between two engines in processes of their own; and within one engine, whose scheduler is adaptk's in one
turn and vLLM's own in the other, which leaves out what tells two processes of the same program apart. The second is
also given by the process's time on the processor, which a busy machine disturbs less, and adaptk's own time that a step
waits for stands beside it: what it learns while the model runs is in the time on the processor only. ``--control``
gives the first figure for two engines that are both off: what the ratio of two equal processes is on this machine. Ends
with status 1 if the second figure's interval lies below 0.99. Takes about a minute with the tiny model and five with
smollm2 on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from adaptk.cli import options
from tests.benchmarks.pairs import Ratio, machine, ratio
from tests.benchmarks.presence_engine import TOKENS, Job, PresenceEngine, Turn

LEAST = 0.99
WARM = 3  # turns of each that are not counted: what is made only once is made there


class Case(NamedTuple):
    """A model, and how many waves of requests a turn has, so that it takes long enough to be timed."""

    waves: int
    dtype: str
    said: str


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if adaptk costs more than a hundredth."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--model", choices=("tiny", "smollm2"), default="tiny")
    parser.add_argument("--pairs", type=options.count, default=40, help="of each figure (default %(default)s)")
    parser.add_argument("--batch", type=options.count, default=8, help="requests at once (default %(default)s)")
    parser.add_argument("--control", action="store_true", help="two engines without adaptk instead")
    parser.add_argument("--json", type=Path, help="write every turn")
    given = parser.parse_args(argv)
    print(machine(), flush=True)
    with ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory()))
        path, case = _model(given.model, folder)
        first = PresenceEngine(path, case.dtype, adaptk=not given.control, log=folder / "first.log")
        cleanup.callback(first.close)
        second = PresenceEngine(path, case.dtype, adaptk=False, log=folder / "second.log")
        cleanup.callback(second.close)
        return measure(given, case, first, second)


def measure(given: argparse.Namespace, case: Case, first: PresenceEngine, second: PresenceEngine) -> int:
    """Both figures and the cross-check."""
    requests = case.waves * given.batch
    jobs = [Job(seed, requests, given.batch) for seed in range(given.pairs + WARM)]
    apart = take_turns(jobs, first.run, second.run)
    steps = sorted(turn.seconds / turn.steps for _, turn in apart)
    print(f"{case.said}, batch {given.batch}, {requests} requests of {TOKENS} tokens a turn; a step without adaptk "
          f"takes {1e3 * steps[len(steps) // 2]:.2f} ms", flush=True)  # fmt: skip
    if any(turn.steps != case.waves * TOKENS for pair in apart for turn in pair):
        print("Some turns took other numbers of steps than they should: not every K was the same.")
    names = "off over off, two engines" if given.control else "on over off, two engines"
    print(f"{names}: {_speeds(apart)}", flush=True)
    rows = {"apart": apart}
    status = 0
    if not given.control:
        rows["switched"] = switched = take_turns(jobs, first.run, lambda job: first.run(job._replace(how="bypassed")))
        within = _speeds(switched)
        print(f"on over off, one engine switched: {within}", flush=True)
        work = ratio([1.0 / on.cpu for on, _ in switched], [1.0 / off.cpu for _, off in switched])
        print(f"the same by the process's time on the processor: {work}", flush=True)
        rows["watched"] = watched = [
            (first.run(job._replace(how="watched")),) * 2 for job in jobs[: max(len(jobs) // 4, 1)]
        ]
        own = [turn.own / turn.steps for turn, _ in watched]
        share = sum(turn.own for turn, _ in watched) / sum(turn.seconds for turn, _ in watched)
        middle = 1e6 * sorted(own)[len(own) // 2]
        print(f"adaptk's own code that a step waits for: {middle:.0f} us of a step, {100 * share:.2f} %")
        print(_verdict(within))
        status = int(within.high < LEAST)
    if given.json is not None:
        given.json.write_text(json.dumps({name: [[*a, *b] for a, b in turns] for name, turns in rows.items()}))
    return status


def take_turns(jobs: Sequence[Job], on: Callable[[Job], Turn], off: Callable[[Job], Turn]) -> list[tuple[Turn, Turn]]:
    """Each job done by both, one right after the other, who goes first alternating; the first few are not kept."""
    pairs = []
    for i, job in enumerate(jobs):
        if i % 2:
            other, one = off(job), on(job)
        else:
            one, other = on(job), off(job)
        if i >= WARM:
            pairs.append((one, other))
    return pairs


def _speeds(pairs: Sequence[tuple[Turn, Turn]]) -> Ratio:
    """Of equal numbers of requests, so that the seconds alone tell."""
    return ratio([1.0 / on.seconds for on, _ in pairs], [1.0 / off.seconds for _, off in pairs])


def _verdict(found: Ratio) -> str:
    if found.low >= LEAST:
        return f"The cost of being there is below {1 - LEAST:.0%}."
    if found.high < LEAST:
        return f"The cost of being there is above {1 - LEAST:.0%}."
    return f"Whether the cost of being there is below {1 - LEAST:.0%} is open: take more --pairs, or a quieter machine."


def _model(name: str, folder: Path) -> tuple[Path, Case]:
    if name == "smollm2":
        from adaptk.demo.engine import precision
        from adaptk.demo.model import ensure_model

        return ensure_model(), Case(1, precision(), "SmolLM2-135M")
    from tests.engine.models import byte_llama

    return byte_llama(folder), Case(2, "float32", "a random model of two layers")


if __name__ == "__main__":
    sys.exit(main())
