"""What can be believed of a step's record, and of the load that the engine reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from operator import index
from typing import Any

import numpy as np

from adaptk.quoted import shown
from adaptk.step import LARGEST_COUNT, StepRecord

SHORTEST_MS, LONGEST_MS = 1e-3, 1e8  # what lies beyond is no step's time
_NUMBERS: tuple[Any, ...] = (Real, Decimal, np.bool_)
DEAD, REVIVED = 0.01, 0.05  # acceptance of the first draft below which a drafter counts as dead, above which no more


def step_time(record: StepRecord) -> tuple[float | None, int]:
    """Milliseconds that the step took, ``None`` where unknown, and how many of its times were none.

    The worker's own time is preferred; where it cannot be, the other one stands in.
    """
    elapsed, device = record.elapsed_ms, record.device_ms
    if device is None and elapsed is not None and SHORTEST_MS <= elapsed <= LONGEST_MS:  # the usual step
        return float(elapsed), 0
    by_clock, by_device = _believable(elapsed), _believable(device)
    refused = (elapsed is not None and by_clock is None) + (device is not None and by_device is None)
    return by_clock if by_device is None else by_device, refused


def delivering(record: StepRecord, decodes: int) -> int:
    """Decoding requests that are not gone: one that gave no token had no drafts that anyone could count.

    A prompt that goes on gives no token either, and is not among the decodes. Where a prompt ended as well, the tokens
    do not tell how many are gone; then the record should.
    """
    if record.gone is not None:
        return max(decodes - record.gone, 0)
    emitted = record.emitted
    if emitted is None or all(emitted):
        return decodes
    return min(decodes, max(record.batch_size - emitted.count(0), 0))


def most_and_sum(drafted: Sequence[int]) -> tuple[int, int]:
    """Largest entry and sum, 0 where there are none; in the usual step all requests drafted alike."""
    if not drafted:
        return 0, 0
    first, requests = drafted[0], len(drafted)
    if drafted.count(first) == requests:
        return first, first * requests
    return max(drafted), sum(drafted)


def drafter_dead(was_dead: bool, accepted_share: float) -> bool:
    """Whether the first drafts are no longer accepted; a dead drafter must recover visibly."""
    return accepted_share <= REVIVED if was_dead else accepted_share < DEAD


def whole_count(value: Any, name: str, least: int | None = None) -> int:
    """A number of requests or tokens, from whatever numeric type and however absurd.

    Raises
    ------
    ValueError
        If it is no whole number, as text or 0.5, or below ``least``; without that, what is below 0 counts as 0.

    Examples
    --------
    >>> whole_count(7.0, "batch_size"), whole_count(-5, "batch_size"), whole_count(10**400, "batch_size")
    (7, 0, 1000000000000)
    """
    try:
        whole: int | None = index(value)
    except TypeError:
        whole = _whole(value)
    if whole is None or (least is not None and whole < least):
        raise ValueError(f"{name} is {shown(value)}: give a whole number of at least {least or 0}")
    return min(max(whole, 0), LARGEST_COUNT)


def _whole(value: Any) -> int | None:
    """A number of another type than the whole ones as an int, ``None`` where it is none."""
    if not isinstance(value, _NUMBERS):
        return None  # text, too, of which Python would make an int
    try:
        if value >= LARGEST_COUNT:  # not written out: Decimal("1e999999999") would fill the memory
            return LARGEST_COUNT if value < math.inf else None
        if value <= -LARGEST_COUNT:
            return -LARGEST_COUNT if value > -math.inf else None
        whole = int(value)
    except (TypeError, ValueError, ArithmeticError):  # no number at all, as NaN
        return None
    return whole if whole == value else None


def _believable(value: float | None) -> float | None:
    return float(value) if value is not None and SHORTEST_MS <= value <= LONGEST_MS else None
