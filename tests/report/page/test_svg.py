"""Figures as SVG of the page."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from adaptk.report.page.svg import Chart, colour, drawn


def chart(label: str = "plain") -> Chart:
    def build(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.plot([0, 1, 2], [0, 2, 1], "o-", color=colour("blue"))
        axes.fill_between([0, 1], [0, 1], color=colour("sky"), alpha=0.5)
        axes.set(xlabel=label, ylabel="share")

    return drawn(build, 2.0, f'what "{label}" shows', f"below {label}")


def test_it_is_part_of_a_page() -> None:
    """It is well formed, names no address, holds no style of its own, and text stays text."""
    svg = chart().svg
    root = ElementTree.fromstring(svg)
    assert root.tag == "svg"
    assert not re.search(r"https?:|<style|<metadata|<!DOCTYPE|<\?xml|xlink|font-family", svg)
    assert {"plain", "share"} <= {text.text for text in root.iter("text")}


def test_it_has_a_name_for_those_who_cannot_see_it() -> None:
    root = ElementTree.fromstring(chart("<x>").svg)
    assert (root.get("role"), root.get("aria-label")) == ("img", 'what "<x>" shows')


def test_its_colours_are_the_pages() -> None:
    """No colour is left that a dark page could not change."""
    svg = chart().svg
    assert "var(--blue)" in svg
    assert "var(--sky)" in svg
    assert "var(--quiet)" in svg
    assert re.findall(r"#[0-9a-f]{6}\b", svg) == []


def test_the_same_figure_has_the_same_bytes() -> None:
    assert chart().svg == chart().svg


def test_ids_are_its_own() -> None:
    """Two figures of one page share no id, though some of their shapes are equal, and each finds its own."""
    ids, used = [], []
    for made in (chart("one"), chart("two")):
        ids.append(set(re.findall(r'\bid="([^"]+)"', made.svg)))
        used.append(set(re.findall(r'(?:href="#|url\(#)([^")]+)', made.svg)))
        assert used[-1] <= ids[-1]
        assert used[-1]
    assert ids[0].isdisjoint(ids[1])


def test_text_is_text() -> None:
    """Neither markup nor formulas."""
    root = ElementTree.fromstring(chart("</text><script>$x^2$").svg)
    assert "</text><script>$x^2$" in {text.text for text in root.iter("text")}
