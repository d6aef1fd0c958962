"""One profile from the engine's start to the last visit: answers, visits where they pay, and the journal of both."""

from __future__ import annotations

import time
from collections.abc import Sequence

from adaptk.profile import levels
from adaptk.profile.allocate import Allocator, Visit
from adaptk.profile.answering import Answering
from adaptk.profile.entries import Died, Gridded, Visited
from adaptk.profile.estimate import AcceptanceCounts, Block, Group, GroupEstimate
from adaptk.profile.journal import Journal, Past
from adaptk.profile.orders import Engine, EngineDiedError, StayOrder
from adaptk.profile.plan import Plan, Watcher


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
        self.allocator: Allocator | None = None
        self._engine = engine
        self._plan = plan
        self._journal = journal
        self._watcher = watcher
        self._past = past
        self._bare = bare
        self._visits = past.of(bare) if past is not None else ()
        before = past if not bare else None
        self._answering = Answering(
            engine,
            plan,
            watcher,
            journal.write,
            acceptance=before.acceptance if before is not None else None,
            answered=past.answered if past is not None else 0,
            seconds=before.answer_seconds if before is not None else 0.0,
        )
        self.notes = self._answering.notes
        self._visits_s = sum(visit.seconds for visit in self._visits)

    @property
    def seconds(self) -> float:
        """Measured so far, earlier runs included."""
        return self._answering.seconds + self._visits_s

    @property
    def answered(self) -> int:
        """Prompts answered."""
        return self._answering.answered

    @property
    def acceptance(self) -> AcceptanceCounts:
        """Counts of the answers."""
        return self._answering.acceptance

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
            self._answer()
        self.allocator = self._allocator()
        while (visit := self.allocator.next(self.seconds)) is not None:
            self._watcher.visiting(visit, self.allocator.progress(self.seconds))
            self._visit(visit)

    def _answer(self) -> None:
        if self._died_answering():
            self.notes.append("two engines died in the answers: they were left out, and acceptance is what it was")
            return
        answering = self._answering
        try:
            answering.run()
        except EngineDiedError as error:
            self._died(error, Died(batch=answering.at_once, k=answering.k, context=None, reason=str(error)))
            raise

    def _died_answering(self) -> bool:
        """Whether two engines died in the answers: these are then left out."""
        deaths = self._past.deaths if self._past is not None else ()
        return sum(died.context is None for died in deaths) > 1

    def _allocator(self) -> Allocator:
        plan = self._plan
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
            acceptance=self._answering.counts(),
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
        growth = levels.Growth.of((*info.arms,) * levels.BLOCKS, self._answering.length)
        batches = plan.batches or tuple(levels.default_batches(info))
        contexts = plan.contexts or tuple(levels.default_contexts(info, growth))
        groups, notes = levels.fitting(batches, contexts, info, growth)
        if not groups:
            why = "".join(f"\n  {note}" for note in notes)
            raise ValueError(
                f"nothing that was asked for fits this engine; change the engine or what is asked for:{why}"
            )
        return batches, contexts, groups, notes

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
        growth = levels.Growth.of(visit.order, self._answering.length, visit.steps)
        order = StayOrder(
            batch=visit.group.batch,
            context=visit.group.context or 0.0,
            length=levels.prompt_length(int(visit.group.context or 0), growth),
            order=visit.order,
            steps=visit.steps,
            visit=visit.number,
            at_s=self.seconds,
            supply=self._answering.supply(),
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
        self._visits_s += taken
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
