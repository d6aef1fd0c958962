"""One profile from the engine's start to the last visit: answers, visits where they pay, and the journal of both."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from adaptk.profile import levels
from adaptk.profile.allocate import Allocator, Progress, Visit
from adaptk.profile.estimate import AcceptanceCounts, Group, GroupEstimate
from adaptk.profile.journal import Answers, Died, Journal, Past, Visited
from adaptk.profile.orders import AnswerOrder, Engine, EngineDiedError, StayOrder

ANSWER_SHARE = 0.2  # of the budget, at most, goes into answers
ANSWER_ERROR = 0.015  # of the acceptance length, relative standard error, at which there are enough
AT_ONCE = 8  # prompts answered together
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
        arms = self._engine.info.arms
        if max(arms) > 0:
            self._answer(max(arms))
        self.allocator = self._allocator(arms)
        while (visit := self.allocator.next(self._seconds)) is not None:
            self._watcher.visiting(visit, self.allocator.progress(self._seconds))
            self._visit(visit)

    def _answer(self, k: int) -> None:
        """Answer prompts until the acceptance length is known well, or its share of the budget is spent."""
        limit = ANSWER_SHARE * self._plan.budget_s
        spent = self._answer_seconds
        size = min(AT_ONCE, self._engine.info.max_num_seqs)
        while spent < limit and self._answered < self._plan.prompts and not self._known(k):
            last = min(self._answered + 2 * size, self._plan.prompts)
            self._watcher.answering(self._answered, limit - spent)
            order = AnswerOrder(self._answered, last, k, size, self._plan.max_tokens, limit - spent)
            try:
                answered = self._engine.answer(order)
            except EngineDiedError as error:
                self._died(error, Died(batch=size, k=k, context=None, reason=str(error)))
                raise
            counts = AcceptanceCounts.from_records(answered.records, k)
            self._journal.write(Answers(first=self._answered, last=last, counts=counts, seconds=answered.seconds))
            self.acceptance = self.acceptance.merge(counts)
            self._answered = last
            spent += answered.seconds
            self._seconds += answered.seconds
        if not self.acceptance.tried or not self.acceptance.tried[0]:
            self.notes.append("no draft was ever tried in the answers: acceptance is unknown")

    def _known(self, k: int) -> bool:
        if not self.acceptance.clustered:
            return False
        length, error = self.acceptance.acceptance_length(k)
        return error < ANSWER_ERROR * length

    def _allocator(self, arms: Sequence[int]) -> Allocator:
        info, plan = self._engine.info, self._plan
        counts = self.acceptance if any(self.acceptance.tried) else None
        self._growth = levels.Growth.of(arms, _lengths(counts))
        batches = plan.batches or levels.default_batches(info)
        contexts = plan.contexts or levels.default_contexts(info, self._growth)
        groups, notes = levels.fitting(batches, contexts, info, self._growth)
        self.notes += notes
        for note in notes:
            self._watcher.say(note)
        if not groups:
            raise ValueError("nothing that was asked for fits this engine: name smaller --batches or --contexts")
        allocator = Allocator(
            groups,
            arms,
            plan.budget_s,
            plan.target,
            steps=levels.STEPS,
            blocks=levels.BLOCKS,
            acceptance=counts,
        )
        if self._past is not None:
            self._restore(allocator, self._past)
        return allocator

    def _restore(self, allocator: Allocator, past: Past) -> None:
        failed = [(Group(batch, context), k) for visit in self._visits for batch, k, context in visit.dropped]
        for died in past.deaths:
            failed += [(g, k) for g in allocator.grid for k in allocator.arms if _needs_as_much(g, k, died)]
        blocks = [block for visit in self._visits for block in visit.blocks]
        wanted = [block for block in blocks if block.group in allocator.grid and block.k in allocator.arms]
        allocator.restore(wanted, {visit.visit: visit.seconds for visit in self._visits}, failed)

    def _visit(self, visit: Visit) -> None:
        assert self.allocator is not None
        supply = tuple(self.acceptance.supply())
        order = StayOrder(
            batch=visit.group.batch,
            context=visit.group.context or 0.0,
            length=levels.prompt_length(int(visit.group.context or 0), self._growth),
            order=visit.order,
            steps=visit.steps,
            visit=visit.number,
            at_s=self._seconds,
            supply=supply if supply and min(supply) < ALWAYS else (),
        )
        began = time.monotonic()
        try:
            stayed = self._engine.stay(order)
        except EngineDiedError as error:
            k = error.doing.k if error.doing is not None else max(visit.arms)
            self._died(error, Died(batch=visit.group.batch, k=k, context=visit.group.context, reason=str(error)))
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

    def _died(self, error: EngineDiedError, died: Died) -> None:
        self.notes.append(f"the engine died at K={died.k}, batch {died.batch}: {str(error).splitlines()[0]}")
        self._journal.write(died)


def _lengths(counts: AcceptanceCounts | None) -> Callable[[int], float]:
    """Acceptance length of a K, tokens per request and step; a guess where nothing was answered."""
    if counts is None:
        return lambda k: 1.0 + 0.5 * k
    return lambda k: counts.acceptance_length(k)[0]


def _needs_as_much(group: Group, k: int, died: Died) -> bool:
    """Whether a cell takes at least as much memory and width as the one at which an engine died."""
    if k < died.k or group.batch < died.batch:
        return False
    return died.context is None or group.context is None or group.context >= died.context
