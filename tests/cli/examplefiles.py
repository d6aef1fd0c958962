"""The files that examples of commands name, small and made up, in one folder."""

from __future__ import annotations

import json
import random
from pathlib import Path

from adaptk import Controller, GoodputTable, StepRecord
from adaptk.trace import TraceWriter

ARMS = (0, 1, 3)
ACCEPTANCE = (0.7, 0.6, 0.5)
SCHEDULE = [[1, 8, 3], [9, 32, 1], [33, 512, 0]]
KEY = {"model": "tiny", "method": "ngram", "device": "none"}
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 64,
    "max_position_embeddings": 2048,
    "torch_dtype": "float32",
}


def make(folder: Path) -> Path:
    """Write ``table.json``, ``other.json``, ``schedule.json``, ``trace.jsonl``, ``state.json``, ``config.json`` and
    ``requests.csv`` into ``folder``; the trace is of an engine that is slower at K=3 than the table says."""
    folder.mkdir(parents=True, exist_ok=True)
    table = GoodputTable.from_rows(_rows(1.0), acceptance=list(ACCEPTANCE), meta={"name": "example", "key": KEY})
    table.save(folder / "table.json")
    GoodputTable.from_rows(_rows(3.0), acceptance=list(ACCEPTANCE), meta={"key": KEY}).save(folder / "other.json")
    (folder / "schedule.json").write_text(json.dumps(SCHEDULE))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    lines = [f"2023-11-16 18:17:{i / 10:09.6f},{100 + i},{10 + i % 7}" for i in range(60)]
    (folder / "requests.csv").write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]) + "\n")
    controller = _served(folder / "trace.jsonl", table)
    (folder / "state.json").write_text(json.dumps(controller.snapshot()))
    return folder


def step_ms(batch: int, k: int, dear: float) -> float:
    """Step time of the made-up engine; ``dear`` multiplies what a draft costs at each request."""
    return 5.0 + 0.3 * k + 0.02 * dear * batch * k


def _rows(dear: float) -> list[dict[str, float]]:
    return [
        {"batch": batch, "k": k, "itl_ms": step_ms(batch, k, dear), "context": 256, "n": 50}
        for batch in (1, 8, 32, 64)
        for k in ARMS
    ]


def _served(path: Path, table: GoodputTable) -> Controller:
    """A thousand steps under two loads, written to ``path``."""
    controller = Controller(table, arms=ARMS, seed=0)
    draw = random.Random(0)
    header = {"source": "example", "mode": "on", "arms": list(ARMS), "key": KEY, "k_max": max(ARMS)}
    writer = TraceWriter(path, header, max_pending=1 << 16)
    before, clock = 0, 0.0
    for i in range(1000):
        batch = 4 if i % 400 < 200 else 48
        context = 256 * batch
        k = controller.choose(batch, context)
        accepted = [_accepted(draw, before) for _ in range(batch)]
        elapsed = step_ms(batch, before, 2.0) * draw.lognormvariate(0.0, 0.02)
        clock += elapsed
        record = StepRecord(
            batch_size=batch,
            elapsed_ms=elapsed,
            k=k,
            drafted=[before] * batch,
            accepted=accepted,
            emitted=[n + 1 for n in accepted],
            context_tokens=context,
            t_ms=clock,
        )
        writer.write(record, controller.observe(record))
        before = k
    writer.close(60.0)
    return controller


def _accepted(draw: random.Random, drafted: int) -> int:
    for position in range(drafted):
        if draw.random() >= ACCEPTANCE[position]:
            return position
    return drafted
