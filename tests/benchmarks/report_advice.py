"""What the report's advice is worth, on simulated traces whose truth is known: ``adaptk report`` against it.

Run it with ``python -m tests.benchmarks.report_advice``. Parts: *plain* shadow traces of three engines, with tables
that are right, 20 % slow, whose drafts are twice or half as dear, or none; *disturbed* ones, of machines that slow
down for a while or for good, stall, drift or wander; *followed* ones, in which adaptk was on and chose K by the text;
*wandering* ones, on which no K is better than another and a machine with slow spells may make it look so.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import Any, NamedTuple

from adaptk.replay.noise import Drift, Noise
from adaptk.report.analysis import analyse
from adaptk.report.findings import Findings
from adaptk.table import GoodputTable
from tests.report.worlds import FIXED, Shadow, distorted, shadow, wandering

ENGINES = ("p32374", "dense-100b-calibrated", "moe-calibrated")
TWO, ONE = [[1, 32, 3], [33, 512, 1]], [[1, 512, 1]]
TABLES: dict[str, Callable[[GoodputTable], GoodputTable | None]] = {
    "right": lambda table: table,
    "20 % slow": partial(distorted, level=1.2),
    "drafts dear": partial(distorted, drafts=2.0),
    "drafts cheap": partial(distorted, drafts=0.5),
    "none": lambda table: None,
}
STEPS = {"plain": 3000, "disturbed": 1500, "followed": 3000, "wandering": 1200}


class Case(NamedTuple):
    """One trace to make and judge: ``world`` are arguments of its maker, ``table`` what the report is given."""

    part: str
    label: str
    table: str
    seed: int
    world: dict[str, Any]


class Outcome(NamedTuple):
    """How one report fared. ``held`` of ``intervals`` of ranges held the truth; ``slower`` are losses, as shares."""

    case: Case
    verdict: str
    advised: int
    slower: tuple[float, ...]
    intervals: int
    held: int


def disturbances(steps: int) -> dict[str, dict[str, Any]]:
    """What happens to a machine, by name."""
    return {
        "a neighbour for a while": {
            "drift": Drift((0, int(0.3 * steps), steps // 2), (1.0, 1.6, 1.0), (1.0, 1.0, 1.0))
        },
        "slower for good": {"drift": Drift((0, steps // 2), (1.0, 1.3), (1.0, 1.0))},
        "drafts dearer for good": {"drift": Drift((0, steps // 2), (1.0, 1.0), (1.0, 2.0))},
        "ever slower": {"drift": Drift((0, steps), (1.0, 1.4), (1.0, 1.5), linear=True)},
        "slow noise": {"noise": Noise(0.06, 0.99, 0.01, 4.0)},
        "stalls of ten steps": {"noise": Noise(0.04, 0.3, 0.08, 5.0, stall_steps=10.0)},
        "two kinds of text": {"other_text": 0.4},
    }


def cases(part: str, seeds: int, steps: int | None = None) -> Iterator[Case]:
    """All traces of one part."""
    steps = STEPS[part] if steps is None else steps
    for seed in range(seeds):
        if part == "plain":
            for engine in ENGINES:
                for schedule in (FIXED, TWO, ONE):
                    for table in TABLES:
                        world = {"engine": engine, "schedule": schedule, "steps": steps}
                        yield Case(part, engine, table, seed, world)
        elif part == "disturbed":
            for name, what in disturbances(steps).items():
                for schedule in (TWO, FIXED):
                    yield Case(part, name, "right", seed, {"schedule": schedule, "steps": steps} | what)
        elif part == "followed":
            for other in (1.0, 0.4):
                for schedule in (FIXED, ONE):
                    for table in ("right", "none"):
                        world = {"schedule": schedule, "steps": steps, "other_text": other, "on": True}
                        name = "one kind of text" if other == 1.0 else "two kinds of text"
                        yield Case(part, name, table, seed, world | {"seeded": table != "none"})
        else:
            for low, high in ((1, 16), (4, 6)):
                for spells in (False, True):
                    label = f"{'K in turn' if spells else 'adaptk'}, batch {low}-{high}"
                    world = {"steps": steps, "low": low, "high": high, "spells": spells}
                    yield Case(part, label, "none", seed, world)


def tried(case: Case) -> Outcome:
    """Make the trace, have it judged, and hold what is said against the truth."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        if case.part == "wandering":
            return against(case, analyse([wandering(path, case.seed, **case.world)], simulate=False), None)
        made = shadow(path, case.seed, **case.world)
        return against(case, analyse([path], TABLES[case.table](made.table), simulate=False), made)


def against(case: Case, findings: Findings, truth: Shadow | None) -> Outcome:
    """Compare the ranges of a report with what they would have saved: nothing, without ``truth``."""
    slower, held, intervals, advised = [], 0, 0, 0
    for each in findings.advice.ranges:
        saved = 0.0
        if truth is not None:
            saved = truth.loss([[1, 512, each.k_best]], each.first, each.last, _since(findings))
        if each.gain is not None:
            intervals += 1
            held += each.gain.low <= saved / (1.0 - saved) <= each.gain.high
        if each.verdict == "change":
            advised += 1
            if saved <= 0.0:
                slower.append(abs(saved))
    return Outcome(case, findings.advice.verdict, advised, tuple(slower), intervals, held)


def _since(findings: Findings) -> int:
    """The step after the last lasting change that the report names: it speaks of what follows alone."""
    found = [re.search(r"at step ([\d,]+) of", each) for each in findings.advice.caveats]
    return max((int(each[1].replace(",", "")) for each in found if each), default=0)


def line(name: str, found: Sequence[Outcome]) -> str:
    """One row of the table."""
    slower = [loss for each in found for loss in each.slower]
    worst = f"{100.0 * max(slower):5.1f} %" if slower else "      -"
    false = sum(bool(each.slower) for each in found)
    return (
        f"{name:<34}{len(found):>7}{sum(each.advised for each in found):>9}{len(slower):>7}{false:>7}{worst:>9}"
        f"{sum(each.held for each in found):>7}{sum(each.intervals for each in found):>6}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=STEPS, default=list(STEPS), help="what to try (default: all)")
    parser.add_argument("--seeds", type=int, default=10, help="traces of each kind (default: 10)")
    parser.add_argument("--steps", type=int, help="of each trace (default: 1200 to 3000, by part)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: one per processor)")
    chosen = parser.parse_args(arguments)
    print(f"{'':<34}{'traces':>7}{'advised':>9}{'slower':>7}{'false':>7}{'worst':>9}{'held':>7}{'of':>6}")
    with Pool(chosen.jobs) as pool:
        for part in chosen.parts:
            found = list(pool.imap_unordered(tried, cases(part, chosen.seeds, chosen.steps)))
            for label in sorted({each.case.label for each in found}):
                print(line(f"{part}, {label}", [each for each in found if each.case.label == label]))
            print(line(f"{part}, all", found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
