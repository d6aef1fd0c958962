"""``adaptk surface``: a table for a machine and an architecture, without weights and without an engine."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from adaptk.cli import options as shared
from adaptk.cli.console import accept_any_sign, discard_output, failing, print_encoded, print_lines
from adaptk.cli.durations import duration
from adaptk.cli.surfacebar import Budgeted

if TYPE_CHECKING:
    from adaptk.surface.architecture import Architecture
    from adaptk.surface.machine import Machine
    from adaptk.surface.session import Options, Outcome
    from adaptk.table import GoodputTable

NAME = "surface"
HELP = "time blocks of a model's shape on this machine, without weights or vLLM: a table to begin with"
BUDGET = "2m"
EXAMPLE = """\
Example, for a model whose config.json lies here; its weights are not needed:
  adaptk surface config.json --batches 1,8,64 --budget 2m --out surface.json
The table says what a step costs; only an engine tells what is accepted, so give
--acceptance, or let ADAPTK=on learn it:  ADAPTK_TABLE=surface.json"""
_KS = {"cuda": (0, 1, 2, 3, 4, 5, 7), "cpu": (0, 1, 2, 3, 5, 7)}
_BATCHES = {"cuda": (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256), "cpu": (1, 2, 4, 8, 16, 32)}
_CONTEXTS = {"cuda": (1024, 8192), "cpu": (256, 1024)}
_MAX_CONTEXT = 2**24
_fail = failing(NAME)


def _whole_numbers(least: int, most: int | str, example: str) -> Callable[[str], tuple[int, ...]]:
    """An option's type: rising whole numbers, given with commas; ``most`` may be the name of a table's limit."""

    def read(text: str) -> tuple[int, ...]:
        from adaptk import tablerows  # with numpy, which --help has no need of

        limit: int = getattr(tablerows, most) if isinstance(most, str) else most
        try:
            values = sorted({int(part) for part in text.split(",")})
        except ValueError:
            values = []
        if not values or values[0] < least or values[-1] > limit:
            raise argparse.ArgumentTypeError(
                f"{text!r:.60}: give whole numbers from {least} to {limit} with commas, as {example}"
            )
        return tuple(values)

    return read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    shared.add_example(parser, EXAMPLE)
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("config", type=Path, nargs="?", metavar="CONFIG", help="a model's folder, or its config.json")
    model.add_argument("--preset", metavar="NAME",
                       help="sizes that are built in: llama-8b, dense-70b, moe-30b-a3b")  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FILE", default=Path("surface.json"),
                        help="the table (default %(default)s)")  # fmt: skip
    parser.add_argument(
        "--device", choices=("auto", "cuda", "cpu"), default="auto", help="default: a GPU if there is one"
    )
    parser.add_argument("--dtype", choices=("auto", "bfloat16", "float16", "float32"), default="auto",
                        help="of weights and caches (default: the model's own)")  # fmt: skip
    parser.add_argument("--budget", type=duration, metavar="TIME", default=BUDGET,
                        help="time for everything, as 90s, 2m, 1h (default %(default)s)")  # fmt: skip
    parser.add_argument("--batches", type=_whole_numbers(1, "MAX_BATCH", "1,8,64"), metavar="B,B,...",
                        help="decoding requests")  # fmt: skip
    parser.add_argument("--ks", type=_whole_numbers(0, "MAX_K", "0,1,3,7"), metavar="K,K,...",
                        help="drafts per request")  # fmt: skip
    parser.add_argument("--contexts", type=_whole_numbers(1, _MAX_CONTEXT, "1024,8192"), metavar="C,C,...",
                        help="tokens per request in the key-value cache")  # fmt: skip
    parser.add_argument("--drafter", metavar="D", default="eagle",
                        help="eagle (one block, a head over 32,000 tokens), none (as ngram: drafting costs nothing), "
                             "or the folder or config.json of a draft model (default %(default)s)")  # fmt: skip
    parser.add_argument("--tp", type=shared.count, metavar="N", default=1,
                        help="ranks of tensor parallelism: one's share is timed, without communication")  # fmt: skip
    parser.add_argument("--acceptance", type=shared.acceptance, metavar="A,A,...",
                        help="acceptance at each position, given that all before were accepted, if known")  # fmt: skip
    shared.add_json(parser, "the table")


def run(arguments: argparse.Namespace) -> int:
    """Measure, save and show; 0, 1 after an error, 130 after an interrupt."""
    from adaptk.outputs import OutputError
    from adaptk.surface.architecture import ConfigError
    from adaptk.surface.machine import Machine, MachineError
    from adaptk.table import TableError

    begun = time.monotonic()
    accept_any_sign()
    try:
        _check_out(arguments)
        target, drafter = _shapes(arguments)
        machine = Machine(arguments.device)
        return _measure(arguments, machine, _options(arguments, machine, target, drafter), begun)
    except (ConfigError, MachineError, OutputError, TableError) as error:
        return _fail(str(error))
    except OSError as error:  # of standard output: a full disk
        discard_output()
        return _fail(f"what came out cannot be shown ({error}); the table is in {arguments.out} if it was finished")
    except KeyboardInterrupt:
        return _fail("interrupted before anything was measured", 130)


def _check_out(arguments: argparse.Namespace) -> None:
    """Refuse what cannot be written, what is read, and what is there already."""
    from adaptk.outputs import check_new
    from adaptk.surface.configs import config_file
    from adaptk.surface.drafters import EAGLE, NONE

    read = {"CONFIG": None if arguments.config is None else config_file(arguments.config)}
    if arguments.drafter not in (EAGLE, NONE):
        read["--drafter"] = config_file(arguments.drafter)
    check_new("--out", arguments.out, read)


def _shapes(arguments: argparse.Namespace) -> tuple[Architecture, Architecture | None]:
    """One rank's share of the target and of the drafter."""
    from adaptk.surface.architecture import ConfigError
    from adaptk.surface.configs import read_config
    from adaptk.surface.drafters import EAGLE, NONE, eagle_shape
    from adaptk.surface.presets import preset

    whole = read_config(arguments.config) if arguments.preset is None else preset(arguments.preset)
    target = whole.divided(arguments.tp)
    if arguments.drafter == NONE:
        return target, None
    if arguments.drafter == EAGLE:
        return target, eagle_shape(whole).divided(arguments.tp)
    import msgspec

    drafter = read_config(arguments.drafter)
    try:
        return target, drafter.divided(arguments.tp)
    except ConfigError:  # as engines do with a small model
        whole_on_each = (*drafter.remarks, f"it runs whole on each of the {arguments.tp} ranks")
        return target, msgspec.structs.replace(drafter, remarks=whole_on_each)


