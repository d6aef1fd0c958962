"""The journal of a profile: a line for each thing done, written at once, so that a killed profile can go on."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import msgspec

from adaptk.profile.estimate import AcceptanceCounts, Block
from adaptk.profile.orders import EngineInfo

SCHEMA_VERSION = 1
MAX_BYTES = 1 << 30


class JournalError(ValueError):
    """The journal cannot be written or read; the message names the file and the remedy."""


class Began(msgspec.Struct, frozen=True, tag="began", kw_only=True):
    """What the profile is of; the first line, and again one for each time that it was resumed.

    Parameters
    ----------
    arguments
        The engine's, as ``vllm serve`` takes them.
    info
        What was started.
    prompts
        Digest of the prompts.
    temperature, max_tokens
        How they were answered.
    date
        Day, as 2026-01-31.
    """

    arguments: tuple[str, ...]
    info: EngineInfo
    prompts: str
    temperature: float
    max_tokens: int
    date: str
    schema_version: int = SCHEMA_VERSION


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
    """The engine died at a cell; it and those that need as much are not tried again."""

    batch: int
    k: int
    context: float | None
    reason: str


Entry = Began | Answers | Visited | Died


class Journal:
    """Appends entries to a file, each of which is on the disk when :meth:`write` returns.

    Parameters
    ----------
    path
        The file; it is opened at once, so that a folder that cannot be written is known before an engine starts.
    fresh
        Whether it must not exist yet.

    Raises
    ------
    JournalError
        If it cannot be opened, or exists although ``fresh``.
    """

    def __init__(self, path: Path, fresh: bool) -> None:
        self.path = path
        try:
            self._file: IO[bytes] = path.open("xb" if fresh else "r+b")
            if not fresh:
                self._file.truncate(_sound_bytes(self._file.read()))  # a line that a kill cut off
                self._file.seek(0, os.SEEK_END)
        except FileExistsError:
            raise JournalError(f"{path}: exists already: go on with --resume, or remove it to begin anew") from None
        except OSError as error:
            raise JournalError(f"{path}: cannot be written ({error}): give another --out") from None

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
        """Close the file."""
        with suppress(OSError):  # a full disk: what was not flushed was reported by write
            self._file.close()


class Past(msgspec.Struct, frozen=True):
    """What a journal holds, put together.

    Parameters
    ----------
    began
        Its first line.
    answered
        How many prompts were answered, and the counts of their drafts.
    """

    began: Began
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
        raise JournalError(f"{path}: there is nothing to resume: leave --resume out, or check --out") from None
    except OSError as error:
        raise JournalError(f"{path}: cannot be read ({error}): check the path and its permissions") from None
    decoder = msgspec.json.Decoder(Entry)
    entries: list[Any] = []
    for number, line in enumerate(data[: _sound_bytes(data)].splitlines(), start=1):
        try:
            entries.append(decoder.decode(line))
        except (msgspec.DecodeError, RecursionError) as error:
            raise JournalError(f"{path}, line {number}: is no entry of a journal ({error}): begin anew") from None
    if not entries or not isinstance(entries[0], Began):
        raise JournalError(f"{path}: does not begin as the journal of a profile: begin anew, with another --out")
    if entries[0].schema_version != SCHEMA_VERSION:
        raise JournalError(
            f"{path}: schema_version is {entries[0].schema_version}, this adaptk reads {SCHEMA_VERSION}: begin anew"
        )
    return _past(entries)


def _past(entries: Iterable[Entry]) -> Past:
    of: dict[type[Any], list[Any]] = {kind: [] for kind in (Began, Answers, Visited, Died)}
    for entry in entries:
        of[type(entry)].append(entry)
    acceptance = AcceptanceCounts()
    for answers in of[Answers]:
        acceptance = acceptance.merge(answers.counts)
    return Past(
        began=of[Began][0],
        answered=max((answers.last for answers in of[Answers]), default=0),
        acceptance=acceptance,
        answer_seconds=sum(answers.seconds for answers in of[Answers]),
        visits=tuple(of[Visited]),
        deaths=tuple(of[Died]),
    )


def _sound_bytes(data: bytes) -> int:
    """Length of the whole lines at the start of ``data``."""
    return data.rfind(b"\n") + 1
