"""The HTML report."""

from __future__ import annotations

import base64
import math
import re
from datetime import UTC, datetime
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from adaptk import __version__
from adaptk.outputs import OutputError
from adaptk.replay.report import Content, render, write_html
from adaptk.replay.scenarios import Check
from adaptk.replay.views.glossary import TERMS
from adaptk.replay.views.plots import Picture
from adaptk.replay.views.remarks import ONE_SEED
from tests.replay.tiny import drafts_used, row, tiny

VOID = {"meta", "img", "br"}


class Reader(HTMLParser):
    """Checks that tags nest, and keeps what a browser would fetch, and the cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.alts: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.fetched += [value or "" for name, value in attributes if name in ("src", "href", "srcset", "action")]
        if tag == "img":
            self.alts.append(found["alt"] or "")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)
        assert tag not in ("script", "link", "iframe", "object")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def content(**more: Any) -> Content:
    fields: dict[str, Any] = {
        "title": "adaptk replay",
        "command": ["adaptk", "replay", "--scenario", "T1", "T<2>"],
        "created": datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
        "rows": [row(s, p, seed) for s in ("T1", "T<2>") for p in ("adaptk", "table") for seed in (0, 1)],
        "scenarios": [tiny("T1"), tiny("T<2>")],
        **more,
    }
    return Content(**fields)


def test_it_needs_no_other_file() -> None:
    """Nothing is fetched, be it by a tag or by the style sheet."""
    page = render(content(stories={"T1": [Picture(b"png", 'a "picture"', "caption")]}))
    read = Reader(page)
    assert len(read.fetched) == 3
    assert all(source.startswith("data:image/png;base64,") for source in read.fetched)
    assert base64.b64decode(read.fetched[1].partition(",")[2]) == b"png"
    assert 'a "picture"' in read.alts
    assert all(read.alts)
    assert not re.search(r"https?:|url\(|@import", page)


def test_it_says_what_was_run() -> None:
    page = render(content(notes=["the engine is simulated"], left_out="no pictures"))
    assert "2026-01-02 03:04 UTC" in page
    assert f"adaptk {__version__}" in page
    assert "adaptk replay --scenario T1 &#x27;T&lt;2&gt;&#x27;" in page
    assert "2 scenarios, 2 policies, 2 seeds (0, 1): 8 runs." in page
    assert "the engine is simulated" in page
    assert "no pictures" in page
    assert "Interrupted" not in page


def test_each_scenario_says_its_engine_and_who_won() -> None:
    page = render(content())
    assert page.count("<br>engine: by hand</p>") == 2
    assert page.count("<strong>adaptk against the static table: tok/s +10.0 % [+10.0,+10.0]</strong>") == 2


def test_a_single_seed_stands_out() -> None:
    assert f'<p class="warn">{ONE_SEED}</p>' in render(content(notes=[ONE_SEED]))


def test_all_figures_are_explained() -> None:
    page = render(content())
    for term in TERMS:
        assert f"<dt>{escape(term.name)}</dt>" in page
    assert "Quantiles of the time of a step, milliseconds." in page


def test_names_are_text() -> None:
    page = render(content())
    assert "T<2>" not in page
    assert "<h3>T&lt;2&gt;</h3>" in page


def test_the_summary_stands_where_there_are_several_scenarios() -> None:
    read = Reader(render(content()))
    assert read.rows[0][:3] == ["policy", "oracle ratio", "table ratio"]
    assert read.rows[1] == ["adaptk", "0.900 [0.900,0.900]", "1.100 [1.100,1.100]", "0.900 [0.900,0.900] T1",
                            "1.100 [1.100,1.100] T1", "2", "4/4"]  # fmt: skip
    one = render(content(rows=[row("T1")], scenarios=[tiny("T1")]))
    assert "<h2>Summary</h2>" not in one


def test_checks_say_who_holds_them() -> None:
    rows = [row("T1", "adaptk"), row("T1", "table", passed=False, failed=["is <fast>"]),
            row("T1", "no-drafter", passed=None, below_k0=math.nan)]  # fmt: skip
    scenario = tiny("T1", (Check("is <fast>", drafts_used),))
    page = render(content(rows=rows, scenarios=[scenario]))
    assert "<li>is &lt;fast&gt;<br>holds in all seeds: adaptk<br>fails: table (1 of 1)</li>" in page
    cells = {cells[0]: cells for cells in Reader(page).rows}
    assert cells["table"][3] == "0/1"
    assert (cells["no-drafter"][3], cells["no-drafter"][-2]) == ("-", "-")
    assert (cells["table"][-2], Reader(page).rows[0][-2]) == ("0.0 %", "below K=0")


def test_waiting_has_a_column_where_requests_arrive() -> None:
    page = render(content(rows=[row("T1", latency_ms=3.21, passed=None)], scenarios=[tiny("T1", ())]))
    read = Reader(page)
    assert read.rows[1][read.rows[0].index("ms per token")] == "3.21"
    assert "passed" not in read.rows[0]


def test_a_run_that_was_cut_short_is_marked() -> None:
    """A scenario that was not reached has no section."""
    page = render(content(rows=[row("T1")], cut_short=True))
    assert "Interrupted" in page
    assert "T&lt;2&gt;</h3>" not in page
    assert "Interrupted" in render(content(rows=[], cut_short=True))


def test_it_is_written_whole(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    write_html(out, content())
    assert Reader(out.read_text(encoding="utf-8")).rows
    assert list(tmp_path.iterdir()) == [out]
    with pytest.raises(OutputError, match="cannot be written"):
        write_html(tmp_path / "missing" / "report.html", content())
