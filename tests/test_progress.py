"""Progress with and without a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from adaptk.progress import Progress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("adaptk.progress.time.monotonic", made)
    return made


def test_plain_lines_without_a_terminal(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each finished piece, on standard error, so that standard output holds the result alone."""
    with Progress() as progress:
        progress.say("hello")
        progress.begin("work", 3)
        progress.doing("first")
        clock.now += 40.0
        progress.done("first done")
        clock.now += 20.0
        progress.done("second done")
        progress.done("third done")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "hello",
        "work",
        "[1/3, 1:20 min left] first done",
        "[2/3, 30 s left] second done",
        "[3/3] third done",
    ]


def test_who_knows_better_says_how_long_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress.reach(0.25, 90.0, "batch 1")
    assert capsys.readouterr().err == "[ 25 %, 1:30 min left] batch 1\n"


def test_a_terminal_shows_how_far_and_how_long(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar is wiped away at the end; words in square brackets are no styles."""
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress() as progress:
        progress.say("a [bold] start")
        progress.begin("work", 4)
        clock.now += 30.0
        progress.done("[red] piece")
        clock.now += 12.0
        progress._bar.refresh()
    shown = terminal.getvalue()
    assert "a [bold] start" in shown
    assert "0/4" in shown
    assert "1/4" in shown
    assert "1:18 min left" in shown  # 90 s at the end of the piece, 12 s ago
    assert "[red] piece" in shown
    assert shown.endswith("\x1b[2K")


def test_without_standard_error_there_is_nothing_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a service manager closed it."""
    monkeypatch.setattr(sys, "stderr", None)
    with Progress() as progress:
        progress.begin("work", 1)
        progress.done("done")
