"""What the session asks of the engine's process and what it answers: plain values, sent through a pipe."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from adaptk.profile.estimate import Block
from adaptk.step import StepRecord


class EngineOrder(NamedTuple):
    """Which engine to start.

    Parameters
    ----------
    arguments
        What ``vllm serve`` would be given.
    arms
        K to be played; ``None``: the engine's own choice of arms (see ``adaptk.arms.resolve_arms``).
    prompts
        Texts that are answered and, one after the other, make up contexts.
    drafter
        ``False`` starts it without speculative decoding.
    temperature
        Of all requests.
    """

    arguments: tuple[str, ...]
    arms: tuple[int, ...] | None
    prompts: tuple[str, ...]
    drafter: bool = True
    temperature: float = 0.0


class EngineInfo(NamedTuple):
    """What was started.

    Parameters
    ----------
    key
        Its key, see :mod:`adaptk.tablekey`.
    arms
        K that can be played.
    max_num_seqs, max_model_len
        Most requests in a step, and most tokens of one.
    kv_tokens
        Tokens that its KV cache holds.
    """

    key: dict[str, Any]
    arms: tuple[int, ...]
    max_num_seqs: int
    max_model_len: int
    kv_tokens: int


class StayOrder(NamedTuple):
    """Play ``order``, ``steps`` whole steps of each, with ``batch`` requests of about ``context`` tokens.

    ``length`` is that of the prompts, tokens; ``visit`` and ``at_s`` are passed on to the blocks. ``supply`` is the
    share of requests that get a draft at each position; empty: as many as the drafter finds.
    """

    batch: int
    context: float
    length: int
    order: tuple[int, ...]
    steps: int
    visit: int
    at_s: float
    supply: tuple[float, ...] = ()


class AnswerOrder(NamedTuple):
    """Answer the prompts numbered ``first`` to ``last - 1`` at ``k``, ``concurrency`` at once.

    Each ends where the model ends it, or after ``max_tokens`` tokens; after ``seconds`` it is broken off.
    """

    first: int
    last: int
    k: int
    concurrency: int
    max_tokens: int
    seconds: float


class Doing(NamedTuple):
    """Said before each block, so that an engine that dies leaves word of what it was at."""

    batch: int
    k: int
    context: float | None


class Stayed(NamedTuple):
    """The blocks of a stay, and seconds it took; ``note`` says why there are fewer than were asked for."""

    blocks: tuple[Block, ...]
    seconds: float
    note: str = ""


class Answered(NamedTuple):
    """Steps of the answers, in order, and seconds they took."""

    records: tuple[StepRecord, ...]
    seconds: float


class Failed(NamedTuple):
    """The engine did not start, or broke; with the reason."""

    reason: str


class EngineDiedError(RuntimeError):
    """The engine did not start, or died; the message says why.

    Parameters
    ----------
    reason
        What is known of it.
    doing
        What it was at, where that is known.
    """

    def __init__(self, reason: str, doing: Doing | None = None) -> None:
        super().__init__(reason)
        self.doing = doing


class Engine(Protocol):
    """An engine that is profiled."""

    info: EngineInfo

    def stay(self, order: StayOrder) -> Stayed:
        """Play one stay; raises :class:`EngineDiedError`."""
        ...

    def answer(self, order: AnswerOrder) -> Answered:
        """Answer prompts; raises :class:`EngineDiedError`."""
        ...

    def close(self) -> None:
        """Stop it."""
        ...
