"""``adaptk profile``: a table of step times and acceptance, measured on the real engine."""

from __future__ import annotations

import argparse
import shlex
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from adaptk.cli import options
from adaptk.cli.console import accept_any_sign, failing, guarded, print_encoded, print_lines, print_text
from adaptk.cli.durations import duration
from adaptk.cli.measuring import ending_politely, tell_if_busy
from adaptk.cli.profilebar import Bar
from adaptk.outputs import check_new, check_outputs

if TYPE_CHECKING:
    from adaptk.profile.orders import Doing, Engine, EngineOrder
    from adaptk.profile.run import Profile, Request
    from adaptk.table import GoodputTable

NAME = "profile"
HELP = "measure a table on the real engine: give what vllm serve would be given"
PASSES_ON = True  # what it does not know is vLLM's
OUT = Path("table.json")
BUDGET, TARGET, TEMPERATURE, MAX_TOKENS = 600.0, 0.03, 0.0, 128
_OF_ENGINES = (
    "budget",
    "target",
    "arms",
    "batches",
    "contexts",
    "prompts",
    "temperature",
    "max_tokens",
    "baseline",
    "resume",
)
_share = options.number(lambda value: 0.0 < value < 1.0, "a share between 0 and 1, as 0.03")
_temperature = options.number(lambda value: 0.0 <= value <= 10.0, "a temperature from 0 to 10")
USAGE = "adaptk profile MODEL [options] [arguments of vllm serve]"
EXAMPLE = """\
Everything else goes to vLLM as vllm serve would take it. Example:
  adaptk profile MODEL --max-num-seqs 32 --budget 5m --out measured.json \\
    --speculative-config '{"method": "ngram", "num_speculative_tokens": 7}'
Or without an engine, from what served requests recorded:
  adaptk profile --from-traces trace.jsonl --out from-trace.json"""
_fail = failing(NAME)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.usage = USAGE
    options.add_example(parser, EXAMPLE)
    parser.allow_abbrev = False  # vLLM's options begin like some of these
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE",
                        help="the table (default %(default)s); its journal is kept beside it")  # fmt: skip
    parser.add_argument("--budget", type=duration, metavar="TIME",
                        help="time of measuring, of all runs together, starts not counted (default 10m)")  # fmt: skip
    parser.add_argument("--target", type=_share, metavar="X",
                        help="width of a 95 %% interval at which a cell is done (default 0.03)")  # fmt: skip
    parser.add_argument("--arms", type=options.arms, metavar="K,K,...",
                        help="K to measure (default: 0, 1, 3, 7 and num_speculative_tokens)")  # fmt: skip
    parser.add_argument("--batches", type=options.counts, metavar="B,B,...",
                        help="batch sizes (default: powers of two up to max_num_seqs)")  # fmt: skip
    parser.add_argument("--contexts", type=options.counts, metavar="C,C,...",
                        help="tokens per request in the KV cache (default: two levels that fit)")  # fmt: skip
    parser.add_argument("--prompts", type=Path, metavar="FILE",
                        help="JSONL with prompt or turns, for acceptance and context (default: built-in)")  # fmt: skip
    parser.add_argument("--temperature", type=_temperature, metavar="T",
                        help="of the answers (default 0)")  # fmt: skip
    parser.add_argument("--max-tokens", type=options.count, metavar="N",
                        help="longest answer (default 128)")  # fmt: skip
    parser.add_argument("--baseline", action="store_true",
                        help="also measure the engine without a drafter, and what having one costs")  # fmt: skip
    parser.add_argument("--resume", action="store_true", help="go on with what --out and its journal hold")
    parser.add_argument("--from-traces", type=Path, nargs="+", metavar="FILE",
                        help="build the table from traces of ADAPTK_TRACE instead; starts no engine")  # fmt: skip
    options.add_json(parser, "the table")


def run(arguments: argparse.Namespace) -> int:
    """Measure, write the table and show it; 0, 1 after an error, 130 after an interrupt."""
    accept_any_sign()
    if find_spec("scipy") is None:
        return _fail("scipy is not installed: pip install 'adaptk[tools]'")
    return guarded(lambda: _from_traces(arguments) if arguments.from_traces else _measure(arguments), _fail)


def _from_traces(arguments: argparse.Namespace) -> int:
    from adaptk.profile.traces import table_from_traces

    useless = [name for name in _OF_ENGINES if getattr(arguments, name) not in (None, False)]
    if arguments.rest or useless:
        given = [*(f"--{name.replace('_', '-')}" for name in useless), *arguments.rest]
        raise ValueError(f"{shlex.join(given)}: no engine is started with --from-traces; leave this out")
    check_new("--out", arguments.out, {f"--from-traces {path}": path for path in arguments.from_traces})
    made = table_from_traces(arguments.from_traces)
    made.table.save(arguments.out)
    if arguments.json:
        _print_file(arguments.out)
    else:
        _show(made.table, arguments.out, made.notes)
    return 0


