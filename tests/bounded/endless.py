"""A load for a controller that brings about everything again and again, drawn in blocks to be quick."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from adaptk import Controller, StepRecord

BLOCK = 1000  # steps drawn at once, of one acceptance and one way for batches to move
SIZES = 10_000  # distinct batch sizes
WIDEST = 4.4  # ln(batch) where the batch wanders
FEW = 4  # requests that are written down of a batch, at most
ODD_MS = (None, math.nan, math.inf, -1.0, 0.0, 1e9)
# Steps between two of each, prime so that they meet in every order.
WEIGHTS, RESTART, SNAPSHOT, BELIEF, TABLE = 7919, 14983, 49999, 1009, 29989


class Endless:
    """Drives a controller without end.

    In four blocks of five the batch wanders between 1 and 80; in the fifth it walks through the sizes to 10,000.
    Contexts are new in every step, the acceptance in every block; the level of the times drifts. Some steps have prompt
    tokens, wait for a grammar, have no time or an absurd one, return no drafts or never come back. Now and then weights
    are replaced, the engine starts anew, or another controller goes on from a snapshot.
    """

    def __init__(self, controller: Controller, seed: int = 0) -> None:
        self.controller = controller
        self.steps = 0
        self.sizes: set[int] = set()
        self._rng = np.random.default_rng(seed)
        self._log_batch = 3.0
        self._size = 0
        self._previous = 0

    def run(self, blocks: int) -> None:
        """``blocks`` times ``BLOCK`` steps."""
        for _ in range(blocks):
            self._block()

    def _batches(self) -> list[int]:
        if self.steps // BLOCK % 5 == 4:
            sizes = [1 + (self._size + i) % SIZES for i in range(BLOCK)]
            self._size += BLOCK
            self.sizes.update(sizes)
            return sizes
        walk = self._log_batch + 0.2 * np.cumsum(self._rng.standard_normal(BLOCK))
        folded = WIDEST - np.abs(np.mod(walk, 2 * WIDEST) - WIDEST)
        self._log_batch = float(folded[-1])
        return np.rint(np.exp(folded)).astype(int).tolist()

    def _block(self) -> None:
        rng = self._rng
        batches = self._batches()
        lengths = np.exp(rng.uniform(0.0, 12.0, BLOCK)).tolist()
        most = (rng.geometric(1.0 - rng.uniform(0.05, 0.95), (BLOCK, FEW)) - 1).tolist()
        noise = np.exp(0.05 * rng.standard_normal(BLOCK)).tolist()
        chances = rng.random((BLOCK, 3)).tolist()
        prompts = rng.integers(500, size=BLOCK).tolist()
        waits = self.steps // BLOCK % 3 == 1
        for batch, length, hits, spread, (odd, slow, prompt), tokens in zip(
            batches, lengths, most, noise, chances, prompts, strict=True
        ):
            context = int(batch * length)
            k = self.controller.choose(batch, context, decodes=max(batch - 1, 1) if prompt < 0.3 else None)
            previous, self._previous = self._previous, k
            self.steps += 1
            self._now_and_then()
            if odd < 0.003:
                continue  # its output never came
            drafted = [0 if slow > 0.98 else previous] * min(batch, FEW)
            accepted = [min(hit, draft) for hit, draft in zip(hits, drafted, strict=False)]
            usual = 5.0 + 0.02 * batch * (1 + previous) * (1.0 + 0.5 * math.sin(self.steps / 900))
            elapsed: Any = usual * spread * (3.0 if slow < 0.05 else 1.0)
            if odd < 0.01:
                elapsed = ODD_MS[self.steps % len(ODD_MS)]
            self.controller.observe(
                StepRecord(
                    batch_size=batch,
                    elapsed_ms=elapsed,
                    k=k,
                    drafted=drafted,
                    accepted=accepted,
                    context_tokens=context,
                    prefill_tokens=tokens if prompt < 0.3 else 0,
                    decodes=max(batch - 1, 1) if prompt < 0.3 else None,
                    emitted=[hit + 1 for hit in accepted],
                    waited=waits and self.steps % 5 == 0,
                )
            )

    def _now_and_then(self) -> None:
        controller, steps = self.controller, self.steps
        if steps % BELIEF == 0:
            controller.believe(controller.peek())
            controller.belief(1 + steps % SIZES)
            controller.positions()
        if steps % TABLE == 0:
            controller.corrected_table()
        if steps % WEIGHTS == 0:
            controller.note_weights_changed()
        if steps % RESTART == 0:
            controller.note_engine_restarted()
            controller.limit_to_graphs((lambda batch, k: batch * (k + 1) <= 512) if steps // RESTART % 2 else None)
        if steps % SNAPSHOT == 0:
            snapshot = json.loads(json.dumps(controller.snapshot()))
            as_prior = steps // SNAPSHOT % 3 == 0
            self.controller = Controller.restore(snapshot, controller.table, controller.settings, as_prior=as_prior)
