"""Recorded request logs: Azure's CSV and Mooncake's JSONL, read as a workload.

Which of the two a file is, and whether it is compressed with gzip, is recognised by its content.

References
----------
Patel et al., "Splitwise: Efficient Generative LLM Inference Using Phase Splitting", ISCA 2024: the CSV, columns
``TIMESTAMP`` (date and time), ``ContextTokens`` and ``GeneratedTokens``, read in upper or lower case.
Qin et al., "Mooncake: Trading More Storage for Less Computation", FAST 2025: the JSONL, an object per line with
``timestamp`` (milliseconds), ``input_length``, ``output_length`` and ``hash_ids``.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import re
import stat
import zlib
from array import array
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptk.quoted import said, shown
from adaptk.replay.workload import Requests

MAX_TOKENS = 10_000_000
"""Most tokens of a prompt or an answer: the longest context that any model announces."""

MAX_REQUESTS = 50_000_000
"""Most requests of a log: the largest public ones, weeks of a cloud's, have some 40 million."""

_MAX_LINE = 2**20  # bytes; keeps a file of something else from filling the memory
_LONGEST_LINE = 16 * _MAX_LINE  # that is passed over; a longer one is the end of what is read
_MOST_EMPTY = 2**18  # bytes of empty lines beyond those of lines that hold something
_MAX_MS = 1e15  # a clock in nanoseconds lies above it
_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_PROPER = {column.lower(): column for column in _COLUMNS}
_KEYS = ("timestamp", "input_length", "output_length")
_FORMS = (
    f"give a CSV with a header line and the columns {', '.join(_COLUMNS)}, "
    f"or one JSON object per line with {', '.join(_KEYS)}"
)
_LENIENT = "mend or remove the line, or read leniently to skip and count it"
_BOMS = (b"\xff\xfe", b"\xfe\xff")  # UTF-16
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_WHOLE = re.compile(r"\d+(\.0*)?", re.ASCII)  # 12.0 is what data frames with gaps write for 12
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_Bytes = BinaryIO | gzip.GzipFile


class WorkloadError(ValueError):
    """A request log cannot be opened or read; the message names the file, the line, the field and the remedy."""


class Loaded(NamedTuple):
    """The requests of a file, and how many lines a lenient reader passed over."""

    requests: Requests
    skipped: int


class _Row(NamedTuple):
    """One request as recorded; the clock in microseconds since any moment."""

    clock_us: float
    prompt: int
    output: int


class _LineError(ValueError):
    """What is wrong with a line, without the place."""


def read_requests(path: str | os.PathLike[str], lenient: bool = False) -> Loaded:
    """Read a whole request log.

    The first request arrives at 0. An answer of 0 tokens counts as 1: the engine samples a token from each prompt. All
    requests are of kind 0; columns and keys that are not needed, and empty lines, are passed over. Times are read to
    the microsecond; without an offset they are UTC.

    Parameters
    ----------
    path
        The file.
    lenient
        Skip and count lines that cannot be read, a line whose clock lies before the last one that was read among them;
        one clock far ahead thus costs all lines up to it.

    Raises
    ------
    WorkloadError
        If the file cannot be read, is neither form, holds no request or, unless ``lenient``, holds a line that is no
        request.
    """
    name = os.fsdecode(path)
    clock_us, prompt, output, skipped = array("d"), array("q"), array("q"), 0
    origin = last = None
    with _opened(name) as file:
        lines = _lines(name, file)
        row_of, rows = _recognised(name, lines)
        for number, line in rows:
            try:
                row = row_of(line)
                if last is not None and row.clock_us < last:
                    raise _LineError(f"the clock goes back by {(last - row.clock_us) / 1000.0:g} ms: sort by time")
            except _LineError as error:
                if not lenient:
                    raise WorkloadError(f"{name}, line {number}: {error}; {_LENIENT}") from None
                skipped += 1
                continue
            if len(clock_us) == MAX_REQUESTS:
                raise WorkloadError(f"{name}: holds more than {MAX_REQUESTS} requests: give a part of it")
            last = row.clock_us
            origin = last if origin is None else origin
            clock_us.append(last - origin)
            prompt.append(row.prompt)
            output.append(row.output)
    if not clock_us:
        why = f"no line of {skipped} can be read" if skipped else "it has no line behind its header"
        raise WorkloadError(f"{name}: holds no request, {why}: {_FORMS}")
    arrival_ms = np.array(clock_us) / 1000.0
    return Loaded(
        Requests(arrival_ms, np.array(prompt), np.array(output), np.zeros(len(arrival_ms), dtype=np.int64)), skipped
    )


