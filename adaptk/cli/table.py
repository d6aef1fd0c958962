"""``adaptk table``: show, check, export, import, compare and correct goodput tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptk.cli import options
from adaptk.cli.console import accept_any_sign, discard_output, print_lines
from adaptk.outputs import check_new, check_outputs

if TYPE_CHECKING:
    from adaptk.tabletools.spans import Spans

NAME = "table"
HELP = "show, check, export, import, compare and correct tables of goodput"
OK, DIFFERENT, REFUSED = 0, 1, 2
_context = options.number(lambda value: 0.0 <= value <= 1e300, "tokens per request, at least 0")
_share = options.number(lambda value: 0.0 <= value <= 1.0, "a share from 0 to 1, as 0.01")
_MERGE = "merge tiers whose best K is less than this share better than the neighbour's (default: none)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own commands and their options."""
    commands = parser.add_subparsers(title="commands", dest="action", required=True, metavar="ACTION")

    show = commands.add_parser("show", help="what a table decides, what that gains, and a map of its goodput")
    show.add_argument("table", type=Path, metavar="TABLE")
    _view_options(show)
    show.add_argument("--png", type=Path, metavar="FILE", help="draw the map, a panel per level of context")
    show.add_argument("--json", action="store_true", help="print the figures as JSON")

    check = commands.add_parser("check", help="what looks wrong: 0 nothing, 1 something, 2 no table at all")
    check.add_argument("table", type=Path, metavar="TABLE")
    check.add_argument("--json", action="store_true", help="print the findings as JSON")

    export = commands.add_parser("export", help="the schedule as vLLM takes it")
    export.add_argument("table", type=Path, metavar="TABLE")
    export.add_argument("--vllm", action="store_true",
                        help="as JSON for --speculative-config (the only form, and the default)")  # fmt: skip
    export.add_argument("--max-batch", type=options.count, default=1024, metavar="N",
                        help="largest batch size (default %(default)s); vLLM goes on with the last K")  # fmt: skip
    export.add_argument("--context", type=_context, metavar="C", help="mean tokens per request in the KV cache")
    export.add_argument("--arms", type=options.arms, metavar="K,K,...", help="K to choose among, as 0,1,3,7")
    export.add_argument("--min-gain", type=_share, default=0.0, metavar="X", help=f"{_MERGE}, as 0.01")

    made = commands.add_parser("import", help="make a table of a schedule, a CSV or a vllm bench sweep")
    made.add_argument("source", type=Path, metavar="SOURCE", help="a file, or the folder of a sweep")
    made.add_argument("--out", type=Path, metavar="TABLE", required=True, help="the table to write")
    made.add_argument("--from", dest="kind", choices=("schedule", "csv", "sweep"),
                      help="what SOURCE is (default: found out)")  # fmt: skip
    made.add_argument("--acceptance", type=options.acceptance, metavar="A,A,...",
                      help="acceptance per draft position, given those before it, as 0.7,0.6")  # fmt: skip
    made.add_argument("--marginal", action="store_true",
                      help="--acceptance holds shares of all steps, as vLLM's metrics do: convert them")  # fmt: skip

    diff = commands.add_parser("diff", help="how two tables differ: 0 same decisions, 1 others, 2 no tables")
    diff.add_argument("first", type=Path, metavar="A")
    diff.add_argument("second", type=Path, metavar="B")
    _view_options(diff)
    diff.add_argument("--json", action="store_true", help="print the differences as JSON")

    correct = commands.add_parser("correct", help="the table as a controller believed it when its state was saved")
    correct.add_argument("table", type=Path, metavar="TABLE", nargs="?", help="the table that it was started from")
    correct.add_argument("--no-table", action="store_true", help="it was started without one")
    correct.add_argument("--state", type=Path, metavar="FILE", required=True, help="the controller's snapshot as JSON")
    correct.add_argument("--out", type=Path, metavar="NEW", required=True, help="the table to write")
    correct.add_argument("--allow-mismatch", action="store_true",
                         help="take another table than the snapshot's: only the acceptance is corrected")  # fmt: skip


