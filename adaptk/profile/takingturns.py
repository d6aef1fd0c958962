"""The engine with its drafter and the engine without one, timed in turns: what a drafter costs, and what its K give."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from adaptk.profile import levels
from adaptk.profile.alloc_order import arm_order
from adaptk.profile.alloc_visit import Progress, Visit
from adaptk.profile.answering import Answering
from adaptk.profile.estimate import AcceptanceCounts, Block, Group
from adaptk.profile.orders import Engine, EngineDiedError, EngineOrder, StayOrder
from adaptk.profile.plan import Plan, Watcher
from adaptk.profile.taxrows import TaxRow, tax_rows

FEWEST_ROUNDS = 5  # before an interval that looks narrow is believed
SHARE_OF_MEMORY = "0.4"  # for each of two engines that live side by side
_OF_MEMORY = ("--gpu-memory-utilization", "--kv-cache-memory-bytes", "--kv-cache-memory")
BARE_ORDER = (0,) * 4  # blocks of the engine without a drafter in a turn


class Timed(NamedTuple):
    """The blocks of one engine's turns so far, and seconds that the last turn took, by batch size."""

    blocks: list[Block]
    took: dict[int, float]


class TakingTurns:
    """Plays both engines at each batch size in turn, round after round, until the time is up or the answer is known.

    The two live side by side, each in a process of its own, and alternate in who goes first: what the machine does
    from one minute to the next hits both, and rounds are compared in pairs. Where they do not find room for that, they
    run one after the other, each for half of the time, and are compared as strangers.

    Parameters
    ----------
    order
        The engine with its drafter.
    plan
        What to measure; of the contexts one, by default the lower level of a profile's.
    start
        Starts an engine.
    watcher
        Is told how far it is.
    """

    def __init__(
        self, order: EngineOrder, plan: Plan, start: Callable[[EngineOrder], Engine], watcher: Watcher
    ) -> None:
        self.notes: list[str] = []
        self.side_by_side = True
        self.rounds = 0
        self.seconds = 0.0  #: spent in answers and turns
        self.context = 0  #: tokens per request
        self.key: dict[str, object] = {}  #: of the engine with its drafter, see :mod:`adaptk.tablekey`
        self._order = order
        self._plan = plan
        self._start = start
        self._watcher = watcher
        self._answering: Answering | None = None
        self._groups: list[Group] = []
        self._arms: tuple[int, ...] = ()
        self._with, self._without = Timed([], {}), Timed([], {})
        self._rows: list[TaxRow] = []
        self._rows_of = (0, 0)  # blocks that they were made of

    @property
    def acceptance(self) -> AcceptanceCounts:
        """Counts of the answers."""
        return AcceptanceCounts() if self._answering is None else self._answering.acceptance

    def rows(self) -> list[TaxRow]:
        """What is known so far."""
        held = len(self._with.blocks), len(self._without.blocks)
        if held != self._rows_of:  # else they are asked for many times over
            blocks = self._with.blocks, self._without.blocks
            self._rows_of, self._rows = held, tax_rows(*blocks, self.acceptance, paired=self.side_by_side)
        return self._rows

    def run(self) -> None:
        """Start both engines and measure.

        Raises
        ------
        EngineDiedError
            If an engine does not start, or dies; :meth:`rows` holds what was measured until then.
        ValueError
            If nothing fits the engine, or it has no drafter.
        """
        drafter = self._first()
        bare: Engine | None = None
        try:
            bare = self._beside() if self.side_by_side else None
            self._prepare(drafter)
            if bare is not None:
                self._play(((drafter, self._with), (bare, self._without)), self._plan.budget_s)
            else:
                self._play(((drafter, self._with),), self.seconds + (self._plan.budget_s - self.seconds) / 2)
        finally:
            drafter.close()
            if bare is not None:
                bare.close()
        if bare is None:
            self._alone()

    def _first(self) -> Engine:
        """The engine with its drafter, with room left for another one, or where it needs all, with all."""
        asked = self._order
        self._order = asked._replace(arguments=with_half_the_memory(asked.arguments))
        try:
            return self._start(self._order)
        except EngineDiedError as error:
            if self._order == asked:
                raise
            self._order = asked
            engine = self._start(asked)
            self._apart(error)
            return engine

    def _beside(self) -> Engine | None:
        """The engine without a drafter, if it starts while the other one lives."""
        try:
            return self._start(self._without_drafter())
        except EngineDiedError as error:
            self._apart(error)
            return None

    def _apart(self, error: EngineDiedError) -> None:
        self.side_by_side = False
        self._note(
            "two engines did not start side by side, so that they run one after the other and what the machine does "
            f"meanwhile is in the ratios ({str(error).splitlines()[0]})"
        )

    def _alone(self) -> None:
        engine = self._start(self._without_drafter())
        try:
            self._play(((engine, self._without),), self._plan.budget_s)
        finally:
            engine.close()

    def _without_drafter(self) -> EngineOrder:
        return self._order._replace(drafter=False, arms=None)

    def _prepare(self, engine: Engine) -> None:
        """Answer prompts, and find out what fits."""
        info, plan = engine.info, self._plan
        if max(info.arms) == 0:
            raise ValueError("this engine has no drafter: name one in --speculative-config")
        self.key, self._arms = dict(info.key), info.arms
        answering = self._answering = Answering(engine, plan, self._watcher)
        try:
            answering.run()
        finally:
            self.seconds += answering.seconds
            self.notes += answering.notes
        growth = levels.Growth.of((*info.arms,) * levels.BLOCKS, answering.length)
        contexts = (plan.contexts or tuple(levels.default_contexts(info, growth)))[:1]
        batches = plan.batches or tuple(few_batches(levels.default_batches(info)))
        self._groups, notes = levels.fitting(batches, contexts, info, growth)
        if not self._groups:
            raise ValueError("nothing that was asked for fits this engine: " + "; ".join(notes))
        for note in notes:
            self._note(note)
        self.context = contexts[0]

    def _play(self, engines: Sequence[tuple[Engine, Timed]], until_s: float) -> None:
        """Rounds over the batch sizes until ``until_s`` seconds of measuring are spent, or all is known."""
        for round_, group in self._turns([timed for _, timed in engines], until_s):
            turn = Visit(round_, group, BARE_ORDER, levels.STEPS, f"round {round_ + 1}")
            self._watcher.visiting(turn, self._progress(until_s))
            for engine, timed in engines if round_ % 2 == 0 else reversed(engines):
                if group in self._groups:  # else the other engine has just failed at it
                    self._stay(engine, timed, group, round_)
            self._watcher.measured()

    def _turns(self, engines: Sequence[Timed], until_s: float) -> Iterator[tuple[int, Group]]:
        """Round by round each batch size that is not known well, as long as a turn fits into what is left."""
        round_ = 0
        while True:
            wanted = [group for group in self._groups if round_ < FEWEST_ROUNDS or self._open(group)]
            played = 0
            for group in wanted:
                # What the last turn took, the next one will; of a batch size that is new, nothing is known.
                if sum(timed.took.get(group.batch, 0.0) for timed in engines) <= until_s - self.seconds:
                    played += 1
                    yield round_, group
            if not played:
                return
            round_ += 1
            self.rounds = max(self.rounds, round_)

    def _open(self, group: Group) -> bool:
        """Whether a ratio at this batch size is known less well than is wanted; all are, while only one engine ran."""
        mine = [row for row in self.rows() if row.batch == group.batch and row.k is not None]
        return not mine or any(row.relative_width > self._plan.target for row in mine)

    def _stay(self, engine: Engine, timed: Timed, group: Group, round_: int) -> None:
        assert self._answering is not None
        bare = timed is self._without
        order = BARE_ORDER if bare else arm_order(self._arms, round_, 1)
        growth = levels.Growth.of(order, self._answering.length)
        began = time.monotonic()
        stayed = engine.stay(
            StayOrder(
                batch=group.batch,
                context=group.context or 0.0,
                length=levels.prompt_length(int(group.context or 0), growth),
                order=order,
                steps=levels.STEPS,
                visit=round_,
                at_s=self.seconds,
                supply=() if bare else self._answering.supply(),
            )
        )
        taken = max(stayed.seconds, time.monotonic() - began)
        self.seconds += taken
        timed.took[group.batch] = taken
        timed.blocks.extend(stayed.blocks)
        if stayed.note:
            which = "without the drafter" if bare else "with the drafter"
            self._note(f"batch {group.batch} is left out, {which} {stayed.note}")
            self._groups = [other for other in self._groups if other != group]

    def _progress(self, until_s: float) -> Progress:
        rows = [row for row in self.rows() if row.k is not None]
        settled = sum(row.relative_width <= self._plan.target for row in rows)
        left = max(until_s - self.seconds, 0.0)
        cells = len(self._groups) * len(self._arms)
        return Progress(self.seconds / (self.seconds + left), left, len(rows), settled, max(cells, 1))

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self._watcher.say(text)


def few_batches(batches: Sequence[int]) -> list[int]:
    """Every other one of a profile's batch sizes, and the largest.

    Examples
    --------
    >>> few_batches([1, 2, 4, 8, 16]), few_batches([1, 2, 4, 8]), few_batches([1])
    ([1, 4, 16], [1, 4, 8], [1])
    """
    return sorted({*batches[::2], batches[-1]})


def with_half_the_memory(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Arguments of an engine that leaves room for another one; as they are where they say something of memory.

    Examples
    --------
    >>> with_half_the_memory(("m",))
    ('m', '--gpu-memory-utilization', '0.4')
    >>> with_half_the_memory(("m", "--gpu_memory_utilization=0.3"))
    ('m', '--gpu_memory_utilization=0.3')
    """
    names = {part.partition("=")[0].replace("_", "-") for part in arguments}
    return arguments if names.intersection(_OF_MEMORY) else (*arguments, "--gpu-memory-utilization", SHARE_OF_MEMORY)
