"""Prompts answered until their acceptance is known: the first part of every session with a drafter."""

from __future__ import annotations

from collections.abc import Callable

from adaptk.profile.entries import Answers
from adaptk.profile.estimate import AcceptanceCounts
from adaptk.profile.orders import AnswerOrder, Engine
from adaptk.profile.plan import Plan, Watcher

ANSWER_SHARE = 0.2  # of the budget, at most, goes into answers
LEAST_ANSWER_S = 5.0  # however short the budget: without acceptance a table decides nothing
ANSWER_ERROR = 0.015  # of the acceptance length, relative standard error, at which there are enough
AT_ONCE = 8  # prompts answered together
WARM_UP_TOKENS, WARM_UP_S = 8, 120.0  # answers before the clock runs: first steps compile, load and settle
ALWAYS = 0.9995  # of its drafts: a drafter that returns so many returns all


class Answering:
    """Has an engine answer prompts, and holds the counts of its drafts.

    Parameters
    ----------
    engine
        Started.
    plan
        How many prompts there are, how long answers are, and the budget of which a share is spent here.
    watcher
        Is told how far it is.
    keep
        Called with what each turn gave.
    acceptance, answered, seconds
        Of an earlier run that is gone on with.
    """

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        watcher: Watcher,
        keep: Callable[[Answers], None] = lambda answers: None,
        acceptance: AcceptanceCounts | None = None,
        answered: int = 0,
        seconds: float = 0.0,
    ) -> None:
        self.acceptance = acceptance or AcceptanceCounts()
        self.answered = answered
        self.seconds = seconds
        self.notes: list[str] = []
        self.k = max(engine.info.arms)
        self.at_once = min(AT_ONCE, engine.info.max_num_seqs)
        self._engine = engine
        self._plan = plan
        self._watcher = watcher
        self._keep = keep

    def longest(self) -> int:
        """Tokens of an answer: what was asked for, unless that left prompts less than half of the engine's length.

        Raises
        ------
        ValueError
            If that is nothing.
        """
        length = self._engine.info.max_model_len
        room = length // 2 - self.k - 2
        if room < 1:
            raise ValueError(f"max_model_len {length} is too short for any answer with K={self.k}")
        if room < self._plan.max_tokens:
            self.notes.append(f"answers were cut at {room} tokens, as max_model_len is {length}")
        return min(room, self._plan.max_tokens)

    def run(self) -> None:
        """Answer until the acceptance length is known well, the prompts are used up, or the time is.

        Raises
        ------
        adaptk.profile.orders.EngineDiedError
            If the engine dies; what was answered before is kept.
        ValueError
            If the engine is too short for any answer.
        """
        max_tokens, limit = self.longest(), max(ANSWER_SHARE * self._plan.budget_s, LEAST_ANSWER_S)
        while self.seconds < limit and self.answered < self._plan.prompts and not self._known():
            if self.seconds == 0.0:
                first = AnswerOrder(
                    0, min(self.at_once, self._plan.prompts), self.k, self.at_once, WARM_UP_TOKENS, WARM_UP_S
                )
                self._engine.answer(first)
            last = min(self.answered + 2 * self.at_once, self._plan.prompts)
            self._watcher.answering(self.answered, self._plan.budget_s - self.seconds)
            order = AnswerOrder(self.answered, last, self.k, self.at_once, max_tokens, limit - self.seconds)
            answered = self._engine.answer(order)
            counts = AcceptanceCounts.from_records(answered.records, self.k)
            self._keep(Answers(first=self.answered, last=last, counts=counts, seconds=answered.seconds))
            self.acceptance = self.acceptance.merge(counts)
            self.answered = last
            self.seconds += answered.seconds
        if self.counts() is None:
            self.notes.append(
                "no draft was tried in the answers: acceptance is unknown, and steps were timed with all their drafts"
            )

    def counts(self) -> AcceptanceCounts | None:
        """The counts; ``None`` where no draft was tried."""
        return self.acceptance if any(self.acceptance.tried) else None

    def length(self, k: int) -> float:
        """Acceptance length of a K, tokens per request and step; a guess where nothing was answered."""
        counts = self.counts()
        return 1.0 + 0.5 * k if counts is None else counts.acceptance_length(k)[0]

    def supply(self) -> tuple[float, ...]:
        """What drafts of timed steps are filled up or cut down to: nothing where the drafter delivers anyway."""
        if not any(self.acceptance.asked):
            return (1.0,) * self.k  # unknown: all of them, rather than what made-up text happens to give
        supply = tuple(self.acceptance.supply())
        return supply if min(supply) < ALWAYS else ()

    def _known(self) -> bool:
        if not self.acceptance.clustered:
            return False
        length, error = self.acceptance.acceptance_length(self.k)
        return error < ANSWER_ERROR * length
