"""Belief against table as heat maps: cells of a table, whose text stays text on a phone, in print and when read out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from adaptk.htmlpage import escaped
from adaptk.report.findings import Cell, Interval
from adaptk.report.page.parts import said, section
from adaptk.report.words import NONE, batches, count, plain, signed

_MOST_BESIDE = 6  # K of a map that has another one beside it
_STEPS = (0.03, 0.08, 0.2)  # changes from which on a colour is darker
_OF_BEST = ((0.995, "m4"), (0.97, "m3"), (0.92, "m2"), (0.8, "m1"), (0.0, "z0"))


class Shown(NamedTuple):
    """A cell as it is shown: classes, the number, and a smaller line below it."""

    kind: str
    text: str
    more: str


def heat(cells: Sequence[Cell]) -> str:
    """The section with a map of step times against the table's, and one of speed."""
    maps = []
    if any(cell.ratio is not None for cell in cells):
        about = (
            "Step time as now believed, over the table's, with its 90 % interval. Orange: slower than the table says; "
            "blue: faster. Italic: no step of this K was timed here."
        )
        maps.append(_map("Step time against the table", about, cells, _against_table))
    elif any(cell.itl_ms is not None for cell in cells):
        about = "Milliseconds as now believed, with the 90 % interval. Italic: no step of this K was timed here."
        maps.append(_map("Step time", about, cells, _time))
    if any(cell.goodput for cell in cells):
        about = (
            "Tokens per second as % of the best K at that batch size; framed: the best. Below: the probability that "
            "this K is the best. Italic: its step time is inferred."
        )
        maps.append(_map("Speed by K", about, cells, _speed(cells)))
    if not maps:
        return ""
    note = "Batch sizes are of decoding requests. Figures hold for the mean batch and context seen in each range."
    tabled = any(cell.ratio is not None for cell in cells)
    heading = "Belief against table" if tabled else "What is believed of each K"
    many = " many" if len({cell.k for cell in cells}) > _MOST_BESIDE else ""
    return section("belief", heading, [f'<div class="maps{many}">{"".join(maps)}</div>', said(note, "quiet")])


def _map(heading: str, about: str, cells: Sequence[Cell], show: Callable[[Cell], Shown]) -> str:
    ks = sorted({cell.k for cell in cells})
    ranges = sorted({(cell.first, cell.last) for cell in cells})
    by_place = {(cell.first, cell.last, cell.k): cell for cell in cells}
    head = '<th scope="col">batch</th>' + "".join(f'<th scope="col">K={k}</th>' for k in ks)
    rows = []
    for first, last in ranges:
        shown = "".join(_cell(by_place.get((first, last, k)), show) for k in ks)
        rows.append(f'<tr><th scope="row">{batches(first, last)}</th>{shown}</tr>')
    return (
        f'<div><h3>{escaped(heading)}</h3><p class="quiet">{escaped(about)}</p><div class="heat wide"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div></div>"
    )


def _cell(cell: Cell | None, show: Callable[[Cell], Shown]) -> str:
    shown = Shown("none", NONE, "") if cell is None else show(cell)
    title = "" if cell is None else escaped(f"K={cell.k}: {count(cell.steps)} steps, {count(cell.timed)} of them timed")
    more = f"<small>{escaped(shown.more)}</small>" if shown.more else ""
    return f'<td class="{shown.kind}" title="{title}">{escaped(shown.text)}{more}</td>'


def _far(cell: Cell) -> str:
    return "" if cell.basis == "measured" else " far"


def _against_table(cell: Cell) -> Shown:
    if cell.ratio is None or not math.isfinite(cell.ratio.value):
        return Shown("none", NONE, "")
    change = cell.ratio.value - 1.0
    depth = sum(abs(change) >= step for step in _STEPS) + 1 if abs(change) >= 0.01 else 0
    kind = "z0" if depth == 0 else f"{'p' if change > 0 else 'm'}{depth}"
    return Shown(kind + _far(cell), *signed(Interval(change, cell.ratio.low - 1.0, cell.ratio.high - 1.0)))


def _time(cell: Cell) -> Shown:
    if cell.itl_ms is None:
        return Shown("none", NONE, "")
    low, high = plain(cell.itl_ms.low), plain(cell.itl_ms.high)
    return Shown("z0" + _far(cell), plain(cell.itl_ms.value), f"[{low}, {high}]")


def _speed(cells: Sequence[Cell]) -> Callable[[Cell], Shown]:
    best: dict[int, float] = {}
    for cell in cells:
        if cell.goodput is not None and math.isfinite(cell.goodput):
            best[cell.first] = max(best.get(cell.first, 0.0), cell.goodput)

    def show(cell: Cell) -> Shown:
        if cell.goodput is None or not math.isfinite(cell.goodput) or best[cell.first] <= 0.0:
            return Shown("none", NONE, "")
        part = cell.goodput / best[cell.first]
        kind = next(kind for least, kind in _OF_BEST if part >= least or least == 0.0)
        probability = cell.best_probability
        more = "" if probability is None else f"p {probability:.2f}"
        return Shown(kind + _far(cell) + (" best" if part >= 1.0 else ""), f"{100.0 * part:.0f} %", more)

    return show
