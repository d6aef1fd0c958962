"""The actions of ``adaptk table``: each does what its options say and gives the exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from adaptk.cli.console import print_json, print_lines, print_spans, print_text, tell
from adaptk.outputs import check_new, check_outputs

if TYPE_CHECKING:
    from adaptk.table import GoodputTable

OK, DIFFERENT = 0, 1


def show(arguments: argparse.Namespace) -> int:
    """What a table decides, in lines or a figure, or as a document."""
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
        print_json(show.document(table, seen))
        return OK
    lines = show.title_lines(table, str(arguments.table))
    if seen is None:
        print_lines([*lines, Line(""), *show.schedule_lines(table, arguments.max_batch)])
    else:
        print_lines([*lines, Line(""), *show.run_lines(seen, table), Line("")])
        print_spans([*heat_map(seen, blocks=_encodes("█▓▒░"))])
        ties = show.tie_lines(seen)
        if ties:
            print_lines([Line(""), *ties])
    if arguments.png is not None:
        print_lines([Line(f"Figure: {arguments.png}")])
    return OK


def _draw(arguments: argparse.Namespace, table: GoodputTable) -> None:
    from importlib.util import find_spec

    from adaptk.outputs import write_whole
    from adaptk.tabletools.figure import draw

    if not table.has_times:
        raise ValueError(f"{arguments.table}: has no step times, so there is nothing to draw: leave --png out")
    if find_spec("matplotlib") is None:
        raise ValueError("matplotlib is not installed, --png needs it: pip install 'adaptk[tools]'")
    name = table.meta.get("name")
    title = name if isinstance(name, str) and name else arguments.table.name
    write_whole(arguments.png, draw(table, title, arguments.context, arguments.max_batch))


def check(arguments: argparse.Namespace) -> int:
    """What looks wrong in a table."""
    from adaptk.table import GoodputTable
    from adaptk.tabletools.doubts import doubts
    from adaptk.tabletools.show import bullets
    from adaptk.textlines import Line

    found = doubts(GoodputTable.load(arguments.table))
    if arguments.json:
        print_json({"table": str(arguments.table), "suspicious": found})
    else:
        head = f"{len(found)} things look wrong" if len(found) > 1 else "One thing looks wrong" if found else "Nothing"
        head += "" if found else " looks wrong"
        lines = [Line(f"{head} in {arguments.table}{':' if found else '.'}", "title")]
        print_lines([*lines, *map(Line, bullets(found))])
    return DIFFERENT if found else OK


def export(arguments: argparse.Namespace) -> int:
    """The schedule for vLLM; remarks on it on standard error."""
    from adaptk.table import GoodputTable
    from adaptk.tabletools.advice import advice
    from adaptk.tabletools.exported import fields, fragment
    from adaptk.tabletools.show import bullets
    from adaptk.tabletools.tiers import tiers

    table = GoodputTable.load(arguments.table)
    triples = tiers(table, arguments.max_batch, arguments.context, arguments.arms, arguments.min_gain)
    notes = advice(table, triples, arguments.context, arguments.arms)
    if arguments.json:
        print_json({"table": str(arguments.table), **fields(triples), "notes": notes})
        return OK
    print_text(fragment(triples))
    for text in bullets(notes):
        tell(text)
    return OK


def import_(arguments: argparse.Namespace) -> int:
    """A table of another tool's file."""
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
    if arguments.json:
        _print_written(arguments.out, made.table, made.notes)
        return OK
    ks = ",".join(map(str, made.table.ks))
    size = f"{len(made.table.rows)} rows" if made.table.has_times else f"{len(made.table.schedule or ())} ranges"
    print_lines([Line(f"{arguments.out}: {size}, K={ks}"), *map(Line, bullets(made.notes))])
    return OK


def diff(arguments: argparse.Namespace) -> int:
    """How two tables differ."""
    from adaptk.table import GoodputTable
    from adaptk.tabletools.compared import compare
    from adaptk.tabletools.difflines import comparison_lines

    first, second = GoodputTable.load(arguments.first), GoodputTable.load(arguments.second)
    found = compare(first, second, arguments.context, arguments.max_batch)
    if arguments.json:
        print_json(found)
    else:
        print_lines(comparison_lines(found, str(arguments.first), str(arguments.second)))
    return OK if found.same_decisions else DIFFERENT


def correct(arguments: argparse.Namespace) -> int:
    """The table as a controller believed it."""
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
    if arguments.json:
        _print_written(arguments.out, corrected.table, corrected.notes, steps=corrected.steps)
        return OK
    said = f"{arguments.out}: as believed after {corrected.steps} steps"
    print_lines([Line(said), *map(Line, bullets(corrected.notes))])
    return OK


def _print_written(out: Path, table: GoodputTable, notes: Sequence[str], **more: int) -> None:
    """The document of a table that was written to ``out``."""
    held = {"rows": len(table.rows), "schedule": table.schedule, "ks": table.ks}
    print_json({"out": str(out), **held, **more, "notes": notes})


def _encodes(signs: str) -> bool:
    """Whether standard output has the signs."""
    try:
        signs.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
