"""Tables from other people's files: which kind a source is, and what all kinds have in common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from adaptk.inputs import InputError, name_of, read_whole
from adaptk.quoted import shown
from adaptk.table import GoodputTable
from adaptk.tablerows import TableError

KINDS = ("schedule", "csv", "sweep")
MAX_BYTES = 16 * 2**20  # a thousand answers of a benchmark with the time of every token


class Imported(NamedTuple):
    """A table, and what is missing, guessed or left out in it, one sentence each."""

    table: GoodputTable
    notes: list[str]


def read_source(source: Path, kind: str | None = None, acceptance: Sequence[float] | None = None) -> Imported:
    """The table that a file or folder of another tool holds.

    Parameters
    ----------
    source
        vLLM's schedule or ``--speculative-config`` as JSON, a CSV, or what ``vllm bench sweep`` wrote.
    kind
        One of ``KINDS``; ``None``: found out.
    acceptance
        Conditional acceptance per draft position, shape ``(positions,)``; beats what the source says.

    Raises
    ------
    TableError
        If the source cannot be read, is of no kind that is known, or holds nothing that can be used.
    """
    from adaptk.tabletools.fromcsv import read_csv
    from adaptk.tabletools.fromschedule import read_vllm
    from adaptk.tabletools.fromsweep import read_sweep

    kind = kind or kind_of(source)
    if kind == "schedule":
        return read_vllm(source, acceptance)
    return read_csv(source, acceptance) if kind == "csv" else read_sweep(source, acceptance)


def kind_of(source: Path) -> str:
    """Which of ``KINDS`` a source is, by what it holds and not by its name."""
    if source.is_dir():
        return "sweep"
    text = read_text(source)
    start = text.lstrip()[:1]
    if start in ("{", "["):
        return "sweep" if '"request_throughput"' in text else "schedule"
    head = text.partition("\n")[0]
    if "request_throughput" in head:
        return "sweep"
    if not any(sign in head for sign in ",;\t"):
        raise TableError(f"{source}: is neither JSON nor a CSV with a header, its first line is {shown(head)}: "
                         "give --from schedule, csv or sweep if it is one of them")  # fmt: skip
    return "csv"


def read_text(path: Path) -> str:
    """The text of a file in UTF-8, with or without byte order mark.

    Raises
    ------
    TableError
        If it cannot be read, is too large or is no text.
    """
    try:
        if path.is_dir():
            raise TableError(f"{path}: is a folder: only results of vllm bench sweep are read from folders")
        text = read_whole(path, MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TableError(
            f"{path}: is no text in UTF-8 ({error.reason} at byte {error.start}): save it as such"
        ) from None
    except InputError as error:
        raise TableError(f"{name_of(path)}: {error}: check the path, and give a summary of what is too large") from None
    if not text.strip():
        raise TableError(f"{path}: is empty: copy it again")
    return text


def conditional(marginal: Sequence[float]) -> list[float]:
    """Conditional acceptance from the share of steps in which each position was accepted, shape ``(positions,)``.

    Positions after one that is never accepted say nothing and are left out.

    Raises
    ------
    TableError
        If a share is above the one before it: then they are no marginal rates.

    Examples
    --------
    >>> [round(share, 3) for share in conditional([0.68, 0.39, 0.0, 0.0])]
    [0.68, 0.574, 0.0]
    """
    found: list[float] = []
    before = 1.0
    for i, share in enumerate(marginal):
        if share > before:
            raise TableError(f"acceptance {share:g} at position {i + 1} is above the {before:g} before it: "
                             "rates of all steps never rise, leave --marginal out")  # fmt: skip
        found.append(share / before)
        if share == 0.0:
            break
        before = share
    return found


def unknown_acceptance(acceptance: Sequence[float] | None) -> list[str]:
    """What to say where nothing gives the acceptance."""
    if acceptance is not None:
        return []
    return ["acceptance is unknown, 0.7 will be assumed at every position: give --acceptance 0.7,0.6,... "
            "(with --marginal where they are rates of all steps, as vLLM's metrics give them)"]  # fmt: skip
