"""The trace format, and how it is read: a header line, then one JSON line per engine step.

The header is ``{"schema_version": 1, "kind": "adaptk-trace", "run": ..., "part": ...}`` with what else is known of the
engine, each further line a :class:`TraceRow`. NaN and infinite numbers are written as ``null``. Rows that are not there
show in the numbers of the decisions. A file compressed with gzip, recognised by its first bytes, is read as it is, and
the earlier pieces of its run are read before it (see :mod:`adaptk.tracepieces`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from adaptk.decision import Decision
from adaptk.quoted import said, shown
from adaptk.step import StepRecord
from adaptk.tracepieces import (
    DAMAGED,
    KIND,
    MAX_LINE,
    SCHEMA_VERSION,
    Bytes,
    Piece,
    TraceError,
    earlier,
    first_line,
    found_again,
    header_line,
    opened,
)

__all__ = ["Reader", "Trace", "TraceError", "TraceRow", "header_line", "iter_trace", "read_trace", "whole_runs"]

_SKIPPED_LINES = 16  # times the longest line: a longer one is the end of what is read
_HOPELESS = 10_000  # lines that are no rows; where they are also the most, the file is something else


class TraceRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One engine step and the decision that belongs to it; ``None`` where there was none."""

    step: StepRecord
    decision: Decision | None = None


class Trace(msgspec.Struct, frozen=True):
    """A trace in memory.

    ``skipped`` counts the unreadable lines that a lenient reader passed over, ``cut`` the rows that end in mid-line,
    ``missing`` the pieces that are not there; ``lines`` has the line of its file that each row stands on, shape
    ``(rows,)``, the header being line 1.
    """

    header: dict[str, Any]
    rows: list[TraceRow]
    skipped: int = 0
    lines: list[int] = []
    cut: int = 0
    missing: int = 0


def read_trace(path: str | os.PathLike[str], lenient: bool = False) -> Trace:
    """Read a whole trace, the earlier pieces of its run included where they lie beside it.

    The last row of a file that was cut off, as that of an engine that was killed, is left out and counted.

    Parameters
    ----------
    path
        File that a ``TraceWriter`` wrote.
    lenient
        Skip and count rows that cannot be read; what lies behind damage of gzip data counts as one.

    Raises
    ------
    TraceError
        If the file or its header cannot be read, or, unless ``lenient``, a row.
    """
    reader = Reader(path, lenient)
    rows, lines = [], []
    for row in reader:
        rows.append(row)
        lines.append(reader.line)
    return Trace(reader.header, rows, reader.skipped, lines, reader.cut, reader.missing)


def iter_trace(path: str | os.PathLike[str], lenient: bool = False) -> Iterator[TraceRow]:
    """The rows of a trace one after the other, in constant memory; parameters and errors as :func:`read_trace`."""
    return iter(Reader(path, lenient))


