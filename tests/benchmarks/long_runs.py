"""A table held against long runs: every K fixed while prompts are answered at every batch size, on the real engine.

    python -m tests.benchmarks.long_runs TABLE --prompts FILE --batches 1,8,32 --json OUT MODEL [vllm serve arguments]

Prints for each batch size the best K of the long runs, the table's, and what the table's costs. Goodput of a long run
is its acceptance length, over all steps that hold no prompt tokens, over the mean time of the steps in which as many
requests decode as were to be; steps beyond five times their median are left out. Some minutes per batch size.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

from adaptk.cli import options
from adaptk.profile.orders import AnswerOrder, EngineOrder
from adaptk.profile.prompts import read_prompts
from adaptk.step import StepRecord
from adaptk.table import GoodputTable
from adaptk.vllm_plugin.profile_process import EngineProcess

MOST_S = 600.0  # of one run
STALL = 5.0  # times the median


class Run:
    """One K at one batch size."""

    def __init__(self, records: Sequence[StepRecord], batch: int, k: int) -> None:
        pure = [
            (before, step)
            for before, step in pairwise(records)
            if before.k == step.k == k and not step.prefill_tokens and step.elapsed_ms is not None
        ]
        tokens = [count for _, step in pure for count in step.emitted or () if count]
        full = [step for before, step in pure if step.batch_size == batch and not before.prefill_tokens]
        middle = median(step.elapsed_ms or 0.0 for step in full)
        kept = [step for step in full if (step.elapsed_ms or 0.0) < STALL * middle]
        self.length = fmean(tokens)
        self.itl_ms = fmean(step.elapsed_ms or 0.0 for step in kept)
        self.context = fmean((step.context_tokens or 0) / batch for step in kept)
        self.goodput = 1e3 * self.length / self.itl_ms


def main(argv: Sequence[str] | None = None) -> None:
    """Run, print and, if asked, write JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("table", type=Path)
    parser.add_argument("--prompts", type=Path)
    parser.add_argument("--batches", type=options.counts, default=(1, 2, 4, 8, 16, 32))
    parser.add_argument("--max-tokens", type=options.count, default=128)
    parser.add_argument("--json", type=Path)
    given, engine_arguments = parser.parse_known_args(argv)
    table = GoodputTable.load(given.table)
    prompts = read_prompts(given.prompts)
    engine = EngineProcess(EngineOrder(tuple(engine_arguments), None, prompts))
    rows = []
    try:
        for batch in given.batches:
            runs: dict[int, Run] = {}
            for k in engine.info.arms:
                order = AnswerOrder(0, max(len(prompts), batch), k, batch, given.max_tokens, MOST_S)
                runs[k] = Run(engine.answer(order).records, batch, k)
            rows.append(compared(table, batch, runs))
            print(rows[-1]["said"], flush=True)
    finally:
        engine.close()
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1))


def compared(table: GoodputTable, batch: int, runs: dict[int, Run]) -> dict[str, object]:
    """The long runs' best K and the table's at one batch size, and what the table's costs."""
    context = fmean(run.context for run in runs.values())
    best = max(runs, key=lambda k: runs[k].goodput)
    chosen = table.best_k(batch, context, runs)
    loss = 1.0 - runs[chosen].goodput / runs[best].goodput
    figures = {k: (round(run.goodput, 1), round(table.goodput(batch, k, context) or 0.0, 1)) for k, run in runs.items()}
    parts = ", ".join(f"K={k} {long} ({tabled})" for k, (long, tabled) in figures.items())
    said = f"batch {batch}: best K={best}, table's K={chosen} costs {100 * loss:.1f} %; tokens/s long (table): {parts}"
    return {"batch": batch, "best": best, "table": chosen, "loss": loss, "goodput": figures, "said": said}


if __name__ == "__main__":
    main()
