"""``adaptk doctor --measure``: what having a drafter costs, timed on two real engines in turns."""

from __future__ import annotations

import argparse
import platform
import textwrap
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptk._version import __version__
from adaptk.cli import options
from adaptk.cli.console import failing, print_json, print_text, write_json
from adaptk.cli.measuring import ending_politely, tell_if_busy
from adaptk.cli.profilebar import Bar
from adaptk.outputs import check_outputs

if TYPE_CHECKING:
    from adaptk.profile.orders import Engine, EngineOrder
    from adaptk.profile.takingturns import TakingTurns

BUDGET, TARGET, MAX_TOKENS = 180.0, 0.02, 128
SCHEMA_VERSION = 1
_fail = failing("doctor")


def measure(arguments: argparse.Namespace) -> int:
    """Measure, and show what was found; 0, 1 where something is wrong, 130 after an interrupt."""
    from adaptk.profile.orders import EngineDiedError
    from adaptk.profile.takingturns import TakingTurns
    from adaptk.vllm_plugin.profile_process import EngineProcess

    if find_spec("vllm") is None:
        return _fail("vLLM is not installed beside adaptk: there is nothing to measure")
    if find_spec("scipy") is None:
        return _fail("scipy is not installed: pip install 'adaptk[tools]'")
    check_outputs({"--json": _file(arguments)}, {"--prompts": arguments.prompts})
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
    if arguments.json == options.STDOUT:
        print_json(_document(turns, arguments, acceptance))
        return
    title = f"{engine_name(turns.key)}: {turns.rounds} rounds, {turns.seconds:.0f} s, context {turns.context}"
    lines = [*textwrap.wrap(title, 80), *tax_lines(rows, acceptance)]
    for note in turns.notes:
        lines += textwrap.wrap(f"Note: {note}", 80, subsequent_indent="  ")
    print_text("\n".join(lines))
    file = _file(arguments)
    if file is not None:
        write_json(file, _document(turns, arguments, acceptance))
        print_text(f"Rows: {file}")


def _file(arguments: argparse.Namespace) -> Path | None:
    """Where rows are to be written, if to a file."""
    return None if arguments.json == options.STDOUT else arguments.json


def _document(turns: TakingTurns, arguments: argparse.Namespace, acceptance: list[float]) -> dict[str, Any]:
    from adaptk.profile.secrets import shown_command
    from adaptk.profile.taxrows import Span

    rows = [
        {name: value._asdict() if isinstance(value, Span) else value for name, value in row._asdict().items()}
        for row in turns.rows()
    ]
    return {
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
