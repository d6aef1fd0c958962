"""``adaptk replay``: policies judged on scenarios, on a recorded trace, or on a request log."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from adaptk.cli.console import Ticker, print_lines

if TYPE_CHECKING:
    from adaptk.replay.aggregate import Summary
    from adaptk.replay.scenarios import Scenario
    from adaptk.replay.sweep import Sweep
    from adaptk.replay.terminal import Line
    from adaptk.table import GoodputTable

NAME = "replay"
HELP = "judge policies by simulation: on named scenarios, a recorded trace or a request log"
SEEDS = 3
POLICY = "usual"
PRESET = "h100-8b"
_NEEDED = ("numba", "joblib")
_ONLY_WITH = {"trace": ("table", "arms"), "workload": ("table", "arms", "preset", "rate", "requests")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--scenario", nargs="+", metavar="ID", help="scenarios by name, or: all, cases, worlds")
    source.add_argument("--trace", type=Path, metavar="FILE", help="steps of an engine that adaptk recorded")
    source.add_argument("--workload", type=Path, metavar="FILE", help="request log: Azure's CSV or Mooncake's JSONL")
    source.add_argument("--list", action="store_true", help="name scenarios and policies, and do nothing else")
    parser.add_argument("--policy", nargs="+", metavar="NAME", default=[POLICY],
                        help=f"policies by name, or: usual, fixed, all (default {POLICY})")  # fmt: skip
    parser.add_argument("--seeds", type=_count, default=SEEDS, metavar="N",
                        help="worlds to average over, seeds 0 to N-1 (default %(default)s)")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="OUT", help="write one flat row per scenario, policy and seed")
    parser.add_argument("--html", type=Path, metavar="OUT", help="write a report with figures, one file")
    parser.add_argument("--jobs", type=_count, metavar="N", help="processes (default: as many as there are cores)")
    parser.add_argument("--lenient", action="store_true", help="skip and count lines of the file that cannot be read")
    parser.add_argument("--table", type=Path, metavar="FILE",
                        help="with --trace or --workload: the table that policies start from")  # fmt: skip
    parser.add_argument("--arms", type=_arms, metavar="K,K,...", help="with --trace or --workload: K to choose among")
    parser.add_argument("--preset", metavar="NAME", help=f"with --workload: the engine (default {PRESET})")
    parser.add_argument("--rate", type=float, metavar="X", help="with --workload: arrivals X times as fast")
    parser.add_argument("--requests", type=_count, metavar="N", help="with --workload: only the first N requests")


def run(arguments: argparse.Namespace) -> int:
    """Replay and show what came out; 0, 1 after an error, 130 after an interrupt."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        are = "are" if len(missing) > 1 else "is"
        return _fail(f"{' and '.join(missing)} {are} not installed: pip install 'adaptk[replay]'")
    if arguments.html is not None and find_spec("matplotlib") is None:
        return _fail("matplotlib is not installed, --html needs it: pip install 'adaptk[replay]'")
    if arguments.list:
        return _list()
    for path in (arguments.json, arguments.html):
        if path is not None and not path.absolute().parent.is_dir():
            return _fail(f"{path}: its folder does not exist; make it first")
    try:
        return _replay(arguments)
    except ValueError as error:  # of names, files and options: all say what to do
        return _fail(str(error))
    except KeyboardInterrupt:  # outside the sweep: while reading or writing
        return _fail("interrupted", 130)


class _Source(NamedTuple):
    """What is to be replayed, with what is to be said about it."""

    scenarios: list[Scenario]
    policies: list[str]
    notes: list[str]
    skipped: int = 0
    measured_tokens_per_s: float | None = None


def _replay(arguments: argparse.Namespace) -> int:
    from joblib import cpu_count

    from adaptk.replay import sweep
    from adaptk.replay.aggregate import summaries
    from adaptk.replay.files import write_json

    source = _source(arguments)
    plan = sweep.planned(source.scenarios, source.policies)
    jobs = min(arguments.jobs or cpu_count(), len(source.scenarios) * arguments.seeds)
    with Ticker("replaying", sweep.pieces(source.scenarios, plan, arguments.seeds, jobs)) as ticker:
        done = sweep.collect(source.scenarios, plan, arguments.seeds, jobs, ticker)
    parts = summaries(done.rows)
    _show(source, done, parts)
    command = ["adaptk", *arguments.argv]
    if arguments.json is not None:
        write_json(arguments.json, done.rows, command, source.skipped, done.cut_short)
        print(f"Rows: {arguments.json}")
    if arguments.html is not None:
        whole = _report(arguments, source, done, parts, jobs, command)
        print(f"Report: {arguments.html}")
        return 0 if whole else 130
    return 130 if done.cut_short else 0


