"""Charts over time: the load with K and speed, and series such as acceptance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from adaptk.report.page.svg import Chart, colour, drawn, few_ticks

# Hues that colour-blind people tell apart, K=0 grey; where there are more K than hues, shades that rise with K.
_OF_K = ("sky", "blue", "orange", "green", "purple", "yellow", "red", "black")
_SERIES = ("blue", "orange", "green", "purple", "sky", "red", "yellow", "grey")
_DASHES = ("-", "--", "-.", ":")  # beside the colours: charts are printed in grey too


class Paint(NamedTuple):
    """A colour of the page and how much of it."""

    name: str
    alpha: float = 1.0


def k_paints(ks: Sequence[int]) -> dict[int, Paint]:
    """What each K is painted with.

    Examples
    --------
    >>> k_paints([0, 3])
    {0: Paint(name='grey', alpha=1.0), 3: Paint(name='sky', alpha=1.0)}
    """
    drafting = [k for k in sorted(set(ks)) if k > 0]
    if len(drafting) <= len(_OF_K):
        paints = {k: Paint(name) for k, name in zip(drafting, _OF_K, strict=False)}
    else:
        paints = {k: Paint("blue", 0.1 + 0.9 * i / (len(drafting) - 1)) for i, k in enumerate(drafting)}
    return {0: Paint("grey"), **paints} if 0 in ks else paints


class Panel(NamedTuple):
    """Share of steps at each K over time: what it is, and shares from 0 to 1 per K, shape ``(stretches,)`` each."""

    heading: str
    shares: dict[int, Sequence[float]]


class Load(NamedTuple):
    """The load over time, one entry per stretch.

    ``edges`` has one more: where stretches begin, and where the last one ends, in the unit of the chart's axis.
    ``batch`` and ``most`` are requests, mean and greatest; ``speed`` tokens per second, NaN where unknown.
    """

    edges: Sequence[float]
    batch: Sequence[float]
    most: Sequence[float]
    speed: Sequence[float]


def over_time(load: Load, panels: Sequence[Panel], axis: str, marks: Sequence[tuple[float, str]] = ()) -> Chart:
    """Batch size, K and speed over time, one below the other.

    Parameters
    ----------
    load
        What was served.
    panels
        One for what was played, and one for what was chosen where that differs.
    axis
        Label of the time axis, with its unit.
    marks
        Moments that get a line through all panels, and what it says.
    """
    ks = sorted({k for panel in panels for k in panel.shares})
    paints = k_paints(ks)

    def build(figure: Any) -> None:
        heights = [1.15, *(1.0 for _ in panels), 0.9]
        top, *middle, bottom = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
        top.stairs(load.most, load.edges, fill=True, color=colour("sky"), alpha=0.3, linewidth=0)
        top.stairs(load.batch, load.edges, baseline=None, color=colour("blue"), linewidth=1.6)
        top.set(ylabel="requests")
        bottom.stairs(load.speed, load.edges, baseline=None, color=colour("ink"), linewidth=1.4)
        bottom.set(ylabel="tokens/s", xlabel=axis)
        for axes, panel in zip(middle, panels, strict=True):
            _stacked(axes, load.edges, panel.shares, paints)
            axes.set(ylabel="% of steps")
            axes.set_title(panel.heading, loc="left", color=colour("quiet"), fontsize=9)
        for axes in (top, bottom):
            axes.grid(axis="y")
            axes.set_ylim(0, 1.06 * axes.get_ylim()[1])
            axes.yaxis.set_major_locator(few_ticks())
        for axes in (top, *middle, bottom):
            for at, _ in marks:
                axes.axvline(at, color=colour("ink"), linewidth=1.2, linestyle=":")
        top.set_xlim(load.edges[0], load.edges[-1])
        figure.align_ylabels()
        handles = [_patch(paints[k], f"K={k}") for k in ks]
        figure.legend(handles=handles, loc="outside upper center", ncols=min(len(ks), 6), handlelength=1.0,
                      columnspacing=1.0)  # fmt: skip

    usual = "; ".join(f"{panel.heading}: mostly K={_most(panel.shares)}" for panel in panels)
    return drawn(
        build,
        2.6 + 1.05 * len(panels),
        f"Over time: mean number of requests {_range(load.batch)}. {usual}. Tokens per second {_range(load.speed)}."
        + "".join(f" At {at:.3g}: {what}." for at, what in marks),
        "Requests in the batch (line: mean of the stretch, shade: up to the greatest), share of steps at each K, and "
        "tokens per second of all requests." + (" Dotted lines: changes that were noticed." if marks else ""),
    )


def _range(values: Sequence[float]) -> str:
    known = [value for value in values if math.isfinite(value)]
    return f"from {min(known):.0f} to {max(known):.0f}" if known else "unknown"


def _stacked(axes: Any, edges: Sequence[float], of: dict[int, Sequence[float]], paints: dict[int, Paint]) -> None:
    floor = [0.0] * (len(edges) - 1)
    for k, shares in sorted(of.items()):
        top = [a + 100.0 * b for a, b in zip(floor, shares, strict=True)]
        name, alpha = paints[k]
        axes.stairs(top, edges, baseline=floor, fill=True, color=colour(name), alpha=alpha, linewidth=0)
        floor = top
    axes.set(ylim=(0, 100), yticks=(0, 50, 100))


def _patch(paint: Paint, label: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(facecolor=colour(paint.name), alpha=paint.alpha, label=label, linewidth=0)


def _most(of: dict[int, Sequence[float]]) -> int:
    return max(of, key=lambda k: math.fsum(of[k]), default=0)


def lines_over_time(
    at: Sequence[float], series: Sequence[tuple[str, Sequence[float]]], axis: str, label: str, about: str
) -> Chart:
    """One line per series over time.

    Parameters
    ----------
    at
        Middle of each stretch, in the unit of ``axis``, shape ``(stretches,)``.
    series
        Name and values, NaN where unknown, same shape; one value at least is known.
    axis, label
        Labels of the axes, with units.
    about
        The caption; the alternative text adds each series' last value.
    """

    def build(figure: Any) -> None:
        axes = figure.add_subplot()
        for i, (name, values) in enumerate(series):
            known = [(x, y) for x, y in zip(at, values, strict=True) if not math.isnan(y)]
            axes.plot(*zip(*known, strict=True), _DASHES[i // len(_SERIES) % 4], marker="o", markersize=3, label=name,
                      color=colour(_SERIES[i % len(_SERIES)]))  # fmt: skip
        axes.set(xlabel=axis, ylabel=label, ylim=(0, 1.02))
        axes.grid(axis="y")
        figure.legend(loc="outside upper center", ncols=4, handlelength=1.4, columnspacing=1.0)

    ends = []
    for name, values in series:
        known = [value for value in values if not math.isnan(value)]
        ends += [f"{name} {known[0]:.2f} at first, {known[-1]:.2f} at the end"] if known else []
    return drawn(build, 2.9, f"{about} {'; '.join(ends)}.", about)
