"""Charts over batch sizes and policies: schedules, and values with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from adaptk.htmlpage import cleaned
from adaptk.report.page.svg import Chart, colour, drawn, few_ticks

_LONGEST_LABEL = 24
_MOST_TICKS = 8


class Bar(NamedTuple):
    """A value with its interval, NaN where there is none; ``colour`` is a name of the page's."""

    name: str
    value: float
    low: float
    high: float
    colour: str = "grey"


def forest(bars: Sequence[Bar], axis: str, about: str, zero: float | None = None) -> Chart:
    """Values with intervals, one below the other; a dashed line at ``zero``."""

    def build(figure: Any) -> None:
        axes = figure.add_subplot()
        for i, bar in enumerate(bars):
            if not math.isnan(bar.low):
                axes.plot([bar.low, bar.high], [i, i], color=colour(bar.colour), linewidth=3, solid_capstyle="butt")
            axes.plot([bar.value], [i], "o", color=colour(bar.colour), markersize=6, markeredgecolor=colour("ground"))
        if zero is not None:
            axes.axvline(zero, color=colour("rule"), linewidth=1, linestyle="--", zorder=0)
        axes.set(xlabel=axis, ylim=(len(bars) - 0.5, -0.5))
        axes.set_yticks(range(len(bars)), [_label(bar.name) for bar in bars], color=colour("ink"))
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")

    said = "; ".join(
        f"{bar.name} {bar.value:.3g}" + ("" if math.isnan(bar.low) else f" [{bar.low:.3g}, {bar.high:.3g}]")
        for bar in bars
    )
    return drawn(build, 0.75 + 0.26 * max(len(bars), 2), f"{about} {said}.", about)


def _label(name: str) -> str:
    """What matplotlib can measure, and what leaves room for the chart."""
    return cleaned(name if len(name) <= _LONGEST_LABEL else f"{name[: _LONGEST_LABEL - 1]}…")


def schedules(tiers: Sequence[tuple[str, Sequence[Sequence[int]]]], weights: Sequence[tuple[int, int, float]]) -> Chart:
    """K over batch size by several schedules, above the share of time at each batch size.

    Parameters
    ----------
    tiers
        Name and ``[lo, hi, K]`` of each schedule, at most three.
    weights
        ``(lo, hi, share)``: share of the recorded time spent at these batch sizes.
    """
    seen_most = max((hi for _, hi, share in weights if share > 0.0), default=0)
    most = seen_most or max((int(tier[-1][0]) for _, tier in tiers if tier), default=1)
    styles = (("orange", 4.5, "-"), ("blue", 2.2, "-"), ("green", 2.0, "--"))

    def build(figure: Any) -> None:
        top, below = figure.subplots(2, 1, sharex=True, height_ratios=(2.0, 1))
        for (name, tier), (hue, width, dash) in zip(tiers, styles, strict=False):
            seen = [(lo, min(hi, most), k) for lo, hi, k in tier if lo <= most]
            if seen:
                edges = [seen[0][0], *(hi + 1 for _, hi, _ in seen)]
                top.stairs([k for _, _, k in seen], edges, baseline=None, color=colour(hue), linewidth=width,
                           linestyle=dash, label=name)  # fmt: skip
        ks = sorted({int(k) for _, tier in tiers for lo, _, k in tier if lo <= most})
        top.set(ylabel="K, drafts per request", ylim=(min([*ks, 0]) - 0.4, max([*ks, 1]) + 0.6))
        if len(ks) <= _MOST_TICKS:
            top.set_yticks(ks)
        top.grid(axis="y")
        for lo, hi, part in weights:
            below.stairs([100.0 * part], [lo, min(hi, most) + 1], fill=True, color=colour("grey"), linewidth=0)
        below.set(xscale="log", ylabel="% of time", xlabel="batch size, requests", xlim=(1, most + 1), ylim=(0, None))
        ticks = [2**i for i in range(int(math.log2(most + 1)) + 1)]
        below.set_xticks(ticks, [str(tick) for tick in ticks])
        below.minorticks_off()
        below.yaxis.set_major_locator(few_ticks())
        figure.align_ylabels()
        figure.legend(loc="outside upper center", ncols=3, handlelength=2.2)

    said = "; ".join(
        f"{name}: " + ", ".join(f"K={k} at {lo} to {hi}" for lo, hi, k in tier if lo <= most) for name, tier in tiers
    )
    return drawn(
        build,
        3.2,
        f"K by batch size. {said}.",
        "K by batch size, and below it where the recorded time went.",
    )