def _source(arguments: argparse.Namespace) -> _Source:
    """What the options name.

    Raises
    ------
    ValueError
        If a name is unknown, a file cannot be read, or an option goes with another source.
    """
    kind = next(name for name in ("scenario", "trace", "workload") if getattr(arguments, name) is not None)
    for option in ("table", "arms", "preset", "rate", "requests"):
        if getattr(arguments, option) is not None and option not in _ONLY_WITH.get(kind, ()):
            meant = " or ".join(f"--{name}" for name, options in _ONLY_WITH.items() if option in options)
            raise ValueError(f"--{option} goes with {meant}: leave it out")
    if kind == "scenario":
        from adaptk.replay.sweep import chosen

        return _Source(chosen(arguments.scenario), arguments.policy, [])
    return _trace(arguments) if kind == "trace" else _workload(arguments)


def _trace(arguments: argparse.Namespace) -> _Source:
    from adaptk.replay.traced import traced_scenario

    traced = traced_scenario(arguments.trace, _table(arguments), arguments.arms, arguments.lenient)
    notes = [*traced.notes, *([f"{traced.skipped} rows could not be read and were skipped"] if traced.skipped else [])]
    return _Source([traced.scenario], arguments.policy, notes, traced.skipped, traced.measured_tokens_per_s)


def _workload(arguments: argparse.Namespace) -> _Source:
    from adaptk.replay.fleet import workload_scenario

    fleet = workload_scenario(
        arguments.workload,
        engine=arguments.preset or PRESET,
        table=_table(arguments),
        arms=arguments.arms,
        rate=1.0 if arguments.rate is None else arguments.rate,
        requests=arguments.requests,
        lenient=arguments.lenient,
    )
    return _Source([fleet.scenario], arguments.policy, fleet.notes, fleet.skipped)


def _table(arguments: argparse.Namespace) -> GoodputTable | None:
    from adaptk.table import GoodputTable

    return None if arguments.table is None else GoodputTable.load(arguments.table)


def _show(source: _Source, done: Sweep, parts: Sequence[Summary]) -> None:
    """Print the tables."""
    from adaptk.replay import terminal
    from adaptk.replay.aggregate import overall
    from adaptk.replay.terminal import Line

    lines: list[Line] = []
    for note in _notes(source, parts):
        lines += [Line(text) for text in terminal.wrapped(note)]
    ran = {part.scenario for part in parts}
    for scenario in source.scenarios:
        own = [part for part in parts if part.scenario == scenario.name]
        if own:
            checked = bool(scenario.checks)
            lines += [Line(""), *terminal.scenario_lines(scenario.name, scenario.about, own, checked)]
    if len(ran) > 1:
        checked_names = {scenario.name for scenario in source.scenarios if scenario.checks}
        lines += [Line(""), *terminal.overall_lines(overall(done.rows, checked_names), len(ran))]
    if ran:
        waits = any(part.latency_ms is not None for part in parts)
        lines += [Line(""), *terminal.legend(waits, any(scenario.checks for scenario in source.scenarios))]
    if done.cut_short:
        lines += [Line(""), Line("Interrupted: this is what was finished until then.", "title")]
    print_lines(lines[1:] if lines and not lines[0].text else lines)


def _notes(source: _Source, parts: Sequence[Summary]) -> list[str]:
    """What the source says, and for a trace its measured goodput beside the simulated one."""
    if source.measured_tokens_per_s is None:
        return source.notes
    from adaptk.replay.traced import RECORDED

    measured = source.measured_tokens_per_s
    said = f"Measured when the trace was recorded: {measured:.1f} tok/s."
    for part in parts:
        if part.policy == RECORDED:
            off = part.tokens_per_s / measured - 1.0
            said += f" Simulated under the recorded policy: {part.tokens_per_s:.1f} tok/s ({100 * off:+.1f} %)."
    return [*source.notes, said]


def _report(
    arguments: argparse.Namespace,
    source: _Source,
    done: Sweep,
    parts: Sequence[Summary],
    jobs: int,
    command: Sequence[str],
) -> bool:
    """Write the report; whether it is whole."""
    from datetime import UTC, datetime

    from adaptk.replay import report, sweep

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
        notes=_notes(source, parts),
        cut_short=cut_short,
    )
    report.write_html(arguments.html, content)
    return not cut_short


def _list() -> int:
    from adaptk.replay import terminal
    from adaptk.replay.registry import POLICIES, USUAL
    from adaptk.replay.scenarios import scenarios
    from adaptk.replay.terminal import Line

    lines = [Line("Scenarios", "title")]
    lines += map(Line, terminal.listing([(scenario.name, scenario.about) for scenario in scenarios().values()]))
    policies = [(name, entry.about) for name, entry in POLICIES.items()]
    lines += [Line(""), Line("Policies", "title")]
    lines += map(Line, terminal.listing([*policies, ("fixed-K", "the same K at every step: fixed-0, fixed-1, ...")]))
    lines += [Line(""), *map(Line, terminal.wrapped(f"usual: {', '.join(USUAL)}, and every fixed K"))]
    print_lines(lines)
    return 0


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number of at least 1")
    return value


def _arms(text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(k) for k in text.split(",")}))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: give whole numbers with commas, as 0,1,3,7") from None


def _fail(message: str, status: int = 1) -> int:
    print(f"adaptk replay: {message}", file=sys.stderr)
    return status
