"""All engines that are watched: the last page of each, what it counted lately, and what is wrong with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from adaptk.live.address import Address
from adaptk.live.fetch import Look
from adaptk.live.figures import FAR, worst_drift
from adaptk.live.rates import History, Span
from adaptk.live.snapshot import Snapshot

IDLE_S = 10.0
STALE_S = 60.0
_Key = tuple[str, str, str]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One engine, or an address where none was found yet, as it is now.

    ``age`` is the time since its last page, ``idle`` that since its last step, seconds; ``error`` what is wrong with
    the address.
    """

    address: Address
    snapshot: Snapshot | None = None
    recent: Span | None = None
    age: float | None = None
    idle: float | None = None
    error: str = ""

    @property
    def identity(self) -> tuple[str, ...]:
        """What tells it from the others for as long as it is watched."""
        return (self.address.url, *(_key(self.snapshot) if self.snapshot is not None else ()))

    @property
    def name(self) -> str:
        """The address, and the engine where it is not the first."""
        engine = self.snapshot.engine if self.snapshot is not None else ""
        return self.address.name if engine in ("", "0") else f"{self.address.name}/{engine}"


class Trouble(msgspec.Struct, frozen=True):
    """Something that an operator should know: in a word, in a sentence, and whether it is grave."""

    word: str
    text: str
    grave: bool = True


class _Place:
    """One address: its last page, and the history of each engine on it."""

    def __init__(self) -> None:
        self.engines: tuple[Snapshot, ...] = ()
        self.histories: dict[_Key, History] = {}
        self.paged_at: float | None = None
        self.error = ""


class Fleet:
    """What is known of all addresses; fed with looks, asked for the engines.

    Parameters
    ----------
    addresses
        In the order in which they are shown.
    wall
        The clock that the engines' time stamps go by, seconds since 1970.
    """

    def __init__(self, addresses: Sequence[Address], wall: Callable[[], float] = time.time) -> None:
        self._places = {address: _Place() for address in addresses}
        self._wall = wall

    def update(self, look: Look) -> None:
        """Take in what an address answered."""
        place = self._places[look.address]
        place.error = look.error
        if look.error:
            return
        place.engines, place.paged_at = look.engines, look.at
        kept = {_key(seen): place.histories.get(_key(seen)) or History() for seen in look.engines}
        for seen in look.engines:
            kept[_key(seen)].add(look.at, seen.counts)
        place.histories = kept

    def engines(self, now: float) -> list[Seen]:
        """Every engine at a time of the steady clock; an address that never answered stands for itself."""
        wall = self._wall()
        return [seen for address, place in self._places.items() for seen in _seen(address, place, now, wall)]


def _key(snapshot: Snapshot) -> _Key:
    return snapshot.model, snapshot.engine, snapshot.instance


def _seen(address: Address, place: _Place, now: float, wall: float) -> list[Seen]:
    if place.paged_at is None:
        return [Seen(address=address, error=place.error)]
    return [
        Seen(
            address=address,
            snapshot=engine,
            recent=place.histories[_key(engine)].recent(),
            age=max(now - place.paged_at, 0.0),
            idle=None if engine.last_step_at is None else max(wall - engine.last_step_at, 0.0),
            error=place.error,
        )
        for engine in place.engines
    ]


def troubles(seen: Seen) -> list[Trouble]:
    """What is wrong with an engine, the gravest first."""
    found = [Trouble("unreachable", seen.error)] if seen.error else []
    snapshot = seen.snapshot
    if snapshot is None:
        return found or [Trouble("asking", "no answer yet", grave=False)]
    counts = snapshot.counts
    faults = counts.events.get("faults", 0.0)
    if snapshot.active is False or faults > 0.0:
        why = snapshot.inactive_reason or ("a fault of adaptk, see the server's log" if faults > 0.0 else "")
        found.append(Trouble("inactive", f"adaptk stands aside, vLLM's own K is played{': ' if why else ''}{why}"))
    if snapshot.drafter_dead:
        found.append(Trouble("dead drafter", "the drafts are (nearly) never accepted: look at the drafter"))
    off = worst_drift(snapshot, sure=True)
    if off is not None and abs(off[1] - 1.0) > FAR:
        (batch, k), ratio = off
        text = f"steps at batch {batch}, K={k} take {ratio:.2f} times what the table says: measure it anew"
        found.append(Trouble("table off", text))
    if snapshot.timing_untrusted:
        found.append(Trouble("timing", "too many steps are slowed for no reason: no visits until that ends"))
    return found + _lesser(seen, snapshot)


def _lesser(seen: Seen, snapshot: Snapshot) -> list[Trouble]:
    found = []
    lately = seen.recent.counts if seen.recent is not None else None
    if lately is not None and sum(lately.alarms.values()) > 0.0:
        kinds = " and ".join(kind for kind, count in lately.alarms.items() if count > 0.0)
        found.append(Trouble("changed", f"a change of {kinds} was detected within the last minute", grave=False))
    if snapshot.balance is not None and snapshot.balance <= 0.0 < snapshot.counts.exploration.get("allowed", 0.0):
        found.append(Trouble("ledger", "the budget of exploring is spent: it only exploits", grave=False))
    dropped = snapshot.counts.events.get("trace_dropped_rows", 0.0)
    if dropped > 0.0:
        found.append(Trouble("trace", f"the trace lost {dropped:.0f} rows: its disk is full or slow", grave=False))
    if _behind(seen, snapshot):
        found.append(
            Trouble("stale", "steps went on for over a minute, and what is believed was not copied", grave=False)
        )
    if snapshot.skipped:
        found.append(Trouble("page", f"{snapshot.skipped} lines of its page are not understood", grave=False))
    if seen.idle is not None and seen.idle >= IDLE_S:
        found.append(Trouble("idle", "no steps", grave=False))
    return found


def _behind(seen: Seen, snapshot: Snapshot) -> bool:
    """Whether steps went on for all of the last minute without a copy of what is believed.

    A page that is asked for makes such a copy, so that a first one may be of an old one. In off nothing is learnt.
    """
    if snapshot.last_step_at is None or snapshot.beliefs_at is None or snapshot.mode == "off":
        return False
    recent = seen.recent
    watched = recent is not None and recent.seconds >= STALE_S and sum(recent.counts.steps.values()) > 0.0
    return watched and snapshot.active is not False and snapshot.last_step_at - snapshot.beliefs_at > STALE_S
