"""The brief profile before the demo: step time per (batch, K) and acceptance, on the first phase's load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from adaptk.demo.engine import Runner
from adaptk.demo.load import copy_phase
from adaptk.demo.policies import ARMS, Sweep
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
    records: list[list[StepRecord]] = []
    steps = 1 + repeats * BLOCK * len(ARMS)  # the first computes the prompts
    for batch in batches:
        progress(batch)
        sweep = Sweep(ARMS, BLOCK)
        engine.run(copy_phase(_ROUND, 1, steps * 3, streams=batch), sweep, steps)
        rows.extend(cells(sweep.records, batch))
        records.append(sweep.records)
    return GoodputTable.from_rows(rows, acceptance=acceptance(records, max(ARMS)), meta={"name": "adaptk demo"})


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


def acceptance(runs: Iterable[Sequence[StepRecord]], k_max: int) -> list[float]:
    """Probability per position that a draft was made there and accepted, given that all before it were.

    A draft that was asked for and not made counts as a failure: so the acceptance length that the table derives from
    these is the one that was measured, whatever the drafter found. Positions without a trial repeat the last one.

    Parameters
    ----------
    runs
        Records of several runs, in order within each.
    k_max
        Positions wanted.
    """
    trials, hits = [0] * k_max, [0] * k_max
    for records in runs:
        for before, step in pairwise(records):
            if step.prefill_tokens:
                continue
            for accepted in step.accepted:
                for position in range(min(before.k, accepted + 1, k_max)):
                    trials[position] += 1
                    hits[position] += position < accepted
    values: list[float] = []
    for trial, hit in zip(trials, hits, strict=True):
        values.append(hit / trial if trial else (values[-1] if values else 0.0))
    return values
