"""Figures: drawn whatever the figures are, and said in words."""

from __future__ import annotations

import builtins
import math
from typing import Any

import pytest

from adaptk.replay.views import plots
from adaptk.replay.views.aggregate import summaries
from adaptk.replay.views.plots import PlotError, goodput_picture, story_pictures
from adaptk.replay.views.story import story
from tests.replay.tiny import row, tiny

PNG = b"\x89PNG\r\n\x1a\n"


def test_goodput_is_drawn_and_said() -> None:
    rows = [row(policy=p, seed=s, oracle_ratio=r + 0.01 * s) for p, r in (("a", 0.5), ("b", 0.9)) for s in (0, 1)]
    picture = goodput_picture(summaries(rows))
    assert picture.png.startswith(PNG)
    assert picture.alt == "Oracle ratio, best first: b 0.905; a 0.505."


def test_small_differences_do_not_look_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The axis of ratios spans at least 0.05, and more where they differ more."""
    spans: list[float] = []

    def measured(figure: Any) -> bytes:
        low, high = figure.axes[0].get_xlim()
        spans.append(high - low)
        return PNG

    monkeypatch.setattr(plots, "_png", measured)
    for other in (0.999, 0.5):
        goodput_picture(summaries([row(oracle_ratio=1.0), row(policy="table", oracle_ratio=other)]))
    assert spans[0] == pytest.approx(0.05)
    assert 0.5 < spans[1] < 0.6


@pytest.mark.parametrize("ratio", [math.nan, 0.5])
def test_one_seed_and_no_ratio_are_drawn_too(ratio: float) -> None:
    assert goodput_picture(summaries([row(oracle_ratio=ratio)])).png.startswith(PNG)


def test_a_story_is_drawn() -> None:
    """With and without a table."""
    for scenario in (tiny(), tiny(table=None)):
        pictures = story_pictures(story(scenario, 0))
        assert len(pictures) == 3
        assert all(picture.png.startswith(PNG) for picture in pictures)
        assert "oracle mostly K=" in pictures[0].alt
        assert "oracle 0 ms" in pictures[1].alt
        assert "K=3 length" in pictures[2].alt


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(PlotError, match=r"pip install 'adaptk\[tools\]'"):
        goodput_picture(summaries([row()]))
