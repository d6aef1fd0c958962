"""``adaptk doctor``: what will work here and what will not; with --measure, what having a drafter costs."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from adaptk.cli import options
from adaptk.cli.console import accept_any_sign, failing, guarded, print_json, write_json
from adaptk.cli.durations import duration
from adaptk.outputs import check_outputs

NAME = "doctor"
HELP = "say what will work here and what will not: vLLM, machine, settings, engine, table"
PASSES_ON = True  # what it does not know is vLLM's
USAGE = "adaptk doctor [options] [MODEL [arguments of vllm serve]]"
EPILOG = """\
Example: would adaptk work in this server? No engine is started.
  adaptk doctor MODEL --max-num-seqs 32 \\
    --speculative-config '{"method": "ngram", "num_speculative_tokens": 7}'

Give what vllm serve would be given, under the variables that it would have;
without MODEL the installation, the machine and the settings are looked at.
What is well is shown in brief, all of it by --json.
Status 0: adaptk works, though there may be notes and warnings; 1: a line that
begins with fail says what keeps it from working; 2: the command is misspelt.

With --measure two engines are started, one of them without the drafter, and
timed in turns for three minutes: what does having a drafter cost?"""
_OF_MEASURING = ("budget", "batches", "arms", "prompts")
_fail = failing(NAME)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    options.add_example(parser, EPILOG)
    parser.usage = USAGE
    parser.allow_abbrev = False  # vLLM's options begin like some of these
    parser.add_argument("--table", type=Path, metavar="FILE", help="a seed table to look at (default: ADAPTK_TABLE)")
    options.add_json(parser, "what was found", file=True)
    measured = parser.add_argument_group("measuring")
    measured.add_argument("--measure", action="store_true",
                          help="time the engine without a drafter, with it at K=0, and at each K")  # fmt: skip
    measured.add_argument("--budget", type=duration, metavar="TIME",
                          help="time of measuring, starts not counted (default 3m)")  # fmt: skip
    measured.add_argument("--batches", "--batch-sizes", type=options.counts, metavar="B,B,...",
                          help="batch sizes (default: powers of four up to max_num_seqs, and that)")  # fmt: skip
    measured.add_argument("--arms", type=options.arms, metavar="K,K,...",
                          help="K to measure (default: 0, 1, 3, 7 and num_speculative_tokens)")  # fmt: skip
    measured.add_argument("--prompts", type=Path, metavar="FILE",
                          help="JSONL with prompt or turns, for acceptance (default: built-in)")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Look, or measure; 0, 1 where something is wrong, 130 after an interrupt."""
    accept_any_sign()
    if arguments.measure:
        from adaptk.cli.doctormeasure import measure

        return guarded(lambda: measure(arguments), _fail)
    return guarded(lambda: _look(arguments), _fail)


def _look(arguments: argparse.Namespace) -> int:
    from adaptk.cli.doctorshow import Waiting, show
    from adaptk.doctor.examine import examine

    useless = [f"--{name}" for name in _OF_MEASURING if getattr(arguments, name) is not None]
    if useless:
        raise ValueError(f"{' '.join(useless)}: nothing is measured without --measure; add it, or leave this out")
    file = None if arguments.json == options.STDOUT else arguments.json
    check_outputs({"--json": file}, {"--table": arguments.table})
    table = None if arguments.table is None else str(arguments.table)
    with Waiting() as waiting:
        report = examine(arguments.rest, os.environ, table, waiting)
    if arguments.json == options.STDOUT:
        print_json(report.document())
        return int(report.fails)
    show(report)
    if file is not None:
        write_json(file, report.document())
    return int(report.fails)
