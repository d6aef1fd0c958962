"""``adaptk table``: show, check, export, import, compare and correct goodput tables; what it may be given."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from adaptk.cli import options, tableactions
from adaptk.cli.console import accept_any_sign, failing, guarded

if TYPE_CHECKING:
    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]

NAME = "table"
HELP = "show, check, export, import, compare and correct tables of goodput"
REFUSED = 2
_context = options.number(lambda value: 0.0 <= value <= 1e300, "tokens per request, at least 0")
_share = options.number(lambda value: 0.0 <= value <= 1.0, "a share from 0 to 1, as 0.01")
_MERGE = "merge tiers whose best K is less than this share better than the neighbour's (default: none)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own commands and their options."""
    options.add_example(
        parser, "Example:\n  adaptk table show table.json\nadaptk table ACTION --help shows one of each."
    )
    commands = parser.add_subparsers(title="commands", dest="action", required=True, metavar="ACTION")

    show = _action(
        commands,
        "show",
        "what a table decides, what that gains, and a map of its goodput",
        "show table.json --max-batch 256",
    )
    show.add_argument("table", type=Path, metavar="TABLE", help="its file")
    _view_options(show)
    show.add_argument("--png", type=Path, metavar="FILE", help="draw the map, a panel per level of context")
    options.add_json(show, "the figures")

    check = _action(
        commands, "check", "what looks wrong: 0 nothing, 1 something, 2 no table at all", "check table.json"
    )
    check.add_argument("table", type=Path, metavar="TABLE", help="its file")
    options.add_json(check, "the findings")

    export = _action(
        commands, "export", "the schedule as vLLM takes it", "export table.json --arms 0,1,3,7 --max-batch 256"
    )
    export.add_argument("table", type=Path, metavar="TABLE", help="its file")
    export.add_argument("--vllm", action="store_true",
                        help="as JSON for --speculative-config (the only form, and the default)")  # fmt: skip
    export.add_argument("--max-batch", type=options.count, default=1024, metavar="N",
                        help="largest batch size (default %(default)s); vLLM goes on with the last K")  # fmt: skip
    export.add_argument("--context", type=_context, metavar="C", help="mean tokens per request in the KV cache")
    export.add_argument("--arms", type=options.arms, metavar="K,K,...", help="K to choose among, as 0,1,3,7")
    export.add_argument("--min-gain", type=_share, default=0.0, metavar="X", help=f"{_MERGE}, as 0.01")
    options.add_json(export, "the schedule with the remarks on it")

    made = _action(
        commands,
        "import",
        "make a table of a schedule, a CSV or a vllm bench sweep",
        "import schedule.json --acceptance 0.7,0.6,0.5 --out imported.json",
    )
    made.add_argument("source", type=Path, metavar="SOURCE", help="a file, or the folder of a sweep")
    made.add_argument("--out", type=Path, metavar="TABLE", required=True, help="the table to write")
    made.add_argument("--from", dest="kind", choices=("schedule", "csv", "sweep"),
                      help="what SOURCE is (default: found out)")  # fmt: skip
    made.add_argument("--acceptance", type=options.acceptance, metavar="A,A,...",
                      help="acceptance per draft position, given those before it, as 0.7,0.6")  # fmt: skip
    made.add_argument("--marginal", action="store_true",
                      help="--acceptance holds shares of all steps, as vLLM's metrics do: convert them")  # fmt: skip
    options.add_json(made, "what was written and the remarks on it")

    diff = _action(
        commands,
        "diff",
        "how two tables differ: 0 same decisions, 1 others, 2 no tables",
        "diff table.json other.json --max-batch 256",
    )
    diff.add_argument("first", type=Path, metavar="A", help="the file of one")
    diff.add_argument("second", type=Path, metavar="B", help="and of the other")
    _view_options(diff)
    options.add_json(diff, "the differences")

    correct = _action(
        commands,
        "correct",
        "the table as a controller believed it when its state was saved",
        "correct table.json --state state.json --out corrected.json",
    )
    correct.add_argument("table", type=Path, metavar="TABLE", nargs="?", help="the table that it was started from")
    correct.add_argument("--no-table", action="store_true", help="it was started without one")
    correct.add_argument("--state", type=Path, metavar="FILE", required=True, help="the controller's snapshot as JSON")
    correct.add_argument("--out", type=Path, metavar="NEW", required=True, help="the table to write")
    correct.add_argument("--allow-mismatch", action="store_true",
                         help="take another table than the snapshot's: only the acceptance is corrected")  # fmt: skip
    options.add_json(correct, "what was written and the remarks on it")


def _action(commands: _Commands, name: str, about: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=about, description=about)
    options.add_example(parser, f"Example:\n  adaptk table {example}")
    return parser


def _view_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--context", type=_context, metavar="C", help="mean tokens per request in the KV cache")
    parser.add_argument("--max-batch", type=options.count, metavar="N", help="largest batch size to look at")


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked for; the exit status: 0, 1 as the command says, 2 if it could not be done."""
    accept_any_sign()
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "show": tableactions.show,
        "check": tableactions.check,
        "export": tableactions.export,
        "import": tableactions.import_,
        "diff": tableactions.diff,
        "correct": tableactions.correct,
    }
    return guarded(lambda: actions[arguments.action](arguments), failing(f"table {arguments.action}"), REFUSED)
