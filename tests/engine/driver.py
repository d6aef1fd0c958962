"""vLLM's own scheduler objects driven by hand, with a made-up worker that knows the truth."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BLOCK = 16


def build_config(
    model: Path,
    *,
    k_max: int = 7,
    max_num_seqs: int = 16,
    max_model_len: int = 256,
    max_num_batched_tokens: int = 256,
    schedule: list[list[int]] | None = None,
    asynchronous: bool = False,
    drafter: bool = True,
    prefix_caching: bool = False,
    transfer: dict[str, Any] | None = None,
) -> Any:
    """A ``VllmConfig`` with an n-gram drafter; ``transfer`` are the fields of its ``KVTransferConfig``.

    A ``schedule`` under asynchronous scheduling comes with the model as its own drafter: vLLM 0.33 lets the n-gram
    drafter of the GPU have none.
    """
    from vllm.config import (
        CacheConfig,
        KVTransferConfig,
        ModelConfig,
        ParallelConfig,
        SchedulerConfig,
        SpeculativeConfig,
        VllmConfig,
    )

    model_config = ModelConfig(model=str(model), dtype="float32", max_model_len=max_model_len, seed=0)
    parallel = ParallelConfig()
    speculative = None
    if drafter:
        method = ("draft_model" if schedule else "ngram_gpu") if asynchronous else "ngram"
        speculative = SpeculativeConfig(
            model=str(model) if method == "draft_model" else "ngram",
            method=method,
            num_speculative_tokens=k_max,
            prompt_lookup_max=3,
            prompt_lookup_min=1,
            num_speculative_tokens_per_batch_size=schedule,
            target_model_config=model_config,
            target_parallel_config=parallel,
        )
    return VllmConfig(
        model_config=model_config,
        cache_config=CacheConfig(block_size=BLOCK, enable_prefix_caching=prefix_caching),
        scheduler_config=SchedulerConfig(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
            is_encoder_decoder=False,
            async_scheduling=asynchronous,
        ),
        parallel_config=parallel,
        speculative_config=speculative,
        kv_transfer_config=None if transfer is None else KVTransferConfig(**transfer),
    )


def build_scheduler(cls: type, config: Any, num_blocks: int = 400, v2: bool | None = None) -> Any:
    """A scheduler of class ``cls`` over ``num_blocks`` blocks of 16 tokens."""
    import torch
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import init_none_hash
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    init_none_hash(sha256)
    register_all_kvcache_specs(config)
    config.cache_config.num_gpu_blocks = num_blocks
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    scheduler = cls(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
        hash_block_size=BLOCK,
        log_stats=False,
    )
    if v2 is not None:
        scheduler.use_v2_model_runner = v2
    return scheduler


class Grammar:
    """A made-up grammar: it refuses drafts of the tokens in ``REFUSED`` and takes whatever was sampled."""

    REFUSED = frozenset(range(90, 100))

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        good = 0
        while good < len(tokens) and tokens[good] not in self.REFUSED:
            good += 1
        return tokens[:good]

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        return True

    def is_terminated(self) -> bool:
        return False


def make_request(
    rid: str,
    prompt: int | Sequence[int],
    max_tokens: int,
    stop_token: int | None = None,
    *,
    grammar: bool = False,
    hashed: bool = False,
) -> Any:
    """A request that ends after ``max_tokens`` tokens or at ``stop_token``.

    ``prompt`` is its tokens, or how many; with ``hashed`` it can share blocks with others of the same beginning.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher
    from vllm.v1.request import Request
    from vllm.v1.structured_output.backend_types import StructuredOutputGrammar

    StructuredOutputGrammar.register(Grammar)  # vLLM to 0.28 asserts it
    tokens = [7] * prompt if isinstance(prompt, int) else list(prompt)
    structured = StructuredOutputsParams(regex=".*") if grammar else None
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True, structured_outputs=structured)
    if stop_token is not None:
        params.stop_token_ids = [stop_token]
        params.all_stop_token_ids.add(stop_token)
    params.update_from_generation_config({}, -1)
    hasher = get_request_block_hasher(BLOCK, sha256) if hashed else None
    request = Request(rid, tokens, params, None, block_hasher=hasher)
    if grammar:
        request.structured_output_request.grammar = Grammar()
    return request


