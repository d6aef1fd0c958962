"""What prompt tokens add to a step, so that steps mixed with prefill can be used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adaptk.prior import StepTimePrior

MEMORY = 0.98  # of one pair of steps
CLEAN_STEPS = 100.0  # memory
FIRST_CLEAN = 5.0  # clean steps that are taken as seen at the start
RARE = 0.1  # below this share of clean steps the mixed ones are used as well
PRIOR_TOKENS = 512.0  # difference in prompt tokens whose evidence the prior is worth
CLIP = 2.0  # a pair may differ from the believed cost by at most this multiple of it, either way: stalls cancel out
LEAST_REST = 0.1  # of a step that is left to its decoding requests, whatever is taken off
ALIKE_WEIGHT = 0.1  # of a step's comparison with what is believed, relative to that of a pair
LEAST = 1e-3  # milliseconds per prompt token: a belief below this may still move by CLIP times as much


class PrefillCost:
    """Milliseconds per prompt token, learnt from neighbouring steps that differ in prompt tokens alone.

    While steps without prefill are frequent they alone are used for the arms, and the mixed ones teach only this cost;
    where they are rare, the prompt tokens' share is taken off the mixed ones. The starting value is the cost of one
    more decode token in the largest batch of the table, which is compute-bound like prefill.
    """

    def __init__(self, prior: StepTimePrior) -> None:
        self._known = prior.timed
        start = _marginal_cost(prior) if prior.timed else 0.0
        self._tokens_squared = PRIOR_TOKENS**2
        self._product = start * PRIOR_TOKENS**2
        self._clean, self._steps = 1.0, FIRST_CLEAN
        self._last: tuple[int, int, int, float] | None = None

    @property
    def ms_per_token(self) -> float:
        """Believed cost, milliseconds per prompt token."""
        return max(0.0, self._product / self._tokens_squared)

    def usable_ms(self, arm: int, decodes: int, prefill_tokens: int, elapsed_ms: float) -> float | None:
        """The part of a step's time that the arm is answerable for, milliseconds; ``None``: leave this step out."""
        last, self._last = self._last, (arm, decodes, prefill_tokens, elapsed_ms)
        if last is not None and prefill_tokens != last[2]:
            self._learn(last, arm, decodes, prefill_tokens, elapsed_ms)
        if self._steps < CLEAN_STEPS:
            self._steps = min(self._steps + 1.0, CLEAN_STEPS)
        self._clean += ((prefill_tokens == 0) - self._clean) / self._steps
        if prefill_tokens == 0:
            return elapsed_ms
        if self._clean >= RARE:
            return None
        rest = elapsed_ms - self.ms_per_token * prefill_tokens
        return rest if rest > LEAST_REST * elapsed_ms else None

    def alike(self, prefill_tokens: int) -> bool:
        """Whether a step carries as many prompt tokens as the one before, so that no pair says what they cost."""
        return self._last is not None and prefill_tokens == self._last[2] > 0

    def compare(self, prefill_tokens: int, elapsed_ms: float, believed_ms: float) -> None:
        """Learn, a little, from what a step took beyond the believed time of its decoding requests alone."""
        cost = self._clipped(max(0.0, (elapsed_ms - believed_ms) / prefill_tokens))
        self._known = True
        self._book(cost, prefill_tokens, ALIKE_WEIGHT)

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-safe."""
        last = None if self._last is None else list(self._last)
        return {
            "product": self._product,
            "tokens_squared": self._tokens_squared,
            "clean": self._clean,
            "steps": self._steps,
            "last": last,
            "known": self._known,
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over the state of a ``snapshot``."""
        self._product, self._tokens_squared = data["product"], data["tokens_squared"]
        self._clean, self._steps, self._known = data["clean"], data["steps"], data["known"]
        last = data["last"]
        self._last = None if last is None else (int(last[0]), int(last[1]), int(last[2]), float(last[3]))

    def _learn(self, last: tuple[int, int, int, float], arm: int, decodes: int, tokens: int, elapsed_ms: float) -> None:
        """Learn from two steps in a row, if they differ in prompt tokens alone."""
        if last[0] != arm or abs(last[1] - decodes) > 0.1 * decodes:
            return
        more = tokens - last[2]
        if abs(more) < 16:
            return
        cost = (elapsed_ms - last[3]) / more
        if self._known:
            cost = self._clipped(cost)
        elif cost <= 0.0:
            return
        else:
            self._known, self._product, self._tokens_squared = True, 0.0, 0.0
        self._book(cost, more, 1.0)

    def _clipped(self, cost: float) -> float:
        """The cost, as far as it differs from the believed one by no more than ``CLIP`` allows."""
        believed = self.ms_per_token
        most = CLIP * max(believed, LEAST)
        return min(max(cost, believed - most), believed + most)

    def _book(self, cost: float, tokens: int, weight: float) -> None:
        """Least squares through the origin, fading: ``weight`` is relative to one pair of steps."""
        keep = 1.0 - weight * (1.0 - MEMORY)
        squared = weight * tokens * tokens
        self._product = keep * self._product + squared * cost
        self._tokens_squared = keep * self._tokens_squared + squared


def _marginal_cost(prior: StepTimePrior) -> float:
    table = prior.table
    assert table is not None
    batch = max(table.batches)
    least, most = table.ks[0], table.ks[-1]
    if most == least:
        return 0.0
    low, high = table.itl_ms(batch, least), table.itl_ms(batch, most)
    assert low is not None
    assert high is not None
    return max(0.0, (high - low) / (batch * (most - least)))
