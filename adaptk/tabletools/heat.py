"""Goodput relative to the best K of each batch, as a map of batch by K that can be read without colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from adaptk.spans import Span, Spans
from adaptk.tabletools.survey import Cell, Survey

MOST_ROWS = 24
MOST_NUMBERED = 9  # columns of eight characters beside the batch size in a line of 80
MOST_COLUMNS = 23  # the same of three characters, without numbers
_HEAD = 8


class Shade(NamedTuple):
    """What a cell looks like from this relative goodput on."""

    least: float
    block: str
    ascii: str
    style: str


SHADES = (
    Shade(0.99, "█", "#", "#fde725"),
    Shade(0.95, "▓", "+", "#5ec962"),
    Shade(0.85, "▒", "-", "#21918c"),
    Shade(0.70, "░", ".", "#3b528b"),
    Shade(0.0, " ", " ", ""),
)


def heat_map(seen: Survey, blocks: bool = True) -> list[Spans]:
    """Lines of at most 80 columns: a head, a line for each batch size, and what the signs mean.

    ``blocks`` says whether the reader's encoding has block characters; else ASCII stands for them.
    """
    best = {cell.k for cell in seen.cells if cell.relative >= 1.0}
    ks = _thinned(seen.ks, MOST_COLUMNS, best)
    batches = _thinned(seen.batches, MOST_ROWS, set())
    numbered = len(ks) <= MOST_NUMBERED
    cells = {(cell.batch, cell.k): cell for cell in seen.cells}
    width = 7 if numbered else 2
    lines: list[Spans] = [
        (
            Span(f"{'batch':>{_HEAD - 1}}", "bold"),
            *(Span(f" {f'K={k}' if numbered else k:>{width}}", "bold") for k in ks),
        )
    ]
    for batch in batches:
        drawn = (span for k in ks for span in _drawn(cells[batch, k], numbered, blocks))
        lines.append((Span(f"{batch:>{_HEAD - 1}}"), *drawn))
    return [*lines, *((Span(text),) for text in _legend(seen, ks, batches, numbered, blocks))]


def _thinned(values: Sequence[int], most: int, kept: set[int]) -> list[int]:
    """At most ``most`` of the values: the first, the last, of ``kept`` as many as there is room for, others evenly."""
    if len(values) <= most:
        return list(values)
    ranked = [value for value in values[1:-1] if value in kept][: most - 2]
    room = most - len(ranked)
    evenly = [values[round(i * (len(values) - 1) / (room - 1))] for i in range(room)]
    return sorted({*ranked, *evenly})


def _drawn(cell: Cell, numbered: bool, blocks: bool) -> list[Span]:
    shade = next(shade for shade in SHADES if cell.relative >= shade.least or shade.least == 0.0)
    sign, mark = shade.block if blocks else shade.ascii, "*" if cell.relative >= 1.0 else " "
    bold = "bold" if mark == "*" else ""
    if not numbered:
        return [Span(" "), Span(sign, shade.style), Span(mark if mark == "*" or cell.measured else "~", bold)]
    about = " " if cell.measured else "~"
    return [Span(" "), Span(2 * sign, shade.style), Span(f"{about}{cell.percent:>3}{mark}", bold)]


def _legend(seen: Survey, ks: Sequence[int], batches: Sequence[int], numbered: bool, blocks: bool) -> list[str]:
    steps = [
        f"{(shade.block if blocks else shade.ascii) * 2} {100 * shade.least:.0f} %"
        for shade in SHADES
        if shade.block.strip()
    ]
    lines = [f"* best; {'percent of it; ' if numbered else ''}{', '.join(steps)} of it and more"]
    if any(not cell.measured for cell in seen.cells if cell.batch in batches and cell.k in ks):
        lines.append("~ no row: taken from other rows")
    left_out = [
        f"{len(seen.ks) - len(ks)} K" if len(ks) < len(seen.ks) else "",
        f"{len(seen.batches) - len(batches)} batch sizes" if len(batches) < len(seen.batches) else "",
    ]
    if any(left_out):
        lines.append(f"{' and '.join(filter(None, left_out))} left out here; --json has all")
    return lines