@dataclass
class Policy:
    """A test double of a controller: plays what ``rule`` says and keeps what it is told."""

    rule: Callable[[int], int]
    chosen: list[int] = field(default_factory=list)
    asked: list[tuple[int, int | None, int | None]] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        self.asked.append((batch_size, context_tokens, decodes))
        self.chosen.append(self.rule(batch_size))
        return self.chosen[-1]

    def observe(self, record: Any) -> None:
        self.records.append(record)


def cycling(arms: Sequence[int]) -> Policy:
    """Plays the arms in turn, whatever the batch."""
    policy = Policy(lambda _: arms[len(policy.chosen) % len(arms)])
    return policy


@dataclass
class Step:
    """What the worker knows of one step."""

    output: Any
    drafted: dict[str, int]
    accepted: dict[str, int]
    result: Any


def runner_output(ids: list[str], sampled: list[list[int]], received: Any = None) -> Any:
    """The ``ModelRunnerOutput`` of a step; ``received`` is what the workers say of transfers of the KV cache in it."""
    from vllm.v1.outputs import ModelRunnerOutput

    return ModelRunnerOutput(
        req_ids=ids,
        req_id_to_index={rid: i for i, rid in enumerate(ids)},
        sampled_token_ids=sampled,
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
        kv_connector_output=received,
    )


class Worker:
    """Makes up the model's output for scheduled steps; drafts and accepts at random."""

    def __init__(
        self, scheduler: Any, seed: int, *, asynchronous: bool, accept: float = 0.6, none: float = 0.0
    ) -> None:
        self.scheduler = scheduler
        self.random = random.Random(seed)
        self.asynchronous = asynchronous
        self.accept = accept
        self.none = none  # share of requests for which the drafter finds nothing
        self.in_flight: deque[Step] = deque()
        self.engine_outputs: list[Any] = []

    def execute(self, output: Any) -> Step:
        """The result of ``output``: prompts give nothing until they are complete, decodes 1 + accepted tokens."""
        ids = list(output.num_scheduled_tokens)
        self.random.shuffle(ids)
        drafted, accepted, sampled = {}, {}, []
        for rid in ids:
            request = self.scheduler.requests[rid]
            width = len(output.scheduled_spec_decode_tokens.get(rid, ()))
            if request.is_prefill_chunk:
                sampled.append([])
                continue
            n = 0
            while n < width and self.random.random() < self.accept:
                n += 1
            if width:
                drafted[rid], accepted[rid] = width, n
            sampled.append([self.random.randrange(100, 500) for _ in range(n + 1)])
        return Step(output, drafted, accepted, runner_output(ids, sampled))

    @property
    def delivered(self) -> int:
        """Tokens that reached the users."""
        return sum(len(o.new_token_ids) for step in self.engine_outputs for e in step.values() for o in e.outputs)

    def schedule(self) -> Any:
        """Schedule one step and put it in flight."""
        output = self.scheduler.schedule(False)
        self.in_flight.append(self.execute(output))
        return output

    def update(self) -> Step:
        """Return the oldest step to the scheduler; a synchronous one then gets its next drafts."""
        step = self.in_flight.popleft()
        outputs = self.scheduler.update_from_output(step.output, step.result)
        self.engine_outputs.append(outputs)
        if not self.asynchronous and step.output.total_num_scheduled_tokens:
            self.draft(step.output)
        return step

    def draft(self, output: Any) -> None:
        """Offer as many drafts as were asked for, for some requests none."""
        from vllm.v1.outputs import DraftTokenIds

        ids = list(output.num_scheduled_tokens)
        k = output.num_spec_tokens_to_schedule
        drafts = [[] if self.random.random() < self.none else [50 + i for i in range(k)] for _ in ids]
        self.scheduler.update_draft_token_ids(DraftTokenIds(ids, drafts))