def _options(
    arguments: argparse.Namespace, machine: Machine, target: Architecture, drafter: Architecture | None
) -> Options:
    from adaptk.surface.session import Options

    return Options(
        target=target,
        drafter=drafter,
        dtype=machine.dtype(arguments.dtype, target.dtype),
        batches=arguments.batches or _BATCHES[machine.device],
        ks=arguments.ks or _KS[machine.device],
        contexts=arguments.contexts or _CONTEXTS[machine.device],
        budget_s=arguments.budget,
    )


def _measure(arguments: argparse.Namespace, machine: Machine, options: Options, begun: float) -> int:
    from adaptk.progress import Progress
    from adaptk.surface import session
    from adaptk.surface.result import table_of
    from adaptk.table import TableError

    device, command = machine.name, ["adaptk", *getattr(arguments, "argv", [NAME])]
    outcome, trouble = session.Outcome(), None
    latest: list[GoodputTable] = []

    def keep(so_far: session.Outcome) -> None:
        table = table_of(options, so_far, device=device, ways=arguments.tp,
                         acceptance=arguments.acceptance, command=command)  # fmt: skip
        latest[:] = [table]
        table.save(arguments.out)

    try:
        with Progress() as progress:
            progress.say(f"{options.target.name} in {options.dtype} on {device}, at most {options.budget_s:g} s")
            session.run(options, machine, outcome, Budgeted(progress, options.budget_s, begun), keep, begun=begun)
    except TableError as error:  # of the file: what was measured is shown all the same
        trouble = str(error)
    if not latest:
        return _nothing(outcome.interrupted, trouble)
    if arguments.json and trouble is None:
        print_encoded(arguments.out.read_text(encoding="utf-8"))
    elif not arguments.json:
        _show(latest[0], options, outcome, arguments.tp, None if trouble else arguments.out)
    if trouble is not None:
        return _fail(trouble)
    return 130 if outcome.interrupted else 0


def _nothing(interrupted: bool, trouble: str | None) -> int:
    if interrupted:
        return _fail("interrupted before anything was measured", 130)
    return _fail(trouble or "nothing could be measured: give smaller --batches, --ks or --contexts")


def _show(table: GoodputTable, options: Options, outcome: Outcome, ways: int, out: Path | None) -> None:
    """Print it; ``out`` is the file that the table is in, ``None`` where it could not be written and the run ended."""
    from adaptk.surface.result import busy, left_out, unreached
    from adaptk.surface.show import paragraphs, surface_lines
    from adaptk.textlines import Line

    stopped = "Interrupted; this is what was measured until then." if outcome.interrupted else None
    first = paragraphs(stopped, busy(outcome))
    last = paragraphs(unreached(options, outcome, cut_short=outcome.interrupted or out is None))
    lines = [*first, *([Line("")] if first else []), *surface_lines(table, left_out(options, outcome, ways))]
    if last:
        lines += [Line(""), *last]
    print_lines([*lines, *([] if out is None else [Line(f"Table: {out}")])])
