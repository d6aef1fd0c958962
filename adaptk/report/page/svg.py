"""Matplotlib figures as SVG inside a page: its colours are the page's, which follow the reader's scheme."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from adaptk.htmlpage import escaped

WIDTH_INCHES = 5.0
"""At 72 units an inch 360 units, as wide as the page on a phone: there a unit is about a pixel, on a desk 1.4."""

_NAMES = ("ink", "quiet", "line", "rule", "ground", "accent", "black", "grey", "blue", "orange", "green", "red",
          "purple", "sky", "yellow")  # fmt: skip
# Matplotlib knows no CSS variables: each colour is drawn as one that nothing else has, and named afterwards.
_STANDS_FOR = {name: f"#a7{number:02x}5c" for number, name in enumerate(_NAMES)}
STYLE = """
figure svg { display: block; width: 100%; height: auto; overflow: visible; }
figure svg * { stroke-linejoin: round; stroke-linecap: butt; }
figure svg text { font-family: system-ui, sans-serif; }
"""


class Chart(NamedTuple):
    """A figure of the page: SVG as HTML, what it shows for those who cannot see it, and the line below it, as text."""

    svg: str
    alt: str
    caption: str


def colour(name: str) -> str:
    """What matplotlib is told for the page's colour ``name``.

    Examples
    --------
    >>> colour("ink")
    '#a7005c'
    """
    return _STANDS_FOR[name]


def drawn(build: Callable[[Any], None], height: float, alt: str, caption: str, width: float = WIDTH_INCHES) -> Chart:
    """Draw a chart.

    Parameters
    ----------
    build
        Fills a ``matplotlib.figure.Figure``; its colours are those of :func:`colour`.
    height, width
        Inches, 72 units of the SVG each.
    alt, caption
        Plain text.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context(_settings()):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        build(figure)
        stream = io.BytesIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return Chart(_inlined(stream.getvalue().decode(), alt), alt, caption)


def few_ticks() -> Any:
    """A locator of few whole numbers, for panels that are low."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=3, integer=True)


def _settings() -> dict[str, Any]:
    ink, quiet, line, rule = map(colour, ("ink", "quiet", "line", "rule"))
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": "adaptk",  # ids, and so the bytes, are the same each time
        "text.parse_math": False,
        "font.size": 10,
        "font.family": "sans-serif",
        "text.color": ink,
        "axes.labelcolor": quiet,
        "axes.edgecolor": rule,
        "axes.titlesize": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.grid": False,
        "grid.color": line,
        "grid.linewidth": 0.8,
        "xtick.color": rule,
        "ytick.color": rule,
        "xtick.labelcolor": quiet,
        "ytick.labelcolor": quiet,
        "legend.frameon": False,
        "legend.labelcolor": ink,
        "lines.linewidth": 1.6,
        "path.simplify": True,
    }


def _inlined(svg: str, alt: str) -> str:
    """The drawing without what only a file needs, its stand-in colours named."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<defs>\s*</defs>", "", svg)
    box = re.search(r'viewBox="([^"]*)"', svg)
    head = f'<svg viewBox="{box[1] if box else ""}" role="img" aria-label="{escaped(alt)}">'
    svg = re.sub(r"^<svg[^>]*>", lambda _: head, svg)
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r'(<g) id="[^"]*"', r"\1", svg)
    # Matplotlib gives equal shapes equal ids, and all figures of a page share one space of ids.
    own = f"c{zlib.crc32(svg.encode()):x}-"
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{own}", svg)
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    svg = re.sub(r' transform="rotate\(-0 [^"]*\)"', "", svg)
    for name, stand_in in _STANDS_FOR.items():
        svg = svg.replace(stand_in, f"var(--{name})")
    svg = re.sub(r"(\d+\.\d\d)\d+", r"\1", svg)  # a hundredth of a unit is seen by nobody
    return re.sub(r"\n\s*", "\n", svg).strip()
