"""From step times to figures: what is dropped, tokens per second, paired ratios and their spread. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

import msgspec

OVERALL = "overall"
DROP_BEYOND = 5.0  # times the median step of the phase
COVERAGE = 0.90


class Step(NamedTuple):
    """One engine step: wall time in milliseconds, tokens emitted, requests under way."""

    ms: float
    tokens: int
    batch: int


class Run(NamedTuple):
    """A phase run once: its steps, and a digest of all tokens that came out."""

    steps: list[Step]
    digest: str


class Turn(NamedTuple):
    """A run with the policy, the phase's name and the round that it belongs to."""

    policy: str
    phase: str
    round: int
    run: Run


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A turn in figures: ``steps`` are those kept, ``dropped`` the others; ``seconds`` and ``tokens`` of those kept."""

    policy: str
    phase: str
    round: int
    tokens_per_s: float
    steps: int
    dropped: int
    tokens: int
    seconds: float


class Spread(NamedTuple):
    """Median of several rounds and an interval around it; ``coverage`` is the interval's confidence, 0 to 1."""

    median: float
    low: float
    high: float
    coverage: float


def limits(turns: Iterable[Turn]) -> dict[str, float]:
    """The longest step that is kept, milliseconds, by phase: one limit for all policies and rounds alike."""
    times: dict[str, list[float]] = {}
    for turn in turns:
        times.setdefault(turn.phase, []).extend(step.ms for step in turn.run.steps)
    return {phase: DROP_BEYOND * median(ms) for phase, ms in times.items() if ms}


def rows(turns: Sequence[Turn]) -> list[Row]:
    """One row per turn, in the order of the turns."""
    limit = limits(turns)
    made = []
    for turn in turns:
        # A turn that was slow from end to end was not stalled, whatever slowed it.
        kept = [step for step in turn.run.steps if step.ms <= limit[turn.phase]] or turn.run.steps
        seconds = sum(step.ms for step in kept) / 1e3
        tokens = sum(step.tokens for step in kept)
        made.append(
            Row(
                policy=turn.policy,
                phase=turn.phase,
                round=turn.round,
                tokens_per_s=tokens / seconds,
                steps=len(kept),
                dropped=len(turn.run.steps) - len(kept),
                tokens=tokens,
                seconds=seconds,
            )
        )
    return made


def overall(parts: Sequence[Row], phases: Sequence[str]) -> list[Row]:
    """Rows for all phases together (total tokens over total time), for each policy and round that has every phase."""
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in parts:
        groups.setdefault((row.policy, row.round), []).append(row)
    made = []
    for (policy, round_), group in groups.items():
        if {row.phase for row in group} != set(phases):
            continue
        tokens, seconds = sum(row.tokens for row in group), sum(row.seconds for row in group)
        made.append(
            Row(
                policy=policy,
                phase=OVERALL,
                round=round_,
                tokens_per_s=tokens / seconds,
                steps=sum(row.steps for row in group),
                dropped=sum(row.dropped for row in group),
                tokens=tokens,
                seconds=seconds,
            )
        )
    return made


def speeds(parts: Iterable[Row], policy: str, phase: str) -> dict[int, float]:
    """Tokens per second of a policy in a phase, by round."""
    return {row.round: row.tokens_per_s for row in parts if row.policy == policy and row.phase == phase}


def paired_ratios(parts: Sequence[Row], phase: str, policy: str, over: str) -> list[float]:
    """Tokens per second of ``policy`` over those of ``over`` in the same round, for each round that has both."""
    above, below = speeds(parts, policy, phase), speeds(parts, over, phase)
    return [above[round_] / below[round_] for round_ in sorted(above.keys() & below.keys())]


def best(parts: Sequence[Row], phase: str, among: Iterable[str]) -> str | None:
    """The policy with the highest median tokens per second in ``phase``; ``None`` if none has a row there."""
    medians = {policy: median(values) for policy in among if (values := list(speeds(parts, policy, phase).values()))}
    return max(medians, key=lambda policy: medians[policy]) if medians else None


def spread(values: Sequence[float]) -> Spread:
    """Median, and the narrowest symmetric pair of order statistics that holds the true median with 90 % confidence.

    The interval makes no assumption on the distribution. With fewer than five values the whole range falls short of
    90 %; it is returned all the same, with the confidence that it has.

    Raises
    ------
    ValueError
        If there are no values.

    Examples
    --------
    >>> spread([1.0, 1.2, 1.1, 0.9, 1.3])
    Spread(median=1.1, low=0.9, high=1.3, coverage=0.9375)
    """
    if not values:
        raise ValueError("values is empty: give the ratio of at least one round")
    ordered, n = sorted(values), len(values)
    rank = 0
    while rank + 1 < n - rank - 1 and _confidence(n, rank + 1) >= COVERAGE:
        rank += 1
    return Spread(median(ordered), ordered[rank], ordered[n - 1 - rank], _confidence(n, rank))


def _confidence(n: int, rank: int) -> float:
    """Probability that the true median lies between the two of ``n`` draws that have ``rank`` others outside them."""
    return max(0.0, 1.0 - 2.0 * sum(math.comb(n, i) for i in range(rank + 1)) / 2.0**n)
