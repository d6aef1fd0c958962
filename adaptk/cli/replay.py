"""``adaptk replay``: policies judged on scenarios, on a recorded trace, or on a request log."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from adaptk.cli import options
from adaptk.cli.console import Ticker, failing, guarded, print_encoded, print_lines, print_text, tell
from adaptk.cli.replaylist import give_list

if TYPE_CHECKING:
    from adaptk.replay.sources import Source
    from adaptk.replay.sweep import Sweep
    from adaptk.replay.views.aggregate import Summary

NAME = "replay"
HELP = "judge policies by simulation: on named scenarios, a recorded trace or a request log"
SEEDS = 3
POLICY = "usual"
PRESET = "h100-8b"
EXAMPLE = """\
Example:
  adaptk replay --scenario dense-wave --policy table adaptk --seeds 1
  adaptk replay --trace trace.jsonl --policy table adaptk --json replay.json
  adaptk replay --workload requests.csv --policy adaptk --html replay.html"""
_NEEDED = ("numba", "joblib", "scipy")
_ONLY_WITH = {
    "trace": ("table", "arms"),
    "workload": ("table", "arms", "preset", "acceptance", "rate", "requests"),
}
_fail = failing(NAME)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    options.add_example(parser, EXAMPLE)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--scenario", nargs="+", metavar="ID",
                        help="scenarios by name, or: all, cases, worlds, core, apart")  # fmt: skip
    source.add_argument("--trace", type=Path, metavar="FILE", help="steps of an engine that adaptk recorded")
    source.add_argument("--workload", type=Path, metavar="FILE", help="request log: Azure's CSV or Mooncake's JSONL")
    source.add_argument("--rows", nargs="+", type=Path, metavar="FILE",
                        help="files that --json wrote: show them together, replay nothing")  # fmt: skip
    source.add_argument("--list", action="store_true", help="name scenarios, policies and presets; do nothing else")
    parser.add_argument("--policy", nargs="+", metavar="NAME", default=[POLICY],
                        help=f"policies by name, or: usual, fixed, all (default {POLICY})")  # fmt: skip
    parser.add_argument("--seeds", type=options.count, default=SEEDS, metavar="N",
                        help="worlds to average over, seeds 0 to N-1 (default %(default)s)")  # fmt: skip
    options.add_json(parser, "one flat row per scenario, policy and seed, or what --list names,", file=True)
    parser.add_argument("--html", type=Path, metavar="OUT", help="write a report with figures, one file")
    parser.add_argument(
        "--jobs", type=options.count, metavar="N", help="processes (default: as many as there are cores)"
    )
    parser.add_argument("--lenient", action="store_true", help="skip and count lines of the file that cannot be read")
    parser.add_argument("--table", type=Path, metavar="FILE",
                        help="with --trace or --workload: the table that policies start from; with --trace it also "
                             "gives the cost of each K that the trace hardly played")  # fmt: skip
    parser.add_argument(
        "--arms", type=options.arms, metavar="K,K,...", help="with --trace or --workload: K to choose among"
    )
    parser.add_argument("--preset", metavar="NAME",
                        help=f"with --workload: the simulated engine, see --list (default {PRESET})")  # fmt: skip
    parser.add_argument("--acceptance", type=options.acceptance, metavar="A,A,...",
                        help="with --workload: acceptance of the drafter at each position, given that all before were "
                             "accepted, as 0.8,0.7,0.6; the last one holds (default: the preset's)")  # fmt: skip
    parser.add_argument("--rate", type=float, metavar="X", help="with --workload: arrivals X times as fast")
    parser.add_argument(
        "--requests", type=options.count, metavar="N", help="with --workload: only the first N requests"
    )


def run(arguments: argparse.Namespace) -> int:
    """Replay and show what came out; 0, 1 after an error, 130 after an interrupt."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        are = "are" if len(missing) > 1 else "is"
        return _fail(f"{' and '.join(missing)} {are} not installed: pip install 'adaptk[tools]'")
    if arguments.html is not None and find_spec("matplotlib") is None:
        return _fail("matplotlib is not installed, --html needs it: pip install 'adaptk[tools]'")
    return guarded(
        lambda: give_list(arguments.json) if arguments.list else _replay(arguments),
        lambda said, status: _fail(said.replace("read leniently", "pass --lenient"), status),
    )


class _Result(NamedTuple):
    """What ran and what came out; ``notes`` are said above the figures."""

    source: Source
    done: Sweep
    parts: list[Summary]
    notes: list[str]