def scaled(requests: Requests, rate: float) -> Requests:
    """The same requests arriving ``rate`` times as fast, above 0.

    Examples
    --------
    >>> ones = np.ones(2, dtype=np.int64)
    >>> scaled(Requests(np.array([0.0, 30.0]), ones, ones, ones), 1.5).arrival_ms.tolist()
    [0.0, 20.0]
    """
    if not 0.0 < rate < math.inf:
        raise ValueError(f"rate is {rate!r}: give a number above 0, 2 for twice as fast")
    return replace(requests, arrival_ms=requests.arrival_ms / rate)


def first(requests: Requests, n: int) -> Requests:
    """The first ``n`` requests, at least 1, or all if there are fewer."""
    if n < 1:
        raise ValueError(f"n is {n!r}: give at least 1 request")
    return only(requests, np.arange(len(requests)) < n)


def only(requests: Requests, which: NDArray[np.bool_]) -> Requests:
    """The requests for which ``which`` is true, at least one, shape ``(requests,)``."""
    known = requests.known
    return Requests(
        requests.arrival_ms[which],
        requests.prompt[which],
        requests.output[which],
        requests.kind[which],
        None if requests.round is None else requests.round[which],
        None if requests.after_tokens is None else requests.after_tokens[which],
        None if known is None else known[np.repeat(which, requests.output)],
    )


@contextmanager
def _opened(name: str) -> Iterator[_Bytes]:
    """The bytes of the file, unpacked; whatever goes wrong while they are read is a WorkloadError."""
    try:
        if not stat.S_ISREG(Path(name).stat().st_mode):  # a pipe would block
            raise WorkloadError(f"{name}: is not a regular file: give the path of a request log")
        with Path(name).open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            yield gzip.GzipFile(fileobj=raw) if packed else raw
    except FileNotFoundError:
        raise WorkloadError(f"{name}: there is no such file: check the path") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise WorkloadError(f"{name}: is damaged or cut off within its gzip data ({error}): copy it again") from None
    except WorkloadError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise WorkloadError(f"{name!r}: cannot be read ({error}): check the path and its permissions") from None


def _lines(name: str, file: _Bytes) -> Iterator[tuple[int, bytes]]:
    """Lines that are not empty with their numbers; of one beyond all reason only the start.

    A few compressed bytes can be lines without end, or a line without end: what holds nothing is not read for long.
    """
    empty = 0
    for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE), b""), start=1):
        rest, length = line, len(line)
        if number == 1:
            line = line.removeprefix(BOM_UTF8)
        if line.strip():
            yield number, line  # first: who refuses it need not wait for its end
            empty = max(0, empty - length)
        else:
            empty += length
            if empty > _MOST_EMPTY:
                raise WorkloadError(f"{name}, line {number}: almost all lines up to here are empty: {_FORMS}")
        while len(rest) == _MAX_LINE and not rest.endswith(b"\n") and length <= _LONGEST_LINE:
            rest = file.readline(_MAX_LINE)
            length += len(rest)
        if length > _LONGEST_LINE:
            raise WorkloadError(f"{name}, line {number}: has more than {_LONGEST_LINE >> 20} MiB: {_FORMS}")


