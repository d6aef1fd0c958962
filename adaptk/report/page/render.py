"""The report as one HTML file that needs no other, readable on a phone and in print, light and dark."""

from __future__ import annotations

import os
from pathlib import Path

from adaptk.htmlpage import document, escaped
from adaptk.outputs import write_whole
from adaptk.report.findings import Findings
from adaptk.report.page.acceptance import acceptance
from adaptk.report.page.change import change
from adaptk.report.page.guide import guide, recording
from adaptk.report.page.happened import happened
from adaptk.report.page.heat import heat
from adaptk.report.page.policies import policies
from adaptk.report.page.spent import explored, left_out, time_spent
from adaptk.report.page.style import STYLE
from adaptk.report.page.top import top


def write_html(path: str | os.PathLike[str], findings: Findings) -> None:
    """Write the report to ``path`` in one move.

    Raises
    ------
    adaptk.outputs.OutputError
        If the file cannot be written.
    """
    write_whole(Path(path), render(findings).encode())


def render(findings: Findings) -> str:
    """The report as text; the same findings give the same text."""
    sections = [
        change(findings.advice),
        happened(findings),
        time_spent(findings.time),
        explored(findings.ledger),
        heat(findings.cells),
        acceptance(findings),
        policies(findings),
        left_out(findings.dropped),
        recording(findings),
        guide(),
    ]
    made_by = f'<footer><p class="quiet">Made by adaptk {escaped(findings.adaptk)}.</p></footer>'
    return document("adaptk report", [*top(findings), *filter(None, sections), made_by], STYLE)
