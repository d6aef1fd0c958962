"""What ``adaptk doctor --measure`` found, in lines of 80 columns and sentences."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from adaptk.profile.taxrows import Span, TaxRow
from adaptk.textlines import WIDTH, number

_HEAD = f"{'batch':>6} {'engine':<10} {'step, ms':<20} {'over no drafter':<20} tokens/s"
PROMISE = (
    "adaptk promises not to be slower than K=0 in the engine that you start. What a drafter costs there while it is "
    "idle adaptk cannot remove: only an engine without one is free of it."
)


def tax_lines(rows: Sequence[TaxRow], acceptance: Sequence[float]) -> list[str]:
    """The table of all rows, then what it means for each batch size.

    Parameters
    ----------
    rows
        Sorted by batch size, no drafter first.
    acceptance
        Of the answers, conditional by position; empty where no draft was tried.
    """
    lines = [_HEAD]
    for i, row in enumerate(rows):
        shown = str(row.batch) if i == 0 or rows[i - 1].batch != row.batch else ""
        lines.append(_line(shown, row))
    lines.append("(95 % intervals in brackets)")
    for batch in dict.fromkeys(row.batch for row in rows):
        lines += textwrap.wrap(f"Batch {batch}: {meaning([row for row in rows if row.batch == batch])}", WIDTH)
    if acceptance:
        told = ", ".join(f"{share:.2f}" for share in acceptance)
        lines += textwrap.wrap(f"Acceptance of the prompts, by position (there and accepted): {told}.", WIDTH)
    lines += textwrap.wrap(PROMISE, WIDTH)
    return lines


def meaning(rows: Sequence[TaxRow]) -> str:
    """What the rows of one batch size mean, in a sentence or two."""
    idle = next((row for row in rows if row.k == 0), None)
    if idle is None or idle.ratio is None:
        return "one of the two engines was not measured here."
    said = f"{_idle(idle.ratio)}; {_threshold(rows)}."
    if idle.ratio.high is not None and idle.ratio.high < 1.0:
        said += " A drafter makes K=0 no faster: the machine was not the same for both engines. Measure again."
    gains = {row.k: row.gain for row in rows if row.k and row.gain is not None}
    if not gains:
        return said
    best = max(gains, key=lambda k: gains[k].value)
    against = max((gains[best], idle.gain or gains[best]), key=lambda gain: gain.value)
    if against.high is not None and against.high < 1.0:
        speed = f"{_spanned(against, 2)} times the tokens per second of none"
        return f"{said} With these prompts no K reaches the engine without a drafter: at best {speed}."
    return f"{said} With these prompts K={best} gives {_spanned(gains[best], 2)} times the tokens per second of none."


def _idle(ratio: Span) -> str:
    cost = f"{100 * (ratio.value - 1):.1f} %"
    if ratio.low is None or ratio.high is None:
        return f"a drafter loaded and idle (K=0) seems to cost {cost}, seen too seldom to be sure"
    interval = f"[{100 * (ratio.low - 1):.1f},{100 * (ratio.high - 1):.1f}]"
    if ratio.low <= 1.0 <= ratio.high:
        return f"what a drafter costs loaded and idle (K=0) cannot be told from nothing: {cost} {interval}"
    if ratio.high < 1.0:
        return f"K=0 took {cost} {interval} more than no drafter"
    return f"a drafter loaded and idle (K=0) costs {cost} {interval}"


def _threshold(rows: Sequence[TaxRow]) -> str:
    least = min(((row.pays_above, row.k) for row in rows if row.pays_above is not None), default=None)
    if least is None:
        return "no acceptance makes speculation pay here"
    if least[0] <= 0.0:
        return "speculation can pay here at any acceptance"
    alike = f"{least[0]:.2f}, alike at every position (that of K={least[1]}),"
    return f"below an acceptance of {alike} speculation cannot pay here"


def _line(batch: str, row: TaxRow) -> str:
    name = "no drafter" if row.k is None else f"K={row.k}"
    ratio = "1" if row.k is None else _spanned(row.ratio, 3)
    cells = f"{_spanned(row.itl_ms, 2):<20} {ratio:<20} {_spanned(row.tokens_per_s, 1)}"
    return f"{batch:>6} {name:<10} {cells}"


def _spanned(span: Span | None, digits: int) -> str:
    if span is None:
        return "-"
    most = digits if span.value < 100.0 else 0
    value = number(span.value, 6, most)
    if span.low is None or span.high is None:
        return value
    return f"{value} [{number(span.low, 5, most)},{number(span.high, 5, most)}]"
