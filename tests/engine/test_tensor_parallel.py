"""Two tensor parallel workers in processes of their own, the scheduler in another: as a server runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from adaptk import GoodputTable
from adaptk.trace import read_trace
from tests.engine import versions

ROOT = Path(__file__).parents[2]
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
PROMPTS = ["one two three one two three", "a b a b a b a b", "the quick brown fox", "zzzzzzzzzzzz", "0123456789" * 3]
TOKENS = 180

# With adaptk first: the second engine then starts in a process that was patched for the first.
SCRIPT = """
import json, os, sys

def said(llm, prompts, tokens):
    from vllm import SamplingParams
    params = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)
    return [list(o.outputs[0].token_ids) for o in llm.generate(prompts, params, use_tqdm=False)]

def main(model, prompts, tokens):
    from vllm import LLM
    answers = {}
    for mode in ("on", "off"):
        os.environ["ADAPTK"] = mode
        llm = LLM(
            model=model, dtype="float32", max_model_len=256, max_num_seqs=16, max_num_batched_tokens=64,
            enforce_eager=True, seed=0, tensor_parallel_size=2, disable_log_stats=True,
            speculative_config={
                "method": "ngram", "prompt_lookup_max": 3, "prompt_lookup_min": 1, "num_speculative_tokens": 7
            },
        )
        answers[mode] = said(llm, prompts, tokens)
        llm.llm_engine.engine_core.shutdown()
        del llm
    print("ANSWERS", json.dumps(answers), flush=True)

if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))
"""


class Done:
    """What came of one run of the script."""

    def __init__(self, model: Path, folder: Path) -> None:
        # A table that takes drafts for free, so that it begins with many.
        rows = [{"batch": batch, "k": k, "itl_ms": 10.0, "n": 50} for batch in (1, 16) for k in (0, 1, 3, 7)]
        GoodputTable.from_rows(rows, acceptance=[0.8] * 7).save(folder / "table.json")
        script = folder / "serve.py"
        script.write_text(SCRIPT)
        env = {name: value for name, value in os.environ.items() if not name.startswith("ADAPTK")}
        env |= {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
            "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
            "VLLM_CPU_OMP_THREADS_BIND": "|".join(str(core) for core in sorted(os.sched_getaffinity(0))[:2]),
            "VLLM_LOGGING_LEVEL": "INFO",
            "PYTHONPATH": str(ROOT),
            "ADAPTK_TRACE": str(folder / "trace.jsonl"),
            "ADAPTK_TABLE": str(folder / "table.json"),
        }
        command = [sys.executable, str(script), str(model), json.dumps(PROMPTS), str(TOKENS)]
        done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
        self.log = done.stdout + done.stderr
        found = [line for line in done.stdout.splitlines() if line.startswith("ANSWERS ")]
        assert done.returncode == 0, self.log[-3000:]
        assert found, self.log[-3000:]
        self.answers: dict[str, list[list[int]]] = json.loads(found[-1].removeprefix("ANSWERS "))
        self.trace = read_trace(folder / "trace.jsonl")


@pytest.fixture(scope="module")
def done(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Done:
    """One run for all tests here."""
    versions.need_engine()
    if CORES < 2:
        pytest.skip("two tensor parallel workers on CPU need two cores, one each")
    return Done(model, tmp_path_factory.mktemp("tensor-parallel"))


def test_every_token_is_the_same(done: Done) -> None:
    """With adaptk on and off."""
    assert [len(ids) for ids in done.answers["on"]] == [TOKENS] * len(PROMPTS)
    assert done.answers["on"] == done.answers["off"]


def test_the_engines_process_is_steered(done: Done) -> None:
    """Adaptk says once that it is on, and nowhere that it stood down; the table's key knows of both workers."""
    started = [line for line in done.log.splitlines() if ": mode on, arms" in line]
    assert len(started) == 1, started
    assert "EngineCore" in started[0]
    assert "stands down" not in done.log
    assert done.trace.header["key"]["tensor_parallel"] == 2
    assert done.trace.header["arms"] == [0, 1, 3, 7]


def test_the_trace_holds_every_step(done: Done) -> None:
    """Each token that was handed out stands in a row, the n-th with the n-th decision; drafts were made and taken."""
    steps = [row.step for row in done.trace.rows]
    assert sum(sum(step.emitted or ()) for step in steps) == TOKENS * len(PROMPTS)
    assert [row.decision.seq for row in done.trace.rows if row.decision is not None] == list(range(len(steps)))
    assert all(row.decision is not None and row.decision.k == row.step.k for row in done.trace.rows)
    assert sum(sum(step.accepted) for step in steps) > 0
