"""The replay's report: one HTML file that needs no other, readable on a phone and in print."""

from __future__ import annotations

import base64
import platform
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import numpy as np

from adaptk._version import __version__
from adaptk.htmlpage import document, escaped, table
from adaptk.outputs import write_whole
from adaptk.replay.evaluate import Row
from adaptk.replay.scenarios import Scenario
from adaptk.replay.views import remarks
from adaptk.replay.views.aggregate import Overall, Summary, overall, summaries
from adaptk.replay.views.glossary import TERMS, explained
from adaptk.replay.views.plots import Picture, goodput_picture
from adaptk.replay.views.terminal import interval, passes, share
from adaptk.textlines import number

STYLE = """
section.scenario { border-top: 1px solid var(--line); margin-top: 1.6rem; }
"""


@dataclass(frozen=True)
class Content:
    """What a report tells of.

    ``stories`` are pictures of single runs by scenario, ``left_out`` says why scenarios lack them; ``notes`` are what
    is to be said before the figures. ``created`` is the moment that the report bears.
    """

    title: str
    command: Sequence[str]
    created: datetime
    rows: Sequence[Row]
    scenarios: Sequence[Scenario]
    stories: Mapping[str, Sequence[Picture]] = field(default_factory=dict)
    left_out: str = ""
    notes: Sequence[str] = ()
    cut_short: bool = False


def write_html(path: Path, content: Content) -> None:
    """Write the report to ``path`` in one move.

    Raises
    ------
    adaptk.replay.views.plots.PlotError
        If matplotlib is not installed.
    adaptk.replay.views.files.OutputError
        If the file cannot be written.
    """
    write_whole(path, render(content).encode())


def render(content: Content) -> str:
    """The report as text."""
    found = summaries(content.rows)
    by_scenario: dict[str, list[Summary]] = defaultdict(list)
    for part in found:
        by_scenario[part.scenario].append(part)
    ran = [scenario for scenario in content.scenarios if scenario.name in by_scenario]
    checked = any(part.passed is not None for part in found)
    body = [
        f"<h1>{escaped(content.title)}</h1>",
        *_what_ran(content, len(ran)),
        *(_over_all(overall(content.rows), len(ran), checked) if len(ran) > 1 else ()),
        f"<h2>{'Scenarios' if len(ran) > 1 else 'Scenario'}</h2>",
        *([f"<p>{escaped(content.left_out)}</p>"] if content.left_out else ()),
        *(part for scenario in ran for part in _scenario(scenario, by_scenario[scenario.name], content)),
        *_definitions(),
    ]
    return document(content.title, body, STYLE)


def _what_ran(content: Content, scenarios: int) -> list[str]:
    seeds = sorted({row.seed for row in content.rows})
    policies = list(dict.fromkeys(row.policy for row in content.rows))
    lines = [
        f"<p>{content.created:%Y-%m-%d %H:%M} UTC. adaptk {__version__}, Python {platform.python_version()}, NumPy "
        f"{np.__version__}.</p>",
        f"<p><code>{escaped(shlex.join(content.command))}</code></p>",
        f"<p>{_count(scenarios, 'scenario')}, {_count(len(policies), 'policy', 'policies')}, "
        f"{_count(len(seeds), 'seed')} ({', '.join(map(str, seeds)) or 'none'}): {len(content.rows)} runs. "
        "All policies of a seed meet the same world.</p>",
    ]
    if content.cut_short:
        lines.append('<p class="warn">Interrupted: this is what was finished until then.</p>')
    marks = {remarks.ONE_SEED: ' class="warn"'}
    return [*lines, *(f"<p{marks.get(note, '')}>{escaped(note)}</p>" for note in content.notes)]


