"""An engine's loop over driven schedulers in made-up time: what each step takes is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.driver import Worker

HOST_S = 0.0002  # of the engine's loop between two of its calls


class Clock:
    """Stands for the module ``time`` in adaptk."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


class Loop:
    """Schedules and updates as vLLM's engine does, with up to ``depth`` steps in flight.

    Parameters
    ----------
    worker
        Makes up the outputs.
    depth
        Steps in flight, 1 for a synchronous engine.
    step_s
        Seconds that the device needs for a step, of its output and of the drafts made in the step before; it works on
        one step after the other.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        worker: Worker,
        depth: int = 1,
        step_s: Callable[[Any, int], float] = lambda output, drafted: 0.012,
    ) -> None:
        self.clock = Clock()
        monkeypatch.setattr("adaptk.vllm_plugin.steering.time", self.clock)
        self.worker, self.depth, self.step_s = worker, depth, step_s
        self.busy_s = 0.0  # of the device, in all
        self._ready: list[float] = []  # when the outputs of the steps in flight are there
        self._free = 0.0  # when the device is
        self._drafted = 0

    def turn(self) -> None:
        """One turn: schedule until ``depth`` steps are in flight, then take the oldest one back."""
        while len(self._ready) < self.depth:
            self.schedule()
        self.update()

    def schedule(self) -> Any:
        output = self.worker.schedule()
        self.clock.now += HOST_S
        took = self.step_s(output, self._drafted) if output.total_num_scheduled_tokens else 0.0
        self.busy_s += took
        self._free = max(self._free, self.clock.now) + took
        self._drafted = output.num_spec_tokens_to_schedule
        self._ready.append(self._free)
        return output

    def update(self) -> None:
        self.clock.now = max(self.clock.now, self._ready.pop(0))
        self.worker.update()
        self.clock.now += HOST_S

    def drain(self) -> None:
        """Take back all that is in flight, as an engine does that has nothing to schedule."""
        while self._ready:
            self.update()

    def wait(self, seconds: float) -> None:
        """Let time pass outside the loop; the device goes on with what it has."""
        self.clock.now += seconds
