"""Tables from what ``vllm bench sweep serve`` wrote: one benchmark per concurrency and number of drafts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median, stdev
from typing import Any

from adaptk.table import GoodputTable
from adaptk.tabletools.imported import Imported, unknown_acceptance
from adaptk.tabletools.sweepdrafts import pooled
from adaptk.tabletools.sweepfiles import Benchmark, read_benchmarks

# Quantiles of Student's t for a 95 % interval, by degrees of freedom from 1.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_STEP_TIME = (
    "step time is median_itl_ms, the time between two chunks of a stream, which is one step's; TPOT is not, as a step "
    "gives several tokens. Where the server joins the tokens of two steps into one chunk it is too long"
)


def read_sweep(source: Path, acceptance: Sequence[float] | None = None) -> Imported:
    """A table with step times from a folder of results, one result file, or ``summary.csv``.

    The batch size is ``max_concurrency``, K stands in the sweep's overrides (``num_speculative_tokens``, alone or in
    ``speculative_config``). Runs of the same cell give the median of their medians and, from three on, an interval.
    Acceptance is pooled over all runs from the counters of speculative decoding, where ``acceptance`` is not given.

    Raises
    ------
    TableError
        If nothing there is a benchmark with a concurrency, a K and a time between tokens.
    """
    found = read_benchmarks(source)
    levels = sorted({each.input_len for each in found.usable if each.input_len is not None})
    cells: dict[tuple[int, int, float | None], list[Benchmark]] = {}
    for each in found.usable:
        context = _context(found.usable, each.input_len) if len(levels) > 1 else None
        cells.setdefault((each.batch, each.k, context), []).append(each)
    rows = [_row(batch, k, context, runs) for (batch, k, context), runs in cells.items()]
    drafts = pooled(found.usable)
    notes = [*found.notes, _STEP_TIME, *drafts.notes]
    counts = None
    if acceptance is None and drafts.counts:
        counts, acceptance = drafts.counts, [accepted / tried for accepted, tried in drafts.counts]
    if len(levels) > 1:
        notes.append(
            f"{len(levels)} input lengths: each is a level of context, at its mean of prompt and half the output"
        )
    meta = {
        "name": source.resolve().stem,
        "key": found.key,
        "provenance": {"imported_from": source.resolve().name, "kind": "vllm bench sweep", "runs": len(found.usable)},
    }
    table = GoodputTable.from_rows(rows, acceptance, meta, acceptance_counts=counts)
    return Imported(table, [*notes, *unknown_acceptance(acceptance)])


def _row(batch: int, k: int, context: float | None, runs: Sequence[Benchmark]) -> dict[str, Any]:
    times = [run.itl_ms for run in runs]
    row: dict[str, Any] = {"batch": batch, "k": k, "context": context, "itl_ms": median(times)}
    turns = [run.turns for run in runs if run.turns is not None]
    if len(turns) == len(runs):
        row["n"] = max(1, sum(turns) // batch)
    if len(times) == 1:
        row["spread_ms"] = runs[0].spread_ms
    if len(times) >= 3:
        half = _T95[min(len(times) - 1, len(_T95)) - 1] * stdev(times) / math.sqrt(len(times))
        row |= {"low_ms": max(row["itl_ms"] - half, 0.0), "high_ms": row["itl_ms"] + half}
    return row


def _context(runs: Sequence[Benchmark], input_len: float | None) -> float | None:
    """The mean context of the runs with an input length, one level for all of them."""
    known = [run.context for run in runs if run.input_len == input_len and run.context is not None]
    return None if not known else float(round(sum(known) / len(known)))
