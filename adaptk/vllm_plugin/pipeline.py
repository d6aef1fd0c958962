"""Which decision made the drafts of a step, where the batches of several pipeline stages take turns."""

from __future__ import annotations

from collections import deque
from typing import Any

from adaptk.vllm_plugin.collect import Step


class Pipeline:
    """Remembers the last steps of an engine whose requests sit out the steps while theirs is in flight.

    With several stages vLLM keeps as many batches in flight, and a request is scheduled again only once its own came
    back. So the drafts that a step verifies were decided when its requests were last scheduled, several steps ago, and
    the time between two updates holds work of several steps.

    Parameters
    ----------
    stages
        Stages of the pipeline, ``>= 2``.
    """

    def __init__(self, stages: int) -> None:
        # All steps that share an interval between two updates with one step: those before it and their drafts' makers.
        self._steps: deque[Step] = deque(maxlen=2 * stages)

    def place(self, step: Step) -> None:
        """Say whose drafts ``step``, whose K is fixed, verifies, and leave it untimed unless all around it have one K.

        Call it for every step with tokens, in the order of their schedules.
        """
        makers = self._makers(step)
        if makers:
            step.asked = max(makers)
        step.timed = step.timed and makers <= {step.k} and all(past.k == step.k for past in self._steps)
        self._steps.append(step)

    def _makers(self, step: Step) -> set[int]:
        """K of the steps in which the decoding requests of ``step`` were last scheduled."""
        makers = set()
        remaining = set(step.output.num_scheduled_tokens if step.decoding is None else step.decoding)
        for past in reversed(self._steps):
            found = remaining.intersection(past.output.num_scheduled_tokens)
            if found:
                makers.add(past.k)
                remaining -= found
                if not remaining:
                    break
        return makers


def stages(scheduler: Any) -> int:
    """Stages of the pipeline that ``scheduler`` feeds; 1 where there is no pipeline."""
    parallel = getattr(scheduler, "parallel_config", None)
    places = ((parallel, "pipeline_parallel_size"), (scheduler, "pp_size"), (scheduler, "decode_stagger"))
    found = max(int(getattr(owner, name, 1) or 1) for owner, name in places)
    return max(found, 2) if getattr(scheduler, "use_pp", False) else found