def _replay(arguments: argparse.Namespace) -> int:
    from joblib import cpu_count

    from adaptk.outputs import check_outputs, write_whole
    from adaptk.replay import sweep
    from adaptk.replay.sources import measured_beside_simulated
    from adaptk.replay.views.aggregate import summaries
    from adaptk.replay.views.files import document
    from adaptk.replay.views.remarks import remarks

    read = {f"--{name}": getattr(arguments, name) for name in ("trace", "workload", "table")}
    read |= {f"--rows {path}": path for path in arguments.rows or ()}
    printed = arguments.json == options.STDOUT
    rows_file = None if printed else arguments.json
    check_outputs({"--json": rows_file, "--html": arguments.html}, read)
    source = _source(arguments)
    jobs = min(arguments.jobs or cpu_count(), len(source.scenarios) * arguments.seeds)
    if source.rows is not None:
        done = sweep.Sweep(source.rows)
    else:
        plan = sweep.planned(source.scenarios, source.policies)
        with Ticker("replaying", sweep.pieces(source.scenarios, plan, arguments.seeds, jobs)) as ticker:
            done = sweep.collect(source.scenarios, plan, arguments.seeds, jobs, ticker)
    parts = summaries(done.rows)
    measured = measured_beside_simulated(source, parts)
    notes = [*source.notes, *measured, *remarks(source.scenarios, done.rows, parts)]
    result = _Result(source, done, parts, notes)
    command = ["adaptk", *arguments.argv]
    if arguments.json is not None:
        rows = document(done.rows, command, source.skipped, done.cut_short, notes, source.measured_tokens_per_s)
        if printed:
            print_encoded(rows.decode())
        else:  # before anything is shown: whoever reads that may be gone
            write_whole(arguments.json, rows)
    if not printed:
        _show(result)
    say = tell if printed else print_text
    if rows_file is not None:
        say(f"Rows: {rows_file}")
    if arguments.html is not None:
        whole = _report(arguments.html, result, jobs, command)
        say(f"Report: {arguments.html}")
        return 0 if whole else 130
    return 130 if done.cut_short else 0


def _source(arguments: argparse.Namespace) -> Source:
    """What the options name.

    Raises
    ------
    ValueError
        If a name is unknown, a file cannot be read, or an option goes with another source.
    """
    from adaptk.replay import sources
    from adaptk.replay.traces.traced import RECORDED
    from adaptk.table import GoodputTable

    kind = next(name for name in ("scenario", "trace", "workload", "rows") if getattr(arguments, name) is not None)
    for option in ("table", "arms", "preset", "acceptance", "rate", "requests"):
        if getattr(arguments, option) is not None and option not in _ONLY_WITH.get(kind, ()):
            meant = " or ".join(f"--{name}" for name, its in _ONLY_WITH.items() if option in its)
            raise ValueError(f"--{option} goes with {meant}: leave it out")
    if kind != "trace" and RECORDED in arguments.policy:
        raise ValueError(f"policy {RECORDED!r} is what a trace recorded: leave it out, or give --trace")
    policies, lenient = arguments.policy, arguments.lenient
    if kind == "scenario":
        return sources.from_scenarios(arguments.scenario, policies)
    if kind == "rows":
        return sources.from_rows(arguments.rows)
    table = None if arguments.table is None else GoodputTable.load(arguments.table)
    if kind == "trace":
        return sources.from_trace(arguments.trace, policies, table, arguments.arms, lenient)
    return sources.from_workload(
        arguments.workload,
        policies,
        arguments.preset or PRESET,
        table=table,
        arms=arguments.arms,
        rate=arguments.rate,
        requests=arguments.requests,
        lenient=lenient,
        acceptance=arguments.acceptance,
    )


def _show(result: _Result) -> None:
    """Print the tables."""
    from adaptk.replay.views import terminal
    from adaptk.replay.views.aggregate import overall
    from adaptk.replay.views.remarks import closely, engine, verdict
    from adaptk.replay.views.standing import standing_lines
    from adaptk.textlines import Line, wrapped

    source, done, parts, _ = result
    lines = [Line(text) for note in result.notes for text in wrapped(note)]
    here = {part.scenario for part in parts}
    ran = [scenario for scenario in source.scenarios if scenario.name in here]
    for scenario in ran:
        own = [part for part in parts if part.scenario == scenario.name]
        about = [f"{scenario.name}: {scenario.about}", engine(scenario)]
        lines += [Line(""), *terminal.scenario_lines(about, own, verdict(scenario, done.rows))]
    if len(ran) > 1:
        lines += [Line(""), *terminal.overall_lines(overall(done.rows), len(ran), closely(ran))]
        standing = standing_lines(done.rows, ran)
        lines += [Line(""), *standing] if standing else []
    if ran:
        waits = any(part.latency_ms is not None for part in parts)
        checked = any(part.passed is not None for part in parts)
        lines += [Line(""), *terminal.legend(waits, checked)]
    if done.cut_short:
        finished = "this is what was finished until then" if ran else "nothing was finished until then"
        lines += [Line(""), Line(f"Interrupted: {finished}.", "title")]
    print_lines(lines[1:] if lines and not lines[0].text else lines)


def _report(path: Path, result: _Result, jobs: int, command: Sequence[str]) -> bool:
    """Write the report; whether it is whole."""
    from datetime import UTC, datetime

    from adaptk.replay import report, sweep

    source, done, parts, notes = result
    told = [] if done.cut_short else sweep.stories_of(source.scenarios, parts)
    with Ticker("drawing", len(told)) as ticker:
        stories = sweep.illustrated(told, parts, jobs, ticker)
    cut_short = done.cut_short or len(stories) < len(told)
    left_out = ""
    if len(stories) < len(source.scenarios):
        why = "the run was interrupted" if cut_short else "those in which adaptk is furthest from the oracle"
        left_out = f"Pictures of single runs stand with {len(stories)} of {len(source.scenarios)} scenarios: {why}."
    content = report.Content(
        title="adaptk replay",
        command=command,
        created=datetime.now(UTC),
        rows=done.rows,
        scenarios=source.scenarios,
        stories=stories,
        left_out=left_out,
        notes=notes,
        cut_short=cut_short,
    )
    report.write_html(path, content)
    return not cut_short
