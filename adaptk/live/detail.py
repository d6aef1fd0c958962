"""One engine in full: what it does now, why, what that gains, and its table against what is believed."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from adaptk.live.brief import INACTIVE, gain_now
from adaptk.live.cellrows import cell_rows
from adaptk.live.figures import REASONS, acceptance, reasons
from adaptk.live.fleet import Seen, troubles
from adaptk.live.gains import gain_over
from adaptk.live.snapshot import Snapshot
from adaptk.live.texts import (
    GRAVE,
    MILD,
    MODE_STYLES,
    View,
    amount,
    cut,
    fitted,
    gained,
    model_name,
    percent,
    since,
    width_of,
)
from adaptk.spans import Span, Spans

_NAMES, _POSITION, _REASON = 15, 7, 6  # columns of names, of a draft position, and of a reason at least
_POLICIES = (("k0", 9), ("table", 10), ("vllm", 9))


def detail(seen: Seen, width: int, airy: bool = False) -> View:
    """The view of one engine, in lines of at most ``width`` columns; ``airy`` puts blank lines between its parts."""
    snapshot = seen.snapshot
    if snapshot is None:
        return View([cut(line, width) for line in ((Span(seen.name, "bold"),), *_troubles(seen, width))], [])
    head, rows, focus = cell_rows(seen, snapshot, width)
    parts = [
        [_head(seen, snapshot, width), _now(seen, snapshot), *_troubles(seen, width)],
        _gains(seen, snapshot),
        _positions(snapshot, width),
        _books(snapshot, width),
        [head],
    ]
    between: list[Spans] = [()] if airy else []
    fixed = [line for part in parts if part for line in (*between, *part)][len(between) :]
    return View([cut(line, width) for line in fixed], [cut(row, width) for row in rows], focus)


def _head(seen: Seen, snapshot: Snapshot, width: int) -> Spans:
    """The mode, the model, the address, the versions, and how old the page is, which always has room."""
    mode = INACTIVE if snapshot.active is False else snapshot.mode or "mode unknown"
    age = "" if seen.age is None else f"  page {since(seen.age)} old"
    room = max(width - len(mode) - 1 - len(age), 0)
    place = f"  {seen.name}"
    named = model_name(snapshot.model)
    model = fitted(named, min(width_of(named), max(room - width_of(place), 12)))
    versions = f"  adaptk {snapshot.version or '?'}, vLLM {snapshot.vllm_version or '?'} {snapshot.runner}".rstrip()
    rest = place + versions if width_of(model + place + versions) <= room else place
    style = GRAVE if snapshot.active is False else MODE_STYLES.get(mode, "")
    return Span(mode, style), Span(f" {model}", "bold"), Span(fitted(rest, room - width_of(model))), Span(age, "dim")


def _now(seen: Seen, snapshot: Snapshot) -> Spans:
    recent = seen.recent
    steps = None if recent is None else recent.rate(recent.counts.steps)
    tokens = None if recent is None else recent.rate(recent.counts.tokens)
    chosen, played = ("-" if k is None else str(k) for k in (snapshot.chosen_k, snapshot.played_k))
    k = chosen if chosen == played else f"{chosen} chosen, {played} played"
    idle = "" if seen.idle is None else f"  last step {since(seen.idle)} ago"
    rates = f"  {amount(tokens)} tok/s  {amount(steps)} steps/s{idle}"
    return Span("batch "), Span(amount(snapshot.batch), "bold"), Span("  K "), Span(k, "bold"), Span(rates)


def _troubles(seen: Seen, width: int) -> list[Spans]:
    lines: list[Spans] = []
    for found in troubles(seen):
        if found.word != "idle":  # the line above says since when
            text = f"{'!!' if found.grave else '!'} {found.word}: {found.text}"
            pieces = textwrap.wrap(text, max(width, 20), subsequent_indent="   ", max_lines=3, placeholder=" …")
            lines += [(Span(piece, GRAVE if found.grave else MILD),) for piece in pieces]
    return lines


def _gains(seen: Seen, snapshot: Snapshot) -> list[Spans]:
    """What adaptk gains over other policies, and why it chose what it did: lately, and since the engine's start."""
    shadow = snapshot.mode == "shadow"
    names = ("K=0", "schedule" if snapshot.table == "schedule" else "table", "vLLM")
    head = f"{'would gain over' if shadow else 'gain over':<{_NAMES}}"
    head += "".join(f"{name:>{room}}" for name, (_, room) in zip(names, _POLICIES, strict=True))
    why = [reason for reason in REASONS if reason != "min_k" or reasons(snapshot.counts).get(reason)]
    lines: list[Spans] = [(Span(f"{head} " + "".join(_placed(reason, reason) for reason in why), "underline"),)]
    spans = [] if seen.recent is None else [(f"last {since(seen.recent.seconds)}", seen.recent.counts)]
    for name, counts in (*spans, ("since its start", snapshot.counts)):
        now = counts is not snapshot.counts
        gains = [
            gained(gain_now(seen, snapshot, policy) if now else gain_over(snapshot, counts, policy), room)
            for policy, room in _POLICIES
        ]
        shares = reasons(counts)
        chosen = "".join(_placed(percent(shares.get(reason, 0.0) if shares else None), reason) for reason in why)
        lines.append((Span(f"{name:<{_NAMES}}"), *gains, Span(f" {chosen}")))
    return lines


