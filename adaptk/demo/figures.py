"""The demo's picture: what adaptk played over time, beside the goodput of every policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from adaptk.demo.load import PHASES
from adaptk.demo.measure import OVERALL, Row, speeds, spread
from adaptk.demo.policies import ADAPTK, ARMS, DISTORTED, POLICIES, Played
from adaptk.demo.table import label


class PlotError(RuntimeError):
    """Matplotlib is not installed; the message says what to do."""


def draw(parts: Sequence[Row], played: Mapping[str, Sequence[Played]], out: Path) -> None:
    """Write the picture to ``out``.

    Parameters
    ----------
    parts
        Rows of the phases and of the phases together.
    played
        Steps of adaptk in one round, by phase.
    out
        A PNG file.

    Raises
    ------
    PlotError
        If matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise PlotError("no picture without matplotlib: pip install 'adaptk[tools]'") from error
    figure = Figure(figsize=(12, 7), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 2, width_ratios=(1.15, 1))
    batch_axes = figure.add_subplot(grid[0, 0])
    k_axes = figure.add_subplot(grid[1, 0], sharex=batch_axes)
    _draw_time(batch_axes, k_axes, played)
    _draw_goodput(figure.add_subplot(grid[:, 1]), parts)
    figure.savefig(out, dpi=120)


def _draw_time(batch_axes: Any, k_axes: Any, played: Mapping[str, Sequence[Played]]) -> None:
    begin = 0.0
    for i, phase in enumerate(PHASES):
        steps = played.get(phase, ())
        if not steps:
            continue
        ends = [begin + t for t in accumulate(step.ms / 1e3 for step in steps)]
        batch_axes.step(ends, [step.batch for step in steps], where="pre", color=f"C{i}")
        k_axes.plot(ends, [step.k for step in steps], ".", markersize=4, color=f"C{i}")
        batch_axes.annotate(phase, ((begin + ends[-1]) / 2, 33), ha="center", color=f"C{i}")
        begin = ends[-1]
        for axes in (batch_axes, k_axes):
            axes.axvline(begin, color="0.8", linewidth=1)
    batch_axes.set(ylabel="requests in the step", ylim=(0, 36), title="adaptk in the last round")
    k_axes.set(xlabel="engine time, seconds", ylabel="drafts per request (K)", yticks=ARMS)
    k_axes.set_ylim(-0.5, max(ARMS) + 0.5)


def _draw_goodput(axes: Any, parts: Sequence[Row]) -> None:
    columns = (*PHASES, OVERALL)
    present = [policy for policy in (*POLICIES, *DISTORTED) if any(row.policy == policy for row in parts)]
    height = 0.8 / max(1, len(present))
    for i, policy in enumerate(present):
        places, values, errors = [], [], []
        for j, column in enumerate(columns):
            measured = list(speeds(parts, policy, column).values())
            if measured:
                middle = spread(measured)
                places.append(j + (i - (len(present) - 1) / 2) * height)
                values.append(middle.median)
                errors.append((middle.median - middle.low, middle.high - middle.median))
        colour = "black" if policy == ADAPTK else f"C{i}"
        whiskers = list(zip(*errors, strict=True)) if errors else None
        axes.barh(places, values, height, xerr=whiskers, color=colour, ecolor="0.4", label=label(policy), capsize=2)
    axes.set_yticks(range(len(columns)), columns)
    axes.invert_yaxis()
    axes.set(xlabel="tokens per second, median and range of the rounds", title="Goodput")
    axes.legend(loc="best", fontsize="small")