def whole_runs(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Those of the paths that are not read along with another one, as an earlier piece of its run."""
    named = [Path(path) for path in paths]
    along = {os.path.realpath(piece.path) for path in named for piece in earlier(path)[:-1]}
    return [path for path in named if os.path.realpath(path) not in along]


class Reader:
    """The rows of a trace, read as they are asked for.

    ``header`` is there at once. While rows are read, ``file`` and ``line`` say where the last one stands, ``lines``
    counts the lines so far, headers left out, ``skipped``, ``cut`` and ``missing`` are as in :class:`Trace`, and
    ``position`` counts bytes of the ``size`` on the disk. Parameters and errors are those of :func:`read_trace`.
    """

    def __init__(self, path: str | os.PathLike[str], lenient: bool) -> None:
        self.path = self.file = Path(path)
        self._lenient = lenient
        self._decode = msgspec.json.Decoder(TraceRow).decode
        self._pieces = earlier(self.path)
        with opened(self._pieces[-1].path if self._pieces else self.path) as (file, _):
            self.header = self._header(file)
        self.size = sum(map(_size, self.files))
        self._begin()

    @property
    def files(self) -> list[Path]:
        """All files that are read, in their order."""
        return [piece.path for piece in self._pieces] or [self.path]

    @property
    def position(self) -> int:
        """How many bytes of the files have been read."""
        at = self._before if self._raw is None or self._raw.closed else self._before + self._raw.tell()
        return min(at, self.size)

    def _begin(self) -> None:
        self.line, self.lines, self.skipped, self.cut, self._rows = 1, 0, 0, 0, 0
        self._before = 0  # bytes of the pieces that are done
        self._raw: BinaryIO | None = None
        self.missing = self._pieces[-1].part + 1 - len(self._pieces) if self._pieces else 0

    def __iter__(self) -> Iterator[TraceRow]:
        self._begin()
        if not self._pieces:
            yield from self._rows_of(self.path)
        for piece in self._pieces:
            size = _size(piece.path)
            yield from self._rows_of_piece(piece)
            self._before += size

    def _rows_of_piece(self, piece: Piece) -> Iterator[TraceRow]:
        here = found_again(piece)
        if here is None:
            self.missing += 1  # removed meanwhile
        else:
            yield from self._rows_of(here.path)

    def _rows_of(self, path: Path) -> Iterator[TraceRow]:
        self.file, self.line = path, 1
        number = 1
        with opened(path) as (file, raw):
            self._raw = raw
            try:
                file.readline(MAX_LINE)
                while line := file.readline(MAX_LINE):
                    number += 1
                    self.lines += 1
                    row = self._checked(line, number)
                    if len(line) >= MAX_LINE and not _to_its_end(line, file):
                        break
                    if row is not None:
                        self.line = number
                        self._rows += 1
                        yield row
            except EOFError:
                self.cut += 1
            except DAMAGED as error:
                self._refuse(number + 1, f"is damaged within its gzip data ({said(error)}): copy the file again")

    def _checked(self, line: bytes, number: int) -> TraceRow | None:
        try:
            if len(line) >= MAX_LINE:
                raise ValueError(f"the line is too long, rows have less than {MAX_LINE >> 20} MiB")
            return self._row(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            if line.endswith(b"\n") or len(line) >= MAX_LINE:
                self._refuse(number, f"is no row of a trace ({said(error)}): remove the line")
            else:
                self.cut += 1
            return None

    def _refuse(self, number: int, why: str) -> None:
        where = f"{self.file}, line {number}"
        if not self._lenient:
            raise TraceError(f"{where}: {why}, or read leniently to skip and count it") from None
        self.skipped += 1
        if self.skipped > max(_HOPELESS, self._rows):
            raise TraceError(f"{where}: most lines are no rows of a trace: give a file that adaptk wrote") from None

    def _header(self, file: Bytes) -> dict[str, Any]:
        try:
            line = first_line(file)
        except DAMAGED as error:
            raise TraceError(f"{self.path}: is damaged within its gzip data ({error}): copy it again") from None
        if not line:
            raise TraceError(f"{self.path}: is empty: give a file that adaptk wrote")
        try:
            header = msgspec.json.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            header = None
        if not isinstance(header, dict) or header.get("kind") != KIND:
            raise TraceError(f"{self.path}, line 1: is no header of an adaptk trace: give a file that adaptk wrote")
        version = header.get("schema_version")
        if version != SCHEMA_VERSION or isinstance(version, bool):
            raise TraceError(
                f"{self.path}, line 1: schema_version is {shown(version)}, this adaptk reads {SCHEMA_VERSION}: "
                "read it with the adaptk that wrote it"
            )
        return header

    def _row(self, line: bytes) -> TraceRow:
        try:
            return self._decode(line)
        except msgspec.ValidationError:
            # A propensity that was not finite has become null, which its type does not allow.
            raw = msgspec.json.decode(line)
            if not isinstance(raw, dict) or not isinstance(raw.get("decision"), dict):
                raise
            if raw["decision"].get("propensity", 0.0) is not None:
                raise
            raw["decision"]["propensity"] = math.nan
            return msgspec.convert(raw, TraceRow)


def _to_its_end(line: bytes, file: Bytes) -> bool:
    """Pass over the rest of a long line; whether its end was found, which is not looked for without end."""
    for _ in range(_SKIPPED_LINES):
        if len(line) < MAX_LINE or line.endswith(b"\n"):
            return True
        line = file.readline(MAX_LINE)
    return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
