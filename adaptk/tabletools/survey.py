"""What a table with step times decides at each batch size, what that gains, and where it cannot tell two arms apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from adaptk.table import GoodputTable
from adaptk.tablerows import TableRow
from adaptk.tabletools.apart import Tie, interval, judged
from adaptk.tabletools.levels import between_levels, rows_at

Floats = NDArray[np.float64]
Rows = Mapping[tuple[int, int], TableRow]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Batch sizes next to each other with the same best K.

    Parameters
    ----------
    first, last
        Batch sizes, both included.
    k
        The best K.
    goodput_first, goodput_last
        Tokens per request and second with it at ``first`` and at ``last``.
    over_k0_first, over_k0_last
        What it gains over K=0 there, as a share; ``None`` where the table has no K=0.
    """

    first: int
    last: int
    k: int
    goodput_first: float
    goodput_last: float
    over_k0_first: float | None
    over_k0_last: float | None


class Fixed(msgspec.Struct, frozen=True, kw_only=True):
    """One K held at every batch size, and what the best K of each batch size gains over it, as a share.

    ``gain`` is the geometric mean over the batch sizes of the rows, ``most`` the largest, at batch ``most_at``.
    """

    k: int
    gain: float
    most: float
    most_at: int


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """Step time and goodput of one (batch, K); ``relative`` is to the best K of the batch, ``low``/``high`` its 95 %.

    ``measured`` is false where the table has no such row and the time was taken from others. The interval is of the
    step time alone.
    """

    batch: int
    k: int
    itl_ms: float
    goodput: float
    relative: float
    measured: bool
    low: float | None
    high: float | None

    @property
    def percent(self) -> int:
        """``relative`` in percent, rounded down: 100 is the best alone."""
        return int(100.0 * self.relative)


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """All of it; ``cells`` by batch, then K; ``fixed`` with the best first.

    ``pairs`` counts the best arm of each batch size with each other one, ``judged`` those of which both have intervals;
    ``between`` says that ``context`` lies between two levels, so that no row answers.
    """

    context: float | None
    max_batch: int
    beyond: int | None
    ks: tuple[int, ...]
    batches: tuple[int, ...]
    runs: tuple[Run, ...]
    fixed: tuple[Fixed, ...]
    cells: tuple[Cell, ...]
    ties: tuple[Tie, ...]
    judged: int
    pairs: int
    with_intervals: bool
    between: bool


def survey(table: GoodputTable, context: float | None = None, max_batch: int | None = None) -> Survey:
    """Look at a table with step times.

    Parameters
    ----------
    table
        It must have step times.
    context
        Mean tokens per request in the KV cache; ``None``: as the table answers where it is unknown.
    max_batch
        Largest batch size to look at; ``None``: the largest that has rows.

    Raises
    ------
    TableError
        If the table has a schedule only, or an argument is out of range.

    Examples
    --------
    >>> rows = [{"batch": b, "k": k, "itl_ms": 5.0 + 0.01 * b * (k + 1)} for b in (1, 64, 512) for k in (0, 1, 3)]
    >>> seen = survey(GoodputTable.from_rows(rows, acceptance=[0.7, 0.6, 0.5]))
    >>> [(run.first, run.last, run.k) for run in seen.runs], seen.fixed[0].k
    ([(1, 147, 3), (148, 512, 1)], 3)
    """
    largest = table.batches[-1] if table.batches else 1
    last = largest if max_batch is None else max_batch
    triples = table.to_schedule(last, context)
    batches = tuple(batch for batch in table.batches if batch <= last)
    if not batches or last > largest:
        batches = (*batches, last)
    ks = table.ks
    goodput = goodputs(table, batches, ks, context)
    rows = {(row.batch, row.k): row for row in rows_at(table, context)}
    found = judged(table, goodput.tolist(), batches, rows)
    return Survey(
        context=context,
        max_batch=last,
        beyond=largest if last > largest else None,
        ks=ks,
        batches=batches,
        runs=tuple(_run(table, context, *triple) for triple in triples),
        fixed=_fixed(goodput, batches, ks),
        cells=tuple(_cells(table, goodput, batches, rows)),
        ties=found.ties,
        judged=found.judged,
        pairs=found.pairs,
        with_intervals=any(interval(row) is not None for row in rows.values()),
        between=between_levels(table, context),
    )


def goodputs(table: GoodputTable, batches: Sequence[int], ks: Sequence[int], context: float | None) -> Floats:
    """Tokens per request and second, shape ``(len(batches), len(ks))``."""
    lengths = np.array([table.acceptance_length(k) for k in ks])
    goodput: Floats = 1000.0 * lengths / table.itl_grid(batches, ks, context)
    return goodput


def _run(table: GoodputTable, context: float | None, first: int, last: int, k: int) -> Run:
    (start, end) = goodputs(table, (first, last), (k,), context)[:, 0].tolist()
    gains: list[float | None] = [None, None]
    if table.knows(0):
        none = goodputs(table, (first, last), (0,), context)[:, 0].tolist()
        gains = [start / none[0] - 1.0, end / none[1] - 1.0]
    return Run(
        first=first,
        last=last,
        k=k,
        goodput_first=start,
        goodput_last=end,
        over_k0_first=gains[0],
        over_k0_last=gains[1],
    )


def _fixed(goodput: Floats, batches: Sequence[int], ks: Sequence[int]) -> tuple[Fixed, ...]:
    gains = goodput.max(axis=1, keepdims=True) / goodput  # (batches, ks), at least 1
    means, worst = np.exp(np.log(gains).mean(axis=0)) - 1.0, gains.argmax(axis=0)
    found = [
        Fixed(k=k, gain=float(means[j]), most=float(gains[worst[j], j]) - 1.0, most_at=batches[worst[j]])
        for j, k in enumerate(ks)
    ]
    return tuple(sorted(found, key=lambda fixed: (fixed.gain, fixed.k)))


def _cells(table: GoodputTable, goodput: Floats, batches: Sequence[int], rows: Rows) -> list[Cell]:
    cells = []
    for batch, line in zip(batches, goodput.tolist(), strict=True):
        for k, value in zip(table.ks, line, strict=True):
            row, tokens = rows.get((batch, k)), 1000.0 * table.acceptance_length(k)
            ends = None if row is None else interval(row)
            cells.append(
                Cell(
                    batch=batch,
                    k=k,
                    itl_ms=tokens / value,
                    goodput=value,
                    relative=value / max(line),
                    measured=row is not None,
                    low=None if ends is None else tokens / ends[1],
                    high=None if ends is None else tokens / ends[0],
                )
            )
    return cells
