"""How long one call takes: by the clock, or as a CUDA graph between two events."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

Run = Callable[[], Any]
Sampler = Callable[[], float]
"""Runs once and gives the milliseconds it took."""


class Timer(Protocol):
    """Makes samplers of calls; the first runs of a call, which are slower, are over when :meth:`prepare` returns."""

    graph_mode: str
    warm_up: int

    def prepare(self, run: Run) -> Sampler:
        """A sampler of ``run``."""
        ...

    def close(self) -> None:
        """Give back what the samplers held; they are of no use afterwards."""
        ...


class WallTimer:
    """Times calls that have finished when they return, as on a CPU.

    Parameters
    ----------
    clock
        Seconds, rising.
    """

    graph_mode = "none"
    warm_up = 1

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock

    def prepare(self, run: Run) -> Sampler:
        """A sampler of ``run``, warmed up."""
        for _ in range(self.warm_up):
            run()

        def sample() -> float:
            start = self._clock()
            run()
            return 1000.0 * (self._clock() - start)

        return sample

    def close(self) -> None:
        """Nothing is held."""


class GraphTimer:
    """Captures a call as a CUDA graph and times its replays with events, as an engine would run it.

    The graphs of one timer share their memory: each writes all that it reads, and no result is kept.
    """

    graph_mode = "cuda-graph"
    warm_up = 2

    def __init__(self) -> None:
        import torch

        self._pool = torch.cuda.graph_pool_handle()
        self._held: list[tuple[Any, Run]] = []

    def prepare(self, run: Run) -> Sampler:
        """A sampler of ``run``, captured and replayed once."""
        import torch

        aside = torch.cuda.Stream()  # libraries set themselves up in the first runs, which a capture forbids
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(self.warm_up):
                run()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            run()
        graph.replay()
        torch.cuda.synchronize()
        self._held.append((graph, run))  # a graph reads the inputs of its call where they were, so they must stay
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

        def sample() -> float:
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end))

        return sample

    def close(self) -> None:
        """Free the graphs and their memory."""
        import torch

        for graph, _ in self._held:
            graph.reset()
        self._held.clear()
        torch.cuda.empty_cache()
