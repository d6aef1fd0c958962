"""What a real engine is asked to say in tests of equality: every way of asking that greedy decoding decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Small enough that prompts come in chunks, and that a full batch has to be preempted.
SMALL = {
    "max_num_seqs": 8,
    "max_num_batched_tokens": 64,
    "enable_prefix_caching": True,
    "block_size": 32,
    "num_gpu_blocks_override": 24,
}
TALE = "once upon a time there was a king who had a daughter, and the daughter had a golden ball, and the ball "
PROMPTS = ["one two three one two three", "a b a b a b a b", "the quick brown fox", "zzzzzzzzzzzz", "0123456789" * 3]
Answers = dict[str, Any]


def greedy(**options: Any) -> Any:
    """Sampling parameters under which the largest logit decides."""
    from vllm import SamplingParams

    return SamplingParams(**{"max_tokens": 50, "temperature": 0.0, "ignore_eos": True, **options})


def tokens(outputs: list[Any]) -> list[list[list[int]]]:
    """Token ids by request and completion."""
    return [[list(c.token_ids) for c in sorted(o.outputs, key=lambda c: c.index)] for o in outputs]


def told(llm: Any, prompts: list[str], *params: Any) -> list[list[list[int]]]:
    """What the engine says to ``prompts``, all at once."""
    each = list(params) if len(params) > 1 else params[0]
    return tokens(llm.generate(prompts, each, use_tqdm=False))


def chunked_prefill(llm: Any) -> Answers:
    """Prompts of several times ``max_num_batched_tokens`` beside short ones that decode meanwhile."""
    return {"tokens": told(llm, [TALE * 2, "a b a b a b", TALE, "zzzz", (TALE * 2)[::-1]], greedy(max_tokens=40))}


def prefix_caching(llm: Any) -> Answers:
    """The same beginnings again and again; most of their tokens are read from the cache."""
    prompts = [TALE + tail for tail in ("fell", "rolled", "fell into the well", "")]
    first = told(llm, prompts[:1], greedy())
    outputs = llm.generate(prompts * 2, greedy(), use_tqdm=False)
    return {"first": first, "tokens": tokens(outputs), "cached": sum(o.num_cached_tokens or 0 for o in outputs) > 200}


def preemption(llm: Any) -> Answers:
    """Eight long answers that the KV cache cannot hold at once."""
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    original, preempted = scheduler._preempt_request, []

    def counting(request: Any, *args: Any, **kwargs: Any) -> Any:
        preempted.append(request.request_id)
        return original(request, *args, **kwargs)

    scheduler._preempt_request = counting
    try:
        said = told(llm, [f"{i} " * (10 + i) for i in range(8)], greedy(max_tokens=150))
    finally:
        del scheduler._preempt_request
    return {"tokens": said, "preempted": len(preempted) > 0}


def structured(llm: Any) -> Answers:
    """A JSON schema, a regular expression and a choice beside a free answer: the grammar cuts drafts and tokens."""
    from vllm.sampling_params import StructuredOutputsParams

    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    params = [
        greedy(structured_outputs=StructuredOutputsParams(json=schema), ignore_eos=False, max_tokens=60),
        greedy(structured_outputs=StructuredOutputsParams(regex=r"(ab|cd){20,30}"), ignore_eos=False),
        greedy(structured_outputs=StructuredOutputsParams(choice=["yes yes yes yes", "no no no no"]), ignore_eos=False),
        greedy(),
    ]
    outputs = llm.generate(["name and age:", "abcd abcd", "yes or no?", "a b a b a b"], params, use_tqdm=False)
    return {"tokens": tokens(outputs), "texts": [o.outputs[0].text for o in outputs[:3]]}


def several_answers(llm: Any) -> Answers:
    """Three drawn answers to each prompt: vLLM draws none greedily, and the grammar leaves one token at each place."""
    from vllm.sampling_params import StructuredOutputsParams

    only = StructuredOutputsParams(regex=r"(the cat sat on the mat, ){4}")
    params = greedy(n=3, temperature=1.0, structured_outputs=only, ignore_eos=False, max_tokens=120)
    outputs = llm.generate(PROMPTS[:2], params, use_tqdm=False)
    return {"tokens": tokens(outputs), "text": {c.text for o in outputs for c in o.outputs}}


def log_probabilities(llm: Any) -> Answers:
    """The probabilities of the tokens come with them, as does that of the prompt."""
    outputs = llm.generate(PROMPTS, greedy(logprobs=3, prompt_logprobs=2), use_tqdm=False)
    return {
        "tokens": tokens(outputs),
        "logprobs": [[at[t].logprob for t, at in _places(o.outputs[0])] for o in outputs],
        "prompt": [[max(p.logprob for p in at.values()) for at in o.prompt_logprobs[1:]] for o in outputs],
    }


def _places(completion: Any) -> list[tuple[int, Any]]:
    return list(zip(completion.token_ids, completion.logprobs, strict=True))


def stops(llm: Any) -> Answers:
    """Stop tokens and stop strings that come in the midst of accepted drafts, and lengths of every remainder."""
    said = told(llm, PROMPTS, greedy())
    params, prompts = [], []
    for prompt, (ids,) in zip(PROMPTS, said, strict=True):
        for place in (5, 18, 31):
            params.append(greedy(stop_token_ids=[ids[place]]))
            params.append(greedy(stop=[llm.get_tokenizer().decode(ids[place : place + 2])]))
            params.append(greedy(max_tokens=place, min_tokens=place - 2))
            prompts += [prompt] * 3
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return {"tokens": tokens(outputs), "why": [(o.outputs[0].finish_reason, o.outputs[0].stop_reason) for o in outputs]}


def penalties(llm: Any) -> Answers:
    """Logits that depend on what was said before, draft by draft."""
    options = [{"repetition_penalty": 1.3}, {"frequency_penalty": 0.7}, {"presence_penalty": 0.9}, {"min_tokens": 30}]
    return {"tokens": told(llm, PROMPTS[:4], *(greedy(**o) for o in options))}


def aborts(llm: Any) -> Answers:
    """Two of six requests are taken back while their drafts are in flight; the others say all they have to say."""
    engine = llm.llm_engine
    for i, prompt in enumerate([*PROMPTS, TALE]):
        engine.add_request(f"abort-{i}", prompt, greedy(max_tokens=60))
    finished, steps = {}, 0
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.finished:
                finished[output.request_id] = list(output.outputs[0].token_ids)
        steps += 1
        if steps in (4, 7):
            engine.abort_request([f"abort-{1 if steps == 4 else 3}"])
    return {"tokens": [finished.get(f"abort-{i}") for i in (0, 2, 4, 5)], "gone": len(finished)}


WORKLOADS: dict[str, Callable[[Any], Answers]] = {
    f.__name__: f
    for f in (
        chunked_prefill,
        prefix_caching,
        preemption,
        structured,
        several_answers,
        log_probabilities,
        stops,
        penalties,
        aborts,
    )
}
