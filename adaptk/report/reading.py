"""Traces read once, row by row, into columns; a controller reads along and says where it would have been alarmed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from adaptk.controller import Controller
from adaptk.report.columns import AlarmAt, Columns, Sink
from adaptk.report.headers import Header, read_header
from adaptk.table import GoodputTable
from adaptk.tablekey import differences
from adaptk.tablerows import MAX_K
from adaptk.tracefile import Reader, TraceError, whole_runs

MOST_POSITIONS = 32  # of drafts; what lies behind is not looked at
AT_ONCE = 512  # rows between two calls of ``tick``
_PEEK = 4096  # rows looked at for the K in use, where no header names the arms


class SourceFacts(NamedTuple):
    """What was seen of one trace beside its rows: where they begin and end among all steps, and what was odd.

    ``skipped`` lines could not be read, ``cut`` rows end in mid-line, ``pieces`` files were read, and ``missing`` more
    should lie beside them.
    """

    path: str
    header: Header
    first: int
    last: int
    skipped: int
    restarts: int
    cut: int
    pieces: int
    missing: int


class Recording(NamedTuple):
    """Everything read. ``controller`` has seen all steps, ``table`` has the seed's times."""

    columns: Columns
    sources: list[SourceFacts]
    alarms: list[AlarmAt]
    arms: tuple[int, ...]
    table: GoodputTable | None
    foreign: list[str]  # what makes the table one of another engine
    controller: Controller
    cut_short: bool

    @property
    def key(self) -> dict[str, Any]:
        """What the headers together say of the engine."""
        return _key([source.header for source in self.sources])


def read(
    paths: Sequence[str | os.PathLike[str]],
    table: GoodputTable | None,
    lenient: bool,
    tick: Callable[[float], None],
) -> Recording:
    """Read traces of one set-up, in the order given.

    Parameters
    ----------
    paths
        Files that ``ADAPTK_TRACE`` wrote; the earlier pieces of their runs, beside them, are read along.
    table
        The seed; default: the one that a header holds.
    lenient
        Skip and count lines that cannot be read.
    tick
        Is called now and then with the share that is done. An interrupt ends the reading: what was read so far is
        given.

    Raises
    ------
    TraceError
        If no file is named, one cannot be read, or two are of different set-ups.
    """
    readers = _opened(paths, lenient)
    paths = [reader.path for reader in readers]
    headers = [read_header(reader.header) for reader in readers]
    _check_same(paths, headers)
    arms = _arms(readers, headers, table)
    seed = table if table is not None else next((h.seed_table for h in headers if h.seed_table is not None), None)
    foreign = [] if seed is None else differences(seed.key, _key(headers))
    controller = _controller(seed, arms, headers, trusted=not foreign and all(h.trusted for h in headers))
    sink = Sink(min(max(arms[-1], 1), MOST_POSITIONS), controller)
    sources, cut_short = [], False
    whole = sum(reader.size for reader in readers) or 1
    before = 0
    for number, (path, reader, header) in enumerate(zip(paths, readers, headers, strict=True)):
        first, restarts = len(sink), sink.restarts
        sink.begin(number)
        try:
            for count, row in enumerate(reader, start=1):
                sink.take(row)
                if count % AT_ONCE == 0:
                    tick(min((before + reader.position) / whole, 1.0))
        except KeyboardInterrupt:
            cut_short = True
        before += reader.size
        seen = reader.skipped, sink.restarts - restarts, reader.cut, len(reader.files), reader.missing
        sources.append(SourceFacts(os.fspath(path), header, first, len(sink), *seen))
        if cut_short:
            break
    return Recording(sink.columns(), sources, sink.alarms, arms, seed, foreign, controller, cut_short)


def _opened(paths: Sequence[str | os.PathLike[str]], lenient: bool) -> list[Reader]:
    if not paths:
        raise TraceError("no trace was named: give at least one file that ADAPTK_TRACE wrote")
    seen: set[str] = set()
    for path in paths:
        if os.path.realpath(path) in seen:
            raise TraceError(f"{os.fspath(path)} is given twice: name each trace once")
        seen.add(os.path.realpath(path))
    return [Reader(path, lenient) for path in whole_runs(paths)]


def _key(headers: Sequence[Header]) -> dict[str, Any]:
    key: dict[str, Any] = {}
    for header in headers:
        key |= {name: value for name, value in header.key.items() if key.get(name) is None}
    return key


def _check_same(paths: Sequence[str | os.PathLike[str]], headers: Sequence[Header]) -> None:
    """Refuse traces of different engines: their times say nothing about one another."""
    seen: dict[str, Any] = {}
    for path, header in zip(paths, headers, strict=True):
        different = differences(seen, header.key)
        if different:
            told = "; ".join(each.replace("in the table", "before it").replace("here", "in this one")
                             for each in different)  # fmt: skip
            raise TraceError(f"{path}: is of another set-up than the files before ({told}): report on each alone")
        seen |= {name: value for name, value in header.key.items() if seen.get(name) is None}


def _arms(readers: Sequence[Reader], headers: Sequence[Header], table: GoodputTable | None) -> tuple[int, ...]:
    """What could be chosen: as the headers say, with the schedule's K; else what the first rows name and played."""
    arms: set[int] = set()
    for header in headers:
        arms |= {*header.arms, *(k for _, _, k in header.schedule or ())}
        arms |= set() if header.k_max is None else {header.k_max}
    if not any(header.arms for header in headers):
        for reader in readers:
            for _, row in zip(range(_PEEK), reader, strict=False):
                arms |= {row.step.k} | set(() if row.decision is None else row.decision.arms)
        arms |= set() if table is None else {k for k in table.ks if k <= max(arms, default=0)}
    usable = sorted(k for k in arms if 0 <= k <= MAX_K)
    return tuple(usable) or (0,)


def _controller(
    table: GoodputTable | None, arms: tuple[int, ...], headers: Sequence[Header], trusted: bool
) -> Controller:
    sizes = _key(headers).get("capture_sizes")
    sizes = sizes if isinstance(sizes, list) and all(type(s) is int and s > 0 for s in sizes) else []
    if table is None:
        schedule = next((header.schedule for header in headers if header.schedule), None)
        table = None if schedule is None else GoodputTable.from_schedule(schedule)
    return Controller(table, arms, seed=0, capture_sizes=sizes, trusted=trusted)
