"""What the notebooks' figures share: one look, and a check that every axis says what it shows, in which unit."""

from __future__ import annotations

import base64
import io
from typing import Any

from IPython.display import display
from matplotlib.figure import Figure

BLACK, GREY, ORANGE, SKY, GREEN, BLUE, RED, PURPLE = (
    "#000000", "#777777", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
"""Okabe and Ito's colours, which colour-blind readers can tell apart."""

OF_K = {0: GREY, 1: SKY, 2: PURPLE, 3: GREEN, 5: ORANGE, 7: RED}
"""One colour per number of drafts, the same in all notebooks."""

MARK = {0: "o", 1: "s", 2: "v", 3: "^", 5: "D", 7: "P"}
"""One marker per number of drafts: no figure rests on colour alone."""

_DPI = 100
_STYLE = {"axes.spines.right": False, "axes.spines.top": False, "axes.grid": True, "grid.color": "0.92",
          "axes.axisbelow": True, "legend.frameon": False, "font.size": 9.5}  # fmt: skip


def panels(columns: int = 1, rows: int = 1, *, width: float = 7.0, height: float = 3.2, **more: Any) -> Any:
    """A figure and its axes, as ``matplotlib.pyplot.subplots`` gives them; sizes in inches, ``more`` is passed on."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots(rows, columns, **more)


def of_batch(axes: Any, batches: list[int]) -> None:
    """Batch sizes to the right, doubling at equal distances."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [str(batch) for batch in batches])
    axes.minorticks_off()
    axes.set_xlabel("batch size, requests")


def with_interval(
    axes: Any, at: list[float], middle: list[float], low: list[float], high: list[float], colour: str, **more: Any
) -> None:
    """A mark at each value over a broad bar from ``low`` to ``high``; ``more`` is of ``Axes.plot``."""
    axes.vlines(at, low, high, color=colour, linewidth=4, alpha=0.35)
    axes.plot(at, middle, color=colour, linestyle="", **{"marker": "o", "markersize": 4, **more})


def legend_below(figure: Figure, axes: Any, columns: int) -> None:
    """The names of what ``axes`` shows, under all panels."""
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns, frameon=False, fontsize=8.5
    )


def show(figure: Figure, said: str) -> None:
    """Put the figure under the cell as a small PNG.

    Parameters
    ----------
    figure
        Every axis of it needs a label of the form ``quantity, unit``, unless the panel beside or below has it.
    said
        What is to be seen, in one sentence, for those who cannot see it.

    Raises
    ------
    ValueError
        If an axis has no such label.
    """
    axes = [each for each in figure.axes if each.get_visible()]
    for each in axes:
        for name, axis in (("x", each.xaxis), ("y", each.yaxis)):
            shares = any(tick.label1.get_visible() for tick in axis.get_major_ticks())
            if shares and "," not in axis.get_label_text():
                raise ValueError(f"the {name} axis says {axis.get_label_text()!r}: give it a quantity, then its unit")
    labels = dict.fromkeys(text for each in axes for text in (each.get_xlabel(), each.get_ylabel()) if text)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=_DPI, metadata={"Software": None})
    png = base64.b64encode(_small(stream.getvalue())).decode()
    plain = f"Figure: {said} Axes: {'; '.join(labels)}."
    display({"image/png": png, "text/plain": plain}, metadata={"image/png": {"alt": said}}, raw=True)


def _small(png: bytes) -> bytes:
    """The picture in 128 colours, which is a third of the size."""
    from PIL import Image

    stream = io.BytesIO()
    image = Image.open(io.BytesIO(png)).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    image.save(stream, format="png", optimize=True)
    return stream.getvalue()
