"""``adaptk demo``: the real engine under a load that changes, once per policy."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from adaptk.cli import options

NAME = "demo"
HELP = "run the real vLLM engine under a load that changes, once per policy, and compare them"
ROUNDS = 5
_factor = options.number(lambda value: 0.01 <= value <= 100.0, "a factor from 0.01 to 100, as 1.5")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "--rounds", type=options.count, help=f"rounds in which every policy runs every phase (default {ROUNDS})"
    )
    parser.add_argument("--quick", action="store_true", help="one short round: shows how it works, claims nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write one flat row per policy, phase and round")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write adaptk's steps, one JSON line each")
    parser.add_argument(
        "--table",
        type=Path,
        metavar="FILE",
        help="the table that policies start from (default: one profiled just before)",
    )
    parser.add_argument(
        "--distort",
        type=_factor,
        metavar="X",
        help="compare only starts from the table and from one in which the largest K costs X times what it does",
    )
    parser.add_argument(
        "--out", type=Path, metavar="PNG", default=Path("adaptk-demo.png"), help="the picture (default %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the demo and print what came out; 0, 1 after an error, 130 after an interrupt."""
    from adaptk.demo.engine import EngineError
    from adaptk.demo.model import ModelError
    from adaptk.demo.progress import Progress
    from adaptk.demo.session import Options, Outcome
    from adaptk.demo.session import run as run_session
    from adaptk.table import GoodputTable, TableError
    from adaptk.trace import TraceError

    for path in (arguments.json, arguments.trace, arguments.out):
        if path is not None and not path.absolute().parent.is_dir():
            return _fail(f"{path}: its folder does not exist; make it first")
    rounds = arguments.rounds or (1 if arguments.quick else ROUNDS)
    outcome = Outcome()
    try:
        table = None if arguments.table is None else GoodputTable.load(arguments.table)
        if table is not None and not table.has_times:
            return _fail(f"{arguments.table}: has no step times; give a table that was measured")
        with Progress() as progress:
            run_session(Options(rounds, arguments.quick, arguments.trace, table, arguments.distort), outcome, progress)
    except (EngineError, ModelError, TableError, TraceError) as error:
        return _fail(str(error))
    report(outcome, arguments.json, arguments.out)
    return 130 if outcome.interrupted else 0


def report(outcome: object, json: Path | None, out: Path) -> None:
    """Print the table, write the rows and draw the picture of what was measured."""
    from adaptk.demo import figures, load, measure, table
    from adaptk.demo.session import Outcome

    assert isinstance(outcome, Outcome)
    parts = measure.rows(outcome.turns)
    everything = [*parts, *measure.overall(parts, load.PHASES)]
    if outcome.interrupted:
        print("Interrupted; this is what was measured until then.")
    print(table.render(everything, outcome.rounds))
    if note := table.greedy_note(outcome.turns, outcome.greedy):
        print(note)
    if json is not None:
        json.write_bytes(msgspec.json.format(msgspec.json.encode(parts), indent=1))
        print(f"Rows: {json}")
    if not parts:
        return
    try:
        figures.draw(everything, outcome.played, out)
    except figures.PlotError as error:
        print(error)
    else:
        print(f"Picture: {out}")


def _fail(message: str) -> int:
    print(f"adaptk demo: {message}", file=sys.stderr)
    return 1
