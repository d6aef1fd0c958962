"""SGLang's adaptive steps: an average of accepted drafts and thresholds between candidates, per batch-size slot."""

from __future__ import annotations

from collections.abc import Sequence

from adaptk.replay.policies.base import Rival, Setup, arm_at_most, decoding
from adaptk.step import StepRecord

SLOTS: dict[int, tuple[int, ...]] = {1: (1, 3, 5, 7), 8: (0, 1, 3), 32: (0, 1), 64: (0,)}
"""Candidate steps from each batch size on."""
DOWN = {1: -0.25, 8: 0.0, 32: 0.0, 64: 0.0}  # hysteresis of a step down
UP = 0.0  # hysteresis of a step up
RATE = 0.2  # of one batch's mean
WARM_UP = 10  # batches of a slot before its first decision is due
INTERVAL = 5  # batches between decisions
START = 3  # steps


class SglangEma(Rival):
    """SGLang's shipped rule: accepted drafts, averaged, move K up and down a ladder of candidates.

    Source: SGLang 0.5.23, ``adaptive_spec_params``, read; that a batch belongs to the slot with the largest key not
    above it is said in pull request 24055. No cost model.

    - Slots 1, 8, 32, 64 with candidates {1, 3, 5, 7}, {0, 1, 3}, {0, 1}, {0}; the batch is padded to its graph's size
      first. Each slot has its own steps ``s``, average ``e`` of accepted drafts (starts at ``s - 1``) and counter.
    - Each verified batch, if ``s > 0``: ``e <- 0.8 e + 0.2 *`` mean accepted per request. After 10 batches of warm-up
      each fifth decides.
    - Down while ``e <= lower - 0.5 + down``, ``lower`` the next lower candidate (where that is 0: ``e <= 0.5 + down``),
      with ``down`` = -0.25 in slot 1, else 0. If it did not move, up while ``e > s - 0.5``. From ``s = 0`` always to
      the next candidate: a forced probe every 5 batches.

    Ours, where the source is silent: a slot starts at its largest candidate up to 3; the first decision is at batch 15;
    a forced probe moves one candidate; graph sizes (recalled, not read) are 1 to 8, then every 2 to 32, then every 8.
    Candidates above the largest arm are left out and one that is no arm becomes the arm below, so that thresholds are
    those of the K really played; slot 64 plays the smallest arm where 0 is none.

    Batch means decoding requests, as SGLang runs prompts by themselves; steps without any do not count. A batch counts
    in the slot of its own size, whatever K its drafts were made under: with feedback in flight the averages see the
    other rung for a step or two, as users of SGLang's overlapped scheduler reported.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.arms)
        self.slots = {key: Slot(_playable(setup, SLOTS[key]), DOWN[key]) for key in SLOTS}
        self._slot_of: dict[int, Slot] = {}

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """The steps of the slot that the batch belongs to."""
        slot = self.slot(decoding(batch_size, decodes))
        self.exploring = slot.probing
        return slot.steps

    def observe(self, record: StepRecord) -> None:
        """Count a verified batch in its slot."""
        if record.batch_size == 0 or record.decodes == 0:
            return
        requests = len(record.drafted) - record.drafted.count(0)
        mean = sum(record.accepted) / requests if requests else None
        self.slot(decoding(record.batch_size, record.decodes)).update(mean)

    def slot(self, batch: int) -> Slot:
        """The slot of ``batch`` decoding requests."""
        slot = self._slot_of.get(batch)
        if slot is None:
            key = max((key for key in SLOTS if key <= padded(batch)), default=1)
            slot = self._slot_of[batch] = self.slots[key]
        return slot


class Slot:
    """Steps, average and counter of one range of batch sizes.

    ``candidates`` rise; ``down`` is the hysteresis of a step down; ``probing`` is true from a forced probe to the next
    decision.
    """

    def __init__(self, candidates: Sequence[int], down: float) -> None:
        self.candidates = candidates
        self._down = down
        self._at = max((i for i, k in enumerate(candidates) if k <= START), default=0)
        self.average = self.steps - 1.0
        self._batches = 0
        self.probing = False

    @property
    def steps(self) -> int:
        """Drafts per request."""
        return self.candidates[self._at]

    def update(self, mean: float | None) -> None:
        """Take one batch's mean of accepted drafts per request, ``None`` where nothing was drafted."""
        if mean is not None and self.steps > 0:
            self.average += RATE * (mean - self.average)
        self._batches += 1
        if self._batches > WARM_UP and (self._batches - WARM_UP) % INTERVAL == 0:
            self._decide()

    def _decide(self) -> None:
        top, start = len(self.candidates) - 1, self._at
        self.probing = False
        if self.steps == 0:
            self.probing = top > 0
            self._at = min(1, top)
            return
        while self._at > 0 and self.average <= self._threshold(self.candidates[self._at - 1]):
            self._at -= 1
        while self._at >= start and self._at < top and self.average > self.steps - 0.5 + UP:
            self._at += 1

    def _threshold(self, lower: int) -> float:
        return (lower - 0.5 if lower > 0 else 0.5) + self._down


def padded(batch: int) -> int:
    """The size of the graph that runs ``batch`` requests.

    Examples
    --------
    >>> [padded(batch) for batch in (7, 9, 31, 33, 57)]
    [7, 10, 32, 40, 64]
    """
    step = 1 if batch <= 8 else 2 if batch <= 32 else 8
    return -(-batch // step) * step


def _playable(setup: Setup, candidates: Sequence[int]) -> list[int]:
    return sorted({arm_at_most(setup.arms, k) for k in candidates if k <= setup.k_max}) or [setup.arms[0]]
