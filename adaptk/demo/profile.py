"""The brief profile before the demo: step time per (batch, K) and acceptance, on the first phase's load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from adaptk.demo.engine import Runner
from adaptk.demo.load import copy_phase
from adaptk.demo.policies import ARMS, Sweep
from adaptk.profile.estimate import AcceptanceCounts
from adaptk.step import StepRecord
from adaptk.table import GoodputTable

BATCHES = (1, 2, 4, 8, 16, 32)
QUICK_BATCHES = (1, 2, 8, 32)
BLOCK = 4  # steps at one K, of which the first still verifies the drafts of another
_ROUND = -1  # texts that no round uses


def profile(
    engine: Runner, batches: Sequence[int], repeats: int, progress: Callable[[int], None] = lambda batch: None
) -> GoodputTable:
    """Measure a table: all arms in turn within one run per batch size.

    Parameters
    ----------
    engine
        An engine whose K can be steered.
    batches
        Batch sizes, requests.
    repeats
        Blocks of :data:`BLOCK` steps per arm and batch size.
    progress
        Called with each batch size before it is measured.
    """
    rows: list[dict[str, Any]] = []
    counts = AcceptanceCounts()
    steps = 1 + repeats * BLOCK * len(ARMS)  # the first computes the prompts
    for batch in batches:
        progress(batch)
        sweep = Sweep(ARMS, BLOCK)
        engine.run(copy_phase(_ROUND, 1, steps * 3, streams=batch), sweep, steps)
        rows.extend(cells(sweep.records, batch))
        counts = counts.merge(AcceptanceCounts.from_records(sweep.records, max(ARMS)))
    return GoodputTable.from_rows(
        rows, counts.conditional(), {"name": "adaptk demo"}, acceptance_counts=counts.counts()
    )


def cells(records: Sequence[StepRecord], batch: int) -> list[dict[str, Any]]:
    """Rows for one batch size: the median time of pure decode steps that drafted and verified the same K."""
    times: dict[int, list[float]] = {}
    for before, step in pairwise(records):
        whole = step.batch_size == batch and step.prefill_tokens == 0 and before.prefill_tokens == 0
        if whole and step.k == before.k and step.elapsed_ms is not None:
            times.setdefault(step.k, []).append(step.elapsed_ms)
    return [
        {"batch": batch, "k": k, "itl_ms": median(ms), "context": None, "n": len(ms)} for k, ms in sorted(times.items())
    ]
