"""``adaptk mode``: show or switch the mode of a running server, through its control file."""

from __future__ import annotations

import argparse
from pathlib import Path

from adaptk.cli import options
from adaptk.cli.console import accept_any_sign, failing, guarded, print_json, print_text
from adaptk.outputs import write_whole
from adaptk.settings import MODES, SettingsError

NAME = "mode"
HELP = "switch a running server between on, shadow and off, or show what it was switched to"
EXAMPLE = """\
Example, where the server was started with ADAPTK_CONTROL=/tmp/adaptk-mode:
  adaptk mode /tmp/adaptk-mode shadow
  adaptk mode /tmp/adaptk-mode"""
_fail = failing(NAME)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    options.add_example(parser, EXAMPLE)
    parser.add_argument("file", type=Path, metavar="FILE", help="the server's ADAPTK_CONTROL; {rank} filled in")
    parser.add_argument("mode", choices=("on", "shadow", "off"), nargs="?", metavar="MODE",
                        help="on, shadow or off (default: print what FILE says)")  # fmt: skip
    options.add_json(parser, "the file and its mode")


def run(arguments: argparse.Namespace) -> int:
    """Write or print the mode; the exit status: 0, or 1 if FILE holds none or cannot be written or read."""
    accept_any_sign()
    return guarded(lambda: _run(arguments.file, arguments.mode, arguments.json), _fail)


def _run(path: Path, wanted: str | None, json: bool) -> int:
    if "{rank}" in str(path):
        raise ValueError(f"{path}: name the file of one rank, as {str(path).replace('{rank}', '0')}")
    if wanted is None:
        mode = said = _read(path)
    else:
        mode = wanted
        _spare_others(path)
        write_whole(path, f"{mode}\n".encode())
        said = f"{path}: {mode}; a server that watches it follows in about a second"
    if json:
        print_json({"file": str(path), "mode": mode})
    else:
        print_text(said)
    return 0


def _spare_others(path: Path) -> None:
    """Refuse a file that holds anything but a mode or white space: its name was given by mistake."""
    from adaptk.vllm_plugin.control import held

    try:
        text = held(path)
        foreign = text != "" and text.lower() not in MODES
    except FileNotFoundError:
        return
    except SettingsError:
        foreign = True
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error}), so that it may be another file: "
                         "give the file of a server's ADAPTK_CONTROL") from None  # fmt: skip
    if foreign:
        raise ValueError(f"{path}: is no control file and is left as it is, as it holds no mode: "
                         "give the file of a server's ADAPTK_CONTROL, or remove this one") from None  # fmt: skip


def _read(path: Path) -> str:
    from adaptk.vllm_plugin.control import read

    try:
        return read(path)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None
    except FileNotFoundError:
        said = "a server that watches it has the mode that it was started with"
        raise ValueError(f"there is no {path}: {said}") from None
    except OSError as error:
        said = f"cannot be read ({error.strerror or error}): give the file of a server's ADAPTK_CONTROL"
        raise ValueError(f"{path}: {said}") from None
