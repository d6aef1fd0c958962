"""Sends the bursts of a turn to a server and judges every answer."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import aiohttp
import jsonschema

from tests.benchmarks.soak.load import SCHEMA, STOPS, Request

PATIENCE_S = 300
PENDING = 0.25  # of a burst may be unanswered when the next one comes


class Outcome(NamedTuple):
    """What became of a request.

    ``fault`` says what was wrong, if anything. ``tokens`` are those that the client saw, ``ids`` what they were and
    ``prompt`` those of the prompt, where the server was asked to say; ``exact`` tells whether no more were made.
    """

    request: Request
    fault: str | None
    tokens: int = 0
    exact: bool = False
    text: str = ""
    ids: tuple[int, ...] = ()
    prompt: tuple[int, ...] = ()


class Turn(NamedTuple):
    """Outcomes in the order of the requests, and when it began and ended by ``time.perf_counter``."""

    outcomes: list[Outcome]
    begun: float
    ended: float

    @property
    def tokens(self) -> int:
        """Tokens that clients saw."""
        return sum(outcome.tokens for outcome in self.outcomes)

    def faults(self) -> list[str]:
        """What was wrong, by kind of request."""
        return [f"{outcome.request.kind}: {outcome.fault}" for outcome in self.outcomes if outcome.fault]

    def kinds(self) -> Counter[str]:
        """How many requests there were of each kind."""
        return Counter(outcome.request.kind for outcome in self.outcomes)


def drive(address: str, bursts: Sequence[Sequence[Request]]) -> Turn:
    """Send every burst, the next one once most of the one before is answered; returns when all is answered.

    Sampled requests wait until nothing else is left, and the other way round.
    """
    return asyncio.run(_drive(address, bursts))


async def _drive(address: str, bursts: Sequence[Sequence[Request]]) -> Turn:
    limits = aiohttp.ClientTimeout(total=PATIENCE_S)
    # One connection a request: the server closes those that were idle, perhaps just as the next request goes out.
    fresh = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(address, timeout=limits, connector=fresh) as session:
        begun = time.perf_counter()
        sent: list[asyncio.Task[Outcome]] = []
        sampled = False
        for burst in bursts:
            if sampled is not (sampled := burst[0].kind == "sampled"):
                await asyncio.gather(*sent)
            tasks = [asyncio.create_task(_ask(session, request)) for request in burst]
            sent += tasks
            waiting = set(tasks)
            while len(waiting) > PENDING * len(tasks):
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        outcomes = list(await asyncio.gather(*sent))
        return Turn(outcomes, begun, time.perf_counter())


async def _ask(session: aiohttp.ClientSession, request: Request) -> Outcome:
    try:
        if request.leaves_after == 0:
            return await _hang_up(session, request)
        async with session.post(request.path, json=request.body) as answer:
            if answer.status != 200:
                return _refused(request, answer.status, await answer.text())
            if request.refusal:
                return Outcome(request, f"was answered, and should have been refused with {request.refusal[0]}")
            if request.body.get("stream"):
                return await _streamed(request, answer)
            return _whole(request, await answer.json())
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, IndexError, TypeError) as error:
        return Outcome(request, f"{type(error).__name__}: {error}")


async def _hang_up(session: aiohttp.ClientSession, request: Request) -> Outcome:
    asked = asyncio.create_task(_status(session, request))
    done, _ = await asyncio.wait([asked], timeout=0.5)
    if done:
        return Outcome(request, f"ended with {asked.result()} before its client could hang up")
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    return Outcome(request, None)


async def _status(session: aiohttp.ClientSession, request: Request) -> int:
    async with session.post(request.path, json=request.body) as answer:
        await answer.read()
        return answer.status


def _refused(request: Request, status: int, text: str) -> Outcome:
    if status not in request.refusal:
        return Outcome(request, f"status {status}: {text[:200]}")
    error = json.loads(text)
    if not (error.get("error", error).get("message") or error.get("detail")):
        return Outcome(request, f"was refused without a word: {text[:200]}")
    return Outcome(request, None, exact=True)


def _whole(request: Request, answer: dict[str, Any]) -> Outcome:
    (choice,) = answer["choices"]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    prompt = answer.get("prompt_token_ids") or choice.get("prompt_token_ids") or ()
    tokens = int(answer["usage"]["completion_tokens"])
    return _judged(request, text, choice, tokens, choice.get("token_ids") or (), prompt)


async def _streamed(request: Request, answer: aiohttp.ClientResponse) -> Outcome:
    pieces: list[str] = []
    ids: list[int] = []
    prompt: Sequence[int] = ()
    last: dict[str, Any] = {}
    ends, tokens, over = 0, 0, False
    async for line in answer.content:
        if not line.startswith(b"data: "):
            continue
        if line.strip() == b"data: [DONE]":
            over = True
            continue
        chunk = json.loads(line[len(b"data: ") :])
        if "error" in chunk:
            return Outcome(request, f"broke off: {chunk['error']}")
        prompt = chunk.get("prompt_token_ids") or prompt
        tokens = (chunk.get("usage") or {}).get("completion_tokens", tokens)
        for choice in chunk["choices"]:
            pieces.append(choice["delta"].get("content") or "")
            ids += choice.get("token_ids") or ()
            ends += choice.get("finish_reason") is not None
            last = choice if choice.get("finish_reason") else last
        if request.leaves_after is not None and sum(map(bool, pieces)) >= request.leaves_after:
            answer.close()
            return Outcome(request, None, tokens=len(pieces) - 1, text="".join(pieces))
    if not over or ends != 1:
        return Outcome(request, f"its stream ended {ends} times, {'with' if over else 'without'} a last line")
    if request.leaves_after is not None:
        return Outcome(request, "ended before its client could leave")
    return _judged(request, "".join(pieces), last, tokens, ids, prompt)


def _judged(
    request: Request, text: str, choice: dict[str, Any], tokens: int, ids: Sequence[int], prompt: Sequence[int]
) -> Outcome:
    fault = _fault(request, text, choice, tokens, ids)
    exact = request.kind != "stop"  # the engine may be some tokens ahead of a stop string
    return Outcome(request, fault, tokens, exact, text, tuple(ids), tuple(prompt))


def _fault(request: Request, text: str, choice: dict[str, Any], tokens: int, ids: Sequence[int]) -> str | None:
    reason = choice["finish_reason"]
    if not 0 < tokens <= request.longest:
        return f"has {tokens} tokens of at most {request.longest}"
    if "return_token_ids" in request.body and len(ids) != tokens:
        return f"has {len(ids)} tokens and counts {tokens}"
    if (reason == "length") is not (tokens == request.longest) and request.body.get("ignore_eos"):
        return f"ended for {reason!r} after {tokens} of {request.longest} tokens"
    if request.kind == "stop" and any(stop in text for stop in STOPS):
        return f"goes on after where it should stop: {text!r}"
    if request.kind == "logprobs" and len(choice["logprobs"]["token_logprobs"]) != tokens:
        return f"has {len(choice['logprobs']['token_logprobs'])} logprobs for {tokens} tokens"
    if request.kind == "json":
        try:
            jsonschema.validate(json.loads(text), SCHEMA)
        except (ValueError, jsonschema.ValidationError) as error:
            return f"is not of its schema ({str(error).splitlines()[0]}), ended for {reason!r}: {text!r}"
    return None
