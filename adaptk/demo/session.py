"""One demonstration from start to end: engines, profile, rounds in which the policies take turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from adaptk.demo import load
from adaptk.demo.engine import EngineError, LocalEngine, RemoteEngine, Runner, prepare_environment
from adaptk.demo.measure import Turn
from adaptk.demo.model import ensure_model
from adaptk.demo.policies import ADAPTK, NONE, POLICIES, RIGHT_AND_WRONG, Played, Recorder, steered
from adaptk.demo.profile import BATCHES, QUICK_BATCHES, profile
from adaptk.progress import Progress
from adaptk.table import GoodputTable
from adaptk.tablekey import differences
from adaptk.trace import TraceWriter


class Options(NamedTuple):
    """How much is run, from which table, and where adaptk's steps are written.

    Parameters
    ----------
    rounds
        Rounds in which every policy runs every phase.
    quick
        Whether phases are short.
    trace
        File for adaptk's steps.
    table
        What policies start from; ``None``: one that is profiled on the first phase's load just before.
    distortion
        Compare only what starts from the table with what starts from one that is wrong by this factor.
    """

    rounds: int
    quick: bool = False
    trace: Path | None = None
    table: GoodputTable | None = None
    distortion: float | None = None

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that take turns."""
        return POLICIES if self.distortion is None else RIGHT_AND_WRONG


class Outcome:
    """What was measured; filled while the session runs, so that an interrupt leaves what there is."""

    def __init__(self) -> None:
        self.policies: tuple[str, ...] = POLICIES
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
        return sum(count == len(self.policies) * len(load.PHASES) for count in by_round.values())


def order(round_: int, place: int, policies: Sequence[str] = POLICIES) -> list[str]:
    """The order in which the policies take their turns at phase number ``place``: each round begins with another."""
    shift = (round_ + 2 * place) % len(policies)
    return [*policies[shift:], *policies[:shift]]


def schedule(rounds: int, size: load.Size, policies: Sequence[str] = POLICIES) -> Iterator[tuple[int, load.Phase, str]]:
    """All turns in their order: round by round, phase by phase, policy by policy."""
    for round_ in range(rounds):
        for place, phase in enumerate(load.phases(round_, size)):
            for policy in order(round_, place, policies):
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
    apart: dict[str, Runner] = {}
    if NONE in options.policies:
        progress.say("Starting two engines: one with the n-gram drafter, one without")
        # The first starts in its own process while the second starts in this one.
        apart[NONE] = alone = RemoteEngine(model)
        cleanup.callback(alone.close)
    else:
        progress.say("Starting the engine")
    shared = LocalEngine(model, drafter=True)
    cleanup.callback(shared.close)
    for engine in apart.values():
        engine.run(load.chat_phase(-1, 8))  # a first run pays for what is made only once
    outcome.policies = options.policies
    outcome.table = _table(options, shared, progress)
    policies = {
        name: Recorder(policy, writer if name == ADAPTK else None)
        for name, policy in steered(outcome.table, load.MAX_BATCH, options.distortion).items()
    }
    _take_turns(options, outcome, progress, apart, shared, policies)


def _table(options: Options, engine: LocalEngine, progress: Progress) -> GoodputTable:
    """The table that was given, if it is this engine's, else a new one."""
    if options.table is not None:
        wrong = differences(options.table.key, engine.key)
        if wrong:
            raise EngineError(f"the table is of another engine ({'; '.join(wrong)}): profile this one, or leave it out")
        return options.table
    batches = QUICK_BATCHES if options.quick else BATCHES
    progress.begin("Profiling a table on the first phase's load", len(batches))
    return profile(engine, batches, 2 if options.quick else 3, lambda batch: progress.done(f"batch {batch}"))


def _take_turns(
    options: Options,
    outcome: Outcome,
    progress: Progress,
    apart: dict[str, Runner],
    shared: Runner,
    policies: dict[str, Recorder],
) -> None:
    size = load.QUICK if options.quick else load.FULL
    turns = list(schedule(options.rounds, size, options.policies))
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
