"""The demo's result as text of at most 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from statistics import median

from adaptk.demo.load import PHASES
from adaptk.demo.measure import DROP_BEYOND, OVERALL, Row, Spread, Turn, best, paired_ratios, speeds, spread
from adaptk.demo.policies import ADAPTK, DISTORTED, DISTORTED_ADAPTK, DISTORTED_TABLE, FIXED, NONE, POLICIES, TABLE

COLUMNS = (*PHASES, OVERALL)
_Cell = Callable[[Sequence[Row], str, str], str]
_CELL = 17
WIDTH = 80
ENOUGH_ROUNDS = 5  # the range of fewer holds the median with less than 90 % confidence
_NAMES = {NONE: "no drafter", **{name: f"K={name[1:]}" for name in FIXED}, TABLE: "table", ADAPTK: "adaptk"}
_NAMES |= {DISTORTED_TABLE: "table*", DISTORTED_ADAPTK: "adaptk*"}


def render(parts: Sequence[Row], rounds: int) -> str:
    """Everything there is to say about the figures.

    Parameters
    ----------
    parts
        Rows of the phases and of the phases together.
    rounds
        Rounds that were finished by every policy.
    """
    if not parts:
        return "Nothing was measured."
    lines = ["Tokens per second (median of the rounds)", *_block(parts, _speed_cell)]
    lines += ["", "Ratio to K=0, paired by round", *_block(parts, _over_zero)]
    lines += ["", "Ratio to the best fixed K of that column, paired by round", *_block(parts, _over_best_fixed)]
    lines += ["", *_best_lines(parts), "", *_footing(parts, rounds)]
    return "\n".join(line.rstrip() for line in lines)


def label(policy: str) -> str:
    """A policy's name as people read it."""
    return _NAMES[policy]


def greedy_note(turns: Sequence[Turn], greedy: Sequence[str]) -> str:
    """How often a greedy phase's tokens were those of K=0 in the same round."""
    same = total = 0
    zero = {(turn.phase, turn.round): turn.run.digest for turn in turns if turn.policy == FIXED[0]}
    for turn in turns:
        reference = zero.get((turn.phase, turn.round))
        if turn.phase in greedy and turn.policy != FIXED[0] and reference is not None:
            total += 1
            same += turn.run.digest == reference
    if not total:
        return ""
    text = (
        f"Greedy phases: all tokens equal to those of K=0 in {same} of {total} turns. The width of a step "
        "changes the order of sums, so that near ties may fall either way; the number of tokens is the same for all."
    )
    return "\n".join(textwrap.wrap(text, WIDTH))


def _block(parts: Sequence[Row], cell: _Cell) -> list[str]:
    head = f"{'':<11}" + "".join(f"{column:>{_CELL}}" for column in COLUMNS)
    body = []
    for policy in _NAMES:
        cells = [cell(parts, column, policy) for column in COLUMNS]
        if any(cells):
            body.append(f"{label(policy):<11}" + "".join(f"{text or '-':>{_CELL}}" for text in cells))
    return [head, *body]


def _speed_cell(parts: Sequence[Row], column: str, policy: str) -> str:
    values = list(speeds(parts, policy, column).values())
    return f"{median(values):.1f}" if values else ""


def _over_zero(parts: Sequence[Row], column: str, policy: str) -> str:
    return _ratio(parts, column, policy, FIXED[0])


def _over_best_fixed(parts: Sequence[Row], column: str, policy: str) -> str:
    reference = best(parts, column, FIXED)
    return _ratio(parts, column, policy, reference) if reference else ""


def _ratio(parts: Sequence[Row], column: str, policy: str, over: str) -> str:
    ratios = paired_ratios(parts, column, policy, over)
    if not ratios:
        return ""
    if policy == over:
        return "1"
    return shown(spread(ratios))


def shown(value: Spread) -> str:
    """A ratio and its interval; a single round has none."""
    if value.coverage == 0.0:
        return f"{value.median:.2f}"
    return f"{value.median:.2f} [{value.low:.2f},{value.high:.2f}]"


def _best_lines(parts: Sequence[Row]) -> list[str]:
    lines = []
    for column in COLUMNS:
        rival = best(parts, column, [policy for policy in POLICIES if policy != ADAPTK])
        ratios = paired_ratios(parts, column, ADAPTK, rival) if rival else []
        if rival and ratios:
            lines.append(f"adaptk over the best other policy, {column}: {shown(spread(ratios))} ({label(rival)})")
    for policy in (ADAPTK, *DISTORTED):
        ratios = paired_ratios(parts, OVERALL, policy, TABLE)
        if ratios and any(row.policy in DISTORTED for row in parts):
            lines.append(f"{label(policy)} over the right table, {OVERALL}: {shown(spread(ratios))}")
    return lines


def _footing(parts: Sequence[Row], rounds: int) -> list[str]:
    turns = [row for row in parts if row.phase != OVERALL]
    dropped, steps = sum(row.dropped for row in turns), sum(row.dropped + row.steps for row in turns)
    by_policy = {policy: sum(row.dropped for row in turns if row.policy == policy) for policy in _NAMES}
    counts = ", ".join(f"{label(policy)} {count}" for policy, count in by_policy.items() if count)
    limit = (
        f"those over {DROP_BEYOND:g} times the median step of their phase ({counts})" if dropped else "none too long"
    )
    texts = ["* from a table that is wrong on purpose."] if any(row.policy in DISTORTED for row in parts) else []
    texts += [f"Dropped: {dropped} of {steps} steps, {limit}."]
    if rounds < ENOUGH_ROUNDS:
        texts.append(f"{rounds} finished round(s): too few for a 90 % interval, so this claims nothing.")
    else:
        confidence = 100 * spread([1.0] * rounds).coverage
        texts.append(f"{rounds} rounds; in brackets order statistics, {confidence:.0f} % confidence for the median.")
    return [line for text in texts for line in textwrap.wrap(text, WIDTH)]
