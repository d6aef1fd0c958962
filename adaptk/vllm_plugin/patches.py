"""The two places where vLLM is patched: the choice of the scheduler class, and the schedule in its configuration."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from adaptk.settings import Settings, SettingsError
from adaptk.vllm_plugin import capture, compat
from adaptk.vllm_plugin.log import logger
from adaptk.vllm_plugin.plugin import strict
from adaptk.vllm_plugin.scheduler import adaptive

_MARK = "__adaptk_original__"


def apply() -> None:
    """Patch both places; a second call changes nothing."""
    scheduler_config, vllm_config = compat.config_classes()
    _wrap(scheduler_config, "get_scheduler_cls", _choose_class)
    _wrap(vllm_config, compat.SCHEDULE_HOOK, _set_schedule)


def remove() -> None:
    """Undo ``apply``."""
    scheduler_config, vllm_config = compat.config_classes()
    for owner, name in ((scheduler_config, "get_scheduler_cls"), (vllm_config, compat.SCHEDULE_HOOK)):
        original = getattr(getattr(owner, name), _MARK, None)
        if original is not None:
            setattr(owner, name, original)


def _wrap(owner: type, name: str, around: Callable[[Callable[..., Any], Any], Any]) -> None:
    original = getattr(owner, name)
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def patched(self: Any) -> Any:
        return around(original, self)

    setattr(patched, _MARK, original)
    setattr(owner, name, patched)


def _settings() -> Settings:
    """The settings now, which may have changed since the entry point accepted them; ``off`` where one is refused."""
    try:
        return Settings.from_env()
    except SettingsError as error:
        if strict():
            raise
        logger.error("adaptk is inactive: %s", error)
        return Settings()


def _choose_class(original: Callable[..., Any], config: Any) -> Any:
    """The configured scheduler, made adaptive; the base has been chosen by vLLM, in the engine's own process."""
    configured = original(config)
    settings = _settings()
    if settings.mode == "off":
        return configured
    if isinstance(configured, type):
        return adaptive(configured, settings=settings)
    reason = (
        f"scheduler_cls is {configured!r}, which is no class: adaptk wraps classes only. Return "
        f"adaptk.vllm_plugin.adaptive(YourScheduler)(...) from it, or name a class"
    )
    if settings.strict:
        raise RuntimeError(reason)
    logger.error("adaptk is inactive: %s", reason)

    @functools.wraps(configured)
    def build(*args: Any, **kwargs: Any) -> Any:
        scheduler = configured(*args, **kwargs)
        # An adaptive instance has seen to its own lookup; any other would run the capture schedule unsteered.
        if not hasattr(scheduler, "adaptk"):
            capture.neutralise(scheduler)
        return scheduler

    return build


def _set_schedule(original: Callable[..., Any], config: Any) -> Any:
    settings = _settings()
    if settings.mode == "on":
        try:
            capture.announce(config, settings)
        except Exception:
            if settings.strict:
                raise
            logger.exception("adaptk could not set vLLM's schedule; it stays as configured")
    return original(config)
