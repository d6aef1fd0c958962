"""What an engine gains over other policies, and whether the engine has timed what that rests on."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import NamedTuple

from adaptk.live.figures import gain, shares
from adaptk.live.snapshot import Counts, Snapshot
from adaptk.schedule import read_schedule, scheduled_k

POLICIES = ("k0", "table", "vllm")
GUESSED = "~"
_ENOUGH = 8  # timed steps
_MOST = 0.1  # share of what is compared that may rest on fewer
_LOST = 0.5  # share of another policy's tokens that may be unknown, and count as equal
_PROMPTS = "0"


class Gain(NamedTuple):
    """Tokens more than with another policy, as a share, ``None`` where unknown.

    ``guessed``: a part rests on a K that the engine has hardly timed at that batch size, so on the table or the model
    of step times alone.
    """

    share: float | None
    guessed: bool = False


def gain_over(snapshot: Snapshot, counts: Counts, policy: str) -> Gain:
    """The gain over a policy of ``POLICIES``; in shadow, what adaptk would gain.

    Parameters
    ----------
    counts
        The snapshot's, or those of a span.
    """
    shadow = snapshot.mode == "shadow"
    told = counts.reference.get(policy, 0.0)
    unknown = counts.unknown.get(policy, 0.0) / told if told > 0.0 else 1.0
    share = gain(counts, policy, shadow) if unknown <= _LOST else None
    if share is None:
        return Gain(None)
    guessed = unknown > _MOST or _untimed(snapshot, counts, policy) > _MOST
    return Gain(share, guessed or (shadow and _chosen_untimed(snapshot, counts) > _MOST))


def _untimed(snapshot: Snapshot, counts: Counts, policy: str) -> float:
    """The share of tokens at batch sizes where a K of the policy has hardly been timed."""
    emitted: dict[str, float] = {}
    for cell, tokens in counts.tokens.items():
        if cell.batch != _PROMPTS:
            emitted[cell.batch] = emitted.get(cell.batch, 0.0) + tokens
    timed = {cell for cell, steps in snapshot.counts.timed_steps.items() if steps >= _ENOUGH}
    return sum(
        share
        for batch, share in shares(emitted).items()
        if any((batch, k) not in timed for k in _played(snapshot, batch, policy))
    )


def _chosen_untimed(snapshot: Snapshot, counts: Counts) -> float:
    """The share of choices of a K that has hardly been timed at any batch size."""
    timed: dict[int, float] = {}
    for cell, steps in snapshot.counts.timed_steps.items():
        timed[cell.k] = timed.get(cell.k, 0.0) + steps
    chosen: dict[int, float] = {}
    for (k, _), count in counts.decisions.items():
        chosen[k] = chosen.get(k, 0.0) + count
    return sum(share for k, share in shares(chosen).items() if timed.get(k, 0.0) < _ENOUGH)


def _played(snapshot: Snapshot, batch: str, policy: str) -> Collection[int]:
    """The K that a policy plays at a range of batch sizes; none where that is not known."""
    if policy == "k0":
        return {0}
    if policy == "table":
        return {snapshot.table_k[batch]} if batch in snapshot.table_k else ()
    if snapshot.baseline:
        return _scheduled(snapshot.baseline, batch)
    return {max(snapshot.counts.reached)} if snapshot.counts.reached else ()


def _scheduled(baseline: str, batch: str) -> set[int]:
    """The K of a schedule, ``[[first, last, K], ...]`` as text, at a range of batch sizes; a gap has the K before it.

    Examples
    --------
    >>> [sorted(_scheduled("[[1,4,7],[9,64,1]]", batch)) for batch in ("1", "4-7", "8-15", "many")]
    [[7], [7], [1, 7], []]
    """
    first, _, last = batch.partition("-")
    try:
        low, high = int(first), int(last or first)
        schedule = read_schedule(json.loads(baseline))
    except (ValueError, RecursionError):
        return set()
    return {scheduled_k(schedule, low), *(k for start, _, k in schedule if low < start <= high)} if low > 0 else set()


def gains(snapshot: Snapshot, counts: Counts) -> Mapping[str, Gain]:
    """The gain over each policy."""
    return {policy: gain_over(snapshot, counts, policy) for policy in POLICIES}
