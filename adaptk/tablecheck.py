"""Things in a table that are allowed and yet look like a slip of the measurement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from adaptk.tabledrafts import Drafts
from adaptk.tablerows import TableRow

_JUMP = 3.0  # a cell this many times above a neighbour ...
_GROWTH = 1.5  # ... or above this times what the number of tokens alone would explain
_FALL = 0.85  # step time with more work, over step time with less
_FEW = 5  # samples
_WIDE = 0.2  # of an interval, relative to its cell
_FEW_TRIALS = 30  # drafts tried at a position
_RISE = 0.05  # of conditional acceptance from one position to the next
_SHOWN = 20

Cells = dict[tuple[int, int], float]


def suspicions(rows: Sequence[TableRow], drafts: Drafts) -> list[str]:
    """One sentence for each doubtful thing, at most 20 of a kind."""
    found: list[str] = []
    levels: dict[float | None, Cells] = {}
    for row in rows:
        levels.setdefault(row.context, {})[row.batch, row.k] = row.itl_ms
    all_ks = sorted({row.k for row in rows})
    for kind in (_holes, _jumps, _falls):
        lines = [
            line if level is None else f"{line} (context {level:g})"
            for level, cells in levels.items()
            for line in kind(cells, all_ks)
        ]
        found += _cut(lines)
    found += _cut(
        [f"batch {row.batch}, k {row.k}: only {row.n} samples" for row in rows if row.n is not None and row.n < _FEW]
    )
    found += _cut(list(_doubtful_intervals(rows)))
    found += _acceptance(rows, drafts)
    found += _cut(list(_counts(drafts)))
    return found


def _cut(lines: list[str]) -> list[str]:
    return lines if len(lines) <= _SHOWN else [*lines[:_SHOWN], f"... and {len(lines) - _SHOWN} more of this kind"]


def _holes(cells: Cells, all_ks: Sequence[int]) -> Iterator[str]:
    for batch in sorted({batch for batch, _ in cells}):
        lacking = [k for k in all_ks if (batch, k) not in cells]
        if lacking:
            yield f"batch {batch}: no row for k {', '.join(map(str, lacking))}, taken from other rows"


def _neighbours(cells: Cells) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Pairs of adjacent cells, the one with less work first."""
    for i in (0, 1):
        lines: dict[int, list[tuple[int, int]]] = {}
        for cell in sorted(cells):
            lines.setdefault(cell[i], []).append(cell)
        for line in lines.values():
            yield from pairwise(line)


def _jumps(cells: Cells, all_ks: Sequence[int]) -> Iterator[str]:
    for small, large in _neighbours(cells):
        tokens = large[0] * (large[1] + 1) / (small[0] * (small[1] + 1))
        up, down = cells[large] / cells[small], cells[small] / cells[large]
        if up > max(_JUMP, _GROWTH * tokens):
            yield _jump(large, small, cells, up)
        elif down > _JUMP:
            yield _jump(small, large, cells, down)


def _jump(cell: tuple[int, int], other: tuple[int, int], cells: Cells, ratio: float) -> str:
    return (
        f"batch {cell[0]}, k {cell[1]}: {cells[cell]:g} ms is {ratio:.1f} times the {cells[other]:g} ms of its "
        f"neighbour batch {other[0]}, k {other[1]}"
    )


def _falls(cells: Cells, all_ks: Sequence[int]) -> Iterator[str]:
    for small, large in _neighbours(cells):
        if 1.0 / _JUMP <= cells[large] / cells[small] < _FALL:
            yield (
                f"batch {large[0]}, k {large[1]}: {cells[large]:g} ms is less than the {cells[small]:g} ms of "
                f"batch {small[0]}, k {small[1]}, which is less work"
            )


def _doubtful_intervals(rows: Sequence[TableRow]) -> Iterator[str]:
    for row in rows:
        where = f"batch {row.batch}, k {row.k}" + ("" if row.context is None else f" (context {row.context:g})")
        if row.low_ms is None or row.high_ms is None:
            continue
        if not row.low_ms <= row.itl_ms <= row.high_ms:
            yield f"{where}: {row.itl_ms:g} ms lies outside its own interval, {row.low_ms:g} to {row.high_ms:g} ms"
        elif row.high_ms - row.low_ms > _WIDE * row.itl_ms:
            yield f"{where}: its interval is wide, {row.low_ms:g} to {row.high_ms:g} ms"


def _counts(drafts: Drafts) -> Iterator[str]:
    counts, acceptance = drafts.acceptance_counts, drafts.acceptance
    if counts is None or acceptance is None:
        return
    if len(counts) != len(acceptance):
        yield f"acceptance_counts has {len(counts)} positions, acceptance {len(acceptance)}: they should be one each"
    for i, ((accepted, tried), share) in enumerate(zip(counts, acceptance, strict=False), start=1):
        if tried < _FEW_TRIALS:
            yield f"acceptance at position {i} rests on {tried} drafts only"
        elif abs(accepted / tried - share) > _RISE:
            yield f"acceptance at position {i} is {share:g}, its counts say {accepted} of {tried}"


def _acceptance(rows: Sequence[TableRow], drafts: Drafts) -> Iterator[str]:
    acceptance = drafts.acceptance
    if acceptance is None:
        if rows:
            yield "acceptance is unknown: 0.7 is assumed at every position"
        return
    deepest = max((row.k for row in rows), default=0)
    if len(acceptance) < deepest:
        yield f"acceptance has {len(acceptance)} positions and k goes up to {deepest}: the last value is held"
    if drafts.acceptance_counts is not None or (drafts.supply is not None and drafts.supply[0] < 1.0):
        return  # it was counted so; or a drafter that often finds nothing has its missing first drafts in position 1
    for i, (before, after) in enumerate(pairwise(acceptance), start=1):
        if after > before + _RISE:
            yield (
                f"acceptance rises from {before:g} at position {i} to {after:g} at position {i + 1}: "
                "is it conditional on the drafts before, and not marginal?"
            )
