"""All engines that are watched."""

from __future__ import annotations

import pytest

from adaptk.live.address import Address, addresses
from adaptk.live.fetch import Look
from adaptk.live.fleet import Fleet, Seen, troubles
from adaptk.live.page import snapshots
from tests.live.pages import NOW, Engine, page

HERE, THERE = addresses(["9475", "9476"])


def looked(*engines: Engine, at: float = 0.0, address: Address = HERE) -> Look:
    """An answer with the page of these engines."""
    return Look(address, at, snapshots(page(*engines)))


def seen(engine: Engine, late: float = 0.0) -> Seen:
    """One engine by its page; ``late`` is how long ago its last step was, seconds."""
    fleet = Fleet([HERE], wall=lambda: NOW + late)
    fleet.update(looked(engine))
    (one,) = fleet.engines(0.0)
    return one


def test_an_address_that_never_answered_stands_for_itself() -> None:
    """In its place, at first as asked, then with its error."""
    fleet = Fleet([HERE, THERE], wall=lambda: NOW)
    fleet.update(looked(Engine(), address=THERE))
    first, second = fleet.engines(1.0)
    assert [trouble.word for trouble in troubles(first)] == ["asking"]
    assert (first.snapshot, second.age) == (None, 1.0)
    fleet.update(Look(HERE, 2.0, error="no such host"))
    assert troubles(fleet.engines(2.0)[0])[0].text == "no such host"


def test_an_engine_that_has_gone_is_shown_as_it_was_last() -> None:
    """With the error and the age of its page; back again all is well."""
    fleet = Fleet([HERE], wall=lambda: NOW)
    fleet.update(looked(Engine(), at=10.0))
    fleet.update(Look(HERE, 15.0, error="connection refused"))
    (gone,) = fleet.engines(22.0)
    assert gone.snapshot is not None
    assert (gone.age, gone.error) == (12.0, "connection refused")
    fleet.update(looked(Engine(steps=500), at=30.0))
    (back,) = fleet.engines(30.0)
    assert (back.age, back.error, troubles(back)) == (0.0, "", [])
    assert back.recent is not None
    assert sum(back.recent.counts.steps.values()) == 100.0


def test_the_engines_of_a_page_have_histories_of_their_own() -> None:
    """One that starts anew takes nothing from the other; one that leaves the page is no longer shown."""
    fleet = Fleet([HERE], wall=lambda: NOW)
    fleet.update(looked(Engine(engine="0"), Engine(engine="1"), at=0.0))
    fleet.update(looked(Engine(engine="0", steps=600), Engine(engine="1", steps=20), at=10.0))
    first, second = fleet.engines(10.0)
    assert first.recent is not None
    assert first.recent.rate(first.recent.counts.steps) == 20.0
    assert second.recent is None
    assert [one.name for one in (first, second)] == ["127.0.0.1:9475", "127.0.0.1:9475/1"]
    fleet.update(looked(Engine(engine="1", steps=21), at=11.0))
    assert [one.identity for one in fleet.engines(11.0)] == [second.identity]


def _dead(engine: Engine) -> None:
    engine.gauges["drafter_dead"] = 1


def _off(engine: Engine) -> None:
    engine.drift = 0.6


def _untrusted(engine: Engine) -> None:
    engine.gauges["timing_untrusted"] = 1


def _faulty(engine: Engine) -> None:
    engine.gauges["active"], engine.counters["faults"] = 0, 1


def _inert(engine: Engine) -> None:
    engine.gauges["active"], engine.inactive = 0, "pipeline parallel without asynchronous scheduling"


def _spent(engine: Engine) -> None:
    engine.gauges["exploration_balance_seconds"] = -0.01


def _lossy(engine: Engine) -> None:
    engine.counters["trace_dropped_rows"] = 12


@pytest.mark.parametrize(
    ("change", "word", "says", "grave"),
    [
        (_dead, "dead drafter", "never accepted", True),
        (_off, "table off", "0.60 times", True),
        (_untrusted, "timing", "no visits", True),
        (_faulty, "inactive", "a fault of adaptk", True),
        (_inert, "inactive", "pipeline parallel", True),
        (_spent, "ledger", "budget", False),
        (_lossy, "trace", "12 rows", False),
    ],
)
def test_each_trouble_is_told(change: object, word: str, says: str, grave: bool) -> None:
    """And an engine in order has none."""
    engine = Engine()
    assert troubles(seen(engine)) == []
    assert callable(change)
    change(engine)
    (told,) = troubles(seen(engine))
    assert (told.word, told.grave) == (word, grave)
    assert says in told.text


def test_idle_is_no_step_for_ten_seconds() -> None:
    """A clock that is behind the engine's makes nobody idle."""
    assert troubles(seen(Engine(), late=9.0)) == troubles(seen(Engine(), late=-50.0)) == []
    assert [told.word for told in troubles(seen(Engine(), late=10.0))] == ["idle"]


@pytest.mark.parametrize(
    ("mode", "minute", "steps", "old", "words"),
    [
        ("on", 60.0, 10, 61.0, ["stale"]),
        ("shadow", 60.0, 10, 59.0, []),
        ("on", 50.0, 10, 61.0, []),
        ("on", 60.0, 0, 61.0, []),
        ("off", 60.0, 10, 61.0, []),
    ],
)
def test_beliefs_are_stale_where_a_minute_of_steps_brings_no_new_ones(
    mode: str, minute: float, steps: int, old: float, words: list[str]
) -> None:
    """Not at the first look at a page that nobody asked for until then; in off nothing is learnt."""
    engine = Engine(mode=mode)
    engine.gauges["beliefs_timestamp_seconds"] = NOW - old
    fleet = Fleet([HERE], wall=lambda: NOW)
    fleet.update(looked(engine, at=0.0))
    assert troubles(fleet.engines(0.0)[0]) == []
    engine.steps += steps
    fleet.update(looked(engine, at=minute))
    assert [trouble.word for trouble in troubles(fleet.engines(minute)[0])] == words


def test_an_alarm_is_told_for_a_minute() -> None:
    """Those before the first page are not: their time is not known."""
    engine = Engine()
    engine.alarms["time"] = 5.0
    fleet = Fleet([HERE], wall=lambda: NOW)
    words = []
    for at, alarms in ((0.0, 5.0), (5.0, 5.0), (10.0, 6.0), (60.0, 6.0), (90.0, 6.0)):
        engine.alarms["time"] = alarms
        engine.steps += 10
        fleet.update(looked(engine, at=at))
        words.append([told.text for told in troubles(fleet.engines(at)[0])])
    said = ["a change of time was detected within the last minute"]
    assert words == [[], [], said, said, []]
