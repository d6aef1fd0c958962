"""An engine in a process of its own, with adaptk or without, that answers turns of requests and says how long it took.

All K are the same step here: the n-gram drafter looks for the last 64 tokens, of which some are always of the random
prompt, so that it never finds them.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import time
import types
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from adaptk.demo.engine import ENVIRONMENT
from tests.benchmarks.stopwatch import Stopwatch

TOKENS, PROMPT, NGRAM = 60, 32, 64  # generated and of the prompt, per request; looked for
HOOKS = ("schedule", "_update_after_schedule", "get_grammar_bitmask", "update_from_output")
# K=0 spares the search for a match: without it adaptk could win by what others pay for.
SETTINGS = {"ADAPTK": "on", "ADAPTK_STRICT": "1", "ADAPTK_MIN_K": "1"}


class Job(NamedTuple):
    """One turn: ``requests`` of them, ``batch`` at once, with prompts drawn from ``seed``.

    ``how`` is ``"as started"``, ``"bypassed"`` (vLLM's own methods in place of adaptk's) or ``"watched"`` (adaptk's
    own time is measured, which itself costs time).
    """

    seed: int
    requests: int
    batch: int
    how: str = "as started"


class Turn(NamedTuple):
    """Seconds from the first request to the last token and steps they took; of the seconds, those in adaptk's own code.

    ``cpu`` is the process's time on any core: other work on the machine takes none of it, waiting is not in it.
    """

    seconds: float
    steps: int
    own: float
    cpu: float


class PresenceEngine:
    """The other end of the process.

    Parameters
    ----------
    model
        A folder.
    dtype
        Of the weights.
    adaptk
        Whether it is switched on, by its environment variable.
    log
        A file for what vLLM prints.
    more
        Variables of adaptk beside those that switch it on.
    """

    def __init__(self, model: Path, dtype: str, adaptk: bool, log: Path, **more: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._log = log
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, model, dtype, adaptk, log, more))
        self._process.start()
        theirs.close()

    def run(self, job: Job) -> Turn:
        """Run one turn.

        Raises
        ------
        RuntimeError
            If the engine failed; it says why.
        """
        self._connection.send(job)
        try:
            answer = self._connection.recv()
        except EOFError:
            raise RuntimeError(f"the engine died; it printed:\n{self._log.read_text(errors='replace')}") from None
        if isinstance(answer, str):
            raise RuntimeError(answer)
        assert isinstance(answer, Turn)
        return answer

    def close(self) -> None:
        """Stop the process."""
        self._connection.close()
        self._process.join(20)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(5)


def _serve(connection: Connection, model: Path, dtype: str, adaptk: bool, log: Path, more: dict[str, str]) -> None:
    os.setsid()  # an interrupt at the terminal is the parent's affair
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    for name in [name for name in os.environ if name == "ADAPTK" or name.startswith("ADAPTK_")]:
        del os.environ[name]
    os.environ.update(ENVIRONMENT | (SETTINGS | more if adaptk else {}))
    engine = _Engine(model, dtype, adaptk)
    try:
        while True:
            job = connection.recv()
            try:
                connection.send(engine.turn(job))
            except RuntimeError as error:
                connection.send(f"{type(error).__name__}: {error}")
    except (EOFError, BrokenPipeError, ConnectionResetError):
        engine.core.shutdown()


class _Engine:
    def __init__(self, model: Path, dtype: str, adaptk: bool) -> None:
        from vllm import LLM

        llm: Any = LLM(
            str(model),
            dtype=dtype,
            max_model_len=256,
            max_num_seqs=64,
            enforce_eager=True,
            enable_prefix_caching=False,
            disable_log_stats=True,
            gpu_memory_utilization=0.3,
            seed=0,
            speculative_config={
                "method": "ngram",
                "prompt_lookup_max": NGRAM,
                "prompt_lookup_min": NGRAM,
                "num_speculative_tokens": 7,
            },
        )
        self.engine = llm.llm_engine
        self.core = self.engine.engine_core
        self.scheduler = self.core.engine_core.scheduler
        self.steering = getattr(self.scheduler, "adaptk", None)
        self.watch: Stopwatch | None = None
        self.words = int(self.engine.model_config.get_vocab_size())
        if adaptk is not bool(self.steering is not None and self.steering.active):
            raise RuntimeError(f"adaptk should be {'on' if adaptk else 'off'} and is not")

    def turn(self, job: Job) -> Turn:
        """Answer the requests of one turn."""
        self._set(job.how)
        rng = random.Random(job.seed)
        prompts = [[rng.randrange(3, self.words) for _ in range(PROMPT)] for _ in range(job.requests)]
        running = steps = 0
        begun, worked = time.perf_counter(), time.process_time()
        while prompts or running:
            while prompts and running < job.batch:
                self._add(prompts.pop(), f"{job.how}-{job.seed}-{len(prompts)}")
                running += 1
            running -= sum(output.finished for output in self.engine.step())
            steps += 1
        seconds, cpu = time.perf_counter() - begun, time.process_time() - worked
        if self.steering is not None and not self.steering.active:
            raise RuntimeError(f"adaptk stood down: {self.steering.reason}")
        own = self.watch.take() / 1e9 if self.watch is not None else 0.0
        return Turn(seconds, steps, own, cpu)

    def _add(self, prompt: list[int], name: str) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sampling = SamplingParams(
            temperature=0.0,
            max_tokens=TOKENS,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        self.engine.add_request(name, {"prompt_token_ids": prompt}, sampling)

    def _set(self, how: str) -> None:
        """Between turns nothing is in flight, so that methods can be exchanged."""
        if how == "watched" and self.watch is None:
            self.watch = Stopwatch(self.steering, "decide", "before_update", "after_update")
        own = vars(self.scheduler)
        for name in HOOKS:
            own.pop(name, None)
            if how == "bypassed":
                own[name] = types.MethodType(getattr(_vllms(type(self.scheduler)), name), self.scheduler)


def _vllms(adaptive: type) -> type:
    """The scheduler class that an adaptive one was made of."""
    return next(cls for cls in adaptive.__mro__ if cls.__module__.startswith("vllm."))
