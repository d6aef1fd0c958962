"""A real vLLM engine inside this process, with adaptk or without."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from adaptk.vllm_plugin import patches
from tests.engine import versions

NGRAM = {"method": "ngram", "prompt_lookup_max": 3, "prompt_lookup_min": 1, "num_speculative_tokens": 7}


@contextmanager
def running(
    model: Path, speculative: dict[str, Any], engine: dict[str, Any] | None = None, **settings: str
) -> Iterator[Any]:
    """An ``LLM`` over ``model`` with the options ``engine``, adaptive if ``settings`` says so; one at a time."""
    from vllm import LLM
    from vllm.distributed import cleanup_dist_env_and_memory

    versions.need_engine()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        # vLLM's own loader runs once a process, and it may have run for another test.
        patches.apply()
        if versions.at_least(31):
            from vllm.triton_utils import dispatcher

            patch.setattr(dispatcher, "_rebind_kernels", blind_to_llvmlite(dispatcher._rebind_kernels))
        options = {"dtype": "float32", "max_model_len": 256, "max_num_seqs": 16, "enforce_eager": True, "seed": 0}
        options |= {"speculative_config": speculative, "disable_log_stats": True, **(engine or {})}
        try:
            llm = LLM(model=str(model), **options)
        finally:
            patches.remove()
        yield llm
    scheduler_of(llm).shutdown()
    llm.llm_engine.engine_core.shutdown()
    del llm
    gc.collect()
    cleanup_dist_env_and_memory()


def blind_to_llvmlite(rebind: Callable[[Any], None]) -> Callable[[Any], None]:
    """vLLM from 0.31 on looks at every object of every loaded module as an engine starts, and trips over llvmlite's.

    Those are loaded by the first engine with an n-gram drafter, so that no second one could start in the process.
    """

    def wrapped(overrides: Any) -> None:
        hidden = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "llvmlite"}
        for name in hidden:
            del sys.modules[name]
        try:
            rebind(overrides)
        finally:
            sys.modules.update(hidden)

    return wrapped


def scheduler_of(llm: Any) -> Any:
    """The scheduler of an in-process engine."""
    return llm.llm_engine.engine_core.engine_core.scheduler


def greedy(llm: Any, prompts: list[str], max_tokens: int) -> list[list[int]]:
    """Token ids of each prompt's completion."""
    from vllm import SamplingParams

    params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    return [list(o.outputs[0].token_ids) for o in llm.generate(prompts, params, use_tqdm=False)]
