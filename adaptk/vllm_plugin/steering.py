"""One scheduler's steering: asks the controller for K, tells it what came of it, and stands down on any fault."""

from __future__ import annotations

import inspect
import math
import time
from collections import deque
from contextlib import suppress
from operator import index
from typing import TYPE_CHECKING, Any, Protocol

from adaptk.vllm_plugin import collect
from adaptk.vllm_plugin.log import logger

if TYPE_CHECKING:
    from adaptk.decision import Decision
    from adaptk.step import StepRecord

# Longer than this between an update and the next schedule, with nothing in flight, is idle time and not a step's.
IDLE_S = 0.005
# More steps in flight than any engine has: their outputs are not coming.
_MAX_PENDING = 64


class Policy(Protocol):
    """Anything that can stand in for a Controller."""

    def choose(self, batch_size: int, context_tokens: int | None = None) -> int:
        """Drafts per request for the step now being scheduled."""
        ...

    def observe(self, record: StepRecord) -> Decision | None:
        """Take in the step that the oldest open choice belongs to."""
        ...


class Steering:
    """What an adaptive scheduler holds as ``.adaptk``.

    Parameters
    ----------
    controller
        Chooses and learns; may be exchanged between steps. A step is observed by the controller that chose for it.
    k_max
        The engine's ``num_speculative_tokens``; choices are clamped to it.
    acting
        ``False`` in shadow mode: the controller decides, vLLM's own K is used.
    collector, draft_cost, writer
        How steps are read, whose drafts they pay for (see ``drafters.draft_cost``) and where records go.
    reason
        Why there is no steering, where there is none.
    """

    def __init__(
        self,
        controller: Policy | None,
        k_max: int = 0,
        *,
        acting: bool = True,
        collector: collect.Collector | None = None,
        draft_cost: str = "now",
        writer: Any = None,
        reason: str | None = None,
    ) -> None:
        self.k_max = k_max
        self.acting = acting
        self.reason = reason
        self.faults = 0
        self.clamped = 0
        self.unmatched = 0
        self.writer = writer
        self.active = controller is not None
        self.entered: float | None = None  # when the schedule() now running began
        self._collector = collector
        self._draft_cost = draft_cost
        self._pending: deque[collect.Step] = deque()
        self._updated: float | None = None  # entry into the last update
        self._left = -math.inf  # return from the last update
        self._last_k: int | None = None
        self._controller: Policy | None = None
        self.controller = controller

    @property
    def controller(self) -> Policy | None:
        """The policy in charge; ``None`` where adaptk is inert."""
        return self._controller

    @controller.setter
    def controller(self, controller: Policy | None) -> None:
        self._controller = controller
        self._takes_decodes = controller is not None and _takes(controller.choose, "decodes")

    @property
    def collector(self) -> collect.Collector | None:
        """The reader of vLLM's outputs, with its counters."""
        return self._collector

    def decide(self, scheduler: Any, output: Any) -> None:
        """Choose K for the step in ``output``; leaves vLLM's own K there in shadow mode and after a fault."""
        try:
            entered = self.entered
            self.entered = None
            if entered is None:
                entered = time.perf_counter()
            controller, collector = self._controller, self._collector
            if controller is None or collector is None:
                return
            step = collector.schedule(output, scheduler.requests, entered)
            if step.decodes is None or not self._takes_decodes:
                k = controller.choose(step.batch, step.context)
            else:
                k = controller.choose(step.batch, step.context, decodes=step.decodes)  # type: ignore[call-arg]
            k = int(index(k))  # a bool is an index as it stands
            if not 0 <= k <= self.k_max:
                self.clamped += 1
                k = min(max(k, 0), self.k_max)
            step.k = k if self.acting else output.num_spec_tokens_to_schedule
            if self._draft_cost != "now":
                step.draft_k = self._last_k
            step.controller = controller
            pending = self._pending
            step.busy = bool(pending) or entered - self._left <= IDLE_S
            pending.append(step)
            if len(pending) > _MAX_PENDING:
                self._give_up(pending.popleft())
            self._last_k = step.k
            output.num_spec_tokens_to_schedule = step.k
        except Exception as error:
            self.fault(error, "choosing K")

    def before_update(self, scheduler: Any, output: Any, result: Any) -> collect.Step | None:
        """Count what the step achieved, before the scheduler changes its requests; ``None``: no step of ours."""
        now = time.perf_counter()
        try:
            step = self._take(output)
            if step is None or self._collector is None:
                self._left = -math.inf  # an engine that spins on empty steps idles
                return None
            previous, self._updated = self._updated, now
            step.finished = now
            if step.timed:
                step.elapsed = now - (previous if step.busy and previous is not None else step.entered)
            self._collector.count(step, scheduler.requests, result)
            return step
        except Exception as error:
            self.fault(error, "reading the step's output")
            return None

    def after_update(self, step: collect.Step, result: Any) -> None:
        """Hand the finished step to its controller and to the trace."""
        try:
            assert self._collector is not None
            record = self._collector.record(step, result)
            decision = step.controller.observe(record)
            if self.writer is not None:
                self.writer.write(record, decision)
        except Exception as error:
            self.fault(error, "learning from the step")
        self._left = time.perf_counter()

    def _take(self, output: Any) -> collect.Step | None:
        pending = self._pending
        if pending and pending[0].output is output:
            return pending.popleft()
        place = next((i for i, step in enumerate(pending) if step.output is output), None)
        if place is None:
            if output.total_num_scheduled_tokens:
                self._miss("the output of a step came that it never saw scheduled")
                self._updated = None  # a step of unknown length ended here
            return None
        for _ in range(place):  # updates come in order, so these are lost
            self._give_up(pending.popleft())
        step = pending.popleft()
        step.timed = False  # the interval holds the lost steps too
        return step

    def _give_up(self, step: collect.Step) -> None:
        """Close the decision of a step whose output never came, so that later records meet their own decisions."""
        self._miss("the output of a scheduled step never came")
        step.controller.observe(collect.lost(step))

    def _miss(self, what: str) -> None:
        """Count a step that cannot be learnt from; the first is told, as an engine may go on unsteered without it."""
        self.unmatched += 1
        if self.unmatched == 1:
            logger.warning("adaptk: %s; a scheduler that does not call vLLM's own methods cannot be steered", what)

    def fault(self, error: Exception, doing: str) -> None:
        """Stand down for good: every further step gets the K that vLLM would have used."""
        self.faults += 1
        self.reason = f"a fault while {doing}"
        self.active = False
        self._pending.clear()
        with suppress(Exception):  # an error that cannot be shown, or a log handler that fails
            self.reason = f"a fault while {doing}: {error!r}"
            logger.error(
                "adaptk stands down after a fault while %s: the number of drafts is vLLM's from now on. "
                "Please report it.",
                doing,
                exc_info=error,
            )
        self.close()

    def close(self) -> None:
        """Flush and close the trace, if there is one."""
        writer, self.writer = self.writer, None
        if writer is not None:
            try:
                writer.close()
            except Exception:
                with suppress(Exception):
                    logger.exception("adaptk could not close its trace")


def _takes(function: Any, name: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    named = parameters.get(name)
    by_keyword = named is not None and named.kind in (named.POSITIONAL_OR_KEYWORD, named.KEYWORD_ONLY)
    return by_keyword or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
