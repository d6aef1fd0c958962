"""Figures of the report as PNG, in colours that colour-blind people can tell apart (Okabe and Ito)."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

from adaptk.quoted import plain
from adaptk.replay.registry import GREEDY
from adaptk.replay.views.aggregate import Summary
from adaptk.replay.views.story import Arm, Story

WIDTH_INCHES = 5.0  # as wide as a column of the report on a desk, and legible on a phone
DPI = 150
NARROWEST = 0.05
"""Least span of an axis of ratios: smaller ones would make luck look like a difference."""
_MOST_NAME = 40

BLACK, ORANGE, SKY, GREEN, BLUE, RED, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
COLOURS = {"oracle": BLACK, "hindsight": "#666666", "table": ORANGE, "adaptk": BLUE, GREEDY: SKY}


class PlotError(RuntimeError):
    """Matplotlib is not installed; the message says what to do."""


class Picture(NamedTuple):
    """A PNG, what it shows for those who cannot see it, and the line below it."""

    png: bytes
    alt: str
    caption: str


def goodput_picture(parts: Sequence[Summary]) -> Picture:
    """The oracle ratio per policy with intervals, the best on top."""
    known = [part for part in parts if not math.isnan(part.oracle.value)]
    figure = _figure(0.9 + 0.21 * max(len(known), 3))
    axes = figure.add_subplot()
    for i, part in enumerate(known):
        value, low, high = part.oracle
        colour = COLOURS.get(part.policy, "#777777")
        if not math.isnan(low):
            axes.plot([low, high], [i, i], color=colour, linewidth=2.5, solid_capstyle="butt", alpha=0.6)
        axes.plot([value], [i], "o", color=colour, markersize=5)
    axes.axvline(1.0, color=BLACK, linewidth=0.8, linestyle="--")
    axes.set(xlabel="oracle ratio", ylim=(len(known) - 0.4, -0.6), xlim=_at_least(axes.get_xlim(), NARROWEST))
    # Names may come from a file, and hold dollar signs, which would start a formula.
    axes.set_yticks(range(len(known)), [plain(part.policy, _MOST_NAME) for part in known], parse_math=False)
    for label in axes.get_yticklabels():
        if label.get_text() == "adaptk":
            label.set_fontweight("bold")
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    said = "; ".join(f"{part.policy} {part.oracle.value:.3f}" for part in known)
    return Picture(
        _png(figure),
        f"Oracle ratio, best first: {said}.",
        "Oracle ratio per policy (dashed: 1). Bars: 90 % bootstrap intervals over seeds, where there are several.",
    )


def story_pictures(story: Story) -> list[Picture]:
    """K over time, regret, and belief against truth where anything decoded."""
    pictures = [k_picture(story), regret_picture(story)]
    return [*pictures, belief_picture(story)] if story.arms else pictures


def k_picture(story: Story) -> Picture:
    """What oracle, table and adaptk played, below the number of requests."""
    figure = _figure(3.4)
    top, axes = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2.6))
    top.plot(story.batch.at, story.batch.value, color="0.35", linewidth=1)
    top.set(ylabel="requests", ylim=(0, None))
    styles = {"oracle": (BLACK, 0.2, 26.0), "table": (ORANGE, 0.0, 14.0), "adaptk": (BLUE, -0.2, 14.0)}
    for name, (colour, shift, size) in styles.items():
        seen = story.visits[name]
        axes.scatter(seen.at, seen.k + shift, s=2.0 + size * seen.share**0.5 * 0.5, color=colour, linewidths=0)
        axes.plot([], [], "o", color=colour, markersize=4, label=name)
    ks = sorted({int(k) for seen in story.visits.values() for k in seen.k} | {arm.belief.k for arm in story.arms})
    axes.set(xlabel=story.axis, ylabel="drafts per request (K)", yticks=ks, ylim=(min(ks) - 0.6, max(ks) + 0.6))
    axes.grid(axis="y", color="0.93")
    axes.set_axisbelow(True)
    _legend(axes, 3)
    shares = ", ".join(f"{name} mostly K={_usual_k(story, name)}" for name in styles)
    return Picture(
        _png(figure),
        f"Number of requests and K over time; {shares}.",
        f"K over time, seed {story.seed}, and the mean number of requests (above). A dot is a K that was played in "
        "that stretch; small dots are short visits. The three policies are drawn side by side at each K.",
    )


def regret_picture(story: Story) -> Picture:
    """Milliseconds lost against the oracle."""
    figure = _figure(3.0)
    axes = figure.add_subplot()
    for name, curve in story.regret.items():
        dashed = "--" if name in (GREEDY, "table") else "-"
        axes.plot(curve.at, curve.value, dashed, color=COLOURS.get(name, RED), linewidth=1.4, label=name)
    axes.set(xlabel=story.axis, ylabel="cumulative regret, ms")
    axes.grid(color="0.93")
    _legend(axes, 2)
    ends = ", ".join(f"{name} {curve.value[-1]:.0f} ms" for name, curve in story.regret.items())
    return Picture(
        _png(figure),
        f"Cumulative regret over time; at the end {ends}.",
        f"Expected milliseconds lost against the best arm of each step, summed, seed {story.seed}.",
    )


def belief_picture(story: Story) -> Picture:
    """What adaptk believes of each arm at the end, beside the truth and the table."""
    figure = _figure(3.0)
    lengths, times = figure.subplots(1, 2)
    arms = story.arms
    places = range(len(arms))
    _belief(lengths, arms, [(a.belief.al, a.belief.al_low, a.belief.al_high) for a in arms],
            [a.true_al for a in arms], [a.table_al for a in arms])  # fmt: skip
    _belief(times, arms, [(a.belief.itl_ms, a.belief.itl_low, a.belief.itl_high) for a in arms],
            [a.true_itl_ms for a in arms], [a.table_itl_ms for a in arms])  # fmt: skip
    lengths.set(ylabel="acceptance length, tokens")
    times.set(ylabel="step time, ms")
    for axes in (lengths, times):
        axes.set_xticks(places, [str(arm.belief.k) for arm in arms])
        axes.set(xlabel="K", xlim=(-0.6, len(arms) - 0.4), ylim=(0, None))
        axes.grid(axis="y", color="0.93")
        axes.set_axisbelow(True)
    handles, labels = lengths.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    said = "; ".join(
        f"K={a.belief.k} length {a.belief.al:.2f} (true {a.true_al:.2f}), "
        f"step {_ms(a.belief.itl_ms)} (true {_ms(a.true_itl_ms)})"
        for a in arms
    )
    return Picture(
        _png(figure),
        f"adaptk's belief at the end beside the truth at batch {story.arms_batch}: {said}.",
        f"What adaptk believes at the end (90 % intervals) of batch {story.arms_batch}, beside the truth of the last "
        "steps with that batch, and what the seed table says.",
    )


def _belief(
    axes: Any,
    arms: Sequence[Arm],
    believed: Sequence[tuple[float | None, float | None, float | None]],
    true: Sequence[float],
    table: Sequence[float | None],
) -> None:
    places = range(len(arms))
    axes.plot([i + 0.22 for i in places], [_or_nan(value) for value in table], "s", color=ORANGE, markersize=6,
              markerfacecolor="none", label="table")  # fmt: skip
    axes.plot([i - 0.22 for i in places], list(true), "_", color=BLACK, markersize=9, markeredgewidth=2, label="truth")
    for i, (_, low, high) in zip(places, believed, strict=True):
        if low is not None and high is not None:
            axes.plot([i, i], [low, high], color=BLUE, linewidth=2.5, alpha=0.6, solid_capstyle="butt")
    axes.plot(places, [_or_nan(value) for value, _, _ in believed], "o", color=BLUE, markersize=5, label="adaptk")


def _usual_k(story: Story, name: str) -> int:
    seen = story.visits[name]
    weight = {int(k): float(seen.share[seen.k == k].sum()) for k in set(seen.k.tolist())}
    return max(weight, key=lambda k: weight[k], default=0)


def _ms(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f} ms"


def _at_least(limits: tuple[float, float], span: float) -> tuple[float, float]:
    """Limits that are ``span`` apart at least, around the same middle.

    Examples
    --------
    >>> _at_least((0.75, 1.25), 0.05), _at_least((1.0, 1.25), 0.75)
    ((0.75, 1.25), (0.75, 1.5))
    """
    low, high = limits
    more = max(0.0, span - (high - low)) / 2.0
    return low - more, high + more


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _legend(axes: Any, columns: int) -> None:
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, frameon=False, borderaxespad=0.2)


def _figure(height: float) -> Any:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise PlotError("no report without matplotlib: pip install 'adaptk[tools]'") from error
    figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in a script that the font has not is drawn as boxes
        figure.savefig(buffer, format="png", dpi=DPI, pil_kwargs={"optimize": True})
    return buffer.getvalue()
