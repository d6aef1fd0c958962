"""All addresses asked at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from adaptk.live import rounds as module
from adaptk.live.address import addresses
from adaptk.live.rounds import Asker, rounds
from tests.live.pages import page, served


@contextmanager
def _silent() -> Iterator[str]:
    go_on = threading.Event()

    def answer() -> tuple[int, Mapping[str, str], bytes]:
        go_on.wait(10.0)
        return 200, {}, b""

    with served(answer) as place:
        try:
            yield place
        finally:
            go_on.set()


def test_a_round_ends_without_the_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are said to be so; who answered stands beside them, in the order that was given."""
    monkeypatch.setattr(module, "_SILENT_S", 0.3)
    with _silent() as slow, served(page()) as quick:
        (engines,) = rounds(addresses([slow, quick]), None)
    assert [seen.address.name for seen in engines] == [slow, quick]
    assert engines[0].error.startswith("no answer for")
    assert (engines[1].error, engines[1].snapshot is not None) == ("", True)


def test_who_has_just_been_asked_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where another has been for long; and nobody is asked twice at once."""
    monkeypatch.setattr(module, "_SILENT_S", 0.05)
    asked = []
    with _silent() as slow, served(lambda: (asked.append(1) or 200, {}, page().encode())) as quick:
        asker = Asker(addresses([slow, quick]))
        asker.ask()
        asker.take(10.0)
        threading.Event().wait(0.06)
        asker.ask()
        asker.ask()
        first, second = asker.fleet.engines(0.0)
        assert (first.error[:13], second.error) == ("no answer for", "")
        asker.take(10.0)
    assert len(asked) == 2


def test_rounds_keep_their_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted from start to start; the last minute fills."""
    waits: list[float] = []
    monkeypatch.setattr(module.time, "sleep", waits.append)
    with served(page()) as place:
        watch = rounds(addresses([place]), 100.0)
        first, second = (next(watch)[0] for _ in range(2))
    assert first.recent is None
    assert second.recent is not None
    assert 90.0 < waits[0] <= 100.0
