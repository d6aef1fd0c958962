"""The picture."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from adaptk.demo import figures, measure
from adaptk.demo.measure import Run, Step, Turn
from adaptk.demo.policies import Played


def _parts() -> list[measure.Row]:
    return measure.rows(
        [Turn(policy, "copy", i, Run([Step(10.0 + i, 2, 2)], "")) for policy in ("k0", "adaptk") for i in range(2)]
    )


def test_a_png_is_written(tmp_path: Path) -> None:
    """Also from an interrupted run, in which most policies and phases are missing."""
    pytest.importorskip("matplotlib")
    out = tmp_path / "picture.png"
    figures.draw(_parts(), {"copy": [Played(0, 2, 10.0), Played(7, 2, 12.0)]}, out)
    assert out.read_bytes().startswith(b"\x89PNG")
    assert out.stat().st_size > 10_000


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The extra is named."""
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(figures.PlotError, match=r"adaptk\[tools\]"):
        figures.draw(_parts(), {}, tmp_path / "picture.png")
