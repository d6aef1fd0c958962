"""The adaptive subclass of any vLLM scheduler."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from adaptk.settings import Settings
from adaptk.vllm_plugin.boundary import close, stand_down
from adaptk.vllm_plugin.log import logger
from adaptk.vllm_plugin.plugin import switched_off
from adaptk.vllm_plugin.start import StartError, start
from adaptk.vllm_plugin.steering import Policy, Steering

if TYPE_CHECKING:

    class _Scheduler:
        """The methods of vLLM's scheduler that are overridden here."""

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def schedule(self, *args: Any, **kwargs: Any) -> Any: ...
        def _update_after_schedule(self, scheduler_output: Any) -> None: ...
        def get_grammar_bitmask(self, scheduler_output: Any) -> Any: ...
        def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any: ...
        def shutdown(self) -> None: ...

else:
    _Scheduler = object

_made: dict[tuple[type, Settings], type] = {}


class AdaptiveMixin(_Scheduler):
    """Put before a scheduler class, lets ``self.adaptk`` choose the drafts of every step.

    Every method of the base is called exactly once, whatever happens to adaptk, and its exceptions pass untouched.
    Each call of ours is guarded here, and nowhere below: the first one that fails leaves the engine to vLLM for good.
    """

    _adaptk_settings: ClassVar[Settings]
    _adaptk_controller: ClassVar[Policy | None]

    @cached_property
    def adaptk(self) -> Steering:
        """The steering of this scheduler, built when first needed: some objects are made without ``__init__``."""
        try:
            return self._started_late()
        except Exception as error:
            return stand_down(self, error, "starting")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        try:
            self.__dict__["adaptk"] = start(self, self._adaptk_settings, self._adaptk_controller)
        except StartError:  # what strict settings ask for
            raise
        except Exception as error:
            stand_down(self, error, "starting")

    def _started_late(self) -> Steering:
        try:
            return start(self, self._adaptk_settings, self._adaptk_controller)
        except StartError as error:  # too late to raise: the engine is in its loop
            logger.error("adaptk is inactive: %s", error)
            return Steering(None, reason=str(error))

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Note when the step began, then schedule it."""
        try:
            steering = self.adaptk
            if steering.active:
                steering.enter()
        except Exception as error:
            stand_down(self, error, "beginning a step")
        return super().schedule(*args, **kwargs)

    def _update_after_schedule(self, scheduler_output: Any) -> None:
        # Before the base: an asynchronous scheduler hands out its placeholders there.
        vllms_k = getattr(scheduler_output, "num_spec_tokens_to_schedule", None)
        try:
            steering = self.adaptk
            if steering.active and scheduler_output.total_num_scheduled_tokens:
                steering.decide(self, scheduler_output)
        except Exception as error:
            if vllms_k is not None:
                scheduler_output.num_spec_tokens_to_schedule = vllms_k
            stand_down(self, error, "choosing K")
        super()._update_after_schedule(scheduler_output)

    def get_grammar_bitmask(self, scheduler_output: Any) -> Any:
        """Learn from the step before: vLLM asks for its grammars once a step's model runs, before it waits for it."""
        result = super().get_grammar_bitmask(scheduler_output)
        try:
            steering = self.adaptk
            if steering.active:
                steering.meanwhile()
        except Exception as error:
            stand_down(self, error, "learning from the step")
        return result

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Count the step, let the base take it in, then learn from it."""
        step = None
        try:
            steering = self.adaptk
            if steering.active:
                step = steering.before_update(self, scheduler_output, model_runner_output)
        except Exception as error:
            stand_down(self, error, "reading the step's output")
        try:
            result = super().update_from_output(scheduler_output, model_runner_output)
        except BaseException:  # vLLM's own: whoever goes on after it meets the next steps with their own decisions
            if step is not None:
                try:
                    steering.give_up(step, "vLLM failed while it took a step's output in: nothing is learnt from it")
                except Exception as error:
                    stand_down(self, error, "giving a step up")
            raise
        if step is not None:
            try:
                steering.after_update(self, step, model_runner_output)
            except Exception as error:
                stand_down(self, error, "learning from the step")
        return result

    def shutdown(self) -> None:
        """Learn what is left and close the trace, then shut down the base."""
        close(self)
        super().shutdown()


def adaptive(scheduler_cls: type, controller: Policy | None = None, settings: Settings | None = None) -> type:
    """The subclass of a vLLM scheduler class, synchronous or not, whose steps get their K from a controller.

    Parameters
    ----------
    scheduler_cls
        ``vllm.v1.core.sched.scheduler.Scheduler``, ``AsyncScheduler``, or a subclass.
    controller
        Anything with ``choose`` and ``observe``, for one scheduler at a time: it takes what it observes for what it
        chose last, so that two engines at once need one each. ``None``: each instance builds its own Controller from
        the settings and, without a table, from the engine's configuration.
    settings
        ``None``: from ``ADAPTK_*``. To call this is to ask for adaptk, so mode ``off`` counts as ``on`` here, unless
        the environment says ``ADAPTK=off``: then the instances are inert.

    Returns
    -------
    type
        The same class for the same arguments, unless a controller is given. A class that is adaptive already comes
        back as it is, or, with a controller, as a subclass that uses it.

    Raises
    ------
    TypeError
        If ``scheduler_cls`` is no class, or lacks the methods of a vLLM scheduler.
    adaptk.settings.SettingsError
        If ``settings`` is ``None`` and a variable is refused.
    """
    if not isinstance(scheduler_cls, type):
        raise TypeError(f"scheduler_cls is {scheduler_cls!r}: give a class")
    needed = ("schedule", "_update_after_schedule", "update_from_output")
    lacking = [name for name in needed if not hasattr(scheduler_cls, name)]
    if lacking:
        raise TypeError(f"{scheduler_cls.__qualname__} has no {lacking[0]}: give a subclass of vLLM's Scheduler")
    if issubclass(scheduler_cls, AdaptiveMixin) and controller is None:
        return scheduler_cls
    stays_off = settings is None and switched_off()
    settings = Settings.from_env() if settings is None else settings
    if settings.mode == "off" and not stays_off:
        settings = msgspec.structs.replace(settings, mode="on")
    if controller is not None:
        return _subclass(scheduler_cls, controller, settings)
    key = (scheduler_cls, settings)
    if key not in _made:
        _made[key] = _subclass(scheduler_cls, None, settings)
    return _made[key]


def _subclass(scheduler_cls: type, controller: Policy | None, settings: Settings) -> type:
    members = {
        "__module__": __name__,
        "__doc__": f"{scheduler_cls.__qualname__} with its number of drafts chosen by adaptk.",
        "_adaptk_settings": settings,
        "_adaptk_controller": controller,
    }
    bases = (scheduler_cls,) if issubclass(scheduler_cls, AdaptiveMixin) else (AdaptiveMixin, scheduler_cls)
    return type(f"Adaptive{scheduler_cls.__name__}", bases, members)