def _view_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--context", type=_context, metavar="C", help="mean tokens per request in the KV cache")
    parser.add_argument("--max-batch", type=options.count, metavar="N", help="largest batch size to look at")


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked for; the exit status: 0, 1 as the command says, 2 if it could not be done."""
    accept_any_sign()
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "show": _show, "check": _check, "export": _export, "import": _import, "diff": _diff, "correct": _correct,
    }  # fmt: skip
    try:
        return actions[arguments.action](arguments)
    except ValueError as error:  # of tables, snapshots, sources and outputs: all say what to do
        return _fail(arguments, str(error))
    except OSError as error:  # of standard output: a full disk
        discard_output()
        return _fail(arguments, f"what came out cannot be shown ({error})")
    except KeyboardInterrupt:
        _fail(arguments, "interrupted")
        return 130


def _show(arguments: argparse.Namespace) -> int:
    from adaptk.table import GoodputTable
    from adaptk.tabletools import show
    from adaptk.tabletools.heat import heat_map
    from adaptk.tabletools.survey import survey
    from adaptk.textlines import Line

    check_outputs({"--png": arguments.png}, {"TABLE": arguments.table})
    table = GoodputTable.load(arguments.table)
    seen = survey(table, arguments.context, arguments.max_batch) if table.has_times else None
    if arguments.png is not None:
        _draw(arguments, table)
    if arguments.json:
        _print_json(show.document(table, seen))
        return OK
    lines = show.title_lines(table, str(arguments.table))
    if seen is None:
        print_lines([*lines, Line(""), *show.schedule_lines(table, arguments.max_batch)])
    else:
        print_lines([*lines, Line(""), *show.run_lines(seen, table), Line("")])
        _print_spans([*heat_map(seen, blocks=_encodes("█▓▒░"))])
        ties = show.tie_lines(seen)
        if ties:
            print_lines([Line(""), *ties])
    if arguments.png is not None:
        print_lines([Line(f"Figure: {arguments.png}")])
    return OK


def _draw(arguments: argparse.Namespace, table: Any) -> None:
    from importlib.util import find_spec

    from adaptk.outputs import write_whole
    from adaptk.tabletools.figure import draw

    if not table.has_times:
        raise ValueError(f"{arguments.table}: has no step times, so there is nothing to draw: leave --png out")
    if find_spec("matplotlib") is None:
        raise ValueError("matplotlib is not installed, --png needs it: pip install 'adaptk[plots]'")
    name = table.meta.get("name")
    title = name if isinstance(name, str) and name else arguments.table.name
    write_whole(arguments.png, draw(table, title, arguments.context, arguments.max_batch))


def _check(arguments: argparse.Namespace) -> int:
    from adaptk.table import GoodputTable
    from adaptk.tabletools.doubts import doubts
    from adaptk.tabletools.show import bullets
    from adaptk.textlines import Line

    found = doubts(GoodputTable.load(arguments.table))
    if arguments.json:
        _print_json({"table": str(arguments.table), "suspicious": found})
    else:
        head = f"{len(found)} things look wrong" if len(found) > 1 else "One thing looks wrong" if found else "Nothing"
        head += "" if found else " looks wrong"
        lines = [Line(f"{head} in {arguments.table}{':' if found else '.'}", "title")]
        print_lines([*lines, *map(Line, bullets(found))])
    return DIFFERENT if found else OK


def _export(arguments: argparse.Namespace) -> int:
    from adaptk.table import GoodputTable
    from adaptk.tabletools.advice import advice
    from adaptk.tabletools.exported import fragment
    from adaptk.tabletools.show import bullets
    from adaptk.tabletools.tiers import tiers
    from adaptk.textlines import Line

    table = GoodputTable.load(arguments.table)
    triples = tiers(table, arguments.max_batch, arguments.context, arguments.arms, arguments.min_gain)
    print_lines([Line(text) for text in fragment(triples).split("\n")])
    for text in bullets(advice(table, triples, arguments.context, arguments.arms)):
        _say(text)
    return OK


def _import(arguments: argparse.Namespace) -> int:
    from adaptk.tabletools.imported import conditional, read_source
    from adaptk.tabletools.show import bullets
    from adaptk.textlines import Line

    if arguments.marginal and arguments.acceptance is None:
        raise ValueError("--marginal says what --acceptance holds: give both, or neither")
    check_new("--out", arguments.out, {"SOURCE": arguments.source})
    acceptance = arguments.acceptance
    if arguments.marginal:
        acceptance = conditional(acceptance)
    made = read_source(arguments.source, arguments.kind, acceptance)
    made.table.save(arguments.out)
    ks = ",".join(map(str, made.table.ks))
    size = f"{len(made.table.rows)} rows" if made.table.has_times else f"{len(made.table.schedule or ())} ranges"
    print_lines([Line(f"{arguments.out}: {size}, K={ks}"), *map(Line, bullets(made.notes))])
    return OK


def _diff(arguments: argparse.Namespace) -> int:
    from adaptk.table import GoodputTable
    from adaptk.tabletools.compared import compare
    from adaptk.tabletools.difflines import comparison_lines

    first, second = GoodputTable.load(arguments.first), GoodputTable.load(arguments.second)
    found = compare(first, second, arguments.context, arguments.max_batch)
    if arguments.json:
        _print_json(found)
    else:
        print_lines(comparison_lines(found, str(arguments.first), str(arguments.second)))
    return OK if found.same_decisions else DIFFERENT


def _correct(arguments: argparse.Namespace) -> int:
    from adaptk.table import GoodputTable
    from adaptk.tabletools.correcting import correct, read_snapshot
    from adaptk.tabletools.show import bullets
    from adaptk.textlines import Line

    if (arguments.table is None) != arguments.no_table:
        raise ValueError("give the table that the controller was started from, or --no-table if it had none")
    check_new("--out", arguments.out, {"TABLE": arguments.table, "--state": arguments.state})
    table = None if arguments.no_table else GoodputTable.load(arguments.table)
    snapshot = read_snapshot(arguments.state)
    source = arguments.state.name if arguments.table is None else arguments.table.name
    corrected = correct(table, snapshot, source, arguments.allow_mismatch)
    corrected.table.save(arguments.out)
    said = f"{arguments.out}: as believed after {corrected.steps} steps"
    print_lines([Line(said), *map(Line, bullets(corrected.notes))])
    return OK


def _print_json(document: Any) -> None:
    import msgspec

    from adaptk.textlines import Line

    print_lines([Line(msgspec.json.format(msgspec.json.encode(document), indent=1).decode())])


def _print_spans(lines: Sequence[Spans]) -> None:
    """Print lines whose pieces have styles, with colour where there is a terminal and rich."""
    from importlib.util import find_spec

    from adaptk.tabletools.spans import plain
    from adaptk.textlines import Line

    if sys.stdout is None or not sys.stdout.isatty() or find_spec("rich") is None:
        print_lines([Line(plain(line)) for line in lines])
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, markup=False, soft_wrap=True)
    try:
        for line in lines:
            console.print(Text.assemble(*((span.text, span.style) for span in line)))
    except BrokenPipeError:
        discard_output()


def _encodes(signs: str) -> bool:
    """Whether standard output has the signs."""
    try:
        signs.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _fail(arguments: argparse.Namespace, message: str) -> int:
    _say(f"adaptk table {arguments.action}: {message}")
    return REFUSED


def _say(text: str) -> None:
    """A line on standard error, where somebody may read it."""
    if sys.stderr is not None:
        print(text, file=sys.stderr)
