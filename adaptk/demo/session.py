"""One demonstration from start to end: engines, profile, rounds in which the policies take turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from adaptk.demo import load
from adaptk.demo.engine import LocalEngine, RemoteEngine, Runner, prepare_environment
from adaptk.demo.measure import Turn
from adaptk.demo.model import ensure_model
from adaptk.demo.policies import ADAPTK, NONE, POLICIES, Played, Recorder, steered
from adaptk.demo.profile import BATCHES, QUICK_BATCHES, profile
from adaptk.demo.progress import Progress
from adaptk.table import GoodputTable
from adaptk.trace import TraceWriter


class Options(NamedTuple):
    """How much is run, and where adaptk's steps are written."""

    rounds: int
    quick: bool = False
    trace: Path | None = None


class Outcome:
    """What was measured; filled while the session runs, so that an interrupt leaves what there is."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.played: dict[str, Sequence[Played]] = {}  # adaptk's steps of the last round, by phase
        self.table: GoodputTable | None = None
        self.interrupted = False

    @property
    def greedy(self) -> list[str]:
        """Phases in which every policy should generate the same tokens."""
        return [phase.name for phase in load.phases(0, load.QUICK) if phase.greedy]

    @property
    def rounds(self) -> int:
        """Rounds that every policy finished."""
        by_round: dict[int, int] = {}
        for turn in self.turns:
            by_round[turn.round] = by_round.get(turn.round, 0) + 1
        return sum(count == len(POLICIES) * len(load.PHASES) for count in by_round.values())


def order(round_: int, place: int) -> list[str]:
    """The order in which the policies take their turns at phase number ``place``: each round begins with another."""
    shift = (round_ + 2 * place) % len(POLICIES)
    return [*POLICIES[shift:], *POLICIES[:shift]]


def schedule(rounds: int, size: load.Size) -> Iterator[tuple[int, load.Phase, str]]:
    """All turns in their order: round by round, phase by phase, policy by policy."""
    for round_ in range(rounds):
        for place, phase in enumerate(load.phases(round_, size)):
            for policy in order(round_, place):
                yield round_, phase, policy


def run(options: Options, outcome: Outcome, progress: Progress) -> None:
    """Run the demonstration, filling ``outcome``; an interrupt by the user ends it early.

    Raises
    ------
    EngineError, ModelError
        If something is not installed or an engine failed.
    adaptk.trace.TraceError
        If the trace cannot be written.
    """
    try:
        with ExitStack() as cleanup:
            _run(options, outcome, progress, cleanup)
    except KeyboardInterrupt:
        outcome.interrupted = True


def _run(options: Options, outcome: Outcome, progress: Progress, cleanup: ExitStack) -> None:
    prepare_environment()
    writer = None
    if options.trace is not None:
        writer = TraceWriter(options.trace, {"source": "adaptk demo"})
        cleanup.callback(writer.close)
    progress.say("Preparing the model (converted once, then kept)")
    model = ensure_model()
    progress.say("Starting two engines: one with the n-gram drafter, one without")
    # The first starts in its own process while the second starts in this one.
    alone = RemoteEngine(model)
    cleanup.callback(alone.close)
    shared = LocalEngine(model, drafter=True)
    cleanup.callback(shared.close)
    # A first run pays for what is made only once.
    alone.run(load.chat_phase(-1, 8))
    batches = QUICK_BATCHES if options.quick else BATCHES
    progress.begin("Profiling a table on the first phase's load", len(batches))
    outcome.table = profile(shared, batches, 2 if options.quick else 3, lambda batch: progress.done(f"batch {batch}"))
    policies = {
        name: Recorder(policy, writer if name == ADAPTK else None)
        for name, policy in steered(outcome.table, load.MAX_BATCH).items()
    }
    _take_turns(options, outcome, progress, {NONE: alone}, shared, policies)


def _take_turns(
    options: Options,
    outcome: Outcome,
    progress: Progress,
    apart: dict[str, Runner],
    shared: Runner,
    policies: dict[str, Recorder],
) -> None:
    size = load.QUICK if options.quick else load.FULL
    turns = list(schedule(options.rounds, size))
    progress.begin("Taking turns", len(turns))
    for round_, phase, name in turns:
        progress.doing(f"round {round_ + 1}, {phase.name}, {name}")
        recorder = policies.get(name)
        result = apart.get(name, shared).run(phase, recorder)
        outcome.turns.append(Turn(name, phase.name, round_, result))
        if recorder is not None:
            played = recorder.take()
            if name == ADAPTK:
                outcome.played[phase.name] = played
        speed = sum(step.tokens for step in result.steps) / sum(step.ms for step in result.steps) * 1e3
        progress.done(f"round {round_ + 1}, {phase.name}, {name}: {len(result.steps)} steps, {speed:.0f} tokens/s")
