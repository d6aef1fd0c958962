"""A real engine whose K is steered step by step for a profile; runs in a process of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from adaptk.profile.estimate import Block
from adaptk.profile.orders import Answered, AnswerOrder, Doing, EngineInfo, EngineOrder, Stayed, StayOrder
from adaptk.step import StepRecord
from adaptk.vllm_plugin import serveargs
from adaptk.vllm_plugin.identity import table_key
from adaptk.vllm_plugin.meters import Meter, meter

_IDLE_STEPS = 64  # without a prompt token and without all requests in the batch: the rest will never fit
_PREEMPTED = 3  # times the tokens of all prompts: then they push each other out of the cache
_UNEVEN = 4  # steps of another kind for each one that is kept, at most
_SETTLING = 6  # steps that a change of K may cost


class ProfileError(RuntimeError):
    """The engine cannot be profiled; the message says why and what to do."""


class ProfiledEngine:
    """vLLM in this process with adaptk's own scheduler around it, under a script instead of a controller.

    Parameters
    ----------
    order
        Which engine.
    tell
        Called before each block.

    Raises
    ------
    ProfileError
        If vLLM refuses an argument, or adaptk cannot steer this engine.
    """

    def __init__(self, order: EngineOrder, tell: Callable[[Doing], None]) -> None:
        self._tell = tell
        self._temperature = order.temperature
        engine_args = serveargs.engine_args(order.arguments, drafter=order.drafter)
        ranks = int(getattr(engine_args, "data_parallel_size", 1) or 1)
        if ranks > 1:
            raise ProfileError(f"data_parallel_size is {ranks}: leave it out, a table is of one rank")
        with _steered(order):
            from vllm.v1.engine.llm_engine import LLMEngine

            self._engine: Any = LLMEngine.from_engine_args(engine_args)
        self._client: Any = self._engine.engine_core
        self._core: Any = self._client.engine_core
        self._scheduler: Any = self._core.scheduler
        self._meter: Meter = meter(self._scheduler, self._client)
        self._names = 0
        self._warm: set[tuple[int, int]] = set()  # (batch, K) whose first steps were played
        if not order.drafter and self._engine.vllm_config.speculative_config is not None:
            raise ProfileError("the engine without a drafter has one: name it in --speculative-config alone")
        self._tokenizer: Any = self._engine.get_tokenizer()
        self._texts = order.prompts
        self._tokens: dict[int, list[int]] = {}
        self.info = self._describe()

    def stay(self, order: StayOrder) -> Stayed:
        """Play one stay; see :class:`adaptk.profile.orders.StayOrder`."""
        begun = time.monotonic()
        self._tell(Doing(order.batch, 0, order.context))
        names = [self._add(self._filler(i, order.length), order) for i in range(order.batch)]
        blocks: list[Block] = []
        self._meter.supply = order.supply
        try:
            note = self._fill(order.batch, order.length)
            if not note:
                self._warm_up(order)
                for k in order.order:
                    self._tell(Doing(order.batch, k, order.context))
                    block, note = self._block(order, k, begun)
                    if block is not None:
                        blocks.append(block)
                    if note:
                        break
        finally:
            self._empty(names)
        return Stayed(tuple(blocks), time.monotonic() - begun, note)

    def answer(self, order: AnswerOrder) -> Answered:
        """Answer prompts; see :class:`adaptk.profile.orders.AnswerOrder`."""
        begun = time.monotonic()
        self._tell(Doing(order.concurrency, order.k, None))
        waiting = [i for i in range(order.first, order.last) if self._prompt(i)]
        names: set[str] = set()
        self._meter.k, self._meter.supply = order.k, ()
        self._meter.forget()
        while (waiting or names) and time.monotonic() - begun < order.seconds:
            while waiting and len(names) < order.concurrency:
                names.add(self._ask(self._prompt(waiting.pop(0)), order.max_tokens))
            names -= self._meter.step()
        records = tuple(self._meter.records)
        self._empty(sorted(names))
        return Answered(records, time.monotonic() - begun)

    def close(self) -> None:
        """Stop the engine and its workers."""
        self._client.shutdown()

    def _prompt(self, index: int) -> list[int]:
        """Tokens of a prompt, made when first needed; none where the tokenizer leaves nothing of it."""
        index %= len(self._texts)
        if index not in self._tokens:
            self._tokens[index] = _tokens(self._tokenizer, self._texts[index])
        return self._tokens[index]

    def _describe(self) -> EngineInfo:
        config = self._engine.vllm_config
        cache = config.cache_config
        return EngineInfo(
            key=table_key(config),
            arms=self._meter.arms,
            max_num_seqs=int(config.scheduler_config.max_num_seqs),
            max_model_len=int(config.model_config.max_model_len),
            kv_tokens=int(cache.num_gpu_blocks or 0) * int(cache.block_size),
        )

    def _filler(self, index: int, length: int) -> list[int]:
        """Tokens of one request's context: the prompts in turn, each request from another one on.

        It begins with tokens of its own, so that no block of the cache is shared, and is the same at each visit, so
        that a prefix cache spares the prompt.
        """
        own = [17 + (index * 7919 + j * 104_729) % 239 for j in range(8)]
        tokens = own[:length]
        for at in range(index, index + length * len(self._texts)):
            if len(tokens) >= length:
                return tokens[:length]
            tokens.extend(self._prompt(at) or (own if at == index else ()))
        return tokens[:length]

    def _add(self, tokens: list[int], order: StayOrder) -> str:
        return self._request(tokens, self._engine.model_config.max_model_len - len(tokens), ignore_eos=True)

    def _ask(self, tokens: list[int], max_tokens: int) -> str:
        room = self._engine.model_config.max_model_len - max_tokens - max(self._meter.arms) - 2
        return self._request(tokens[-max(room, 1) :], max_tokens, ignore_eos=False)

    def _request(self, tokens: list[int], max_tokens: int, ignore_eos: bool) -> str:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sampling = SamplingParams(
            temperature=self._temperature,
            max_tokens=max_tokens,
            ignore_eos=ignore_eos,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        self._names += 1
        name = f"profile-{self._names}"
        return str(self._engine.add_request(name, {"prompt_token_ids": tokens}, sampling) or name)

    def _fill(self, batch: int, length: int) -> str:
        """Compute the prompts; a note where not all requests come to decode together."""
        meter = self._meter
        meter.k = 0
        meter.records.clear()
        idle = prompts = together = 0
        while idle <= _IDLE_STEPS and prompts <= _PREEMPTED * batch * length:
            seen = len(meter.records)
            meter.step()
            idle += 1
            for record in meter.records[seen:]:
                prompts += record.prefill_tokens
                together = max(together, record.batch_size)
                if record.prefill_tokens:
                    idle = 0
                elif record.batch_size == batch:
                    return ""
        return f"of {batch} requests at most {together} ran at once: the KV cache is too small"

    def _warm_up(self, order: StayOrder) -> None:
        """Play two steps of each arm that this batch has not seen: first steps of a shape compile, load and settle."""
        for k in dict.fromkeys(order.order):
            if (order.batch, k) in self._warm:
                continue
            self._tell(Doing(order.batch, k, order.context))
            self._meter.k = k
            for _ in range(3):
                self._meter.step()
            self._warm.add((order.batch, k))

    def _block(self, order: StayOrder, k: int, begun: float) -> tuple[Block | None, str]:
        """Steps that verified and made drafts of ``k`` alone; a note where they would not come."""
        meter = self._meter
        meter.k = k
        meter.forget()
        at_s = order.at_s + time.monotonic() - begun
        kept: list[StepRecord] = []
        seen = 0
        for _ in range(_UNEVEN * order.steps + _SETTLING):
            meter.step()
            kept += whole_steps(meter.records[seen:], order.batch, k)
            seen = max(len(meter.records) - 1, 0)
            if len(kept) >= order.steps:
                break
        if not kept:
            return None, f"no whole step of K={k} with {order.batch} requests came in {len(meter.records)} steps"
        contexts = [record.context_tokens for record in kept if record.context_tokens is not None]
        block = Block(
            batch=order.batch,
            k=k,
            context=order.context,
            mean_context=sum(contexts) / len(contexts) / order.batch if contexts else None,
            visit=order.visit,
            at_s=at_s,
            ms=tuple(record.elapsed_ms or 0.0 for record in kept),
            widths=tuple(sum(record.drafted) / order.batch for record in kept),
        )
        return block, ""

    def _empty(self, names: Sequence[str]) -> None:
        """Abort what is left and let the engine settle."""
        self._engine.abort_request(list(names), internal=True)
        self._meter.k = 0
        while self._scheduler.has_requests() or getattr(self._core, "batch_queue", None):
            self._meter.step()


def whole_steps(records: Sequence[StepRecord], batch: int, k: int) -> list[StepRecord]:
    """Steps of decoding requests alone that verified what was asked for at ``k`` and made drafts for ``k``.

    By the same rule as the controller's: the drafts made within a step's time must be those of the arm verified.
    """
    return [
        record
        for before, record in pairwise(records)
        if before.k == k
        and (record.k if record.draft_k is None else record.draft_k) == k
        and record.batch_size == batch
        and record.prefill_tokens == 0
        and record.elapsed_ms is not None
        and record.verified is None
    ]


def _tokens(tokenizer: Any, text: str) -> list[int]:
    """A prompt as a chat would send it, or as it stands where the model has no chat template."""
    if getattr(tokenizer, "chat_template", None):
        said = [{"role": "user", "content": text}]
        chat = tokenizer.apply_chat_template(said, add_generation_prompt=True, tokenize=True, return_dict=False)
        return [int(token) for token in chat]
    return [int(token) for token in tokenizer.encode(text)]


@contextmanager
def _steered(order: EngineOrder) -> Iterator[None]:
    """adaptk in charge of whatever scheduler vLLM builds, as its environment variable would have it."""
    for name in [name for name in os.environ if name == "ADAPTK" or name.startswith("ADAPTK_")]:
        del os.environ[name]
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the scheduler must live here
    if order.drafter:
        os.environ |= {"ADAPTK": "on", "ADAPTK_STRICT": "1"}
        if order.arms is not None:
            os.environ["ADAPTK_ARMS"] = ",".join(map(str, order.arms))
        from adaptk.vllm_plugin import patches

        patches.apply()
    yield
