"""``adaptk top``: engines live, from their metrics ports."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec

from adaptk.cli import options
from adaptk.cli.console import accept_any_sign, failing, guarded, print_json
from adaptk.cli.durations import duration
from adaptk.live.marks import MARKS

if TYPE_CHECKING:
    from adaptk.live.address import Address
    from adaptk.live.fleet import Seen

NAME = "top"
HELP = "live view of one or many engines: K, its reasons, table against belief, gain"
OK = 0
_LEAST_S = 0.1
_fail = failing(NAME)
_EXAMPLE = f"""\
ADDRESS is the server's ADAPTK_METRICS_HOST:ADAPTK_METRICS_PORT, a port of this
machine, a range of ports (one for each data-parallel rank, as 9475-9482), or a
URL. Without any, those variables are read from the environment.

On a terminal it is a screen that goes on until q (? shows the keys); elsewhere
a line of 80 columns for each engine and interval, in which what has no room is
left out. +2/+30 % on vLLM/K=0 is the gain in tokens over vLLM's own K and over
K=0; in shadow what adaptk would gain, and K=1/3 is played 1, chosen 3.
Status 1 if no engine could be reached.

Marks:
{MARKS}

Example:
  adaptk top --once 127.0.0.1:9475
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("addresses", nargs="*", metavar="ADDRESS", help="metrics ports to watch")
    parser.add_argument("--once", action="store_true", help="look once, print that and end")
    parser.add_argument("--interval", type=_interval, default=2.0, metavar="TIME",
                        help="time from one look to the next, as 0.5s or 10s (default: 2s)")  # fmt: skip
    options.add_json(parser, "what is seen, an object in a line for each look,")
    options.add_example(parser, _EXAMPLE)


def _interval(text: str) -> float:
    seconds = duration(text)
    if seconds < _LEAST_S:
        raise argparse.ArgumentTypeError(f"{text!r}: give at least {_LEAST_S} s")
    return seconds


def run(arguments: argparse.Namespace) -> int:
    """Watch; the exit status: 0, 1 if no engine could be reached, 130 if interrupted while printing."""
    from adaptk.live.address import EXAMPLE, addresses, from_environment

    accept_any_sign()
    try:
        asked = addresses(arguments.addresses) if arguments.addresses else from_environment(os.environ)
    except ValueError as error:
        return _fail(str(error), 2 if arguments.addresses else 1)
    if not asked:
        return _fail(f"no engine is named: give its metrics port, as adaptk top {EXAMPLE}, or set ADAPTK_METRICS_PORT")
    on_screen = _is_screen() and not arguments.json
    missing = [name for name in ("prometheus_client", *(["rich"] if on_screen else [])) if find_spec(name) is None]
    if missing:
        return _fail(f"{' and '.join(missing)} {'are' if missing[1:] else 'is'} missing: pip install 'adaptk[tools]'")
    return guarded(lambda: _watch(arguments, asked, on_screen), _fail)


def _is_screen() -> bool:
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _watch(arguments: argparse.Namespace, asked: Sequence[Address], on_screen: bool) -> int:
    if on_screen and not arguments.once:
        from adaptk.live.screen import watch

        ended = watch(asked, arguments.interval)
        return OK if ended in (None, signal.SIGINT) else 128 + ended

    from adaptk.live.rounds import rounds

    reached = False
    for engines in rounds(asked, None if arguments.once else arguments.interval):
        reached = reached or any(seen.snapshot is not None for seen in engines)
        _show(arguments, engines, on_screen)
    return OK if reached else 1


def _show(arguments: argparse.Namespace, engines: Sequence[Seen], on_screen: bool) -> None:
    from adaptk.live import plain

    if arguments.json:
        made = plain.document(engines, time.time())
        print_json(made) if arguments.once else _print(msgspec.json.encode(made).decode())
    elif on_screen:
        from adaptk.live.screen import print_still

        print_still(engines)
    else:
        clock = time.strftime("%H:%M:%S")
        _print("\n".join(plain.plain_line(seen, clock) for seen in engines))


def _print(text: str) -> None:
    if sys.stdout is not None:
        print(text, flush=True)  # a reader that has gone away ends the watch
