"""The lines of a profile's journal: what each may hold, and what no run can have written."""

from __future__ import annotations

import msgspec

from adaptk.profile.estimate import AcceptanceCounts, Block
from adaptk.profile.orders import EngineInfo
from adaptk.tablerows import MIN_ITL_MS

SCHEMA_VERSION = 1
LARGEST = 10**12  # of any count, time or number of tokens


class Began(msgspec.Struct, frozen=True, tag="began", kw_only=True):
    """What the profile is of; the first line, and again one for each time that it was resumed.

    Parameters
    ----------
    arguments
        The engine's, as ``vllm serve`` takes them, without keys and tokens.
    info
        What was started.
    prompts
        Digest of the prompts.
    prompts_file
        Where they came from; ``None``: the built-in ones.
    temperature, max_tokens
        How they were answered.
    budget_s, target
        What it was to take, seconds, and the width of an interval at which a cell is done.
    command
        As it was typed, fit to be shown.
    date
        Day, as 2026-01-31.
    """

    arguments: tuple[str, ...]
    info: EngineInfo
    prompts: str
    temperature: float
    max_tokens: int
    budget_s: float
    target: float
    command: str
    date: str
    prompts_file: str | None = None
    schema_version: int = SCHEMA_VERSION


class Gridded(msgspec.Struct, frozen=True, tag="grid", kw_only=True):
    """What is to be measured, once that is settled."""

    batches: tuple[int, ...]
    contexts: tuple[int, ...]


class Answers(msgspec.Struct, frozen=True, tag="answers", kw_only=True):
    """Prompts number ``first`` to ``last - 1`` were answered, in so many seconds."""

    first: int
    last: int
    counts: AcceptanceCounts
    seconds: float


class Visited(msgspec.Struct, frozen=True, tag="visited", kw_only=True):
    """A visit was played.

    ``dropped`` lists the cells (batch, K, context) that it showed to be beyond this engine, ``note`` says why; ``bare``
    says that the engine had no drafter.
    """

    visit: int
    blocks: tuple[Block, ...]
    seconds: float
    dropped: tuple[tuple[int, int, float | None], ...] = ()
    note: str = ""
    bare: bool = False


class Died(msgspec.Struct, frozen=True, tag="died", kw_only=True):
    """The engine died at a cell, or, without a context, in the answers; ``bare`` as in :class:`Visited`."""

    batch: int
    k: int
    context: float | None
    reason: str
    bare: bool = False


Entry = Began | Gridded | Answers | Visited | Died


def check_entry(entry: Entry) -> None:
    """Refuse what no run can have written.

    Raises
    ------
    ValueError
        If a count or a time is impossible; the message says which.
    """
    if isinstance(entry, Began):
        if entry.schema_version != SCHEMA_VERSION:
            raise ValueError(
                f"schema_version is {entry.schema_version}, this adaptk reads {SCHEMA_VERSION}: begin anew"
            )
    elif isinstance(entry, Answers):
        counts = entry.counts
        lists = (counts.accepted, counts.tried, counts.returned, counts.asked)
        _require(0 <= entry.first <= entry.last <= LARGEST, "first and last are no numbers of prompts")
        _require(len({len(values) for values in lists}) == 1, "the counts differ in length")
        pairs = [*zip(lists[0], lists[1], strict=True), *zip(lists[2], lists[3], strict=True)]
        _require(all(0 <= part <= whole <= LARGEST for part, whole in pairs), "the counts are impossible")
        shapes = {len(values) for request in counts.requests for values in request}
        _require(max(shapes, default=0) <= len(counts.tried), "a request has more positions than there are")
        _require(0.0 <= entry.seconds <= LARGEST, "seconds are impossible")
    elif isinstance(entry, Visited):
        _require(0 <= entry.visit <= LARGEST and 0.0 <= entry.seconds <= LARGEST, "visit or seconds are impossible")
        for block in entry.blocks:
            _require(0 < block.batch <= LARGEST and 0 <= block.k <= LARGEST, "batch or k is impossible")
            _require(block.visit == entry.visit, "a block is of another visit")
            _require(len(block.ms) == len(block.widths), "times and widths differ in number")
            numbers = (block.context or 0.0, block.mean_context or 0.0, block.at_s, *block.ms, *block.widths)
            _require(all(0.0 <= value <= LARGEST for value in numbers), "a time or a width is impossible")
            _require(min(block.ms, default=1.0) >= MIN_ITL_MS, "a time is impossible")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)
