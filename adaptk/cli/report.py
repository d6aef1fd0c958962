"""``adaptk report``: what a trace says, and what to change, as one HTML file."""

from __future__ import annotations

import argparse
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from adaptk.cli import options
from adaptk.cli.console import accept_any_sign, failing, guarded, print_encoded, print_lines, print_text, tell

if TYPE_CHECKING:
    from adaptk.progress import Progress
    from adaptk.report.findings import Findings
    from adaptk.table import GoodputTable

NAME = "report"
HELP = "what a trace says and what to change in your schedule: one HTML file"
OUT = Path("report.html")
_EXAMPLE = """\
Example:
  adaptk report trace.jsonl --out report.html
  adaptk report --schedule trace.jsonl

A trace is what an engine writes that runs with ADAPTK=shadow (or on) and
ADAPTK_TRACE=trace.jsonl.
"""
_fail = failing(NAME)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE",
                        help="what ADAPTK_TRACE wrote, plain or gzip; several: ranks of one service")  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FILE",
                        help=f"the report to write; one that is there is replaced (default {OUT})")  # fmt: skip
    parser.add_argument("--table", type=Path, metavar="FILE",
                        help="table of goodput for K that were not played (default: the trace's own)")  # fmt: skip
    options.add_json(parser, "what was found", file=True)
    parser.add_argument("--schedule", action="store_true",
                        help="print the schedule to use as one line of JSON, nothing else")  # fmt: skip
    parser.add_argument("--save-table", type=Path, metavar="NEW",
                        help="write the table as now believed, for ADAPTK_TABLE")  # fmt: skip
    parser.add_argument("--no-simulation", action="store_true",
                        help="leave out what other policies would have done in a simulation")  # fmt: skip
    parser.add_argument("--lenient", action="store_true", help="skip and count lines that cannot be read")
    options.add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Analyse and show; 0, 1 after an error, 130 after an interrupt, of which what was found is written."""
    if _out(arguments) is not None and find_spec("matplotlib") is None:
        return _fail("matplotlib is not installed, the report needs it: pip install 'adaptk[tools]', or say --json")
    accept_any_sign()
    return guarded(
        lambda: _schedule(arguments) if arguments.schedule else _report(arguments),
        lambda said, status: _fail(said.replace("read leniently", "pass --lenient"), status),
    )


def _out(arguments: argparse.Namespace) -> Path | None:
    """The report's file; none where only what goes to standard output is asked for."""
    if arguments.out is not None:
        return Path(arguments.out)
    return None if arguments.schedule or arguments.json == options.STDOUT else OUT


def _schedule(arguments: argparse.Namespace) -> int:
    """Print the schedule to use: the advised one, else that in use."""
    for name, given in (("out", arguments.out), ("json", arguments.json), ("save-table", arguments.save_table)):
        if given is not None:
            raise ValueError(f"--{name} does not go with --schedule, which writes no file: leave one of them out")
    findings, _ = _analysed(arguments, simulate=False)
    if findings.cut_short:
        return _fail("interrupted", 130)
    advice = findings.advice
    schedule = advice.schedule_new or advice.schedule_now
    if advice.verdict == "nothing" or not schedule:
        return _fail(" ".join([advice.sentence, *advice.next_steps]))
    if advice.verdict != "change":
        tell(f"adaptk report: this is the schedule in use. {advice.sentence}")
    print_text(str([list(map(int, tier)) for tier in schedule]))
    return 0


def _report(arguments: argparse.Namespace) -> int:
    from adaptk.cli.reportlines import report_lines
    from adaptk.outputs import check_new, check_outputs, write_whole
    from adaptk.report.findings import to_json

    out, document, save = _out(arguments), arguments.json, arguments.save_table
    as_file = document if isinstance(document, Path) else None
    read = {"--table": arguments.table, **{f"TRACE {path}": path for path in arguments.traces}}
    check_outputs({"--out": out, "--json": as_file, "--save-table": save}, read)
    if save is not None:
        check_new("--save-table", save, read)
    findings, table = _analysed(arguments, simulate=not arguments.no_simulation)
    made = []
    if as_file is not None:
        write_whole(as_file, to_json(findings))
        made.append(f"Findings: {as_file}")
    if save is not None and table is not None:
        table.save(save)
        made.append(f"Table: {save}")
    if out is not None:
        from adaptk.report.page.render import write_html

        write_html(out, findings)
        made.append(f"Report: {out}")
    if document == options.STDOUT:
        print_encoded(to_json(findings).decode())
    else:
        print_lines(report_lines(findings, made))
    if save is not None and table is None:  # at the end: the analysis took its time, and what it found stands
        why = "the trace has no step times for a table, none was written: leave the option out"
        return _fail(f"--save-table {save}: {why}", 130 if findings.cut_short else 1)
    return 130 if findings.cut_short else 0


def _analysed(arguments: argparse.Namespace, simulate: bool) -> tuple[Findings, GoodputTable | None]:
    from adaptk.report.analysis import analyse_with_table
    from adaptk.table import GoodputTable

    table = None if arguments.table is None else GoodputTable.load(arguments.table)
    with _Going() as going:
        return analyse_with_table(arguments.traces, table, lenient=arguments.lenient, simulate=simulate, progress=going)


class _Going:
    """How far the analysis is, on standard error where that is a terminal."""

    def __init__(self) -> None:
        import sys

        from adaptk.progress import Progress

        self._progress: Progress | None = Progress() if sys.stderr is not None and sys.stderr.isatty() else None
        self._begun = time.monotonic()

    def __enter__(self) -> _Going:
        if self._progress is not None:
            self._progress.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.__exit__(None, None, None)

    def __call__(self, what: str, share: float) -> None:
        """Be at a share of the whole, of what is said."""
        if self._progress is not None:
            spent = time.monotonic() - self._begun
            self._progress.reach(share, spent * (1.0 - share) / max(share, 0.01), what)
