"""One scheduler's steering: asks the controller for K and tells it what came of it."""

from __future__ import annotations

import inspect
import math
import time
from contextlib import ExitStack, suppress
from operator import index
from typing import TYPE_CHECKING, Any, Protocol, get_args

from adaptk.settings import Mode
from adaptk.vllm_plugin import collect, drafters
from adaptk.vllm_plugin.inflight import InFlight, Unsteered
from adaptk.vllm_plugin.log import logger
from adaptk.vllm_plugin.pipeline import Pipeline, stages

if TYPE_CHECKING:
    from adaptk.decision import Decision
    from adaptk.step import StepRecord
    from adaptk.vllm_plugin.metrics.sums import Sums
    from adaptk.vllm_plugin.state import Keeper

# Longer than this between an update and the next schedule, with nothing in flight, is idle time and not a step's.
IDLE_S = 0.005
# Longer than this between two sights of the engine, with steps in flight, and something held its loop up.
HELD_UP_S = 0.1
# Longer than this since it was last seen, with nothing in flight, and an engine has nothing to do.
AWAY_S = 0.1
# Calls that replace weights are parts of one update where at most one step lies between two of them, or fewer than
# this since the controller heard of one.
SAME_UPDATE = 8

_CANNOT = "; a scheduler that does not call vLLM's own methods cannot be steered"
_NEVER_CAME = f"the output of a scheduled step never came{_CANNOT}"


class Policy(Protocol):
    """Anything that can stand in for a Controller."""

    def choose(self, batch_size: int, context_tokens: int | None = None) -> int:
        """Drafts per request for the step now being scheduled."""
        ...

    def observe(self, record: StepRecord) -> Decision | None:
        """Take in the step that the oldest open choice belongs to."""
        ...


