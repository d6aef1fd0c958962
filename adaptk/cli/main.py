"""``adaptk COMMAND``: finds the command and runs it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from adaptk._version import __version__
from adaptk.cli import demo, doctor, mode, profile, replay, surface, table

COMMANDS = (profile, doctor, surface, table, replay, mode, demo)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    made = argparse.ArgumentParser(
        prog="adaptk", description="Pick the number of draft tokens for every step of vLLM's engine loop."
    )
    made.add_argument("--version", action="version", version=f"adaptk {__version__}")
    commands = made.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        sub = commands.add_parser(command.NAME, help=command.HELP, description=command.HELP)
        command.add_arguments(sub)
        sub.set_defaults(run=command.run, passes_on=getattr(command, "PASSES_ON", False))
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit status."""
    given = sys.argv[1:] if argv is None else list(argv)
    whole = parser()
    arguments, rest = whole.parse_known_args(given, argparse.Namespace(argv=given))
    if rest and not arguments.passes_on:
        whole.error(f"unrecognized arguments: {' '.join(rest)}")
    arguments.rest = rest
    status: int = arguments.run(arguments)
    return status


if __name__ == "__main__":
    sys.exit(main())
