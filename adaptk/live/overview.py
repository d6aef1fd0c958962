"""Many engines, a line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from adaptk.live.brief import INACTIVE, gain_now, k_of, mode, state_of
from adaptk.live.figures import worst_drift
from adaptk.live.fleet import Seen, troubles
from adaptk.live.texts import (
    GRAVE,
    MILD,
    MODE_STYLES,
    View,
    amount,
    cut,
    drifted,
    fitted,
    gained,
    model_name,
    width_of,
)
from adaptk.spans import Span, Spans

_LEAST_NAME, _MOST_NAME, _STATE = 14, 48, 14
_HEAD = "mode     batch   K tok/s  K=0 % vLLM % drift % "
_TABLE, _WIDE = "table % ", 100  # a column for which there is room from so many columns on
_PORT = 6  # a colon and a port: in names that must be cut these are kept


def overview(engines: Sequence[Seen], width: int, selected: int | None) -> View:
    """The view of all engines; ``selected`` is the row that enter opens."""
    titles = _HEAD.replace("drift", f"{_TABLE}drift") if width >= _WIDE else _HEAD
    room = min(max(width - len(titles) - _STATE - 3, _LEAST_NAME), _MOST_NAME)
    head: list[Spans] = [
        (Span(f"{len(engines)} engines", "bold"), Span(f": {_summary(engines)}")),
        (Span(f"  {fitted('engine', room)} {titles}state", "underline"),),
    ]
    rows = [_row(seen, i == selected, titles, room, width) for i, seen in enumerate(engines)]
    return View([cut(line, width) for line in head], [cut(row, width) for row in rows], selected)


def _summary(engines: Sequence[Seen]) -> str:
    modes = Counter(mode(seen) for seen in engines if seen.snapshot is not None)
    parts = [f"{modes[name]} {name}" for name in ("on", "shadow", "off", INACTIVE) if modes[name]]
    lost = sum(bool(seen.error) for seen in engines)
    ill = sum(any(found.grave for found in troubles(seen)) for seen in engines)
    parts += [f"{lost} unreachable"] if lost else []
    return ", ".join([*parts, f"{ill} in trouble" if ill else "none in trouble"])


def _row(seen: Seen, selected: bool, titles: str, room: int, width: int) -> Spans:
    snapshot = seen.snapshot
    name = fitted(_name(seen, room), room, tail=_PORT)
    base = "reverse" if selected else ""
    start = Span(f"{'>' if selected else ' '} {name} ", base)
    found = troubles(seen)
    if snapshot is None:
        text = found[0].text if found else ""
        return start, Span(text, GRAVE if seen.error else "")
    said = mode(seen)
    tokens = None if seen.recent is None else seen.recent.rate(seen.recent.counts.tokens)
    worst = worst_drift(snapshot)
    return (
        start,
        Span(f"{said:<8} ", GRAVE if said == INACTIVE else MODE_STYLES.get(said, "")),
        Span(f"{amount(snapshot.batch):>5}{k_of(snapshot):>4}{amount(tokens):>6}"),
        gained(gain_now(seen, snapshot, "k0"), 7, unit=""),
        gained(gain_now(seen, snapshot, "vllm"), 7, unit=""),
        *([gained(gain_now(seen, snapshot, "table"), len(_TABLE), unit="")] if width >= _WIDE else []),
        drifted(None if worst is None else worst[1], 8, unit=""),
        Span(" "),
        _state(seen, width - room - len(titles) - 3),
    )


def _state(seen: Seen, room: int) -> Span:
    text = state_of(seen)
    style = "green" if text == "ok" else GRAVE if text.startswith("!!") else MILD if text.startswith("!") else "dim"
    return Span(text if len(text) <= room else text.rpartition(" +")[0] or text, style)


def _name(seen: Seen, room: int) -> str:
    """The address, which tells engines apart, and the model where there is room for both."""
    model = model_name(seen.snapshot.model) if seen.snapshot is not None else ""
    both = f"{seen.name} {model}"
    return both if width_of(both) <= room else seen.name
