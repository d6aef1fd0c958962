"""The journal of a profile: a line for each thing done, written at once, so that a killed profile can go on."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import msgspec

from adaptk.profile.estimate import AcceptanceCounts, Block
from adaptk.profile.orders import EngineInfo
from adaptk.tablerows import MIN_ITL_MS

SCHEMA_VERSION = 1
MAX_BYTES = 1 << 30
_NOTHING = "there is nothing to resume: leave --resume out, or check --out"
LARGEST = 10**12  # of any count, time or number of tokens


class JournalError(ValueError):
    """The journal cannot be written or read; the message names the file and the remedy."""


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


class Journal:
    """Appends entries to a file, each of which is on the disk when :meth:`write` returns; one process at a time.

    A file without a single whole line, as a kill during the engine's start leaves it, counts as none.

    Parameters
    ----------
    path
        The file; it is opened at once, so that a folder that cannot be written is known before an engine starts.
    resume
        Whether an earlier run is gone on with; otherwise there must be none.

    Raises
    ------
    JournalError
        If it cannot be opened, is being written by another process, or holds a run although it should not.
    """

    def __init__(self, path: Path, resume: bool) -> None:
        self.path = path
        self.past: Past | None = None
        if resume and not path.exists():
            raise JournalError(f"{path}: {_NOTHING}")
        try:
            # For the owner alone: the engine's arguments are in it.
            self._file: IO[bytes] = os.fdopen(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "r+b")
        except OSError as error:
            raise JournalError(f"{path}: cannot be written ({error}): give another --out") from None
        try:
            self._take_over(resume)
        except BaseException:
            self._file.close()
            raise

    def _take_over(self, resume: bool) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # goes with the process, however that ends
            taken = not self.path.exists() or not os.path.samestat(os.fstat(self._file.fileno()), self.path.stat())
        except BlockingIOError:
            taken = True
        except OSError:  # file systems without locks
            taken = False
        if taken:
            raise JournalError(f"{self.path}: another adaptk profile is writing it: wait, or give another --out")
        if os.fstat(self._file.fileno()).st_size > MAX_BYTES:
            raise JournalError(f"{self.path}: has more than {MAX_BYTES} bytes: this is no journal of a profile")
        data = self._file.read()
        whole = _sound_bytes(data)
        if whole and not resume:
            raise JournalError(f"{self.path}: exists already: go on with --resume, or remove it to begin anew")
        if whole:
            self.past = _parse(data[:whole], self.path)
        self._file.truncate(whole)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, entry: Entry) -> None:
        """Append one line.

        Raises
        ------
        JournalError
            If the disk is full or the file cannot be written; what was written before stays readable.
        """
        try:
            self._file.write(msgspec.json.encode(entry) + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise JournalError(
                f"{self.path}: cannot be written ({error}): make room, then go on with --resume"
            ) from None

    def close(self) -> None:
        """Close the file; without a line in it, it goes."""
        with suppress(OSError):  # a full disk: what was not flushed was reported by write
            if os.fstat(self._file.fileno()).st_size == 0:
                self.path.unlink(missing_ok=True)
            self._file.close()


class Past(msgspec.Struct, frozen=True):
    """What a journal holds, put together.

    Parameters
    ----------
    began
        When it was last begun or resumed.
    grid
        What was to be measured; ``None`` where it did not come so far.
    answered
        How many prompts were answered, and below that the counts of their drafts and the seconds it took.
    visits, deaths
        In their order.
    """

    began: Began
    grid: Gridded | None
    answered: int
    acceptance: AcceptanceCounts
    answer_seconds: float
    visits: tuple[Visited, ...]
    deaths: tuple[Died, ...]

    def of(self, bare: bool) -> tuple[Visited, ...]:
        """The visits to the engine with its drafter, or to the one without."""
        return tuple(visit for visit in self.visits if visit.bare is bare)


def read_journal(path: Path) -> Past:
    """Read a journal back; a last line that was cut off is left out.

    Raises
    ------
    JournalError
        If there is none, or it is none.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise JournalError(f"{path}: has more than {MAX_BYTES} bytes: this is no journal of a profile")
        data = path.read_bytes()
    except FileNotFoundError:
        raise JournalError(f"{path}: {_NOTHING}") from None
    except OSError as error:
        raise JournalError(f"{path}: cannot be read ({error}): check the path and its permissions") from None
    return _parse(data[: _sound_bytes(data)], path)


def _parse(data: bytes, path: Path) -> Past:
    decoder = msgspec.json.Decoder(Entry)
    entries: list[Any] = []
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            entry = decoder.decode(line)
            check_entry(entry)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            keep = f"; the lines before it can be kept: head -n {number - 1}" if number > 1 else ""
            raise JournalError(f"{path}, line {number}: is no entry of a journal ({error}){keep}") from None
        entries.append(entry)
    if not entries:
        raise JournalError(f"{path}: nothing was measured yet: give the engine's arguments again")
    if not isinstance(entries[0], Began):
        raise JournalError(f"{path}: does not begin as the journal of a profile: begin anew, with another --out")
    return _past(entries)


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


def _past(entries: Iterable[Entry]) -> Past:
    of: dict[type[Any], list[Any]] = {kind: [] for kind in (Began, Gridded, Answers, Visited, Died)}
    for entry in entries:
        of[type(entry)].append(entry)
    acceptance = AcceptanceCounts()
    for answers in of[Answers]:
        acceptance = acceptance.merge(answers.counts)
    return Past(
        began=of[Began][-1],
        grid=of[Gridded][-1] if of[Gridded] else None,
        answered=max((answers.last for answers in of[Answers]), default=0),
        acceptance=acceptance,
        answer_seconds=sum(answers.seconds for answers in of[Answers]),
        visits=tuple(of[Visited]),
        deaths=tuple(of[Died]),
    )


def _sound_bytes(data: bytes) -> int:
    """Length of the whole lines at the start of ``data``."""
    return data.rfind(b"\n") + 1
