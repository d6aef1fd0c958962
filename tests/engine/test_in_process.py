"""Engines inside of one process, as trainers use them, from the untouched vLLM on: nobody but vLLM calls adaptk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.engine import versions
from tests.engine.engine import NGRAM

SCRIPT = """
import gc, json, sys
from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory

def answer(more):
    llm = LLM(model=sys.argv[1], dtype="float32", max_model_len=128, max_num_seqs=4, enforce_eager=True, **more)
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    steering = scheduler.__dict__.get("adaptk")
    ids = llm.generate(["a b a b"], SamplingParams(max_tokens=30, temperature=0, ignore_eos=True), use_tqdm=False)
    print("ENGINE", json.dumps({
        "scheduler": type(scheduler).__name__,
        "core": "adaptk.controller" in sys.modules,
        "arms": steering and steering.controller.arms,
        "faults": steering and steering.faults,
        "tokens": len(ids[0].outputs[0].token_ids),
    }))
    scheduler.shutdown()
    llm.llm_engine.engine_core.shutdown()

answer({})
gc.collect()
cleanup_dist_env_and_memory()
from adaptk.vllm_plugin import register
register(always=True)
asking = {"adaptk": {"arms": [0, 5], "strict": True}}
answer({"speculative_config": json.loads(sys.argv[2]), "additional_config": asking})
"""


def test_only_the_engine_that_asks_is_adaptive(model: Path) -> None:
    """The first one has vLLM's own scheduler and nothing of adaptk; a second one that asks is steered.

    vLLM calls its plugins once a process, so that the program says beforehand that one will ask.
    """
    versions.need_engine()
    first, second = engines(model)
    assert first == {"scheduler": "Scheduler", "core": False, "arms": None, "faults": None, "tokens": 30}
    assert second == {"scheduler": "AdaptiveScheduler", "core": True, "arms": [0, 5], "faults": 0, "tokens": 30}


def engines(model: Path) -> list[dict[str, object]]:
    """What the engines of one process were, in their order."""
    env = {name: text for name, text in os.environ.items() if not name.startswith("ADAPTK")}
    env |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", SCRIPT, str(model), json.dumps(NGRAM)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("ENGINE ")]
    return [json.loads(line.removeprefix("ENGINE ")) for line in lines]
