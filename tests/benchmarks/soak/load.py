"""The requests of a soak: bursts of many kinds, drawn from a seed, each with what a right answer to it is."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from tests.benchmarks import serve_load

BURSTS = (2, 48, 1, 12, 24, 1, 36, 6)  # requests at once; max-num-seqs is 32
QUICK_BURSTS = (2, 36, 1, 8)
LONGEST = 64  # tokens of an answer
TOO_LONG = 5000  # words of a prompt that no model length here holds
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "enum": ["red", "green", "blue", "yellow"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 999},
        "tags": {"type": "array", "items": {"enum": ["new", "old", "rare"]}, "minItems": 1, "maxItems": 3},
        "sure": {"type": "boolean"},
    },
    "required": ["colour", "count", "tags", "sure"],
    "additionalProperties": False,
}
STOPS = [".", "\n"]
# What is asked, and how often.
KINDS = {
    "chat": 24,
    "stream": 24,
    "text": 12,
    "stop": 8,
    "json": 10,
    "logprobs": 4,
    "left": 6,
    "hung up": 2,
    "refused": 4,
}
# On the CPU, plain vLLM gives greedy requests other tokens as long as a sampled one is in their batch, and breaks off
# structured outputs: sampled ones come last, and by themselves.
SAMPLED = 6
GREEDY = ("chat", "stream", "text", "stop", "logprobs")  # the same text each time, up to rounding
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


class Request(NamedTuple):
    """One request.

    ``leaves_after`` says after how many pieces of a stream its client hangs up, 0 that it does before any answer;
    ``refusal`` which statuses are right, where it must be refused.
    """

    kind: str
    path: str
    body: dict[str, Any]
    leaves_after: int | None = None
    refusal: tuple[int, ...] = ()

    @property
    def longest(self) -> int:
        """Tokens that it may get."""
        return int(self.body.get("max_tokens") or 0)


def turn(seed: int, sizes: tuple[int, ...]) -> list[list[Request]]:
    """The bursts of one turn."""
    rng = random.Random(seed)
    prompts = serve_load.prompts()
    kinds, weights = list(KINDS), list(KINDS.values())
    mixed = [[_request(rng, kind, prompts) for kind in rng.choices(kinds, weights, k=size)] for size in sizes]
    return [*mixed, [_request(rng, "sampled", prompts) for _ in range(SAMPLED)]]


def plain(seed: int, sizes: tuple[int, ...]) -> list[list[Request]]:
    """Bursts of requests whose clients can count their tokens exactly: answered in full, without stop strings."""
    rng = random.Random(seed)
    prompts = serve_load.prompts()
    return [[_request(rng, rng.choice(["chat", "stream", "text"]), prompts) for _ in range(size)] for size in sizes]


def _request(rng: random.Random, kind: str, prompts: list[str]) -> Request:
    prompt, tokens = rng.choice(prompts), rng.randrange(8, LONGEST + 1)
    body = {"model": serve_load.NAME, "max_tokens": tokens, "temperature": 0}
    chat = body | {"messages": [{"role": "user", "content": prompt}]}
    text = body | {"prompt": prompt}
    ids = {"return_token_ids": True}
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    match kind:
        case "chat":
            return Request(kind, CHAT, chat | ids)
        case "stream":
            return Request(kind, CHAT, chat | ids | stream | {"ignore_eos": True})
        case "text":
            return Request(kind, TEXT, text | ids | {"ignore_eos": True})
        case "stop":
            return Request(kind, TEXT, text | ids | {"stop": STOPS})
        case "json":
            form = {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA, "strict": True}}
            asked = chat | {"max_tokens": 96, "response_format": form}
            return Request(kind, CHAT, asked | (stream if rng.random() < 0.5 else {}))
        case "sampled":
            drawn = {"temperature": 0.8, "seed": rng.randrange(1 << 30), "ignore_eos": True}
            return Request(kind, CHAT, chat | drawn)
        case "logprobs":
            return Request(kind, TEXT, text | ids | {"logprobs": 2, "ignore_eos": True})
        case "left":
            asked = chat | stream | {"max_tokens": 400, "ignore_eos": True}
            return Request(kind, CHAT, asked, leaves_after=rng.randrange(1, 8))
        case "hung up":
            return Request(kind, CHAT, chat | {"max_tokens": 400, "ignore_eos": True}, leaves_after=0)
    return Request("refused", *_bad(rng, chat, text))


def _bad(
    rng: random.Random, chat: dict[str, Any], text: dict[str, Any]
) -> tuple[str, dict[str, Any], None, tuple[int, ...]]:
    schema = {"type": "json_schema", "json_schema": {"name": "thing", "schema": {"type": "no such type"}}}
    path, body, status = rng.choice(
        [
            (CHAT, chat | {"temperature": -1}, 400),
            (CHAT, chat | {"model": "no-such-model"}, 404),
            (CHAT, chat | {"messages": "not a list"}, 400),
            (CHAT, chat | {"response_format": schema}, 400),
            (TEXT, text | {"prompt": "word " * TOO_LONG}, 400),
            (TEXT, text | {"max_tokens": -3}, 400),
            (TEXT, text | {"logprobs": 10_000}, 400),
            (TEXT, {"prompt": 7.5}, 400),
        ]
    )
    return path, body, None, (status, 422)
