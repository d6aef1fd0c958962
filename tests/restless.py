"""An engine that never settles: batch, context, acceptance, speed and prompts change all the time."""

from __future__ import annotations

import math

import numpy as np

from adaptk import Controller, StepRecord

WIDEST = 4.4  # ln(batch): small enough that nearly every batch size comes about within a few thousand steps


class Restless:
    """Drives a controller; the batch size wanders, every context is new, acceptance changes every 500 steps."""

    def __init__(self, controller: Controller, seed: int = 0, waits: bool = False) -> None:
        self.controller = controller
        self.waits = waits  # whether sampling waits for a grammar in some steps
        self.previous = 0
        self.step = 0
        self._rng = np.random.default_rng(seed)
        self._log_batch, self._acceptance = 3.0, 0.7

    def run(self, steps: int) -> None:
        rng, controller = self._rng, self.controller
        for _ in range(steps):
            self._log_batch = min(WIDEST, max(0.0, self._log_batch + 0.2 * rng.standard_normal()))
            if self.step % 500 == 0:
                self._acceptance = rng.uniform(0.05, 0.95)
                self._log_batch = rng.uniform(0.0, WIDEST)
            batch = round(math.exp(self._log_batch))
            context = int(batch * math.exp(rng.uniform(0.0, 12.0)))
            k = controller.choose(batch, context)
            few = min(batch, 4)
            hits = rng.random((few, self.previous)) < self._acceptance
            accepted = np.cumprod(hits, axis=1).sum(axis=1).astype(int).tolist()
            drafted = [self.previous - int(rng.random() < 0.02) * self.previous] * few
            usual = 5.0 + 0.02 * batch * (1 + self.previous) * (1.0 + 0.5 * math.sin(self.step / 900))
            slow = 3.0 if rng.random() < 0.05 else 1.0
            record = StepRecord(
                batch_size=batch,
                elapsed_ms=usual * slow * math.exp(0.05 * rng.standard_normal()),
                k=k,
                drafted=drafted,
                accepted=[min(a, d) for a, d in zip(accepted, drafted, strict=True)],
                context_tokens=context,
                prefill_tokens=int(rng.integers(500)) if rng.random() < 0.3 else 0,
                emitted=[a + 1 for a in accepted],
                waited=self.waits and (self.step % 400 > 330 or (self.step > 400 and self.step % 5 == 0)),
            )
            controller.observe(record)
            self.previous, self.step = k, self.step + 1
