"""The trace format, and how it is read: a header line, then one JSON line per engine step.

The header is ``{"schema_version": 1, "kind": "adaptk-trace", ...}``, each further line a :class:`TraceRow`. NaN and
infinite numbers are written as ``null``. A file compressed with gzip, recognised by its first bytes, is read as it is.
"""

from __future__ import annotations

import gzip
import math
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from adaptk.decision import Decision
from adaptk.step import StepRecord

SCHEMA_VERSION = 1
KIND = "adaptk-trace"

_MAX_LINE = 64 * 2**20  # bytes; keeps a file of something else from filling the memory
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)
_Bytes = BinaryIO | gzip.GzipFile


class TraceError(ValueError):
    """A trace cannot be opened or read; the message names the file, the line and the remedy."""


class TraceRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One engine step and the decision that belongs to it; ``None`` where there was none."""

    step: StepRecord
    decision: Decision | None = None


class Trace(msgspec.Struct, frozen=True):
    """A trace in memory.

    ``skipped`` counts the unreadable lines that a lenient reader passed over; ``lines`` has the line of the file that
    each row stands on, shape ``(rows,)``, the header being line 1.
    """

    header: dict[str, Any]
    rows: list[TraceRow]
    skipped: int = 0
    lines: list[int] = []


def header_line(fields: Mapping[str, Any]) -> bytes:
    """The first line of a trace.

    Raises
    ------
    TraceError
        If ``fields`` is not plain data or takes a name of the format.
    """
    for name in ("schema_version", "kind"):
        if name in fields:
            raise TraceError(f"header has {name}, which the format sets itself: choose another name")
    try:
        return msgspec.json.encode({"schema_version": SCHEMA_VERSION, "kind": KIND, **fields}) + b"\n"
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TraceError(f"header is no plain data ({error}): use text, numbers, lists and objects") from None


def read_trace(path: str | os.PathLike[str], lenient: bool = False) -> Trace:
    """Read a whole trace.

    Parameters
    ----------
    path
        File that a ``TraceWriter`` wrote.
    lenient
        Skip and count rows that cannot be read, such as the last one of an engine that was killed; what lies behind
        damage of gzip data counts as one.

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
    return Trace(reader.header, rows, reader.skipped, lines)


def iter_trace(path: str | os.PathLike[str], lenient: bool = False) -> Iterator[TraceRow]:
    """The rows of a trace one after the other, in constant memory; parameters and errors as :func:`read_trace`."""
    return iter(Reader(path, lenient))


class Reader:
    """The rows of a trace, read as they are asked for: ``header`` first, ``skipped`` and ``line`` go along.

    Parameters and errors are those of :func:`read_trace`.
    """

    def __init__(self, path: str | os.PathLike[str], lenient: bool) -> None:
        self.path = Path(path)
        self.skipped = 0
        self.line = 1  # of the row last given
        self._lenient = lenient
        self._decode = msgspec.json.Decoder(TraceRow).decode
        with self._open() as file:
            try:
                line = self._line(file)
            except _DAMAGED as error:
                raise TraceError(f"{self.path}: is damaged within its gzip data ({error}): copy it again") from None
        self.header = self._read_header(line)

    def __iter__(self) -> Iterator[TraceRow]:
        number = 1
        with self._open() as file:
            try:
                self._line(file)
                while line := self._line(file):
                    number += 1
                    row = self._checked(line, number)
                    if row is not None:
                        self.line = number
                        yield row
            except _DAMAGED as error:
                self._refuse(number + 1, f"is damaged or cut off within its gzip data ({error}): copy the file again")

    def _checked(self, line: bytes, number: int) -> TraceRow | None:
        try:
            if len(line) >= _MAX_LINE:
                raise ValueError(f"the line is too long, rows have less than {_MAX_LINE >> 20} MiB")
            return self._row(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            cut = not line.endswith(b"\n") and len(line) < _MAX_LINE
            why = "is cut off" if cut else f"is no row of a trace ({error})"
            self._refuse(number, f"{why}: remove the line")
            return None

    def _refuse(self, number: int, why: str) -> None:
        if not self._lenient:
            raise TraceError(f"{self.path}, line {number}: {why}, or read leniently to skip and count it") from None
        self.skipped += 1

    def _line(self, file: _Bytes) -> bytes:
        """The next line, empty at the end of the file; of one beyond all reason only the start."""
        line = rest = file.readline(_MAX_LINE)
        while len(rest) == _MAX_LINE and not rest.endswith(b"\n"):
            rest = file.readline(_MAX_LINE)
        return line

    @contextmanager
    def _open(self) -> Iterator[_Bytes]:
        try:
            if not stat.S_ISREG(self.path.stat().st_mode):  # a pipe would block
                raise ValueError("it is not a regular file")
            raw = self.path.open("rb")
        except FileNotFoundError:
            raise TraceError(f"{self.path}: there is no such file: check the path; ADAPTK_TRACE writes one") from None
        except (OSError, ValueError) as error:
            raise TraceError(f"{str(self.path)!r}: cannot be read ({error}): check the path") from None
        with raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            yield gzip.GzipFile(fileobj=raw) if packed else raw

    def _read_header(self, line: bytes) -> dict[str, Any]:
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
                f"{self.path}, line 1: schema_version is {version!r}, this adaptk reads {SCHEMA_VERSION}: "
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
