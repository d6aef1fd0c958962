"""The report's charts."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest

from adaptk.report.page.charts import Bar, forest, schedules
from adaptk.report.page.overtime import Load, Paint, Panel, k_paints, lines_over_time, over_time
from adaptk.report.page.svg import Chart

NAN = math.nan


def texts(chart: Chart) -> list[str]:
    """What is written in a chart; it must be well formed."""
    return [text.text or "" for text in ElementTree.fromstring(chart.svg).iter("text")]


def load(stretches: int = 3) -> Load:
    edges = [float(i) for i in range(stretches + 1)]
    return Load(edges, [4.0] * stretches, [8.0] * stretches, [100.0] * stretches)


@pytest.mark.parametrize("most", [3, 8, 15])
def test_each_k_has_a_paint_of_its_own(most: int) -> None:
    """K=0 always has the same."""
    paints = k_paints([*range(most + 1), 0])
    assert len(set(paints.values())) == most + 1
    assert paints[0] == Paint("grey")


def test_load_over_time() -> None:
    """Axes have units, each K a place in the legend, and the words say what is seen."""
    panels = [Panel("used", {1: [1.0, 0.5, 0.0], 3: [0.0, 0.5, 1.0]}), Panel("chosen", {3: [1.0, 1.0, 1.0]})]
    made = over_time(load(), panels, "time, s", [(1.5, "acceptance changed")])
    assert {"time, s", "requests", "tokens/s", "% of steps", "K=1", "K=3", "used", "chosen"} <= set(texts(made))
    assert "chosen: mostly K=3" in made.alt
    assert "At 1.5: acceptance changed." in made.alt
    assert "Dotted lines" in made.caption


def test_load_with_gaps() -> None:
    """A stretch without steps, and none with a time, are drawn as nothing."""
    made = over_time(Load([0.0, 1.0], [NAN], [NAN], [NAN]), [Panel("used", {0: [0.0]})], "time, s")
    assert "mean number of requests unknown" in made.alt
    assert "requests" in texts(made)


def test_lines_over_time() -> None:
    series = [("position 1", [0.9, 0.8, 0.7]), ("position 2", [NAN, 0.5, NAN])]
    made = lines_over_time([0.0, 1.0, 2.0], series, "time, h", "share accepted", "Acceptance.")
    assert {"position 1", "position 2", "time, h", "share accepted"} <= set(texts(made))
    assert "position 1 0.90 at first, 0.70 at the end" in made.alt


@pytest.mark.parametrize("bars", [[Bar("one", 1.0, NAN, NAN)], [Bar(f"p{i}", i, i - 1, i + 1) for i in range(20)]])
def test_a_forest(bars: list[Bar]) -> None:
    """Every bar is named and said, whether or not it has an interval."""
    made = forest(bars, "% more", "Speed.", zero=0.0)
    assert {bar.name for bar in bars} | {"% more"} <= set(texts(made))
    assert made.alt.count("[") == sum(not math.isnan(bar.low) for bar in bars)


def test_schedules() -> None:
    """Batch sizes that were never seen take no room."""
    tiers = [("now", [[1, 64, 3], [65, 512, 0]]), ("advised", [[1, 512, 3]])]
    made = schedules(tiers, [(1, 64, 0.9), (65, 100, 0.1), (101, 512, 0.0)])
    assert "64" in texts(made)
    assert "128" not in texts(made)
    assert "now: K=3 at 1 to 64, K=0 at 65 to 512; advised: K=3 at 1 to 512" in made.alt


def test_schedules_without_a_load() -> None:
    """A single batch size, and none at all, can be drawn."""
    assert "1" in texts(schedules([("now", [[1, 1, 2]])], [(1, 1, 1.0)]))
    assert "512" in texts(schedules([("now", [[1, 512, 2], [513, 1024, 1]])], []))
