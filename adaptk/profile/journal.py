"""The journal of a profile: a line for each thing done, written at once, so that a killed profile can go on."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import msgspec

from adaptk.inputs import InputError, MissingError, name_of, read_whole
from adaptk.profile.entries import Answers, Began, Died, Entry, Gridded, Visited, check_entry
from adaptk.profile.estimate import AcceptanceCounts
from adaptk.quoted import said

MAX_BYTES = 128 * 2**20  # half a day of steps of 10 ms, each a time and a width
_NOTHING = "there is nothing to resume: leave --resume out, or check --out"


class JournalError(ValueError):
    """The journal cannot be written or read; the message names the file and the remedy."""


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
        status = os.fstat(self._file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            raise JournalError(f"{self.path}: is no journal of a profile, a file of at most {MAX_BYTES} bytes: "
                               "give another --out")  # fmt: skip
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
        data = read_whole(path, MAX_BYTES)
    except MissingError:
        raise JournalError(f"{name_of(path)}: {_NOTHING}") from None
    except InputError as error:
        raise JournalError(f"{name_of(path)}: {error}: check the path and its permissions") from None
    return _parse(data[: _sound_bytes(data)], path)


def _parse(data: bytes, path: Path) -> Past:
    decoder = msgspec.json.Decoder(Entry)
    entries: list[Any] = []
    for number, line in enumerate(BytesIO(data), start=1):
        try:
            entry = decoder.decode(line)
            check_entry(entry)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            keep = f"; the lines before it can be kept: head -n {number - 1}" if number > 1 else ""
            raise JournalError(f"{path}, line {number}: is no entry of a journal ({said(error)}){keep}") from None
        entries.append(entry)
    if not entries:
        raise JournalError(f"{path}: nothing was measured yet: give the engine's arguments again")
    if not isinstance(entries[0], Began):
        raise JournalError(f"{path}: does not begin as the journal of a profile: begin anew, with another --out")
    return _past(entries)


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
