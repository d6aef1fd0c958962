"""``adaptk mode``: show or switch the mode of a running server, through its control file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from adaptk.cli.console import accept_any_sign, discard_output
from adaptk.outputs import write_whole
from adaptk.settings import SettingsError

NAME = "mode"
HELP = "switch a running server between on, shadow and off, or show what it was switched to"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the server's ADAPTK_CONTROL; {rank} filled in")
    parser.add_argument("mode", choices=("on", "shadow", "off"), nargs="?", metavar="MODE",
                        help="on, shadow or off (default: print what FILE says)")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Write or print the mode; the exit status: 0, or 1 if FILE holds none or cannot be written or read."""
    accept_any_sign()
    path: Path = arguments.file
    if "{rank}" in str(path):
        return _fail(f"{path}: name the file of one rank, as {str(path).replace('{rank}', '0')}")
    try:
        if arguments.mode is None:
            print(_read(path), flush=True)
        else:
            write_whole(path, f"{arguments.mode}\n".encode())
            print(f"{path}: {arguments.mode}; a server that watches it follows within about a second", flush=True)
    except FileNotFoundError:
        return _fail(f"{path}: is not there, so that a server that watches it has the mode it was started with")
    except ValueError as error:  # of the file's content, of writing it, or of a path that cannot be one
        return _fail(str(error))
    except BrokenPipeError:
        discard_output()
    except OSError as error:
        discard_output()
        return _fail(f"{path}: {error.strerror or error}")
    return 0


def _read(path: Path) -> str:
    from adaptk.vllm_plugin.control import read

    try:
        return read(path)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None


def _fail(message: str) -> int:
    print(f"adaptk mode: {message}", file=sys.stderr)
    return 1
