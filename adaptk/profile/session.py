"""One profile from the engine's start to the last visit: answers, visits where they pay, and the journal of both."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from adaptk.profile import levels
from adaptk.profile.allocate import Allocator, Progress, Visit
from adaptk.profile.entries import Answers, Died, Gridded, Visited
from adaptk.profile.estimate import AcceptanceCounts, Block, Group, GroupEstimate
from adaptk.profile.journal import Journal, Past
from adaptk.profile.orders import Answered, AnswerOrder, Engine, EngineDiedError, StayOrder

ANSWER_SHARE = 0.2  # of the budget, at most, goes into answers
LEAST_ANSWER_S = 5.0  # however short the budget: without acceptance a table decides nothing
ANSWER_ERROR = 0.015  # of the acceptance length, relative standard error, at which there are enough
AT_ONCE = 8  # prompts answered together
WARM_UP_TOKENS, WARM_UP_S = 8, 120.0  # answers before the clock runs: first steps compile, load and settle
ALWAYS = 0.9995  # of its drafts: a drafter that returns so many returns all


class Plan(NamedTuple):
    """What is to be measured.

    Parameters
    ----------
    prompts
        How many prompts the engine was given.
    budget_s
        Seconds of measuring, those of earlier runs included and the engine's start not.
    target
        Width of a 95 % interval, relative, at which a cell is precise enough.
    max_tokens
        Longest answer, tokens.
    batches, contexts
        ``None``: what fits the engine, see :mod:`adaptk.profile.levels`.
    """

    prompts: int
    budget_s: float
    target: float
    max_tokens: int
    batches: tuple[int, ...] | None = None
    contexts: tuple[int, ...] | None = None


class Watcher(Protocol):
    """Is told how far a session is."""

    def answering(self, answered: int, seconds_left: float) -> None:
        """Prompts are being answered."""
        ...

    def visiting(self, visit: Visit, progress: Progress) -> None:
        """A visit begins."""
        ...

    def measured(self) -> None:
        """A visit ended, and its blocks are in the journal."""
        ...

    def say(self, text: str) -> None:
        """Something worth a line happened."""
        ...


class Session:
    """Measures until the plan is met, and holds what is known at any time.

    Parameters
    ----------
    engine
        Started.
    plan
        What to measure.
    journal
        Takes down everything as it happens.
    watcher
        Is told how far it is.
    past
        An earlier run of the same, to go on from.
    bare
        Whether the engine has no drafter, which the journal then says of its visits.
    """

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        journal: Journal,
        watcher: Watcher,
        past: Past | None = None,
        bare: bool = False,
    ) -> None:
        self.acceptance = past.acceptance if past is not None and not bare else AcceptanceCounts()
        self.notes: list[str] = []
        self.allocator: Allocator | None = None
        self._engine = engine
        self._plan = plan
        self._journal = journal
        self._watcher = watcher
        self._past = past
        self._bare = bare
        self._visits = past.of(bare) if past is not None else ()
        self._answer_seconds = past.answer_seconds if past is not None and not bare else 0.0
        self._answered = past.answered if past is not None else 0
        self._seconds = self._answer_seconds + sum(visit.seconds for visit in self._visits)

    @property
    def seconds(self) -> float:
        """Measured so far, earlier runs included."""
        return self._seconds

    @property
    def answered(self) -> int:
        """Prompts answered."""
        return self._answered

    def estimates(self) -> dict[Group, GroupEstimate]:
        """What is concluded from all blocks so far."""
        return self.allocator.estimates() if self.allocator is not None else {}

    def run(self) -> None:
        """Answer prompts, then visit until the allocator ends it.

        Raises
        ------
        EngineDiedError
            If the engine dies; what it died of is in the journal.
        JournalError
            If the journal cannot be written.
        ValueError
            If nothing that was asked for fits the engine.
        """
        self._fitting()  # where nothing fits, nothing need be answered
        if max(self._engine.info.arms) > 0:
            self._answer(max(self._engine.info.arms), self._longest_answer())
        self.allocator = self._allocator()
        while (visit := self.allocator.next(self._seconds)) is not None:
            self._watcher.visiting(visit, self.allocator.progress(self._seconds))
            self._visit(visit)

    def _longest_answer(self) -> int:
        """Tokens of an answer: what was asked for, unless that left prompts less than half of the engine's length.

        Raises
        ------
        ValueError
            If that is nothing.
        """
        info = self._engine.info
        room = info.max_model_len // 2 - max(info.arms) - 2
        if room < 1:
            raise ValueError(f"max_model_len {info.max_model_len} is too short for any answer with K={max(info.arms)}")
        if room < self._plan.max_tokens:
            self.notes.append(f"answers were cut at {room} tokens, as max_model_len is {info.max_model_len}")
        return min(room, self._plan.max_tokens)

    def _answer(self, k: int, max_tokens: int) -> None:
        """Answer prompts until the acceptance length is known well, or its share of the budget is spent."""
        limit = max(ANSWER_SHARE * self._plan.budget_s, LEAST_ANSWER_S)
        spent = self._answer_seconds
        size = min(AT_ONCE, self._engine.info.max_num_seqs)
        if self._died_answering():
            self.notes.append("two engines died in the answers: they were left out, and acceptance is what it was")
            return
        while spent < limit and self._answered < self._plan.prompts and not self._known(k):
            if spent == 0.0:
                self._ask(AnswerOrder(0, min(size, self._plan.prompts), k, size, WARM_UP_TOKENS, WARM_UP_S))
            last = min(self._answered + 2 * size, self._plan.prompts)
            self._watcher.answering(self._answered, self._plan.budget_s - spent)
            answered = self._ask(AnswerOrder(self._answered, last, k, size, max_tokens, limit - spent))
            counts = AcceptanceCounts.from_records(answered.records, k)
            self._journal.write(Answers(first=self._answered, last=last, counts=counts, seconds=answered.seconds))
            self.acceptance = self.acceptance.merge(counts)
            self._answered = last
            spent += answered.seconds
            self._seconds += answered.seconds
        if not any(self.acceptance.tried):
            self.notes.append(
                "no draft was tried in the answers: acceptance is unknown, and steps were timed with all their drafts"
            )

    def _ask(self, order: AnswerOrder) -> Answered:
        try:
            return self._engine.answer(order)
        except EngineDiedError as error:
            self._died(error, Died(batch=order.concurrency, k=order.k, context=None, reason=str(error)))
            raise

    def _died_answering(self) -> bool:
        """Whether two engines died in the answers: these are then left out."""
        deaths = self._past.deaths if self._past is not None else ()
        return sum(died.context is None for died in deaths) > 1

    def _known(self, k: int) -> bool:
        if not self.acceptance.clustered:
            return False
        length, error = self.acceptance.acceptance_length(k)
        return error < ANSWER_ERROR * length

    def _allocator(self) -> Allocator:
        plan, counts = self._plan, self._counts()
        batches, contexts, groups, notes = self._fitting()
        if not self._bare:
            self._journal.write(Gridded(batches=batches, contexts=contexts))
        self.notes += notes
        for note in notes:
            self._watcher.say(note)
        allocator = Allocator(
            groups,
            self._engine.info.arms,
            plan.budget_s,
            plan.target,
            steps=levels.STEPS,
            blocks=levels.BLOCKS,
            acceptance=counts,
        )
        if self._past is not None:
            self._restore(allocator, self._past)
        return allocator

    def _fitting(self) -> tuple[tuple[int, ...], tuple[int, ...], list[Group], list[str]]:
        """Batches and contexts that are wanted, the groups of them that fit the engine, and why others do not.

        Raises
        ------
        ValueError
            If none does.
        """
        info, plan = self._engine.info, self._plan
        growth = levels.Growth.of((*info.arms,) * levels.BLOCKS, _lengths(self._counts()))
        batches = plan.batches or tuple(levels.default_batches(info))
        contexts = plan.contexts or tuple(levels.default_contexts(info, growth))
        groups, notes = levels.fitting(batches, contexts, info, growth)
        if not groups:
            why = "".join(f"\n  {note}" for note in notes)
            raise ValueError(
                f"nothing that was asked for fits this engine; change the engine or what is asked for:{why}"
            )
        return batches, contexts, groups, notes

    def _counts(self) -> AcceptanceCounts | None:
        return self.acceptance if any(self.acceptance.tried) else None

    def _restore(self, allocator: Allocator, past: Past) -> None:
        failed = [(Group(batch, context), k) for visit in self._visits for batch, k, context in visit.dropped]
        blocks = [block for visit in self._visits for block in visit.blocks]
        deaths = [died for died in past.deaths if died.bare is self._bare]
        for died in deaths:
            if _was_its_own_doing(died, deaths, blocks):
                failed += [(g, k) for g in allocator.grid for k in allocator.arms if _needs_as_much(g, k, died)]
        # What was measured beside the grid of now stays in the table.
        allocator.restore(blocks, {visit.visit: visit.seconds for visit in self._visits}, failed)

    def _visit(self, visit: Visit) -> None:
        assert self.allocator is not None
        growth = levels.Growth.of(visit.order, _lengths(self._counts()), visit.steps)
        order = StayOrder(
            batch=visit.group.batch,
            context=visit.group.context or 0.0,
            length=levels.prompt_length(int(visit.group.context or 0), growth),
            order=visit.order,
            steps=visit.steps,
            visit=visit.number,
            at_s=self._seconds,
            supply=self._supply(),
        )
        began = time.monotonic()
        try:
            stayed = self._engine.stay(order)
        except EngineDiedError as error:
            k = error.doing.k if error.doing is not None else max(visit.arms)
            died = Died(batch=visit.group.batch, k=k, context=visit.group.context, reason=str(error), bare=self._bare)
            self._died(error, died)
            raise
        taken = max(stayed.seconds, time.monotonic() - began)  # what the engine knows of, and the way there and back
        self._seconds += taken
        before = set(self.allocator.left_out)
        if stayed.blocks or not stayed.note:
            self.allocator.done(visit, stayed.blocks, taken)
        else:
            self.allocator.failed(visit)
        dropped = tuple((g.batch, k, g.context) for g, k in self.allocator.left_out if (g, k) not in before)
        self._journal.write(
            Visited(
                visit=visit.number,
                blocks=stayed.blocks,
                seconds=taken,
                dropped=dropped,
                note=stayed.note,
                bare=self._bare,
            )
        )
        if stayed.note:
            self.notes.append(f"batch {visit.group.batch}, context {visit.group.context:g}: {stayed.note}")
            self._watcher.say(self.notes[-1])
        self._watcher.measured()

    def _supply(self) -> tuple[float, ...]:
        """What drafts are filled up or cut down to: nothing where the drafter delivers anyway."""
        most = max(self._engine.info.arms)
        if not any(self.acceptance.asked):
            return (1.0,) * most  # unknown: all of them, rather than what made-up text happens to give
        supply = tuple(self.acceptance.supply())
        return supply if min(supply) < ALWAYS else ()

    def _died(self, error: EngineDiedError, died: Died) -> None:
        self.notes.append(f"the engine died at K={died.k}, batch {died.batch}: {str(error).splitlines()[0]}")
        self._journal.write(died)


def _lengths(counts: AcceptanceCounts | None) -> Callable[[int], float]:
    """Acceptance length of a K, tokens per request and step; a guess where nothing was answered."""
    if counts is None:
        return lambda k: 1.0 + 0.5 * k
    return lambda k: counts.acceptance_length(k)[0]


def _was_its_own_doing(died: Died, deaths: Sequence[Died], blocks: Sequence[Block]) -> bool:
    """Whether an engine died of the cell and not of something else: twice at it, or at one that never went well."""
    again = sum((other.batch, other.k, other.context) == (died.batch, died.k, died.context) for other in deaths) > 1
    went_well = any((b.batch, b.k, b.context) == (died.batch, died.k, died.context) for b in blocks)
    return died.context is not None and (again or not went_well)


def _needs_as_much(group: Group, k: int, died: Died) -> bool:
    """Whether a cell takes at least as much memory and width as the one at which an engine died."""
    if k < died.k or group.batch < died.batch:
        return False
    return group.context is None or died.context is None or group.context >= died.context
