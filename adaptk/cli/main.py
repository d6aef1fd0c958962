"""``adaptk COMMAND``: finds the command and runs it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from adaptk._version import __version__
from adaptk.cli.completion import add_completion
from adaptk.cli.console import discard_output, tell
from adaptk.quoted import visible

INTERRUPTED = 130
EPILOG = """\
adaptk COMMAND --help tells a command's options and shows an example.
In a shell:  eval "$(adaptk --print-completion bash)"  completes them."""


def commands() -> tuple[ModuleType, ...]:
    """The commands, in the order of the help; loaded here, where an interrupt is caught."""
    from adaptk.cli import demo, doctor, grafana, mode, profile, replay, report, surface, table, top

    return doctor, profile, surface, table, mode, top, report, grafana, replay, demo


class _Parser(argparse.ArgumentParser):
    """Tells errors without what would steer a terminal: names of files may be arguments."""

    def error(self, message: str) -> NoReturn:
        super().error(visible(message))


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    made = _Parser(
        prog="adaptk",
        description="Pick the number of draft tokens for every step of vLLM's engine loop.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"adaptk {__version__}")
    add_completion(made)
    subs = made.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")
    for command in commands():
        sub = subs.add_parser(command.NAME, help=command.HELP, description=command.HELP)
        command.add_arguments(sub)
        sub.set_defaults(run=command.run, passes_on=getattr(command, "PASSES_ON", False))
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit status, 130 where an interrupt came before the command itself could take it."""
    try:
        return _run(sys.argv[1:] if argv is None else list(argv))
    except KeyboardInterrupt:
        tell("adaptk: interrupted")
        return INTERRUPTED
    finally:
        _flush()


def _flush() -> None:
    """Let go what argparse printed and could not be written, as help on a full disk: nobody depends on it."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        discard_output()


def _run(given: list[str]) -> int:
    whole = parser()
    if not given:
        whole.print_help(sys.stderr)
        return 2
    arguments, rest = whole.parse_known_args(given, argparse.Namespace(argv=given))
    if rest and not arguments.passes_on:
        whole.error(f"unrecognized arguments: {' '.join(rest)}")
    arguments.rest = rest
    status: int = arguments.run(arguments)
    return status


if __name__ == "__main__":
    sys.exit(main())
