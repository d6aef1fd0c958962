"""An engine that is none: step times from a formula with noise, on a clock of its own."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from adaptk.profile.allocate import Progress, Visit
from adaptk.profile.estimate import Block
from adaptk.profile.orders import (
    Answered,
    AnswerOrder,
    Doing,
    EngineDiedError,
    EngineInfo,
    EngineOrder,
    Stayed,
    StayOrder,
)
from adaptk.profile.plan import Plan
from adaptk.profile.run import Profile, Request
from adaptk.step import StepRecord

KEY = {"model": "fake", "method": "eagle", "device": "none", "graph_mode": "NONE"}
INFO = EngineInfo(KEY, (0, 1, 3), max_num_seqs=16, max_model_len=2048, kv_tokens=40_000)
ACCEPTANCE = 0.6


def true_ms(batch: int, k: int, context: float) -> float:
    """Step time of the fake: K=3 is best at batch 1, K=0 at batch 16."""
    return 10.0 + 0.5 * k + 0.4 * batch * k + 0.001 * context


class FakeEngine:
    """Answers orders as :class:`adaptk.vllm_plugin.profile_process.EngineProcess` does.

    Parameters
    ----------
    order
        Which engine; without a drafter it is a tenth quicker and has K=0 alone.
    dies_at
        Dies when it is to play this K.
    after
        Called at the end of each stay with its number.
    supply
        Probability that a draft is found at all.
    dies_after
        Dies in the stay behind so many, at its first arm.
    answers
        ``False``: dies when it is to answer.
    arms
        In place of those of ``info``.
    """

    def __init__(
        self,
        order: EngineOrder,
        dies_at: int | None = None,
        after: Callable[[int], None] = lambda stays: None,
        supply: float = 1.0,
        info: EngineInfo = INFO,
        dies_after: int | None = None,
        answers: bool = True,
        arms: tuple[int, ...] | None = None,
    ) -> None:
        self.order = order
        self._dies_after, self._answers = dies_after, answers
        info = info if arms is None else info._replace(arms=arms)
        self.info = info if order.drafter else info._replace(arms=(0,), key={"model": "fake", "device": "none"})
        self.stays: list[StayOrder] = []
        self.answers: list[AnswerOrder] = []
        self.closed = False
        self._quick = 1.0 if order.drafter else 0.9
        self._dies_at = dies_at
        self._after = after
        self._supply = supply
        self._rng = random.Random(1)

    def stay(self, order: StayOrder) -> Stayed:
        """Play a stay at once; it takes the time that its steps would."""
        if self._dies_after is not None and len(self.stays) >= self._dies_after:
            raise EngineDiedError("the fake was killed", Doing(order.batch, order.order[0], order.context))
        self.stays.append(order)
        blocks = []
        for k in order.order:
            if k == self._dies_at:
                raise EngineDiedError("the fake died", Doing(order.batch, k, order.context))
            middle = self._quick * true_ms(order.batch, k, order.context)
            ms = tuple(middle * self._rng.lognormvariate(0.0, 0.02) for _ in range(order.steps))
            blocks.append(
                Block(order.batch, k, order.context, order.context, order.visit, order.at_s, ms, (float(k),) * len(ms))
            )
        self._after(len(self.stays))
        return Stayed(tuple(blocks), sum(sum(block.ms) for block in blocks) / 1e3 + 0.2)

    def answer(self, order: AnswerOrder) -> Answered:
        """Answer with a fixed acceptance."""
        if not self._answers:
            raise EngineDiedError("the fake died answering", Doing(order.concurrency, order.k, None))
        self.answers.append(order)
        records = []
        count = min(order.concurrency, order.last - order.first)
        for _ in range(1 + order.max_tokens // 3 if order.max_tokens else 0):
            drafted = [order.k if self._rng.random() < self._supply else 0 for _ in range(count)]
            accepted = [self._accepted(d) for d in drafted]
            records.append(
                StepRecord(
                    batch_size=count,
                    elapsed_ms=10.0,
                    k=order.k,
                    drafted=drafted,
                    accepted=accepted,
                    requests=[order.first + i for i in range(count)],
                )
            )
        return Answered(tuple(records), 0.01 * len(records))

    def close(self) -> None:
        """Note that it was closed."""
        self.closed = True

    def _accepted(self, drafts: int) -> int:
        for i in range(drafts):
            if self._rng.random() >= ACCEPTANCE:
                return i
        return drafts


class Silent:
    """Keeps what a session says."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.visits: list[Visit] = []

    def answering(self, answered: int, seconds_left: float) -> None:
        """Ignored."""

    def visiting(self, visit: Visit, progress: Progress) -> None:
        """Keep the visit."""
        self.visits.append(visit)

    def measured(self) -> None:
        """Ignored."""

    def say(self, text: str) -> None:
        """Keep the line."""
        self.lines.append(text)


PROMPTS = tuple(f"prompt {i}" for i in range(40))
PLAN = Plan(len(PROMPTS), 60.0, 0.03, 64, (1, 4, 16), (128, 512))


def request(out: Path, **changes: object) -> Request:
    """A request for the fake."""
    engine = EngineOrder(("fake",), None, PROMPTS)
    return Request(engine, PLAN, out, ("adaptk", "profile", "fake"))._replace(**changes)  # type: ignore[arg-type]


def profile(asked: Request, watcher: Silent | None = None, **engine: object) -> tuple[Profile, list[FakeEngine]]:
    """A profile of fakes, and the list that they will be in once started."""
    started: list[FakeEngine] = []

    def start(order: EngineOrder) -> FakeEngine:
        started.append(FakeEngine(order, **engine))  # type: ignore[arg-type]
        return started[-1]

    return Profile(asked, start, watcher or Silent()), started
