"""Progress without a terminal."""

from __future__ import annotations

import pytest

from adaptk.demo.progress import Progress


def test_plain_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each finished piece, on standard error, so that standard output holds the result alone."""
    with Progress() as progress:
        progress.say("hello")
        progress.begin("work", 2)
        progress.doing("first")
        progress.done("first done")
        progress.done("second done")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["hello", "work", "[1/2] first done", "[2/2] second done"]
