"""The style and the pieces of pages."""

from __future__ import annotations

import re

import pytest

from adaptk.htmlpage import STYLE, document, escaped, outside, table


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def schemes() -> list[dict[str, str]]:
    """The named colours of the light and of the dark scheme."""
    blocks = re.findall(r":root \{ ?(?:color-scheme[^;]*;)?\s*(--ground.*?)\}", STYLE, flags=re.DOTALL)
    return [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block)) for block in blocks]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_can_be_read(scheme: int) -> None:
    """Text has a contrast of 4.5 on every ground, the colours of series 3 on the page's."""
    colours = schemes()[scheme]
    assert len(colours) == 21
    for ground in ("ground", "panel", "own", "warn", "good"):
        assert contrast(colours["ink"], colours[ground]) >= 7.0
    for ground in ("ground", "panel"):
        assert contrast(colours["quiet"], colours[ground]) >= 4.5
    for series in ("black", "grey", "blue", "orange", "green", "red", "purple", "sky", "yellow"):
        assert contrast(colours[series], colours["ground"]) >= 3.0, series


def test_dark_is_for_screens_only() -> None:
    """Paper is white, whatever the reader's scheme."""
    assert STYLE.count("prefers-color-scheme") == STYLE.count("@media screen and (prefers-color-scheme: dark)") == 1


def test_what_no_page_should_hold_is_replaced() -> None:
    text = escaped("a\x00\x1b[31m\u202etxt.exe\ud800 <b> & \"'\u2067")
    assert text == "a\ufffd\ufffd[31m\ufffdtxt.exe\ufffd &lt;b&gt; &amp; &quot;&#x27;\ufffd"
    assert text.encode()
    assert escaped("ünïcode \N{SNOWMAN}\n\t") == "ünïcode \N{SNOWMAN}\n\t"


def test_names_from_outside_are_kept_apart() -> None:
    assert outside("שלום <i>") == "<bdi>שלום &lt;i&gt;</bdi>"


def test_a_table_names_its_rows() -> None:
    shown = table(["policy", "<x>"], [["adaptk", "1"], ["a&b", "2"]])
    assert '<th scope="col">&lt;x&gt;</th>' in shown
    assert '<tr class="own"><th scope="row">adaptk</th><td>1</td></tr>' in shown
    assert '<tr><th scope="row">a&amp;b</th><td>2</td></tr>' in shown


def test_the_document_is_whole() -> None:
    page = document("<t>", ["<p>one</p>"], ".own-rule { }")
    assert page.startswith("<!DOCTYPE html>\n<html lang=")
    assert "<title>&lt;t&gt;</title>" in page
    assert ".own-rule { }</style>" in page
    assert page.endswith("<p>one</p>\n</body></html>\n")
