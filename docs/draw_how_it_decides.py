"""Draws ``how-it-decides.svg``: a controller that starts from a wrong table, as it decides and what it believes.

    python docs/draw_how_it_decides.py [OUT.svg]

The engine is simulated, the controller is adaptk's own, and the seeds are fixed: the same figure each time.
"""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np

from adaptk import Controller, GoodputTable, StepRecord
from adaptk.belief import ArmBelief

ARMS = (0, 1, 3, 7)
# Requests in the batch, and for how many steps: a load that rises and falls.
LOAD = ((8, 500), (64, 700), (200, 500), (64, 500), (8, 400))
SHOWN_BATCH = 64
# What the table says, and what is: drafts are accepted less often and verified tokens cost twice as much.
TABLE_ACCEPTANCE, TRUE_ACCEPTANCE = 0.8, 0.6
TABLE_MS_PER_TOKEN, TRUE_MS_PER_TOKEN = 0.025, 0.05
# One sheet for both colour schemes; it brings its own paper, so that it is readable on any page.
COLOURS = {
    "paper": ("#010101", "#ffffff", "#11161d"),
    "ink": ("#020202", "#24292f", "#d5dbe2"),
    "faint": ("#030303", "#8a929b", "#78818c"),
    "adaptk": ("#040404", "#0969a8", "#58a6e8"),
    "table": ("#050505", "#b35900", "#e69a4c"),
    "load": ("#060606", "#e3e8ee", "#262e38"),
}
SENTINEL = {name: colours[0] for name, colours in COLOURS.items()}


class Run(NamedTuple):
    """What happened: batch, K played, the table's and the truly best K of each step, and the controller after it."""

    batches: list[int]
    played: list[int]
    tables: list[int]
    best: list[int]
    controller: Controller
    table: GoodputTable


def step_ms(batch: int, k: int, ms_per_token: float = TRUE_MS_PER_TOKEN) -> float:
    """Time of a step of ``batch`` requests with ``k`` drafts each, milliseconds."""
    return 6.0 + 0.4 * k + ms_per_token * batch * (k + 1)


def acceptance_length(k: int, acceptance: float = TRUE_ACCEPTANCE) -> float:
    """Tokens per request and step."""
    return sum(acceptance**position for position in range(k + 1))


def goodput(batch: int, k: int) -> float:
    """What is true: tokens per request and second."""
    return 1000.0 * acceptance_length(k) / step_ms(batch, k)


def run() -> Run:
    """A controller steers the simulated engine through the load."""
    rows = [
        {"batch": batch, "k": k, "itl_ms": step_ms(batch, k, TABLE_MS_PER_TOKEN)}
        for batch in (1, 8, 32, 64, 128, 256)
        for k in ARMS
    ]
    table = GoodputTable.from_rows(rows, acceptance=[TABLE_ACCEPTANCE] * max(ARMS))
    controller, random = Controller(table, arms=ARMS, seed=3), np.random.default_rng(0)
    batches = [batch for batch, steps in LOAD for _ in range(steps)]
    played, previous = [], 0
    for batch in batches:
        k = controller.choose(batch_size=batch)
        took = step_ms(batch, k) * math.exp(0.03 * random.standard_normal())
        hits = np.minimum(random.geometric(1.0 - TRUE_ACCEPTANCE, batch) - 1, previous)
        controller.observe(
            StepRecord(batch_size=batch, elapsed_ms=took, k=k, drafted=[previous] * batch, accepted=hits.tolist())
        )
        played.append(k)
        previous = k
    best = [max(ARMS, key=lambda k: goodput(batch, k)) for batch in batches]
    return Run(batches, played, [table.best_k(batch) for batch in batches], best, controller, table)


