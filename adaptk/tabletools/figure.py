"""A table as a figure: goodput relative to the best K of each batch, a panel per level of context."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from adaptk.table import GoodputTable
from adaptk.tabletools.survey import Survey, survey

MOST_PANELS = 6
_MOST_TICKS = 16
_MOST_NUMBERED = 120  # cells that still have room for their number
_MOST_BOXED = 30  # batch sizes that are high enough for a box around the best cell
_DPI = 150


def contexts_drawn(table: GoodputTable, context: float | None) -> list[float | None]:
    """The levels of context that get a panel: the one asked for, else the rows without and up to six with one."""
    if context is not None or not table.contexts:
        return [context]
    plain: list[float | None] = [None] if any(row.context is None for row in table.rows) else []
    levels = list(table.contexts)
    room = MOST_PANELS - len(plain)
    if len(levels) > room:
        levels = [levels[round(i * (len(levels) - 1) / (room - 1))] for i in range(room)]
    return [*plain, *levels]


def draw(table: GoodputTable, name: str, context: float | None = None, max_batch: int | None = None) -> bytes:
    """The figure as PNG.

    Parameters
    ----------
    table
        It must have step times.
    name
        Stands above the panels.
    context, max_batch
        As for :func:`adaptk.tabletools.survey.survey`; without ``context`` every level has a panel, six at most.
    """
    from matplotlib.figure import Figure

    levels = contexts_drawn(table, context)
    seen = [survey(table, level, max_batch) for level in levels]
    tall = max(2.2, 0.8 + 0.28 * min(max(len(each.batches) for each in seen), 24))
    wide = max(3.6, 1.6 + 0.55 * min(len(seen[0].ks), 16))
    columns = min(len(seen), 3)
    lines = -(-len(seen) // columns)
    figure = Figure(figsize=(wide * columns + 0.9, tall * lines + 0.7), dpi=_DPI, layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False)
    images = []
    for axes, each, level in zip(panels.flat, seen, levels, strict=False):
        images.append(_panel(axes, each))
        axes.set_title("" if len(levels) == 1 and level is None else _level(level), fontsize=9)
    for axes in panels.flat[len(seen) :]:
        axes.set_visible(False)
    # The name may hold dollar signs, which would start a formula.
    figure.suptitle(name[:70], fontsize=10, parse_math=False)
    bar = figure.colorbar(images[0], ax=panels.ravel().tolist(), shrink=0.9, extend="min")
    bar.set_label("goodput, % of the best K's", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    figure.supxlabel("K, drafts per request (boxed: best; italic: no row, taken from others)", fontsize=8)
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in a script that the font has not is drawn as boxes
        figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


def _panel(axes: Any, seen: Survey) -> Any:
    from matplotlib.patches import Rectangle

    grid = 100.0 * np.array([cell.relative for cell in seen.cells]).reshape(len(seen.batches), len(seen.ks))
    image = axes.imshow(grid, cmap="viridis", vmin=50.0, vmax=100.0, aspect="auto", origin="lower")
    axes.set_xticks(*_ticks(seen.ks), fontsize=8)
    axes.set_yticks(*_ticks(seen.batches), fontsize=8)
    axes.set_ylabel("batch size, requests", fontsize=8)
    best = [int(line.argmax()) for line in grid]
    if len(best) > _MOST_BOXED:
        axes.plot(
            best, range(len(best)), "s", color="white", markeredgecolor="black", markersize=3, markeredgewidth=0.6
        )
    for i, j in enumerate(best if len(best) <= _MOST_BOXED else ()):
        axes.add_patch(Rectangle((j - 0.47, i - 0.45), 0.94, 0.9, fill=False, edgecolor="black", linewidth=2.2))
        axes.add_patch(Rectangle((j - 0.47, i - 0.45), 0.94, 0.9, fill=False, edgecolor="white", linewidth=0.9))
    if grid.size <= _MOST_NUMBERED:
        for number, cell in enumerate(seen.cells):
            i, j = divmod(number, len(seen.ks))
            axes.text(j, i, str(cell.percent), ha="center", va="center", fontsize=7,
                      color="black" if cell.relative > 0.8 else "white",
                      style="normal" if cell.measured else "italic")  # fmt: skip
    return image


def _ticks(values: Sequence[int]) -> tuple[list[int], list[str]]:
    """Places and labels, thinned where there are many."""
    count = len(values)
    shown = min(count, _MOST_TICKS)
    places = [round(i * (count - 1) / max(shown - 1, 1)) for i in range(shown)]
    return places, [str(values[place]) for place in places]


def _level(level: float | None) -> str:
    return "context not recorded" if level is None else f"mean context {level:g} tokens"