def _measure(arguments: argparse.Namespace) -> int:
    from adaptk.profile.orders import EngineDiedError
    from adaptk.profile.run import Profile, journal_path
    from adaptk.vllm_plugin.profile_process import EngineProcess

    if find_spec("vllm") is None:
        return _fail("vLLM is not installed beside adaptk: install it, or use --from-traces or adaptk surface")
    request = _request(arguments)
    tell_if_busy()
    with ending_politely(), Bar() as bar:

        def start(order: EngineOrder) -> Engine:
            bar.say("Starting the engine" if order.drafter else "Starting the engine without a drafter")
            return EngineProcess(order, bar.doing)

        profile = Profile(request, start, bar)
        status, trouble = 0, ""
        try:
            profile.run()
        except EngineDiedError as error:
            status, trouble = 1, f"{error}\n{_how_to_go_on(error.doing)}" if profile.table else str(error)
        except KeyboardInterrupt:
            more = (
                f": adaptk profile --resume --out {request.out} goes on" if journal_path(request.out).exists() else ""
            )
            status, trouble = 130, f"interrupted{more}"
    if arguments.json and profile.table is not None:
        _print_file(request.out)
    else:
        _report(profile, request)
    return _fail(trouble, status) if trouble else 0


def _request(arguments: argparse.Namespace) -> Request:
    """What the options ask for.

    Raises
    ------
    ValueError
        If an option cannot be met, or nothing says which engine to start.
    """
    from adaptk.profile.journal import read_journal
    from adaptk.profile.orders import EngineOrder
    from adaptk.profile.plan import Plan
    from adaptk.profile.prompts import read_prompts
    from adaptk.profile.run import Request, journal_path

    out: Path = arguments.out
    rest, past = tuple(arguments.rest), None
    if arguments.resume:
        check_outputs({"--out": out}, {"--prompts": arguments.prompts})
        if not rest:
            past = read_journal(journal_path(out)).began
            rest = past.arguments
    else:
        if out.is_file():
            raise ValueError(f"--out {out}: exists already: go on with --resume, remove it, or give another --out")
        check_new("--out", out, {"--prompts": arguments.prompts})
    if not rest:
        raise ValueError("no engine is named: give what vllm serve would be given, the model first")
    file = arguments.prompts
    if file is None and past is not None and past.prompts_file is not None:
        file = Path(past.prompts_file)
    prompts = read_prompts(file)
    given = {"temperature": TEMPERATURE, "max_tokens": MAX_TOKENS, "budget": BUDGET, "target": TARGET}
    if past is not None:
        given |= {"temperature": past.temperature, "max_tokens": past.max_tokens, "target": past.target}
        given["budget"] = past.budget_s
    given |= {name: getattr(arguments, name) for name in given if getattr(arguments, name) is not None}
    return Request(
        engine=EngineOrder(rest, arguments.arms, prompts, temperature=given["temperature"]),
        plan=Plan(
            prompts=len(prompts),
            budget_s=given["budget"],
            target=given["target"],
            max_tokens=int(given["max_tokens"]),
            batches=arguments.batches,
            contexts=arguments.contexts,
        ),
        out=out,
        command=("adaptk", *arguments.argv),
        baseline=arguments.baseline,
        resume=arguments.resume,
        prompts_file=None if file is None else str(file.absolute()),
    )


def _report(profile: Profile, request: Request) -> None:
    if profile.table is None:
        return
    _show(profile.table, request.out, profile.notes)
    print_text("\n".join(textwrap.wrap(profile.summary, 80)))
    for tax in profile.taxes:
        interval = "" if tax.low is None or tax.high is None else f" [{tax.low:.2f},{tax.high:.2f}]"
        where = "" if tax.context is None else f", context {tax.context:g}"
        print_text(f"K=0 over no drafter, batch {tax.batch}{where}: {tax.ratio:.2f}{interval}")
    if any(tax.high is not None and tax.high < 1.0 for tax in profile.taxes):
        print_text("A drafter makes K=0 no faster: this machine was not the same for both engines. Measure again.")


def _print_file(out: Path) -> None:
    print_encoded(out.read_text(encoding="utf-8"))


def _show(table: GoodputTable, out: Path, notes: list[str]) -> None:
    from adaptk.tabletools import show
    from adaptk.tabletools.survey import survey

    seen = survey(table, None, None)
    print_lines([*show.run_lines(seen, table), *show.tie_lines(seen)])
    for note in notes:
        print_text("\n".join(textwrap.wrap(f"Note: {note}", 80, subsequent_indent="  ")))
    print_text(f"Table: {out} (adaptk table show, check, export --vllm)")


def _how_to_go_on(doing: Doing | None) -> str:
    if doing is None or doing.k == 0:
        return "What was measured until then is in the table; --resume goes on."
    return (
        f"What was measured until then is in the table. --resume goes on without K={doing.k} at batch {doing.batch} "
        "and beyond; with --arms it goes on without that K altogether."
    )
