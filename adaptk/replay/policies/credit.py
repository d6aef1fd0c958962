"""What a finished step tells about one arm: which arm it belongs to, how many tokens it gave and how long it took."""

from __future__ import annotations

from typing import NamedTuple

from adaptk.evidence import LONGEST_MS, SHORTEST_MS
from adaptk.replay.policies.base import decoding
from adaptk.step import StepRecord


class Played(NamedTuple):
    """One step credited to an arm.

    ``batch`` counts decoding requests, ``tokens`` what they all emitted, ``length`` is the acceptance length (tokens
    per speculating request, the bonus token included), ``clean`` whether the step also drafted for the same arm.
    """

    arm: int
    batch: int
    ms: float
    tokens: int
    length: float
    clean: bool


class Credit:
    """Reads records in their order and credits each step to the arm whose drafts it verified.

    Drafts verified in a step were made for the choice before it, so that choice is credited; a drafter that returned
    fewer drafts is that arm's own fault. If more were verified than that choice asked for, the smallest arm that asks
    for so many is credited. A step without drafts belongs to K=0 if that was chosen, else to nobody, as does one
    without a usable time (the device's, where known) or without decoding requests.

    Examples
    --------
    >>> credit = Credit((0, 1, 3))
    >>> credit.read(StepRecord(batch_size=1, elapsed_ms=9.0, k=3, drafted=[0], accepted=[0]))
    >>> credit.read(StepRecord(batch_size=1, elapsed_ms=8.0, k=3, drafted=[3], accepted=[1]))
    Played(arm=3, batch=1, ms=8.0, tokens=2, length=2.0, clean=True)
    """

    def __init__(self, arms: tuple[int, ...]) -> None:
        self._arms = arms
        self._asked: int | None = None

    def read(self, record: StepRecord) -> Played | None:
        """The step as one arm's, or ``None`` where it is nobody's. To be called once for every record."""
        asked, self._asked = self._asked, record.k
        drafted, accepted = record.drafted, record.accepted
        top = max(drafted, default=0)
        ms = step_ms(record)
        if ms is None or not drafted or record.decodes == 0:
            return None
        if top == 0 and (asked != 0 or self._arms[0] != 0):
            return None
        if asked is None or top > asked:
            asked = top
        arm = next((k for k in self._arms if k >= asked), self._arms[-1])
        batch = decoding(record.batch_size, record.decodes)
        kept = sum(accepted)
        tokens = batch + kept if record.emitted is None else sum(record.emitted)
        length = 1.0 + kept / (len(drafted) - drafted.count(0)) if top else 1.0
        made = record.k if record.draft_k is None else record.draft_k
        return Played(arm, batch, ms, tokens, length, made == asked)


def step_ms(record: StepRecord) -> float | None:
    """Milliseconds of a step: the device's where usable, else the clock's; ``None`` where neither is a time."""
    for ms in (record.device_ms, record.elapsed_ms):
        if ms is not None and SHORTEST_MS <= ms <= LONGEST_MS:
            return ms
    return None


def batch_bin(batch: int) -> int:
    """Index of the power-of-two bin of a batch size: 1, 2, 3-4, 5-8, ...; what is below 1 counts as 1.

    Examples
    --------
    >>> [batch_bin(b) for b in (1, 2, 3, 4, 5, 8, 9)]
    [0, 1, 2, 2, 3, 3, 4]
    """
    return (max(batch, 1) - 1).bit_length()


def bin_middle(index: int) -> float:
    """The middle of a bin of ``batch_bin``, requests.

    Examples
    --------
    >>> [bin_middle(i) for i in range(4)]
    [1.0, 2.0, 3.5, 6.5]
    """
    high = 1 << index
    return (high // 2 + 1 + high) / 2 if index else 1.0