def _placed(text: str, reason: str) -> str:
    return f"{text:>{max(len(reason) + 1, _REASON)}}"


def _positions(snapshot: Snapshot, width: int) -> list[Spans]:
    """Acceptance of each draft position, given that those before it were accepted: counted, and believed."""
    positions = sorted({*snapshot.positions, *snapshot.counts.reached})
    if not positions:
        return []
    fit = max((width - _NAMES) // _POSITION, 2)
    if len(positions) > fit:
        positions = [*positions[: fit - 1], positions[-1]]
    counted = [percent(acceptance(snapshot.counts, position)).removesuffix(" %") for position in positions]
    rows = (
        ("draft position", [str(position) for position in positions], "underline"),
        ("accepted, %", counted, ""),
        ("believed, 90 %", [_interval(snapshot, position) for position in positions], ""),
    )
    return [
        (Span(f"{name:<{_NAMES}}" + "".join(f"{cell:>{_POSITION}}" for cell in cells), style),)
        for name, cells, style in rows
    ]


def _interval(snapshot: Snapshot, position: int) -> str:
    belief = snapshot.positions.get(position)
    if belief is None or belief.low is None or belief.high is None:
        return "-"
    return f"{100.0 * belief.low:.0f}-{100.0 * belief.high:.0f}"


def _books(snapshot: Snapshot, width: int) -> list[Spans]:
    """The ledger of exploring, alarms and what was not learnt from, in as many lines as they need."""
    counts = snapshot.counts
    clocked = counts.clocked.get("count", 0.0)
    parts = [
        _ledger(snapshot),
        f"switches {amount(sum(counts.switches.values()))}",
        _listed("alarms:", counts.alarms),
        _listed("not learnt from:", counts.dropped),
        f"a choice takes {1e6 * counts.clocked.get('sum', 0.0) / clocked:.0f} µs" if clocked else "",
        *(_listed("", {name.replace("_", " "): count}) for name, count in counts.events.items()),
        f"arms {snapshot.arms}" if snapshot.arms else "",
        f"table: {snapshot.table}" if snapshot.table else "",
        f"vLLM's schedule: {snapshot.baseline}" if snapshot.baseline else "",
    ]
    lines: list[str] = []
    for part in filter(None, parts):
        at = next((i for i, line in enumerate(lines) if width_of(line) + width_of(part) + 3 <= width), None)
        if at is None:
            lines.append(part)
        else:
            lines[at] += f" · {part}"
    return [(Span(line),) for line in lines]


def _ledger(snapshot: Snapshot) -> str:
    exploration = snapshot.counts.exploration
    if not exploration:
        return ""
    left = "" if snapshot.balance is None else f", {_brief(snapshot.balance)} left"
    spent, allowed = (_brief(exploration.get(key, 0.0)) for key in ("spent", "allowed"))
    return f"exploring cost {spent} of {allowed}{left}"


def _brief(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms" if seconds < 1.0 else since(seconds)


def _listed(what: str, counts: Mapping[str, float]) -> str:
    """What was counted, the most first; nothing where nothing was."""
    ranked = sorted(((count, name) for name, count in counts.items() if count > 0.0), reverse=True)
    return f"{what} {', '.join(f'{name} {amount(count)}' for count, name in ranked[:4])}".strip() if ranked else ""
