"""What in a table looks wrong beyond :meth:`GoodputTable.check`: cells that do not fit, counts that cannot be."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from adaptk.table import GoodputTable
from adaptk.tablerows import TableRow
from adaptk.tabletools.misfits import misfits

_SPREAD = 0.5  # standard deviation of the samples over their time
_ROUNDING = 1e-6
_SHOWN = 20
_FAR = 32  # times one batch size to the next

Cells = dict[tuple[int, int], float]


def doubts(table: GoodputTable) -> list[str]:
    """One sentence for each thing that is allowed and doubtful, :meth:`GoodputTable.check`'s first.

    Examples
    --------
    >>> rows = [{"batch": b, "k": k, "itl_ms": 5.0} for b in (1, 2) for k in (0, 1)]
    >>> doubts(GoodputTable.from_rows(rows, acceptance=[0.8]))
    ['batch 2 has the very times of batch 1: was it measured?']
    """
    found = table.check()
    levels: dict[float | None, Cells] = {}
    for row in table.rows:
        levels.setdefault(row.context, {})[row.batch, row.k] = row.itl_ms
    for kind in (misfits, _copies):
        lines = [
            line if level is None else f"{line} (context {level:g})"
            for level, cells in levels.items()
            for line in kind(cells)
        ]
        found += _cut(lines)
    found += _cut([line for row in table.rows for line in _row(row)])
    found += _acceptance(table)
    found += _turns(table)
    found += _gaps(table)
    return found


def _gaps(table: GoodputTable) -> Iterator[str]:
    """What a table says nothing of, so that it decides less than it seems to."""
    if not table.has_times:
        return
    if 0 not in table.ks:
        yield "K=0 has no rows: whether to speculate at all cannot be told"
    if len(table.ks) == 1:
        yield f"K={table.ks[0]} is its only K: there is nothing to choose"
    for before, after in pairwise(table.batches):
        if after > _FAR * before:
            yield f"between batch {before} and {after} there are no rows: times go on in a line"


def _cut(lines: list[str]) -> list[str]:
    return lines if len(lines) <= _SHOWN else [*lines[:_SHOWN], f"... and {len(lines) - _SHOWN} more of this kind"]


def _copies(cells: Cells) -> Iterator[str]:
    """Batches whose every time is that of the one before, which no two measurements are."""
    lines: dict[int, list[tuple[int, float]]] = {}
    for (batch, k), itl_ms in sorted(cells.items()):
        lines.setdefault(batch, []).append((k, itl_ms))
    for before, after in pairwise(sorted(lines)):
        if len(lines[after]) > 1 and lines[before] == lines[after]:
            yield f"batch {after} has the very times of batch {before}: was it measured?"


def _row(row: TableRow) -> Iterator[str]:
    where = f"batch {row.batch}, k {row.k}" + ("" if row.context is None else f" (context {row.context:g})")
    if row.spread_ms is not None and row.spread_ms > _SPREAD * row.itl_ms:
        yield f"{where}: its samples scatter by {row.spread_ms:g} ms around {row.itl_ms:g} ms"
    if row.p10_ms is not None and row.p90_ms is not None and row.p10_ms > row.p90_ms:
        yield f"{where}: p10 {row.p10_ms:g} ms is above p90 {row.p90_ms:g} ms"
    elif (row.p10_ms or 0.0) > row.itl_ms or row.itl_ms > (math.inf if row.p90_ms is None else row.p90_ms):
        yield f"{where}: {row.itl_ms:g} ms lies outside its samples' p10 to p90"


def _acceptance(table: GoodputTable) -> Iterator[str]:
    counts, supply, reached = table.acceptance_counts, table.supply, 1.0
    for i, share in enumerate(table.acceptance or (), start=1):
        reached *= share
        if share >= 1.0:
            yield f"acceptance is 1 at position {i}: only a copy of the target is that good a drafter"
        if share == 0.0 and i == 1 and max(table.ks) > 0:
            yield "acceptance is 0 at position 1: the drafter is broken, or was not run"
        if supply is not None and reached > supply[min(i, len(supply)) - 1] + _ROUNDING:
            yield (
                f"position {i} is reached and accepted in {reached:.3g} of the steps, and has a draft in "
                f"{supply[min(i, len(supply)) - 1]:.3g} only: a missing draft counts as not accepted"
            )
    if counts is not None and table.acceptance is None:
        yield "acceptance_counts stand without acceptance: the counts are not used, 0.7 is assumed"
    for i, ((accepted, _), (_, tried)) in enumerate(pairwise(counts or ()), start=1):
        if tried > accepted:
            yield (
                f"position {i + 1} was tried {tried} times and position {i} accepted {accepted} times only: "
                "a draft is tried where all before it were accepted"
            )


def _turns(table: GoodputTable) -> Iterator[str]:
    """A best K that goes up and down more than once over the batch sizes: no known cost makes it."""
    if not table.has_times:
        return
    for level in table.contexts or (None,):
        best = [table.best_k(batch, level) for batch in table.batches]
        signs = [after > before for before, after in pairwise(best) if after != before]
        # One hill is a mixture of experts; one valley more is noise.
        if sum(one != other for one, other in pairwise(signs)) >= 2:
            where = "" if level is None else f" (context {level:g})"
            ks = ",".join(map(str, best[:16])) + (",..." if len(best) > 16 else "")
            yield f"the best K goes up and down over the batch sizes, {ks}{where}: is that within the noise?"
