"""What can be believed of a step's record, and of the load that the engine reports."""

from __future__ import annotations

from collections.abc import Sequence

from adaptk.step import LARGEST_COUNT, StepRecord

SHORTEST_MS, LONGEST_MS = 1e-3, 1e8  # what lies beyond is no step's time
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


def whole_count(value: int) -> int:
    """A number of requests or tokens, from whatever type and however absurd."""
    return min(max(int(value), 0), LARGEST_COUNT)


def _believable(value: float | None) -> float | None:
    return float(value) if value is not None and SHORTEST_MS <= value <= LONGEST_MS else None
