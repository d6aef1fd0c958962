"""The places where vLLM is patched: the choice of the scheduler class, and the schedule and capture sizes before it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from adaptk.settings import Settings, SettingsError
from adaptk.vllm_plugin import asked, capture, capturesizes, compat, refusals, weights
from adaptk.vllm_plugin.boundary import give_lookup_back, stand_down
from adaptk.vllm_plugin.log import logger
from adaptk.vllm_plugin.scheduler import adaptive
from adaptk.vllm_plugin.start import StartError, start

_MARK = "__adaptk_original__"
_FAILED = asked.NOTES + "failed"


# vLLM's own method, for one call of the patched one: called once, however often its answer is asked for.
_Vllms = Callable[[], Any]
_Around = Callable[[_Vllms, Any], Any]


def apply() -> None:
    """Patch all places; a second call changes nothing."""
    _hide_notes()
    for owner, name, around in _places():
        _wrap(owner, name, around)


def remove() -> None:
    """Undo ``apply``."""
    for owner, name, _ in _places():
        original = getattr(getattr(owner, name), _MARK, None)
        if original is not None:
            setattr(owner, name, original)
    utils = compat.config_utils()
    original = getattr(getattr(utils, "is_init_field", None), _MARK, None)
    if original is not None:
        utils.is_init_field = original
    weights.unwatch()


def _places() -> list[tuple[type, str, _Around]]:
    scheduler_config, vllm_config = compat.config_classes()
    places: list[tuple[type, str, _Around]] = [
        (scheduler_config, "get_scheduler_cls", _choose_class),
        (vllm_config, compat.SCHEDULE_HOOK, _set_schedule),
        (vllm_config, compat.DP_HOOK, _keep_schedule),
        (vllm_config, compat.SIZES_HOOK, _arrange_sizes),
    ]
    return [place for place in places if hasattr(place[0], place[1])]


def _wrap(owner: type, name: str, around: _Around) -> None:
    original = getattr(owner, name)
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def patched(self: Any) -> Any:
        answers: list[Any] = []
        errors: list[BaseException] = []

        def vllms() -> Any:
            if not answers:
                try:
                    answers.append(original(self))
                except BaseException as error:
                    errors.append(error)
                    raise
            return answers[0]

        # Nothing of ours is called outside of a try: whatever fails, vLLM's answer stands.
        try:
            if not getattr(self, "scheduler_config", self).__dict__.get(_FAILED):
                return around(vllms, self)
        except Exception as error:
            if errors:
                raise
            strict = False
            with suppress(Exception):
                strict = asked.strict(getattr(self, "scheduler_config", self))
            if strict:
                raise
            with suppress(Exception):
                _give_up(self, error)
        answer = vllms()
        with suppress(Exception):
            return _static(answer) if callable(answer) else answer
        return answer

    setattr(patched, _MARK, original)
    setattr(owner, name, patched)


def _hide_notes() -> None:
    """Let vLLM copy a part of its configuration that bears a note of ours: it refuses whatever is no field of it."""
    utils = compat.config_utils()
    original = getattr(utils, "is_init_field", None)
    if original is None or hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def patched(cls: Any, name: str) -> Any:
        return not name.startswith(asked.NOTES) and original(cls, name)

    setattr(patched, _MARK, original)
    utils.is_init_field = patched


def _give_up(config: Any, error: Exception) -> None:
    """Leave a configuration to vLLM for good, also in its engine's process, and say so once."""
    part = getattr(config, "scheduler_config", config)
    if not isinstance(error, SettingsError):
        part.__dict__[_FAILED] = True
    elif part is not config:
        return  # the engine's process reads them again, and says so
    _say(error)


def _say(error: Exception) -> None:
    foreseen = isinstance(error, (SettingsError, TypeError)) and bool(str(error))
    logger.error("adaptk is inactive: %s", error if foreseen else repr(error), exc_info=None if foreseen else error)


def _choose_class(vllms: _Vllms, config: Any) -> Any:
    """The configured scheduler, made adaptive; the base has been chosen by vLLM, in the engine's own process."""
    configured = vllms()
    settings = asked.settings_for(config)
    if settings.mode == "off":  # here, though perhaps not where the configuration was made
        return _static(configured) if config.__dict__.get(capture.NOTE) else configured
    weights.watch()  # here, because this is asked in the engine's process alone, once its module is there
    if isinstance(configured, type):
        return adaptive(configured, settings=settings)

    @functools.wraps(configured)
    def build(*args: Any, **kwargs: Any) -> Any:
        return _adopted(configured(*args, **kwargs), settings)

    return build


def _static(configured: Callable[..., Any]) -> Callable[..., Any]:
    """What makes a scheduler that adaptk leaves alone, and that must not follow a schedule meant for capture only."""

    @functools.wraps(configured, updated=())
    def build(*args: Any, **kwargs: Any) -> Any:
        scheduler = configured(*args, **kwargs)
        try:
            capture.neutralise(scheduler)
        except Exception:
            with suppress(Exception):
                give_lookup_back(scheduler)
        return scheduler

    return build


def _adopted(scheduler: Any, settings: Settings) -> Any:
    """A scheduler that a function has made, as an adaptive one; as it is where that cannot be, and then static.

    An object cannot be moved to another class where the bases lay it out differently, so that a second object stands
    for it, with the same attributes: one dictionary for both.
    """
    if hasattr(scheduler, "adaptk"):
        return scheduler
    try:
        steered: Any = object.__new__(adaptive(type(scheduler), settings=settings))
        if any(getattr(base, "__slots__", ()) for base in type(scheduler).__mro__):
            raise TypeError(f"{type(scheduler).__qualname__} has __slots__: drop them")
        steered.__dict__ = scheduler.__dict__
    except Exception as error:
        if settings.strict:
            raise
        with suppress(Exception):  # a log handler that fails
            _say(error)
        return _static(lambda: scheduler)()
    steered.__dict__["_adaptk_made"] = scheduler  # it must not be finalised while its attributes are in use
    try:
        steered.__dict__["adaptk"] = start(steered, settings)
    except StartError:
        raise
    except Exception as error:
        stand_down(steered, error, "starting")
    return steered


def _keep_schedule(vllms: _Vllms, config: Any) -> Any:
    """Keep a schedule that vLLM drops under data parallelism, where the ranks are independent engines."""
    if _to_prepare_for(config) is None or not refusals.independent_ranks(config):
        return vllms()
    schedule = capture.operators_schedule(config)
    if schedule is not None:
        logger.info(
            "adaptk keeps num_speculative_tokens_per_batch_size=%s under data parallelism, where vLLM itself drops it: "
            "the ranks of a dense model are independent engines",
            schedule,
        )
    return None


def _set_schedule(vllms: _Vllms, config: Any) -> Any:
    settings = _to_prepare_for(config)
    if settings is not None:
        capture.announce(config, settings)
        capture.note(config)
    return vllms()


def _arrange_sizes(vllms: _Vllms, config: Any) -> Any:
    """Let vLLM set its capture sizes, then see to it that every arm has its graphs."""
    plain = None if _to_prepare_for(config) is None else capturesizes.before_sizes(config)
    answer = vllms()
    if plain is not None:
        capturesizes.arrange(config, plain)
        capture.note(config)
    return answer


def _to_prepare_for(config: Any) -> Settings | None:
    """The settings, if adaptk is going to choose K under this configuration or may be switched to that."""
    asked.note(config)
    settings = asked.settings_for(config.scheduler_config)
    may_act = settings.mode == "on" or (settings.mode == "shadow" and settings.control is not None)
    return settings if may_act and refusals.inert_reason(config, configuring=True) is None else None
