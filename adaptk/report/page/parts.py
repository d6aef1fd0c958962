"""Pieces that several sections of the page use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from adaptk.htmlpage import escaped, outside
from adaptk.report.page.svg import Chart

_HARD = "\N{NO-BREAK SPACE}"


def figures(charts: Iterable[Chart]) -> str:
    """Charts side by side where there is room."""
    shown = [f"<figure>{chart.svg}<figcaption>{escaped(chart.caption)}</figcaption></figure>" for chart in charts]
    return f'<div class="figures">{"".join(shown)}</div>' if shown else ""


def beside(parts: Sequence[str], charts: Sequence[Chart]) -> str:
    """Words and tables, and charts to their right where there is room."""
    return f'<div class="beside"><div>{"".join(parts)}</div>{figures(charts)}</div>'


def sentence(text: str) -> str:
    """Text from outside whose percentages and intervals stay in one piece."""
    kept = re.sub(r"\[[-+0-9., %]+\]", lambda found: found[0].replace(" ", _HARD), text)
    return outside(kept.replace(" %", f"{_HARD}%").replace("% [", f"%{_HARD}["))


def pasted(text: str) -> str:
    """What is to be copied, broken between the ranges of a schedule only, where it is broken."""
    kept = re.sub(r"\[\d+, \d+, \d+\]", lambda found: f"<span>{found[0]}</span>", escaped(text))
    return f"<pre>{kept}</pre>"


def said(text: str, kind: str = "") -> str:
    """A paragraph; it may hold names from outside."""
    return f"<p{_class(kind)}>{sentence(text)}</p>"


def listed(sentences: Sequence[str], heading: str = "", kind: str = "") -> str:
    """A list below its heading, nothing where it is empty."""
    if not sentences:
        return ""
    items = "".join(f"<li>{sentence(text)}</li>" for text in sentences)
    top = f"<h2>{escaped(heading)}</h2>" if heading else ""
    return f"<div{_class(kind)}>{top}<ul>{items}</ul></div>"


def section(name: str, heading: str, parts: Sequence[str]) -> str:
    """A section; nothing where it holds nothing."""
    body = "".join(parts)
    return f'<section id="{name}"><h2>{escaped(heading)}</h2>{body}</section>' if body else ""


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
