"""An exception put into every function of adaptk in turn costs the engine nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import pytest

from adaptk import trace
from adaptk.vllm_plugin import patches, state
from adaptk.vllm_plugin.metrics import server
from tests.engine.faultyride import Log, Ride, write_table
from tests.engine.injection import Fault, functions, injected, modules, watched

# The boundary itself: it holds nothing but the guards, and what they do; the last three are those of the threads.
BOUNDARY = frozenset(
    f"vllm_plugin.{name}"
    for name in (
        "plugin.register",
        "scheduler.AdaptiveMixin.__init__",
        "scheduler.AdaptiveMixin.schedule",
        "scheduler.AdaptiveMixin._update_after_schedule",
        "scheduler.AdaptiveMixin.get_grammar_bitmask",
        "scheduler.AdaptiveMixin.update_from_output",
        "scheduler.AdaptiveMixin.shutdown",
        "boundary.stand_down",
        "boundary.close",
        "weights._guarded",
        "control._watch",
        "metrics.server._serve",
        "state.Keeper._run",
    )
) | {"trace.TraceWriter._run"}
# What runs in a thread of its own or after the last step: adaptk may stay in charge where it fails.
OFF_THE_STEP = (
    "trace.TraceWriter.",
    "tracedisk.",
    "traceplace.",
    "inputs.",
    "vllm_plugin.control.",
    "vllm_plugin.steering.Steering.close",
    "vllm_plugin.steering.Steering.mode",
    "vllm_plugin.capture.",
    *(f"vllm_plugin.metrics.{name}." for name in ("serving", "server", "request")),
    *(f"vllm_plugin.metrics.{name}." for name in ("page", "rows", "beliefs", "reference")),
    "mirror.",
    *("statefile.", "outputs.", "vllm_plugin.resume."),
    *(f"vllm_plugin.{name}." for name in ("state", "stateplace", "statelock")),
)
STARTS = {"from the start": "entering", "in flight": "in flight"}
Reached = dict[tuple[bool, str], set[str]]


@pytest.fixture(scope="module")
def log() -> Iterator[Log]:
    """Warnings and errors of adaptk's loggers."""
    handler = Log()
    loggers = [logging.getLogger(name) for name in ("vllm.adaptk", "adaptk")]
    for logger in loggers:
        logger.addHandler(handler)
    yield handler
    for logger in loggers:
        logger.removeHandler(handler)


@pytest.fixture(autouse=True, scope="module")
def _unpatched() -> Iterator[None]:
    """vLLM is left as it was; meanwhile the trace's thread looks so often that it does in the shortest ride."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "_POLL_S", 0.01)
        yield
    patches.remove()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the table lies."""
    folder = tmp_path_factory.mktemp("ride")
    write_table(folder / "table.json")
    return folder


@pytest.fixture(scope="module")
def reached(model: Path, folder: Path, log: Log) -> Reached:
    """Names of the functions that run in a ride in which nothing fails: at all, and once it is in flight."""
    named = {f.__code__: name for module in modules() for name, f in functions(module).items()}
    found: Reached = {}
    for asynchronous in (False, True):
        Ride(model, folder, asynchronous=asynchronous).run()  # what is done once a process is done here
        patches.remove()
        phases: list[set[CodeType]] = [set()]
        ride = Ride(model, folder, asynchronous=asynchronous, at=partial(_begin_set, phases))
        with watched(partial(_add_to_last, phases)):
            ride.run()
        ride.check()
        assert "adaptk_reference_tokens_total{" in ride.metrics
        assert ride.steering.active
        assert log.lines == []
        *_, in_flight, ending = phases
        for start, codes in zip(STARTS, (set().union(*phases), in_flight | ending), strict=True):
            found[asynchronous, start] = {named[code] for code in codes if code in named} - BOUNDARY
    return found


def _begin_set(phases: list[set[CodeType]], _: str) -> None:
    phases.append(set())


def _add_to_last(phases: list[set[CodeType]], code: CodeType) -> None:
    phases[-1].add(code)


def test_most_of_it_is_reached(reached: Reached) -> None:
    """The tests below test something: so many functions run, of those that the plugin loads."""
    counts = {(("async" if key[0] else "sync"), key[1]): len(names) for key, names in reached.items()}
    floors = {"from the start": 320, "in flight": 180}
    assert all(count >= floors[start] for (_, start), count in counts.items()), counts


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__.removeprefix("adaptk."))
def test_every_function(
    model: Path, folder: Path, log: Log, reached: Reached, module: ModuleType, asynchronous: bool, start: str
) -> None:
    """Whichever function raises: every request is answered in full, vLLM's K is in force, and it is said once."""
    wrong = {}
    for name, function in functions(module).items():
        if name in reached[asynchronous, start]:
            log.lines.clear()
            try:
                _ride_with_fault(model, folder, log, function, name, asynchronous=asynchronous, start=start)
            except Exception as error:
                wrong[name] = f"{type(error).__name__}: {error}"[:400]
    assert wrong == {}


def _ride_with_fault(
    model: Path, folder: Path, log: Log, function: FunctionType, name: str, *, asynchronous: bool, start: str
) -> None:
    fault = Fault()
    patches.remove()
    (folder / "trace-0.jsonl").touch()  # an older one, to be moved aside, whatever the fault before left there
    with ExitStack() as stack:

        def at(phase: str) -> None:
            if phase == STARTS[start]:
                stack.enter_context(injected(function, fault))

        ride = Ride(model, folder, asynchronous=asynchronous, at=at)
        ride.run()
    for writer in list(trace._open_writers):  # those that nobody could close
        writer.close()
    for http in list(server._open):
        http.wake()
    for keeper in list(state._open):
        keeper.give_up()
        keeper.wait()
        keeper._finish()
    ride.check()
    assert fault.raised, "it was not called"
    assert log.lines
    assert len(set(log.lines)) == len(log.lines), log.lines
    # Where metrics are made, and where a state is read, moved and saved, each part tells its fault.
    others = [line for line in log.lines if "metrics" not in line and "state" not in line]
    others = [line for line in others if "rows did not reach" not in line]  # at its end, a trace says how many
    assert len(others) <= 1, log.lines
    steering = ride.steering
    if others and steering is not None and not name.startswith(OFF_THE_STEP):
        assert not steering.active
        assert steering.faults == (1 if start == "in flight" else steering.faults)
        assert steering.faults <= 1
        assert steering.reason
