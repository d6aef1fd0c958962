"""One engine in a few words, the same in every view: its mode, its K, what it gains now, what is wrong with it."""

from __future__ import annotations

from adaptk.live.fleet import IDLE_S, Seen, troubles
from adaptk.live.gains import Gain, gain_over
from adaptk.live.snapshot import Snapshot
from adaptk.live.texts import since

INACTIVE = "inactive"


def mode(seen: Seen) -> str:
    """The engine's mode in a word: on, shadow, off, inactive, or ``-`` where it is not known."""
    snapshot = seen.snapshot
    return "-" if snapshot is None else INACTIVE if snapshot.active is False else snapshot.mode or "-"


def k_of(snapshot: Snapshot) -> str:
    """K as played; in shadow, where adaptk chose another, both: played/chosen."""
    played, chosen = ("-" if k is None else str(k) for k in (snapshot.played_k, snapshot.chosen_k))
    return played if snapshot.mode != "shadow" or played == chosen else f"{played}/{chosen}"


def gain_now(seen: Seen, snapshot: Snapshot, policy: str) -> Gain:
    """The gain over the last minute, with one page only since the engine's start.

    None where adaptk has no part in what goes on, or nothing goes on: one of an hour ago would look like one of now.
    """
    if mode(seen) in ("off", INACTIVE) or (seen.idle is not None and seen.idle >= IDLE_S):
        return Gain(None)
    return gain_over(snapshot, snapshot.counts if seen.recent is None else seen.recent.counts, policy)


def state_of(seen: Seen) -> str:
    """What is wrong with an engine first, and how many other things are; ``ok`` or idle if nothing is."""
    found = troubles(seen)
    if not found:
        return "ok"
    word = found[0].word
    if word == "idle" and seen.idle is not None:
        return f"idle {since(seen.idle)}"
    if word == "unreachable" and seen.age is not None:
        word = f"lost {since(seen.age)}"
    more = f" +{len(found) - 1}" if len(found) > 1 else ""
    return f"{'!!' if found[0].grave else '!'}{word}{more}"
