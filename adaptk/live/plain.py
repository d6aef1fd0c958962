"""Engines for readers that are no terminal: a line of text or a document of JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from adaptk.live.brief import gain_now, k_of, mode, state_of
from adaptk.live.figures import acceptance, drift_mark, reasons, worst_drift
from adaptk.live.fleet import Seen, troubles
from adaptk.live.gains import POLICIES, Gain, gains
from adaptk.live.snapshot import Counts, Snapshot, batch_order
from adaptk.live.texts import amount, fitted, percent, percent_gained, width_of
from adaptk.textlines import WIDTH

_MOST_NAME = 48
_ALWAYS = 1  # the rank of what a long name gives way to: the mode and what is wrong
_PORT = 6  # a colon and a port: in names that must be cut these are kept


class _Part(NamedTuple):
    """A part of a line; of those that have no room together the one of the highest rank gives way to its rest first."""

    text: str
    rank: int
    rest: tuple[_Part, ...] = ()


def plain_line(seen: Seen, clock: str) -> str:
    """One engine in one line of at most 80 columns; for what has no room, what matters least is left out."""
    snapshot = seen.snapshot
    if snapshot is None or seen.error:
        found = troubles(seen)[0]
        text = f"{_start(seen, clock, _MOST_NAME)} {found.word}: {found.text}"
        return fitted(text, min(width_of(text), WIDTH))
    parts = [part for part in _parts(seen, snapshot) if part.text]
    said = sum(width_of(part.text) for part in parts if part.rank <= _ALWAYS)
    start = _start(seen, clock, min(WIDTH - len(clock) - 1 - said, _MOST_NAME))
    room = WIDTH - width_of(start)
    while sum(width_of(part.text) for part in parts) > room:
        at = max(range(len(parts)), key=lambda i: parts[i].rank)
        parts[at : at + 1] = parts[at].rest
    return start + "".join(part.text for part in parts)


def _start(seen: Seen, clock: str, room: int) -> str:
    return f"{clock} {fitted(seen.name, min(width_of(seen.name), room), tail=_PORT)}"


def _parts(seen: Seen, snapshot: Snapshot) -> list[_Part]:
    """What the line says, in its order."""
    rate = None if seen.recent is None else seen.recent.rate(seen.recent.counts.tokens)
    state = state_of(seen)
    return [
        _Part(f" {mode(seen)}", 1),
        _Part(f" batch {amount(snapshot.batch)}", 4),
        _Part(f" K={k_of(snapshot)}", 2),
        _Part("" if rate is None else f" {amount(rate)} tok/s", 5),
        _gain(gain_now(seen, snapshot, "vllm"), gain_now(seen, snapshot, "k0")),
        _Part(_drift(seen, snapshot), 7),
        _Part("" if state == "ok" else f" {state}", 0),
    ]


def _gain(vllm: Gain, k0: Gain) -> _Part:
    """The gains that are known, of which that over vLLM's own K matters more."""
    alone = [_Part(f" {percent_gained(gain)} on {name}", 3) for gain, name in ((vllm, "vLLM"), (k0, "K=0"))
             if gain.share is not None]  # fmt: skip
    if len(alone) < 2:
        return alone[0] if alone else _Part("", 3)
    return _Part(f" {percent_gained(vllm).removesuffix(' %')}/{percent_gained(k0)} on vLLM/K=0", 6, (alone[0],))


def _drift(seen: Seen, snapshot: Snapshot) -> str:
    """How far the table is off where it is; nothing where the state says so already."""
    worst = worst_drift(snapshot)
    if worst is None or not drift_mark(worst[1]) or any(trouble.word == "table off" for trouble in troubles(seen)):
        return ""
    return f" drift {percent(worst[1] - 1.0, signed=True)}{drift_mark(worst[1])}"


def document(engines: Sequence[Seen], wall: float) -> dict[str, Any]:
    """All engines as plain data; times in seconds, what is not known ``None``.

    Parameters
    ----------
    engines
        As now seen.
    wall
        The time, seconds since 1970.
    """
    return {"time": wall, "engines": [_engine(seen) for seen in engines]}


def _engine(seen: Seen) -> dict[str, Any]:
    made: dict[str, Any] = {
        "address": seen.address.url,
        "reachable": not seen.error and seen.snapshot is not None,
        "error": seen.error or None,
        "page_age_s": seen.age,
        "troubles": [{"what": found.word, "text": found.text, "grave": found.grave} for found in troubles(seen)],
    }
    snapshot = seen.snapshot
    if snapshot is None:
        return made
    now = {policy: gain_now(seen, snapshot, policy) for policy in POLICIES}
    left_out = {"cells", "positions", "counts", "table_k", "arms", "baseline", "inactive_reason"}
    made |= {key: value for key, value in msgspec.structs.asdict(snapshot).items() if key not in left_out}
    return made | {
        "inactive_reason": snapshot.inactive_reason or None,
        "arms": [int(k) for k in snapshot.arms.split(",") if k.isdigit()],
        "baseline_schedule": snapshot.baseline or None,
        "idle_s": seen.idle,
        "last_minute": None
        if seen.recent is None
        else {"seconds": seen.recent.seconds, **_told(seen.recent.counts, now)},
        "since_start": _told(snapshot.counts, gains(snapshot, snapshot.counts)),
        "positions": [_position(snapshot, position) for position in sorted(snapshot.positions)],
        "cells": _cells(snapshot),
    }


def _told(counts: Counts, gained: Mapping[str, Gain]) -> dict[str, Any]:
    """What was counted, summed; gains are those that adaptk would have had, in shadow."""
    return {
        "steps": sum(counts.steps.values()),
        "tokens": sum(counts.tokens.values()),
        "reasons": reasons(counts),
        "gains": {policy: gain.share for policy, gain in gained.items()},
        "guessed_gains": [policy for policy, gain in gained.items() if gain.guessed],
        "switches": counts.switches,
        "exploration_s": counts.exploration,
        "alarms": counts.alarms,
        "dropped": counts.dropped,
        "events": counts.events,
    }


def _position(snapshot: Snapshot, position: int) -> dict[str, Any]:
    believed = msgspec.structs.asdict(snapshot.positions[position])
    return {"position": position, "accepted": acceptance(snapshot.counts, position), **believed}


def _cells(snapshot: Snapshot) -> list[Mapping[str, Any]]:
    cells = sorted({*snapshot.cells, *snapshot.counts.steps}, key=lambda cell: (batch_order(cell.batch), cell.k))
    return [
        {
            **cell._asdict(),
            "steps": snapshot.counts.steps.get(cell, 0.0),
            "table_k": snapshot.table_k.get(cell.batch),
            **(msgspec.structs.asdict(snapshot.cells[cell]) if cell in snapshot.cells else {}),
        }
        for cell in cells
    ]
