"""All addresses asked at once, again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from queue import Empty

from adaptk.live.address import Address
from adaptk.live.fetch import TIMEOUT_S, Fetcher, Look
from adaptk.live.fleet import Fleet, Seen

_SILENT_S = 2.0 * TIMEOUT_S + 1.0  # after which nothing is expected: looking a name up may take longer than a page


class Asker:
    """Asks every address that is not still being asked, and hands what comes to a fleet.

    Parameters
    ----------
    addresses
        Of the metrics pages.
    answered
        Called on another thread each time that an answer has come.
    """

    def __init__(self, addresses: Sequence[Address], answered: Callable[[], None] = lambda: None) -> None:
        self.fleet = Fleet(addresses)
        self._fetcher = Fetcher(addresses, answered)
        self._waiting: dict[Address, float] = {}

    @property
    def waiting(self) -> bool:
        """Whether an answer is still to come."""
        return bool(self._waiting)

    def ask(self) -> None:
        """Ask for all pages anew, except those that are still to come."""
        self.note_silent()
        now = time.monotonic()
        for address in self._fetcher.addresses:
            if address not in self._waiting:
                self._waiting[address] = now
                self._fetcher.ask(address)

    def note_silent(self) -> None:
        """Say of those that have been silent for too long that they do not answer."""
        now = time.monotonic()
        for address, asked in self._waiting.items():
            if now - asked >= _SILENT_S:
                self.fleet.update(Look(address, now, error=f"no answer for {now - asked:.0f} s"))

    def take(self, seconds: float = 0.0) -> None:
        """Hand over the answers that have come, waiting for the first of them for so long at most."""
        while True:
            try:
                look = (
                    self._fetcher.answers.get(timeout=seconds) if seconds > 0.0 else self._fetcher.answers.get_nowait()
                )
            except Empty:
                return
            seconds = 0.0
            self._waiting.pop(look.address, None)
            self.fleet.update(look)


def rounds(addresses: Sequence[Address], interval: float | None) -> Iterator[list[Seen]]:
    """The engines once each ``interval`` seconds, when all have answered or it is clear that some will not.

    ``None``: one round.
    """
    asker = Asker(addresses)
    while True:
        began = time.monotonic()
        asker.ask()
        until = began + _SILENT_S
        while asker.waiting and (left := until - time.monotonic()) > 0.0:
            asker.take(left)
        asker.note_silent()
        yield asker.fleet.engines(time.monotonic())
        if interval is None:
            return
        time.sleep(max(began + interval - time.monotonic(), 0.0))
