"""``adaptk doctor``: what of this vLLM adaptk can work with and, measured, what having a drafter costs here."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptk._version import __version__
from adaptk.cli import options
from adaptk.cli.console import accept_any_sign, guarded
from adaptk.cli.durations import duration
from adaptk.cli.measuring import ending_politely, tell_if_busy
from adaptk.cli.profilebar import Bar
from adaptk.outputs import check_outputs, write_whole

if TYPE_CHECKING:
    from adaptk.profile.orders import Engine, EngineOrder
    from adaptk.profile.takingturns import TakingTurns

NAME = "doctor"
HELP = "say whether adaptk fits this vLLM; with --measure, what having a drafter costs"
PASSES_ON = True  # what it does not know is vLLM's
BUDGET, TARGET, MAX_TOKENS = 180.0, 0.02, 128
SCHEMA_VERSION = 1
USAGE = "adaptk doctor [--measure MODEL [options] [arguments of vllm serve]]"
EPILOG = """\
With --measure everything else goes to vLLM as vllm serve would take it:
  adaptk doctor --measure MODEL --max-num-seqs 32 \\
    --speculative-config '{"method": "ngram", "num_speculative_tokens": 7}'
Two engines are started, one of them without the drafter, and timed in turns."""
_OF_MEASURING = ("budget", "batches", "arms", "prompts", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.usage, parser.epilog = USAGE, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.allow_abbrev = False  # vLLM's options begin like some of these
    parser.add_argument("--measure", action="store_true",
                        help="time the engine without a drafter, with it at K=0, and at each K")  # fmt: skip
    parser.add_argument("--budget", type=duration, metavar="TIME",
                        help="time of measuring, starts not counted (default 3m)")  # fmt: skip
    parser.add_argument("--batches", "--batch-sizes", type=options.counts, metavar="B,B,...",
                        help="batch sizes (default: powers of four up to max_num_seqs, and that)")  # fmt: skip
    parser.add_argument("--arms", type=options.arms, metavar="K,K,...",
                        help="K to measure (default: 0, 1, 3, 7 and num_speculative_tokens)")  # fmt: skip
    parser.add_argument("--prompts", type=Path, metavar="FILE",
                        help="JSONL with prompt or turns, for acceptance (default: built-in)")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured, one row per batch and K")


def run(arguments: argparse.Namespace) -> int:
    """Check, or measure; 0, 1 where something is wrong, 130 after an interrupt."""
    accept_any_sign()
    return guarded(lambda: _measure(arguments) if arguments.measure else _check(arguments), _fail)


def _check(arguments: argparse.Namespace) -> int:
    """Whether this Python has a vLLM that adaptk can enter."""
    useless = [f"--{name}" for name in _OF_MEASURING if getattr(arguments, name) is not None]
    if useless:
        raise ValueError(f"{' '.join(useless)}: nothing is measured without --measure; add it, or leave this out")
    if arguments.rest:
        print(f"{shlex.join(arguments.rest)}: not looked at, as an engine is with --measure only", file=sys.stderr)
    print(f"adaptk {__version__}, Python {platform.python_version()} ({sys.executable})")
    if find_spec("vllm") is None:
        return _fail("vLLM is not installed in this Python: install it here, or adaptk beside the vLLM that you use")
    try:
        with _silent_vllm():
            from adaptk.vllm_plugin import compat

            version, unfit = compat.vllm_version(), compat.unfit_reason()
    except Exception as error:  # whatever a broken installation raises
        return _fail(f"vLLM is installed and cannot be imported ({type(error).__name__}: {error}): mend it first")
    if unfit is not None:
        return _fail("\n".join(textwrap.wrap(unfit, 80, break_long_words=False)))
    print(f"vLLM {version}: every hook that adaptk needs is there")
    return 0


@contextmanager
def _silent_vllm() -> Iterator[None]:
    """What vLLM finds as it is imported, and reads this variable, was not asked for."""
    name = "VLLM_LOGGING_LEVEL"
    given = name in os.environ
    os.environ.setdefault(name, "ERROR")
    try:
        yield
    finally:
        if not given:
            del os.environ[name]


def _measure(arguments: argparse.Namespace) -> int:
    from adaptk.profile.orders import EngineDiedError
    from adaptk.profile.takingturns import TakingTurns
    from adaptk.vllm_plugin.profile_process import EngineProcess

    if find_spec("vllm") is None:
        return _fail("vLLM is not installed beside adaptk: there is nothing to measure")
    if find_spec("scipy") is None:
        return _fail("scipy is not installed: pip install 'adaptk[profile]'")
    check_outputs({"--json": arguments.json}, {"--prompts": arguments.prompts})
    order, plan = _asked(arguments)
    tell_if_busy()
    status, trouble = 0, ""
    with ending_politely(), Bar() as bar:

        def start(order: EngineOrder) -> Engine:
            bar.say("Starting the engine" if order.drafter else "Starting the engine without a drafter")
            return EngineProcess(order, bar.doing)

        turns = TakingTurns(order, plan, start, bar)
        try:
            turns.run()
        except EngineDiedError as error:
            status, trouble = 1, str(error)
        except KeyboardInterrupt:
            status, trouble = 130, "interrupted"
    _report(turns, arguments)
    return _fail(trouble, status) if trouble else 0


def _asked(arguments: argparse.Namespace) -> tuple[EngineOrder, Any]:
    """The engine and the plan.

    Raises
    ------
    ValueError
        If no model is named, or the prompts cannot be read.
    """
    from adaptk.profile.orders import EngineOrder
    from adaptk.profile.plan import Plan
    from adaptk.profile.prompts import read_prompts

    if not arguments.rest:
        raise ValueError("no engine is named: give what vllm serve would be given, the model first")
    if arguments.arms is not None and 0 not in arguments.arms:
        raise ValueError(f"--arms {','.join(map(str, arguments.arms))}: K=0 is what is asked for here; add 0")
    prompts = read_prompts(arguments.prompts)
    plan = Plan(len(prompts), arguments.budget or BUDGET, TARGET, MAX_TOKENS, arguments.batches)
    return EngineOrder(tuple(arguments.rest), arguments.arms, prompts), plan


def _report(turns: TakingTurns, arguments: argparse.Namespace) -> None:
    from adaptk.cli.doctorlines import tax_lines
    from adaptk.profile.result import engine_name

    rows = turns.rows()
    if not rows:
        return
    acceptance = turns.acceptance.conditional() if any(turns.acceptance.tried) else []
    title = f"{engine_name(turns.key)}: {turns.rounds} rounds, {turns.seconds:.0f} s, context {turns.context}"
    lines = [*textwrap.wrap(title, 80), *tax_lines(rows, acceptance)]
    for note in turns.notes:
        lines += textwrap.wrap(f"Note: {note}", 80, subsequent_indent="  ")
    print("\n".join(lines), flush=True)
    if arguments.json is not None:
        write_whole(arguments.json, _json(turns, arguments, acceptance))
        print(f"Rows: {arguments.json}")


def _json(turns: TakingTurns, arguments: argparse.Namespace, acceptance: list[float]) -> bytes:
    import msgspec

    from adaptk.profile.secrets import shown_command
    from adaptk.profile.taxrows import Span

    rows = [
        {name: value._asdict() if isinstance(value, Span) else value for name, value in row._asdict().items()}
        for row in turns.rows()
    ]
    held = {
        "schema_version": SCHEMA_VERSION,
        "adaptk": __version__,
        "command": shown_command(("adaptk", *arguments.argv)),
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {platform.system()}",
        "key": turns.key,
        "side_by_side": turns.side_by_side,
        "rounds": turns.rounds,
        "seconds": round(turns.seconds, 1),
        "acceptance": [round(share, 5) for share in acceptance],
        "notes": turns.notes,
        "rows": rows,
    }
    return msgspec.json.format(msgspec.json.encode(held), indent=1) + b"\n"


def _fail(message: str, status: int = 1) -> int:
    print(f"adaptk doctor: {message}", file=sys.stderr)
    return status
