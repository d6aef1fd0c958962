"""A whole profile: the engine, then, if wanted, the one without a drafter, and the table, rewritten as it goes."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from adaptk._version import __version__
from adaptk.profile.entries import Began
from adaptk.profile.estimate import Group, GroupEstimate, estimate
from adaptk.profile.journal import Journal, Past
from adaptk.profile.orders import Engine, EngineInfo, EngineOrder
from adaptk.profile.plan import Plan, Watcher
from adaptk.profile.prompts import digest
from adaptk.profile.result import Tax, build_table, taxes
from adaptk.profile.secrets import shown_command, without_secrets
from adaptk.profile.session import Session
from adaptk.table import GoodputTable
from adaptk.tablekey import differences

BASELINE_SHARE = 0.2  # of the budget


class Request(NamedTuple):
    """What was asked for.

    Parameters
    ----------
    engine
        Which engine.
    plan
        What to measure.
    out
        The table's file.
    command
        As it was typed, part by part, for the table's notes.
    baseline, resume
        Whether the engine without a drafter is measured too, and whether an earlier run is gone on with.
    prompts_file
        Where the prompts came from; ``None``: the built-in ones.
    shown
        The command that the table names, where that is not ``command`` but the one that is resumed.
    """

    engine: EngineOrder
    plan: Plan
    out: Path
    command: tuple[str, ...]
    baseline: bool = False
    resume: bool = False
    prompts_file: str | None = None
    shown: str = ""


class Profile:
    """Runs a request; what is known so far is in the table's file whenever it ends.

    Parameters
    ----------
    request
        What was asked for.
    start
        Starts an engine.
    watcher
        Is told how far it is.
    """

    def __init__(self, request: Request, start: Callable[[EngineOrder], Engine], watcher: Watcher) -> None:
        self.table: GoodputTable | None = None
        self.taxes: list[Tax] = []
        self._request = request
        self._start = start
        self._watcher = watcher
        self._info: EngineInfo | None = None
        self._past: Past | None = None
        self._session: Session | None = None
        self._bare: Session | None = None

    @property
    def notes(self) -> list[str]:
        """What a reader of the table should know."""
        return [note for session in (self._session, self._bare) if session is not None for note in session.notes]

    @property
    def summary(self) -> str:
        """What is known how well, and why it ended."""
        allocator = self._session.allocator if self._session is not None else None
        return allocator.summary() if allocator is not None else ""

    def run(self) -> None:
        """Measure and write; after any error, too, the table holds what was measured until then.

        Raises
        ------
        EngineDiedError
            If an engine does not start or dies.
        JournalError
            If the journal cannot be written, or is of something else than what is to be resumed.
        TableError
            If the table cannot be written.
        ValueError
            If nothing fits the engine.
        """
        request = self._request
        with Journal(journal_path(request.out), request.resume) as journal:
            past = self._past = journal.past
            if past is not None:
                request = self._request = _as_before(request, past)
            engine = self._start(request.engine)
            try:
                self._info = engine.info
                if past is not None:
                    _check_key(past, engine.info, journal.path)
                journal.write(_began(request, engine.info))
                self._measure(engine, journal, past)
            finally:
                engine.close()
            if request.baseline:
                self._measure_bare(journal, past)

    def save(self) -> None:
        """Write what is known; nothing where that is nothing.

        Raises
        ------
        TableError
            If the file cannot be written.
        """
        if self._session is None or self._info is None:
            return
        bare = self._without_drafter()
        table = build_table(
            self._session.estimates(), self._session.acceptance, self._info.key, self._provenance(), bare
        )
        if table is not None:
            self.table, self.taxes = table, taxes(self._session.estimates(), bare)
            table.save(self._request.out)

    def _measure(self, engine: Engine, journal: Journal, past: Past | None) -> None:
        request = self._request
        share = 1.0 - BASELINE_SHARE * request.baseline
        plan = request.plan._replace(budget_s=share * request.plan.budget_s)
        self._session = Session(engine, plan, journal, _Saving(self._watcher, self.save), past)
        try:
            self._session.run()
        finally:
            self.save()

    def _measure_bare(self, journal: Journal, past: Past | None) -> None:
        request, session = self._request, self._session
        assert session is not None
        assert session.allocator is not None
        engine = self._start(request.engine._replace(drafter=False, arms=None))
        try:
            grid = session.allocator.grid
            plan = request.plan._replace(
                budget_s=BASELINE_SHARE * request.plan.budget_s,
                batches=tuple(sorted({group.batch for group in grid})),
                contexts=tuple(sorted({int(group.context or 0) for group in grid})),
            )
            self._bare = Session(engine, plan, journal, _Saving(self._watcher, self.save), past, bare=True)
            self._bare.run()
        finally:
            engine.close()
            self.save()

    def _without_drafter(self) -> dict[Group, GroupEstimate]:
        """Of this run, or where it leaves that engine out, of an earlier one."""
        return self._bare.estimates() if self._bare is not None else self._bare_before

    @cached_property
    def _bare_before(self) -> dict[Group, GroupEstimate]:
        visits = self._past.of(bare=True) if self._past is not None else ()
        return estimate(block for visit in visits for block in visit.blocks)

    def _provenance(self) -> dict[str, Any]:
        session, engine = self._session, self._request.engine
        assert session is not None
        allocator = session.allocator
        return {
            "how": "adaptk profile",
            "adaptk": __version__,
            "command": self._request.shown or shown_command(self._request.command),
            "date": time.strftime("%Y-%m-%d"),
            "machine": f"{platform.machine()}, {platform.system()}",
            "seconds": round(session.seconds, 1),
            "prompts": session.answered,
            "prompts_digest": digest(engine.prompts),
            "temperature": engine.temperature,
            "max_tokens": self._request.plan.max_tokens,
            "ended": (allocator.reason if allocator is not None else None) or "cut short",
            "notes": session.notes,
        }


class _Saving:
    """Passes on what a session says, and saves the table after each visit."""

    def __init__(self, watcher: Watcher, save: Callable[[], None]) -> None:
        self.answering = watcher.answering
        self.visiting = watcher.visiting
        self.say = watcher.say
        self._measured = watcher.measured
        self._save = save

    def measured(self) -> None:
        """A visit ended."""
        self._save()
        self._measured()


def journal_path(out: Path) -> Path:
    """Where the journal of a table lies: beside it.

    Examples
    --------
    >>> journal_path(Path("tables/a.json")).name
    'a.profile.jsonl'
    """
    return out.with_name(f"{out.stem}.profile.jsonl")


def _began(request: Request, info: EngineInfo) -> Began:
    return Began(
        arguments=without_secrets(request.engine.arguments),
        info=info,
        prompts=digest(request.engine.prompts),
        prompts_file=request.prompts_file,
        temperature=request.engine.temperature,
        max_tokens=request.plan.max_tokens,
        budget_s=request.plan.budget_s,
        target=request.plan.target,
        command=request.shown or shown_command(request.command),
        date=time.strftime("%Y-%m-%d"),
    )


def _as_before(request: Request, past: Past) -> Request:
    """The request with what it leaves open taken from the run that it goes on with.

    Counts of other prompts, or of answers drawn otherwise, cannot be added up.
    """
    asked: Sequence[tuple[str, object, object]] = (
        ("prompts", past.began.prompts, digest(request.engine.prompts)),
        ("temperature", past.began.temperature, request.engine.temperature),
        ("max-tokens", past.began.max_tokens, request.plan.max_tokens),
    )
    for name, before, now in asked:
        if before != now:
            said = "are others than" if name == "prompts" else f"is {now}, was {before} in"
            raise ValueError(f"--{name} {said} the run that is to be resumed: give the same, or begin anew")
    plan = request.plan
    spent = past.answer_seconds + sum(visit.seconds for visit in past.of(bare=False))
    if spent >= plan.budget_s and not request.baseline:
        raise ValueError(
            f"--budget is {plan.budget_s:.0f} s for all runs together, and {spent:.0f} s are spent: give more"
        )
    if past.grid is not None:
        batches, contexts = plan.batches or past.grid.batches, plan.contexts or past.grid.contexts
        plan = plan._replace(batches=batches, contexts=contexts)
    engine = request.engine
    if engine.arms is None:
        engine = engine._replace(arms=past.began.info.arms)
    return request._replace(engine=engine, plan=plan, shown=past.began.command)


def _check_key(past: Past, info: EngineInfo, path: Path) -> None:
    found = differences(past.began.info.key, info.key)
    if found:
        raise ValueError(f"{path} was measured on another engine ({'; '.join(found)}): begin anew, with another --out")
