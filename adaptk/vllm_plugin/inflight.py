"""The steps that were scheduled and whose output has not come back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from adaptk.vllm_plugin.collect import Step

# More steps in flight than any engine has: their outputs are not coming.
_MOST = 64


class Unsteered:
    """A step in flight that was left to vLLM."""

    def __init__(self, output: Any) -> None:
        self.output = output


class InFlight:
    """A queue of steps, told apart by the ``SchedulerOutput`` that vLLM hands back with each result."""

    def __init__(self) -> None:
        self._steps: deque[Step | Unsteered] = deque()

    def __bool__(self) -> bool:
        return bool(self._steps)

    def steered(self) -> Iterator[Step]:
        """Those that are adaptk's, the oldest first."""
        return (step for step in self._steps if isinstance(step, Step))

    def add(self, step: Step | Unsteered) -> Step | Unsteered | None:
        """Take in the step scheduled last; gives the oldest one where its output can no longer be expected."""
        self._steps.append(step)
        return self._steps.popleft() if len(self._steps) > _MOST else None

    def take(self, output: Any) -> tuple[Step | Unsteered | None, Sequence[Step | Unsteered]]:
        """The step of an output, ``None`` where there is none, and those before it: outputs come in order."""
        steps = self._steps
        if steps and steps[0].output is output:
            return steps.popleft(), ()
        place = next((i for i, step in enumerate(steps) if step.output is output), None)
        if place is None:
            return None, ()
        lost = [steps.popleft() for _ in range(place)]
        return steps.popleft(), lost
