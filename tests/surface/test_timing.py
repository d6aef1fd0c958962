"""Timers."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from adaptk.surface.timing import GraphTimer, WallTimer
from tests.surface.small import Clock


def test_the_first_run_is_not_a_sample() -> None:
    """What a first call sets up would be taken for the cost of all."""
    clock, costs = Clock(), iter([500.0, 3.0, 4.0])
    sample = WallTimer(clock).prepare(lambda: clock.wait(next(costs)))
    assert [sample(), sample()] == pytest.approx([3.0, 4.0])


class FakeCuda:
    """What the timer needs of torch.cuda: a capture records calls, a replay makes them, events read a clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.log = clock, list[str]()
        self.capturing: FakeGraph | None = None

    def graph_pool_handle(self) -> str:
        return "pool"

    def Stream(self) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(wait_stream=lambda other: None)

    current_stream = Stream

    @contextmanager
    def stream(self, _: object) -> Any:
        yield

    def CUDAGraph(self) -> FakeGraph:  # noqa: N802
        return FakeGraph(self)

    @contextmanager
    def graph(self, graph: FakeGraph, pool: object) -> Any:
        assert pool == "pool"
        self.log.append("capture")
        self.capturing = graph
        yield
        self.capturing = None

    def Event(self, enable_timing: bool) -> FakeEvent:  # noqa: N802
        assert enable_timing
        return FakeEvent(self.clock)

    def synchronize(self) -> None:
        self.log.append("synchronize")

    def empty_cache(self) -> None:
        self.log.append("empty")

    def kernel(self, ms: float) -> None:
        """Work on the device: recorded while a graph is captured, else done."""
        if self.capturing is not None:
            self.capturing.work.append(lambda: self.clock.wait(ms))
        else:
            self.log.append("run")
            self.clock.wait(ms)


class FakeGraph:
    """Calls that were recorded."""

    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda, self.work = cuda, list[Callable[[], None]]()

    def replay(self) -> None:
        self.cuda.log.append("replay")
        for each in self.work:
            each()

    def reset(self) -> None:
        self.cuda.log.append("reset")


class FakeEvent:
    """A moment of the clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.at_s = clock, 0.0

    def record(self) -> None:
        self.at_s = self.clock()

    def synchronize(self) -> None:
        """Nothing is in flight."""

    def elapsed_time(self, end: FakeEvent) -> float:
        return 1000.0 * (end.at_s - self.at_s)


def test_graphs_are_captured_once_and_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warm runs, a capture, a replay that is thrown away; then each sample is one replay between two events.

    The device is a fake: this holds the order of calls, not what a card makes of them.
    """
    torch = pytest.importorskip("torch")
    clock = Clock()
    cuda = FakeCuda(clock)
    monkeypatch.setattr(torch, "cuda", cuda)
    timer = GraphTimer()
    sample = timer.prepare(lambda: cuda.kernel(7.0))
    assert cuda.log == ["run", "run", "capture", "replay", "synchronize"]
    assert [sample(), sample()] == pytest.approx([7.0, 7.0])
    timer.close()
    assert cuda.log[5:] == ["replay", "replay", "reset", "empty"]
    assert timer.graph_mode == "cuda-graph"


def test_inputs_live_as_long_as_their_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph reads its inputs' memory at each replay: they are held until the timer is closed."""
    torch = pytest.importorskip("torch")
    cuda = FakeCuda(Clock())
    monkeypatch.setattr(torch, "cuda", cuda)

    class Call:
        def __call__(self) -> None:
            cuda.kernel(1.0)

    timer, call = GraphTimer(), Call()
    alive = weakref.ref(call)
    sample = timer.prepare(call)
    del call
    assert alive() is not None
    timer.close()
    del sample
    assert alive() is None
