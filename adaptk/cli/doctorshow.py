"""The doctor's report in lines of 80 columns, with colours on a terminal, and what is shown while it looks."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator

from adaptk.cli.console import print_spans
from adaptk.doctor.examine import Report
from adaptk.doctor.finding import Finding
from adaptk.spans import Span, Spans
from adaptk.textlines import WIDTH

_TITLES = {
    "installation": "Installation", "vllm": "vLLM", "machine": "Machine", "settings": "Settings", "paths": "Files",
    "metrics": "Metrics", "engine": "Engine", "table": "Table",
}  # fmt: skip
_STYLES = {"ok": "green", "note": "cyan", "warn": "bold yellow", "fail": "bold red"}
_INDENT = " " * 6
_REMEDY = "-> "


class Waiting:
    """On a terminal a line on standard error that says what is waited for, gone when it is over; else nothing."""

    def __init__(self) -> None:
        self._stream = sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None
        self._shown = False

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None and self._shown:
            print("\r\x1b[K", end="", file=self._stream, flush=True)

    def __call__(self, what: str, seconds: float) -> None:
        """Say what is being done, and for how long already."""
        if self._stream is not None and what:
            self._shown = True
            print(f"\r{what}, {seconds:.0f} s\x1b[K", end="", file=self._stream, flush=True)


def show(report: Report) -> None:
    """Print the report; a reader that has gone away is no error."""
    print_spans(list(report_lines(report)))


def report_lines(report: Report) -> Iterator[Spans]:
    """Findings by field: first what is well, together, then what is not, each with its sign; the sentence at the end.

    What goes with a thing that is well is left to the document.
    """
    for field, title in _TITLES.items():
        found = [finding for finding in report.findings if finding.field == field]
        if found:
            yield (Span(title, "bold"),)
        well = "; ".join(finding.what for finding in found if finding.status == "ok")
        if well:
            yield from finding_lines(Finding(field, "ok", well))
        for finding in found:
            if finding.status != "ok":
                yield from finding_lines(finding)
    yield (Span(""),)
    style = "bold red" if report.fails else "bold"
    for text in textwrap.wrap(report.verdict, WIDTH, break_long_words=False, break_on_hyphens=False):
        yield (Span(text, style),)


def finding_lines(finding: Finding) -> Iterator[Spans]:
    """The sign and what was found, why below it, what to do below that."""
    first, *more = _wrapped(finding.what, "")
    yield Span(f"{finding.status:<6}", _STYLES[finding.status]), Span(first)
    for text in more:
        yield (Span(_INDENT + text),)
    for text in _wrapped(finding.detail, "") if finding.detail else ():
        yield Span(_INDENT), Span(text, "dim")
    for text in _wrapped(finding.remedy, _REMEDY) if finding.remedy else ():
        yield (Span(_INDENT + text),)


def _wrapped(text: str, first: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH - len(_INDENT),
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]