def _recognised(
    name: str, lines: Iterator[tuple[int, bytes]]
) -> tuple[Callable[[bytes], _Row], Iterator[tuple[int, bytes]]]:
    """How the lines of this file are read, and the lines that are left to read."""
    number, line = next(lines, (0, b""))
    if not line:
        raise WorkloadError(f"{name}: is empty: {_FORMS}")
    if b"\0" in line or line.startswith(_BOMS):
        raise WorkloadError(f"{name}: is no text in UTF-8: {_FORMS}")
    if not line.lstrip().startswith(b"{") and b"\r" in line.rstrip(b"\r\n"):
        raise WorkloadError(f"{name}: its lines end in CR alone, as on old Macs: save it with LF or CR LF")
    if line.lstrip().startswith(b"{"):
        return _mooncake_row, _chain((number, line), lines)
    try:
        header = [_PROPER.get(field.strip().lower(), field) for field in _fields(line)]
    except _LineError as error:
        raise WorkloadError(f"{name}, line {number}: {error}: {_FORMS}") from None
    missing = [column for column in _COLUMNS if column not in header]
    if len(missing) == len(_COLUMNS):
        raise WorkloadError(f"{name}, line {number}: is no form of request log ({shown(_text(line))}): {_FORMS}")
    if missing:
        raise WorkloadError(f"{name}, line {number}: {', '.join(missing)} is missing in the header: {_FORMS}")
    for column in _COLUMNS:
        if header.count(column) > 1:
            raise WorkloadError(f"{name}, line {number}: {column} stands twice in the header: keep one of them")
    return _AzureRows(header), lines


def _chain(line: tuple[int, bytes], lines: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    yield line
    yield from lines


class _AzureRows:
    """Reads the lines below one header."""

    def __init__(self, header: list[str]) -> None:
        self._width = len(header)
        self._places = [header.index(column) for column in _COLUMNS]

    def __call__(self, line: bytes) -> _Row:
        fields = _fields(line)
        if len(fields) != self._width:
            raise _LineError(f"has {len(fields)} fields, the header has {self._width}")
        time, prompt, output = (fields[place].strip() for place in self._places)
        return _Row(_clock_us(time), _tokens(_COLUMNS[1], prompt, 1), max(1, _tokens(_COLUMNS[2], output, 0)))


def _mooncake_row(line: bytes) -> _Row:
    try:
        request = json.loads(_text(line))
    except (ValueError, RecursionError) as error:
        raise _LineError(f"is no JSON object, or is cut off ({said(error)})") from None
    if not isinstance(request, dict):
        raise _LineError(f"holds {shown(request)} where an object is expected")
    for key in _KEYS:
        if key not in request:
            raise _LineError(f"{key} is missing")
    time, prompt, output = (request[key] for key in _KEYS)
    if not isinstance(time, (int, float)) or isinstance(time, bool) or not abs(time) <= _MAX_MS:
        raise _LineError(f"timestamp is {shown(time)}: give milliseconds as a number")
    return _Row(time * 1000, _tokens(_KEYS[1], prompt, 1), max(1, _tokens(_KEYS[2], output, 0)))


def _fields(line: bytes) -> list[str]:
    text = _text(line)
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text], strict=True))
    except csv.Error as error:
        raise _LineError(f"is no line of a CSV ({said(error)})") from None


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r\n")


def _clock_us(time: str) -> int:
    try:
        if not _TIME.fullmatch(time):
            raise ValueError
        moment = datetime.fromisoformat(time)
    except ValueError:
        raise _LineError(f"TIMESTAMP is {shown(time)}: write it like 2023-11-16 18:17:03.9799600") from None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


def _tokens(name: str, value: object, least: int) -> int:
    if isinstance(value, str):
        number: object = float(value) if _WHOLE.fullmatch(value) else math.nan
    else:
        number = value
    if not isinstance(number, (int, float)) or isinstance(number, bool) or not least <= number <= MAX_TOKENS:
        raise _LineError(f"{name} is {shown(value)}: give a whole number from {least} to {MAX_TOKENS}")
    if number % 1:
        raise _LineError(f"{name} is {shown(value)}: give a whole number")
    return int(number)
