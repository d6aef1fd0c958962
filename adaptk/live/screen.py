"""The live screen: asks for pages, draws, and listens to keys, each without waiting for the others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from adaptk.live.address import Address
from adaptk.live.browser import Browser
from adaptk.live.detail import detail
from adaptk.live.fleet import Seen
from adaptk.live.keys import Terminal
from adaptk.live.overview import overview
from adaptk.live.rounds import Asker
from adaptk.spans import Spans

_REDRAW_S = 1.0  # ages go on also where nothing comes in
_FASTEST_S = 0.1  # between two pictures, however many answers come in


def watch(addresses: Sequence[Address], interval: float) -> int | None:
    """Show the engines until the reader quits or a signal comes; the signal.

    Parameters
    ----------
    addresses
        Of the metrics pages.
    interval
        Seconds from one look at a page to the next.
    """
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)

    def enter() -> None:
        console.set_alt_screen(True)
        console.show_cursor(False)

    def leave() -> None:
        with suppress(OSError):  # the terminal has gone
            console.set_alt_screen(False)
            console.show_cursor(True)

    with Terminal(enter, leave) as terminal, suppress(OSError):
        _loop(console, terminal, Asker(addresses, terminal.wake), interval)
    return terminal.ended


def print_still(engines: Sequence[Seen]) -> None:
    """Print the engines once, as high as they are: a lone one in full."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    view = detail(engines[0], console.width) if len(engines) == 1 else overview(engines, console.width, None)
    for text in _texts([*view.fixed, *view.scrolled]):
        console.print(text)


def _loop(console: Any, terminal: Terminal, asker: Asker, interval: float) -> None:
    browser = Browser()
    due, drawn = time.monotonic(), 0.0
    while not browser.done and terminal.ended is None:
        now = time.monotonic()
        if now >= due:
            due = now + interval
            asker.ask()
        asker.take()
        engines = browser.paused or asker.fleet.engines(now)
        late = now - drawn < _FASTEST_S
        if not late:
            _draw(console, browser.picture(engines, *console.size))
            drawn = now
        pressed = terminal.wait(min(due, drawn + (_FASTEST_S if late else _REDRAW_S)) - now)
        for key in pressed:
            browser.press(key, engines)
        if pressed:
            drawn = 0.0  # who presses a key waits for its picture


def _draw(console: Any, lines: Sequence[Spans]) -> None:
    from rich.console import Group

    console.update_screen(Group(*_texts(lines)))


def _texts(lines: Sequence[Spans]) -> list[Any]:
    from rich.text import Text

    return [Text.assemble(*line, no_wrap=True, overflow="crop") for line in lines]
