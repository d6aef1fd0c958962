"""Which files hold the pieces of one run's trace, and what they are called.

A trace grows in pieces. The running one is at the path that was asked for, the earlier ones beside it, as ``path.1``,
``path.2`` and so on; each begins with a whole header, which names the run and the piece's number in it. A piece may
have been compressed since, as ``path.1.gz``.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from adaptk.inputs import opened_regular

SCHEMA_VERSION = 1
KIND = "adaptk-trace"
MAX_LINE = 4 * 2**20  # bytes; keeps a file of something else from filling the memory

PACKED = b"\x1f\x8b"  # how gzip data begin
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)
Bytes = BinaryIO | gzip.GzipFile
_FORMAT = ("schema_version", "kind", "run", "part")
_BEGINS = re.compile(rb'\{\s*"schema_version"\s*:\s*\d+\s*,\s*"kind"\s*:\s*"adaptk-trace"')
_START = b'{"schema_version":1,"kind":"adaptk-trace"'


class TraceError(ValueError):
    """A trace cannot be opened or read; the message names the file, the line and the remedy."""


class Piece(NamedTuple):
    """One file of a run: ``part`` counts from 0, ``number`` is the one in its name, 0 where it has none."""

    path: Path
    run: str
    part: int
    number: int


class _Head(msgspec.Struct):
    kind: str
    run: str | None = None
    part: int | None = None


def header_line(fields: Mapping[str, Any], run: str = "", part: int = 0) -> bytes:
    """The first line of a piece.

    Raises
    ------
    TraceError
        If ``fields`` is not plain data, takes a name of the format, or is larger than a reader takes.
    """
    for name in _FORMAT:
        if name in fields:
            raise TraceError(f"header has {name}, which the format sets itself: choose another name")
    first = {"schema_version": SCHEMA_VERSION, "kind": KIND, **({"run": run, "part": part} if run else {})}
    try:
        line = msgspec.json.encode({**first, **fields}) + b"\n"
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TraceError(f"header is no plain data ({error}): use text, numbers, lists and objects") from None
    if len(line) >= MAX_LINE:
        raise TraceError(f"header takes {len(line)} bytes: give less than {MAX_LINE}")
    return line


def is_trace(start: bytes) -> bool:
    """Whether a file that begins with ``start`` is a trace, be it one that was cut off early.

    Examples
    --------
    >>> is_trace(header_line({})), is_trace(header_line({})[:9]), is_trace(b'{"rows": []}')
    (True, True, False)
    """
    return has_header(start) or _START.startswith(start.removeprefix(BOM_UTF8).rstrip(b"\0"))


def has_header(start: bytes) -> bool:
    """Whether a file that begins with ``start`` has a trace's header, or enough of one to be nothing else."""
    return _BEGINS.match(start.removeprefix(BOM_UTF8)) is not None


def first_line(file: Bytes) -> bytes:
    """The line of the header, less the mark that some editors put before a text in UTF-8."""
    return file.readline(MAX_LINE).removeprefix(BOM_UTF8)


def earlier(path: Path) -> list[Piece]:
    """The pieces of the run of ``path`` up to it, in their order; empty where the file names no run.

    Where there is nothing at ``path``, or only the beginning of a header, as a process leaves it that dies while it
    begins a piece, the run is that of the latest piece beside it.
    """
    beside = _beside(path)
    own = _piece(path, _number(path.name))
    if own is None and _unbegun(path):
        own = max(beside, key=lambda piece: piece.number, default=None)
    if own is None:
        return []
    found: dict[int, Piece] = {}
    for piece in beside:  # of a piece that is there plain and compressed, one is read
        if piece.run == own.run and piece.part < own.part:
            found.setdefault(piece.part, piece)
    return [*(found[part] for part in sorted(found)), own]


def found_again(piece: Piece) -> Piece | None:
    """The same piece under the name that it has by now, as pieces are moved aside while they are read."""
    here = _piece(piece.path, piece.number)
    if here is not None and (here.run, here.part) == (piece.run, piece.part):
        return here
    those = (each for each in _beside(piece.path) if (each.run, each.part) == (piece.run, piece.part))
    return next(those, None)


def numbers_beside(path: Path) -> list[int]:
    """The numbers in the names of what lies beside a running file, whatever it is.

    There are none in a folder that is not there, or that may be written to and not listed.

    Raises
    ------
    OSError
        If it cannot be listed for another reason, which may pass.
    """
    try:
        names = _names(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    return [_number(name) for name in names if _stem(name) == path.name]


@contextmanager
def opened(path: Path) -> Iterator[tuple[Bytes, BinaryIO]]:
    """A trace's file, unpacked where it is compressed, and the file itself.

    Raises
    ------
    TraceError
        If it cannot be opened, or is no regular file.
    """
    with ExitStack() as stack:
        try:
            raw = stack.enter_context(opened_regular(path))
        except FileNotFoundError:
            raise TraceError(f"{path}: there is no such file: check the path; ADAPTK_TRACE writes one") from None
        except (OSError, ValueError) as error:
            raise TraceError(f"{str(path)!r}: cannot be read ({error}): check the path") from None
        yield unpacked(raw), raw


def unpacked(raw: BinaryIO) -> Bytes:
    """A file as it is, or what it holds where it is compressed, by its first bytes."""
    packed = raw.read(2) == PACKED
    raw.seek(0)
    return gzip.GzipFile(fileobj=raw) if packed else raw


def _beside(path: Path) -> list[Piece]:
    stems = {_stem(path.name), path.name}  # a running file may itself have a number in its name
    try:
        names = sorted(name for name in _names(path) if _stem(name) in stems)
    except OSError:
        return []
    pieces = (_piece(path.with_name(name), _number(name)) for name in names)
    return [piece for piece in pieces if piece is not None]


def _names(path: Path) -> list[str]:
    """What lies in the folder of a path."""
    with os.scandir(path.absolute().parent) as entries:
        return [entry.name for entry in entries]


def _piece(path: Path, number: int) -> Piece | None:
    """What the file at a path is; ``None`` where it names no run, or cannot be read."""
    try:
        with opened(path) as (file, _):
            line = first_line(file)
        head = msgspec.json.decode(line, type=_Head)
    except (TraceError, OSError, *DAMAGED, msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if head.kind != KIND or not head.run or head.part is None or head.part < 0 or not line.endswith(b"\n"):
        return None
    return Piece(path, head.run, head.part, number)


def _unbegun(path: Path) -> bool:
    try:
        with opened(path) as (file, _):
            line = first_line(file)
    except (TraceError, OSError, *DAMAGED):
        return not path.exists()
    return not line.endswith(b"\n") and is_trace(line)


_NAME = re.compile(r"(?P<stem>.+?)(?:\.(?P<number>\d{1,18}))?(?:\.gz)?", re.DOTALL)


def _stem(name: str) -> str:
    matched = _NAME.fullmatch(name)
    return name if matched is None else matched["stem"]


def _number(name: str) -> int:
    matched = _NAME.fullmatch(name)
    return int(matched["number"] or 0) if matched is not None else 0