class Steering:
    """What an adaptive scheduler holds as ``.adaptk``; its caller sees to what its methods raise.

    Parameters
    ----------
    controller
        Chooses and learns; may be exchanged between steps. A step is observed by the controller that chose for it.
    k_max
        The engine's ``num_speculative_tokens``; choices are clamped to it.
    mode
        ``on``; ``shadow``: the controller decides, vLLM's own K is used; ``off``: the controller is not asked.
    collector, draft_cost
        How steps are read, and whose drafts they pay for (see ``drafters.draft_cost``).
    reason
        Why there is no steering, where there is none.
    """

    # Defaults stand on the class, so that a steering whose making failed is an inactive one.
    active = False
    faults = 0
    clamped = 0
    unmatched = 0
    lost = 0  # of these, the steps whose output never came
    reason: str | None = None
    writer: Any = None  # where records go, if anywhere
    control: Any = None  # what changes the mode at run time, where anything does
    state: Keeper | None = None  # what keeps what is learnt over a restart, where that is asked for
    sums: Sums | None = None  # what steps are added up in, where metrics are served
    metrics: Any = None  # what serves them
    entered: float | None = None  # when the schedule() now running began
    at_once = False  # whether every step is learnt from before its update returns, for who reads along
    _unlearnt: tuple[Policy, StepRecord, int] | None = None  # of the last finished step; vLLM's own K
    _overlapping = False  # whether the engine came by while the model of a step ran, since the last update
    _controller: Policy | None = None
    collector: collect.Collector | None = None  # the reader of vLLM's outputs, with its counters
    _mode: Mode = "on"

    def __init__(
        self,
        controller: Policy | None,
        k_max: int = 0,
        *,
        mode: Mode = "on",
        collector: collect.Collector | None = None,
        draft_cost: drafters.DraftCost = "now",
        reason: str | None = None,
    ) -> None:
        self.k_max = k_max
        self.reason = reason
        self._mode = mode
        self.collector = collector
        self._draft_cost = draft_cost
        self._flight = InFlight()
        self._updated: float | None = None  # entry into the last update
        self._left = -math.inf  # return from the last update
        self._in_sight = math.inf  # when the engine's loop was last seen to run
        self.turn = 0  # odd while the controller changes, another even number after each time
        self._steps = 0
        # Steps before the last call that replaced weights, and before the last one of which the controller heard.
        self._replaced = self._told = -SAME_UPDATE
        self._last_k: int | None = None
        self._chooser: Policy | None = None  # of the last step
        self._gap = False  # whether the last step was left to vLLM
        self._stages: int | None = None  # of the pipeline, once a step was scheduled
        self._pipeline: Pipeline | None = None  # where there are several
        self.controller = controller
        self.active = controller is not None

    @property
    def controller(self) -> Policy | None:
        """The policy in charge; ``None`` where adaptk is inert."""
        return self._controller

    @controller.setter
    def controller(self, controller: Policy | None) -> None:
        takes_decodes = controller is not None and _takes(controller.choose, "decodes")
        in_flight = [step.controller for step in self._flight.steered()]
        if self._unlearnt is not None:
            in_flight.append(self._unlearnt[0])
        begin = getattr(controller, "note_engine_restarted", None)
        if begin is not None and not any(other is controller for other in in_flight):
            self.turn |= 1
            begin()  # what it may have decided elsewhere, as before a snapshot, is of no step that comes back here
            self.turn += 1
        self._controller, self._takes_decodes = controller, takes_decodes
        if self.sums is not None:
            self.sums.carried.meet(controller)

    @property
    def mode(self) -> Mode:
        """``on``, ``shadow`` or ``off``; any thread may set it, for the steps scheduled from then on.

        ``off`` where adaptk is inert or has stood down, for good.

        Raises
        ------
        ValueError
            If it is set to anything else.
        """
        return self._mode if self.active else "off"

    @mode.setter
    def mode(self, mode: Mode) -> None:
        if mode not in get_args(Mode):
            raise ValueError(f"mode is {mode!r}: use on, shadow or off")
        self._mode = mode

    @property
    def at_work(self) -> bool:
        """Whether a step is in flight, or one was a moment ago; any thread may ask."""
        return bool(self._flight) or 0.0 <= time.perf_counter() - self._in_sight < AWAY_S

    def enter(self) -> None:
        """A step begins to be scheduled, which may turn out to be empty."""
        now = self.entered = time.perf_counter()
        if now - self._in_sight > HELD_UP_S:
            self.held_up()
        self._in_sight = now

    def decide(self, scheduler: Any, output: Any) -> None:
        """Choose K for the step in ``output``; leaves vLLM's own K there unless the mode is ``on``."""
        if self.entered is None:  # a scheduler with another way to schedule
            self.enter()
        entered, self.entered = self._in_sight, None
        self._steps += 1
        mode = self._mode  # read once: another thread may set it
        controller, collector = self._controller, self.collector
        if mode == "off" or controller is None or collector is None:
            self._gap = True
            self._last_k = output.num_spec_tokens_to_schedule
            self._expect(Unsteered(output))
            return
        if self._gap or self._stages is None:
            self._begin(scheduler, collector)
        step = collector.schedule(output, scheduler.requests, entered)
        sums = self.sums
        began = 0.0 if sums is None else time.perf_counter()
        self.turn |= 1
        if step.decodes is None or not self._takes_decodes:
            k = controller.choose(step.batch, step.context)
        else:
            k = controller.choose(step.batch, step.context, decodes=step.decodes)  # type: ignore[call-arg]
        self.turn += 1
        if sums is not None:
            sums.deciding.take(time.perf_counter() - began)
            step.vllms_k = output.num_spec_tokens_to_schedule
        k = int(index(k))  # a bool is an index as it stands
        most = getattr(scheduler, "num_spec_tokens", self.k_max)  # somebody may have lowered it
        if not 0 <= k <= most or k > self.k_max:
            self.clamped += 1
            k = min(max(k, 0), most, self.k_max)
        step.k = k if mode == "on" else output.num_spec_tokens_to_schedule
        step.controller = controller
        if controller is not self._chooser:  # its record before is not of the step before
            self._chooser, step.asked = controller, self._last_k
        step.busy = bool(self._flight) or entered - self._left <= IDLE_S
        if self._draft_cost != "now":
            step.draft_k = self._last_k if step.busy else 0  # where the engine idled, they were made meanwhile
        if self._gap:
            self._gap, step.timed = False, False
        if self._pipeline is not None:
            self._pipeline.place(step)
        self._expect(step)
        # From 0.33 on V2 drafts nothing in a step whose requests can use no drafts.
        self._last_k = 0 if getattr(output, "skip_drafts", False) else step.k
        output.num_spec_tokens_to_schedule = step.k

    def before_update(self, scheduler: Any, output: Any, result: Any) -> collect.Step | None:
        """Count what the step achieved, before the scheduler changes its requests; ``None``: no step of ours."""
        now = self._in_sight = time.perf_counter()
        step, lost = self._flight.take(output)
        for other in lost:
            self.give_up(other)
        if step is None and output.total_num_scheduled_tokens:
            self._miss(f"the output of a step came that it never saw scheduled{_CANNOT}")
            self._updated = None  # a step of unknown length ended here
        if step is None or isinstance(step, Unsteered) or self.collector is None:
            self._left = -math.inf  # an engine that spins on empty steps idles
            if self.collector is not None and self.collector.numbered:
                self.collector.forget(output.finished_req_ids)
            if not scheduler.requests:
                self._rest()  # the last ones were aborted
            return None
        if lost:
            step.timed = False  # the interval holds the lost steps too
        previous, self._updated = self._updated, now
        step.finished = now
        if step.timed:
            step.elapsed = now - (previous if step.busy and previous is not None else step.entered)
        self.collector.count(step, scheduler.requests, result)
        return step

    def after_update(self, scheduler: Any, step: collect.Step, result: Any) -> None:
        """Hand the finished step to its controller and to the trace, or keep it until the next one's model runs."""
        assert self.collector is not None
        self.learn()
        self._unlearnt = step.controller, self.collector.record(step, result), step.vllms_k
        # An engine without requests runs no further step in which there would be time.
        if self.at_once or not self._overlapping or not scheduler.requests:
            self.learn()
            if not scheduler.requests:
                self._rest()
        self._overlapping = False
        self._left = self._in_sight = time.perf_counter()

    def meanwhile(self) -> None:
        """A step's model runs and the engine is about to wait for it: learning costs nobody time now."""
        self._overlapping = True
        self.learn()

    def learn(self) -> None:
        """Let the last finished step be learnt from, if that was put off."""
        if self._unlearnt is None:
            return
        (controller, record, vllms_k), self._unlearnt = self._unlearnt, None
        sums = self.sums
        self.turn |= 1
        decision = controller.observe(record) if sums is None else sums.observe(controller, record, vllms_k)
        self.turn += 1
        if sums is not None and sums.wanted:
            sums.hand_over(self._controller)
        state = self.state
        if state is not None and state.wanted:
            state.take(controller)
        if self.writer is not None:
            self.writer.write(record, decision)

    def held_up(self, weights_changed: bool = False) -> None:
        """Something else ran between two steps: the time of those in flight is nobody's, and none lasts until now.

        ``weights_changed``: it replaced weights of the target or the drafter.
        """
        self._left = -math.inf
        for step in self._flight.steered():
            step.timed = False
        if weights_changed:
            self.note_weights_changed()

    def note_weights_changed(self) -> None:
        """Weights of the target or the drafter were replaced; the controller hears of each update once.

        For trainers that write weights without vLLM's knowing; its own ways are watched (see ``weights``). Calls with
        no step between them, or hardly any, are parts of one update.
        """
        self.learn()  # of the former weights
        between, self._replaced = self._steps - self._replaced, self._steps
        tell = getattr(self._controller, "note_weights_changed", None)
        if self.active and tell is not None and between > 1 and self._steps - self._told >= SAME_UPDATE:
            self._told = self._steps
            self.turn |= 1
            tell()
            self.turn += 1

    def close(self) -> None:
        """Learn what is left, save it, close the trace, end control and metrics, where there are any; all are tried."""
        with ExitStack() as ending:  # from the last one up
            state = self.state
            if state is not None:
                self.state = None
                ending.callback(state.wait)
            if self.writer is not None:
                ending.callback(setattr, self, "writer", None)
                ending.callback(self.writer.close)
            if state is not None:
                ending.callback(state.end)  # what follows is written while the trace is
            if self.active:
                ending.callback(self.learn)
            for each in (self.metrics, self.control):
                if each is not None:
                    ending.callback(each.stop)
            self.metrics = self.control = None

    def _begin(self, scheduler: Any, collector: collect.Collector) -> None:
        """Before the first step, and the first after steps that were left to vLLM."""
        if self._gap:
            collector.resume(scheduler.requests)
        v2 = getattr(scheduler, "use_v2_model_runner", None)
        if v2 is not None and drafters.draft_cost(bool(v2)) != self._draft_cost:  # set after the scheduler was made
            self._draft_cost = drafters.draft_cost(bool(v2))
            collector.dummy_limit = drafters.dummy_limit(scheduler.vllm_config, bool(v2))
        self._stages = stages(scheduler)
        self._pipeline = Pipeline(self._stages) if self._stages > 1 else None

    def _rest(self) -> None:
        """The engine has nothing to do: no step will come by when somebody asks what is believed."""
        sums = self.sums
        if sums is not None and sums.peeked_after != sums.steps:
            sums.hand_over(self._controller)
        if self.state is not None:
            self.state.rest()

    def _expect(self, step: collect.Step | Unsteered) -> None:
        lost = self._flight.add(step)
        if lost is not None:
            self.give_up(lost)

    def give_up(self, step: collect.Step | Unsteered, what: str = _NEVER_CAME) -> None:
        """Close the decision of a step whose output was never taken in: later records must meet their own decisions."""
        self.lost += 1
        self._miss(what)
        if self.collector is not None and self.collector.numbered:
            self.collector.forget(step.output.finished_req_ids)
        if isinstance(step, collect.Step):
            self.learn()  # of the step before, if that was put off
            self._unlearnt = step.controller, collect.lost(step), step.vllms_k
            self.learn()

    def _miss(self, what: str) -> None:
        """Count a step that cannot be learnt from; the first is told, as an engine may go on unsteered without it."""
        self.unmatched += 1
        if self.unmatched == 1:
            with suppress(Exception):  # a log handler that fails
                logger.warning("adaptk: %s", what)


def _takes(function: Any, name: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    named = parameters.get(name)
    by_keyword = named is not None and named.kind in (named.POSITIONAL_OR_KEYWORD, named.KEYWORD_ONLY)
    return by_keyword or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