def _over_all(parts: Sequence[Overall], scenarios: int, checked: bool) -> list[str]:
    head = ["policy", "oracle ratio", "table ratio", "lowest oracle ratio", "lowest table ratio", "scenarios"]
    rows = []
    for part in parts:
        cells = [part.policy, interval(part.oracle), interval(part.table)]
        lowest = (part.worst_by_oracle, part.worst_by_table)
        cells += [f"{interval(worst.ratio)} {worst.scenario}".strip() for worst in lowest]
        cells.append(str(part.scenarios))
        rows.append(cells + [passes(part.passed if part.judged else None, part.judged)] * checked)
    return [
        "<h2>Summary</h2>",
        f"<p>Geometric means over {scenarios} scenarios of equal weight, with 90 % intervals over seeds: they hold for "
        "these scenarios. Policies that ran in fewer are at the end and not to be compared with the others.</p>",
        table(head + ["passed"] * checked, rows),
    ]


def _scenario(scenario: Scenario, parts: Sequence[Summary], content: Content) -> list[str]:
    pictures = [goodput_picture(parts), *content.stories.get(scenario.name, ())]
    verdict = remarks.verdict(scenario, content.rows)
    return [
        f'<section class="scenario" id="{escaped(scenario.name)}"><h3>{escaped(scenario.name)}</h3>',
        f"<p>{escaped(scenario.about)}<br>{escaped(remarks.engine(scenario))}</p>",
        _figures_table(parts),
        *([f"<p><strong>{escaped(verdict)}</strong></p>"] if verdict else ()),
        *_checks(scenario, parts),
        f'<div class="figures">{"".join(map(_figure, pictures))}</div></section>',
    ]


def _figures_table(parts: Sequence[Summary]) -> str:
    waits = any(part.latency_ms is not None for part in parts)
    checked = any(part.passed is not None for part in parts)
    head = ["policy", "oracle ratio", "table ratio", *["passed"] * checked, "tok/s", *["ms per token"] * waits,
            "switches per 1,000", "exploring, ms", "regret, ms", "p50, ms", "p99, ms", "below K=0",
            "recovery, steps"]  # fmt: skip
    rows = []
    for part in parts:
        cells = [part.policy, interval(part.oracle), interval(part.table)]
        cells += [passes(part.passed, part.seeds)] * checked + [number(part.tokens_per_s, 9)]
        cells += [number(part.latency_ms, 8, 2)] * waits + [number(part.switches_per_1000, 6)]
        cells += [number(part.explore_ms, 8), number(part.regret_ms, 9), number(part.p50_ms, 7, 2)]
        cells += [number(part.p99_ms, 7, 2), share(part.below_k0), number(part.recovery_steps, 8, 0)]
        rows.append(cells)
    return table(head, rows)


def _checks(scenario: Scenario, parts: Sequence[Summary]) -> list[str]:
    if not scenario.checks:
        return []
    judged = [part for part in parts if part.passed is not None]
    items = []
    for check in scenario.checks:
        failing = [part for part in judged if part.failed.get(check.what)]
        holding = [part.policy for part in judged if not part.failed.get(check.what)]
        fails = [f"{part.policy} ({part.failed[check.what]} of {part.seeds})" for part in failing]
        items.append(
            f"<li>{escaped(check.what)}<br>holds in all seeds: {escaped(', '.join(holding) or 'none')}"
            + (f"<br>fails: {escaped(', '.join(fails))}" if fails else "")
            + "</li>"
        )
    return ["<p>What must hold:</p><ul>", *items, "</ul>"]


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode()
    return (
        f'<figure><img alt="{escaped(picture.alt)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{escaped(picture.caption)}</figcaption></figure>"
    )


def _definitions() -> list[str]:
    return [
        "<h2>How to read the figures</h2><dl>",
        *(f"<dt>{escaped(term.name)}</dt><dd>{escaped(explained(term))}</dd>" for term in TERMS),
        "</dl>",
        "<p>Everything here is simulated. Step times come from published profiles, from rooflines made of datasheets, "
        "from surfaces calibrated on published ratios, or, where a trace was replayed, from its own steps. Noise, "
        "drift and acceptance are models. This run measured nothing on a GPU; a figure that was measured says so.</p>",
    ]


def _count(n: int, one: str, many: str = "") -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"