def draw(done: Run) -> bytes:
    """The figure as SVG."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    settings = {
        "svg.fonttype": "none", "svg.hashsalt": "adaptk", "font.family": "sans-serif", "font.size": 10,
        "text.color": SENTINEL["ink"], "axes.labelcolor": SENTINEL["ink"], "axes.edgecolor": SENTINEL["faint"],
        "xtick.color": SENTINEL["ink"], "ytick.color": SENTINEL["ink"], "axes.facecolor": "none",
        "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10, "axes.titlelocation": "left",
    }  # fmt: skip
    with matplotlib.rc_context(settings):
        figure = pyplot.figure(figsize=(9.0, 6.0), facecolor=SENTINEL["paper"], layout="constrained")
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08, hspace=0.06)
        upper, lower = figure.subfigures(2, 1, height_ratios=(1.0, 1.0))
        for part in (upper, lower):
            part.set_facecolor("none")
        _beliefs(upper, done)
        _decisions(lower, done)
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
    return _schemes(out.getvalue().decode()).encode()


def _beliefs(part: Any, done: Run) -> None:
    beliefs = done.controller.belief(batch_size=SHOWN_BATCH)
    said = [done.table.itl_ms(SHOWN_BATCH, k) or math.nan for k in ARMS]
    lengths = [acceptance_length(k, TABLE_ACCEPTANCE) for k in ARMS]
    axes = part.subplots(1, 3)
    quantities = (
        ("tokens per step, accepted", "tokens per request", lengths, [acceptance_length(k) for k in ARMS], _length),
        ("over the time of a step", "ms", said, [step_ms(SHOWN_BATCH, k) for k in ARMS], _time),
        (
            "is goodput: the largest is played",
            "tokens/s per request",
            [1000.0 * length / time for length, time in zip(lengths, said, strict=True)],
            [goodput(SHOWN_BATCH, k) for k in ARMS],
            _goodput,
        ),
    )
    for axis, (title, unit, table, true, interval) in zip(axes, quantities, strict=True):
        at = np.arange(len(ARMS))
        low, middle, high = np.array([interval(belief) for belief in beliefs]).T
        axis.plot(at, table, "s--", color=SENTINEL["table"], markersize=5, linewidth=1, markerfacecolor="none")
        axis.errorbar(at + 0.0, middle, (middle - low, high - middle), fmt="o", color=SENTINEL["adaptk"], capsize=4)
        axis.plot(at, true, "_", color=SENTINEL["ink"], markersize=16, markeredgewidth=1.2)
        axis.set(title=title, xlabel="K, drafts per request", ylabel=unit, xticks=at, xticklabels=ARMS)
        axis.set_xlim(-0.4, len(ARMS) - 0.6)
        axis.set_ylim(0, 1.12 * max(max(table), high.max()))
    chosen = max(range(len(ARMS)), key=lambda i: beliefs[i].goodput or 0.0)
    axes[2].annotate(f"K={ARMS[chosen]}", (chosen, beliefs[chosen].goodput), (0, -24), textcoords="offset points",
                     ha="center", color=SENTINEL["adaptk"], weight="bold")  # fmt: skip
    part.suptitle(
        f"What is believed at batch {SHOWN_BATCH} (dots, 90 % intervals), what is true (bars), "
        "what the table said (squares)", x=0.01, ha="left", fontsize=11, weight="bold",
    )  # fmt: skip


def _length(belief: ArmBelief) -> tuple[float, float, float]:
    return belief.al_low, belief.al, belief.al_high


def _time(belief: ArmBelief) -> tuple[float, float, float]:
    times = (belief.itl_low, belief.itl_ms, belief.itl_high)
    low, middle, high = (math.nan if time is None else time for time in times)
    return low, middle, high


def _goodput(belief: ArmBelief) -> tuple[float, float, float]:
    """The two intervals put together, as of independent logarithms."""
    (al_low, al, al_high), (itl_low, itl, itl_high) = _length(belief), _time(belief)
    below = math.hypot(math.log(al / al_low), math.log(itl_high / itl))
    above = math.hypot(math.log(al_high / al), math.log(itl / itl_low))
    middle = 1000.0 * al / itl
    return middle * math.exp(-below), middle, middle * math.exp(above)


def _decisions(part: Any, done: Run) -> None:
    axis = part.subplots()
    load = axis.twinx()
    load.fill_between(*_stairs(done.batches), step="post", color=SENTINEL["load"], linewidth=0)
    load.set(ylabel="requests in the batch (area)", ylim=(0, 1.4 * max(done.batches)))
    load.spines["right"].set_visible(True)
    axis.set_zorder(load.get_zorder() + 1)
    for name, ks, line, colour, above in (
        ("the table alone", done.tables, "--", "table", 0.0),
        ("truly best", done.best, ":", "ink", 0.06),
        ("adaptk", done.played, "-", "adaptk", 0.0),
    ):
        steps, levels = _stairs([ARMS.index(k) + above for k in ks])
        axis.step(steps, levels, line, where="post", color=SENTINEL[colour], linewidth=1.4, label=name)
    axis.set(xlabel="step", ylabel="K played", yticks=range(len(ARMS)), yticklabels=ARMS, ylim=(-0.25, 3.9))
    axis.set_xlim(0, len(done.played))
    axis.legend(loc="upper right", ncols=3, frameon=False)
    part.suptitle("What is played: kept for blocks of steps, with short visits elsewhere, paid from a budget of 1 %",
                  x=0.01, ha="left", fontsize=11, weight="bold")  # fmt: skip


def _stairs(values: Sequence[float]) -> tuple[list[int], list[float]]:
    """Where the values change, and to what: a path of hundreds of points less."""
    at = [i for i, value in enumerate(values) if i == 0 or value != values[i - 1]]
    return [*at, len(values)], [*(values[i] for i in at), values[-1]]


def _schemes(svg: str) -> str:
    """Colours as custom properties of two schemes; the figure's name for those who do not see it."""
    light = "".join(f"--{name}:{colours[1]};" for name, colours in COLOURS.items())
    dark = "".join(f"--{name}:{colours[2]};" for name, colours in COLOURS.items())
    for name, colour in SENTINEL.items():
        svg = svg.replace(colour, f"var(--{name})")
    style = f"<style>svg{{{light}}}@media (prefers-color-scheme:dark){{svg{{{dark}}}}}</style>"
    title = "<title>How adaptk decides: belief against table and truth, and the K that was played over a load</title>"
    head, tag, rest = svg.partition("<defs>")
    return f"{head}{title}\n{style}\n{tag}{rest}"


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("how-it-decides.svg")
    target.write_bytes(draw(run()))
